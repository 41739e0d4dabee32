//! The data that a read finds on the SSD are read by one submission, whatever lines it is of, and each line fails by itself.

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bathy_cache::{
    Aligned, BlockStore, CachedFile, Engine, ErrorBudget, FileIdentity, Place, PlacesRead, Recovery, Until,
    inspect, open, parts_of,
};
use bathy_cache_model::FetchSize;
use bathy_policy::PolicyKind;

use crate::common::{Cache, Fault, LINE, MemoryStore, UNIT, World, assert_usage, identity, passes_on};

const BYTES: u64 = 40 * LINE;
/// Where data begin.
const DATA_START: u64 = 1 << 20;

/// An SSD that reads places at once.
struct AtOnce {
    store: Arc<MemoryStore>,
    /// The places of each submission of reads of data.
    submissions: Mutex<Vec<usize>>,
    /// What cannot be read until all of it is written.
    failing: Mutex<Range<u64>>,
}

impl AtOnce {
    /// A cache on it that fetches single units.
    fn open(world: &mut World) -> (Arc<Self>, Cache) {
        world.options.fetch = FetchSize::Fixed(UNIT);
        world.options.ssd_deadline = Some(Duration::from_secs(60));
        let ssd = Arc::new(Self {
            store: world.ssd.clone(),
            submissions: Mutex::default(),
            failing: Mutex::default(),
        });
        let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
        (ssd, Cache::new(opened.engine, world.backing.clone()))
    }
}

impl BlockStore for AtOnce {
    passes_on!(read, flush, stamp, size_bytes);

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut failing = self.failing.lock().expect("no panic");
        if *failing == (offset..offset + data.len() as u64) {
            *failing = 0..0;
        }
        self.store.write(data, offset)
    }

    fn read_within(
        &self,
        mut bytes: Aligned,
        places: &[Place],
        _: &Until<'_>,
    ) -> Result<io::Result<PlacesRead>, Aligned> {
        let first = places.first().expect("something is read");
        if first.offset >= DATA_START {
            self.submissions.lock().expect("no panic").push(places.len());
        }
        let failing = self.failing.lock().expect("no panic").clone();
        let read = |(place, part): (Place, _)| {
            if failing.contains(&place.offset) {
                return Err(io::Error::other("on purpose"));
            }
            self.store.read(&mut bytes[part], place.offset)
        };
        let ends = parts_of(places).map(read).collect();
        Ok(Ok((bytes, ends)))
    }
}

#[test]
fn hits_of_several_lines_go_to_the_ssd_at_once_and_each_fails_alone() {
    let mut world = World::running(PolicyKind::Lru, LINE, BYTES, 64, 4);
    let (ssd, cache) = AtOnce::open(&mut world);
    let bytes = world.backing.bytes();
    let read = |offset: u64, len: u64| {
        ssd.submissions.lock().expect("no panic").clear();
        world.backing.set_fault(Fault::None);
        let mut out = vec![0; len as usize];
        cache.read(&mut out, offset, 0).expect("the backing works");
        assert!(out == bytes[offset as usize..][..len as usize]);
        let submissions = ssd.submissions.lock().expect("no panic").clone();
        (submissions, world.backing.operations())
    };
    assert_eq!(read(0, 8 * LINE), (vec![], 1));
    // The last one of a part of its units, and the first one of a part of a unit.
    assert_eq!(read(LINE / 2 + 512, 3 * LINE), (vec![4], 0));
    assert_eq!(read(0, 8 * LINE), (vec![8], 0));
    // With what is between them, which is read from the backing.
    for unit in [1, 3, 4, 9] {
        assert_eq!(read(10 * LINE + unit * UNIT, UNIT), (vec![], 1));
    }
    assert_eq!(read(10 * LINE, 3 * LINE), (vec![4], 4));
    assert_eq!(read(10 * LINE, 3 * LINE), (vec![3], 0));
    let mismatches = cache.counts().mismatches;
    // One cannot be read: that line alone is fetched again.
    world.ssd.set_fault(Fault::Nth(1));
    assert_eq!(read(LINE, 4 * LINE), (vec![4], 1));
    assert_eq!(read(LINE, 4 * LINE), (vec![4], 0));
    // One is damaged.
    let line = &bytes[3 * LINE as usize..][..LINE as usize];
    let ssd_bytes = world.ssd.bytes();
    let place = ssd_bytes.windows(line.len()).position(|it| it == line);
    world.ssd.flip(place.expect("it is cached") as u64 * 8 + 77);
    assert_eq!(read(LINE, 4 * LINE), (vec![4], 1));
    assert_eq!(cache.counts().mismatches, mismatches + 2);
    assert_usage(&cache, "after all");
}

#[test]
fn a_fault_that_meets_all_of_a_submission_is_one_error() {
    const LINE: u64 = 64 << 10;
    let mut world = World::running(PolicyKind::Lru, LINE, 8 * LINE, 64, 4);
    let (ssd, cache) = AtOnce::open(&mut world);
    let mut unit = vec![0; UNIT as usize];
    let offsets = (0..8 * LINE).step_by(2 * UNIT as usize);
    let places = (8 * LINE / (2 * UNIT)) as usize;
    assert!(places as f64 > ErrorBudget::default().errors_max);
    for offset in offsets {
        cache.read(&mut unit, offset, 0).expect("the backing works");
    }
    let mut out = vec![0; 8 * LINE as usize];
    let mut read = |failing: Range<u64>| {
        *ssd.failing.lock().expect("no panic") = failing;
        world.backing.set_fault(Fault::None);
        cache.read(&mut out, 0, 0).expect("the backing works");
        assert!(out == world.backing.bytes());
        world.backing.operations()
    };
    assert_ne!(read(DATA_START..u64::MAX), 0);
    assert_eq!(*ssd.submissions.lock().expect("no panic"), [places]);
    assert_eq!(cache.counts().ssd_errors, 1);
    // What it has is used.
    assert_eq!(read(0..0), 0);
}

#[test]
fn one_bad_area_does_not_use_up_the_budget_of_errors_and_many_do() {
    const LINE: u64 = 64 << 10;
    const LINES: u64 = 320;
    for number in 0..3 {
        let mut world = World::running(PolicyKind::Lru, LINE, LINES * LINE, 2 * LINES, 4);
        let found = inspect(world.ssd.clone()).expect("it is a cache");
        let layout = found.geometry.layout();
        let (records, data) = (layout.table(0, 0), layout.data(0, 0));
        let failing = [records..data, data..data + 32 * LINE, data..u64::MAX][number].clone();
        let is_given_up = number == 2;
        let (_, cache) = AtOnce::open(&mut world);
        let mut all = vec![0; (LINES * LINE) as usize];
        cache.read(&mut all, 0, 0).expect("the backing works");
        // Then memory has no record.
        assert!(cache.stop().expect("the backing works"));
        drop(cache);
        let (ssd, cache) = AtOnce::open(&mut world);
        *ssd.failing.lock().expect("no panic") = failing.clone();
        let mut unit = vec![0; UNIT as usize];
        for (number, line) in (0..).zip(all.chunks(LINE as usize)) {
            cache
                .read(&mut unit, number * LINE, 0)
                .expect("the backing works");
            assert!(unit == line[..UNIT as usize]);
        }
        let errors = cache.counts().ssd_errors as f64;
        assert!(
            errors > ErrorBudget::default().errors_max,
            "{failing:?}: {errors}"
        );
        cache.write(&unit, 0, 0).expect("the backing works");
        assert_eq!(cache.is_bypassed(), is_given_up, "{failing:?}: {errors}");
    }
}

#[test]
fn hits_without_a_record_that_can_be_read_ask_for_no_data() {
    let mut world = World::running(PolicyKind::Lru, LINE, BYTES, 64, 4);
    let (_, cache) = AtOnce::open(&mut world);
    let mut out = vec![0; 8 * LINE as usize];
    cache.read(&mut out, 0, 0).expect("the backing works");
    // Then memory has no record.
    assert!(cache.stop().expect("the backing works"));
    drop(cache);
    let (ssd, cache) = AtOnce::open(&mut world);
    *ssd.failing.lock().expect("no panic") = 0..DATA_START;
    world.backing.set_fault(Fault::None);
    cache.read(&mut out, 0, 0).expect("the backing works");
    assert!(out == world.backing.bytes()[..out.len()]);
    assert_eq!(*ssd.submissions.lock().expect("no panic"), []);
    assert_eq!((world.backing.operations(), cache.counts().ssd_errors), (1, 8));
}

/// Files of which a block of the table has sixteen. The first one is in use, and so is that of the cache.
struct ManyFiles {
    stores: Vec<Arc<MemoryStore>>,
    in_use: CachedFile,
}

impl ManyFiles {
    fn identity(number: usize) -> FileIdentity {
        identity(10 + number as u8)
    }

    fn new(cache: &Cache) -> Self {
        let bytes = |number: u8| vec![number; 2 * LINE as usize];
        let stores: Vec<_> = (0..20).map(|number| MemoryStore::new(bytes(number))).collect();
        let read = |(number, store): (usize, &Arc<MemoryStore>)| {
            let file = cache.engine.attach(Self::identity(number), store.clone());
            let file = file.expect("the backing works");
            Self::is_hit(&file);
            file
        };
        let in_use = stores
            .iter()
            .enumerate()
            .map(read)
            .next()
            .expect("there are some");
        stores.iter().enumerate().skip(1).map(read).for_each(drop);
        assert!(cache.tidy());
        Self { stores, in_use }
    }

    /// Reads a unit: whether the cache had it.
    fn is_hit(file: &CachedFile) -> bool {
        let hits = file.counts().reads.requests_hit;
        file.read(&mut [0; UNIT as usize], 0, 0)
            .expect("the backing works");
        file.counts().reads.requests_hit > hits
    }

    /// Whether the cache has something of a file, which is as it is below.
    fn is_known(&self, engine: &Arc<Engine>, number: usize) -> bool {
        let store = &self.stores[number];
        let file = engine.attach(Self::identity(number), store.clone());
        let file = file.expect("the backing works");
        let is_hit = Self::is_hit(&file);
        let mut out = vec![0; 2 * LINE as usize];
        file.read(&mut out, 0, 0).expect("the backing works");
        assert!(out == store.bytes(), "file {number}");
        is_hit
    }
}

#[test]
fn a_block_of_the_file_table_that_cannot_be_read_costs_the_files_that_it_describes_and_nobody_uses() {
    type Meet = fn(&Cache, &ManyFiles);
    let attaches: Meet = |cache, files| assert!(!files.is_known(&cache.engine, 3));
    let writes: Meet = |_, files| {
        let written = files.in_use.write(&[77; UNIT as usize], LINE, 0);
        written.expect("the backing works");
    };
    let removes: Meet = |cache, _| {
        let removed = cache.engine.forget(&ManyFiles::identity(5), || Ok(()));
        removed.expect("the SSD works");
    };
    for meet in [attaches, writes, removes] {
        let mut world = World::running(PolicyKind::Lru, LINE, BYTES, 64, 4);
        let (ssd, cache) = AtOnce::open(&mut world);
        cache
            .read(&mut [0; UNIT as usize], 0, 0)
            .expect("the backing works");
        let files = ManyFiles::new(&cache);
        world.ssd.flushed();
        let layout = inspect(ssd.clone()).expect("it is a cache").geometry.layout();
        *ssd.failing.lock().expect("no panic") = layout.files(0)..layout.files(1);
        meet(&cache, &files);
        assert!(ssd.failing.lock().expect("no panic").is_empty() && !cache.is_bypassed());
        // Those of the other block, and those in use.
        assert!((15..20).all(|number| files.is_known(&cache.engine, number)));
        assert!(ManyFiles::is_hit(&files.in_use) && cache.file.holds(0, UNIT as usize));
        assert!(
            !files.is_known(&cache.engine, 7),
            "nothing says what is cached of it"
        );
        // Also a start that finds the block as it was before serves no old byte.
        let changed = cache
            .engine
            .attach(ManyFiles::identity(8), files.stores[8].clone());
        let changed = changed.expect("the backing works");
        changed
            .write(&[99; UNIT as usize], 0, 0)
            .expect("the backing works");
        drop(changed);
        let generation = world.witness.generation.load(Ordering::SeqCst);
        let after_cut = World {
            ssd: MemoryStore::device(world.ssd.flushed()),
            backing: world.backing.clone(),
            witness: Arc::default(),
            ..world
        };
        after_cut.witness.generation.store(generation, Ordering::SeqCst);
        let opened = after_cut.open().engine;
        (0..20).for_each(|number| {
            files.is_known(&opened.engine, number);
        });
        drop(opened);
        assert!(cache.engine.stop().expect("the backing works"));
        let opened = open(ssd, world.witness, &world.options).expect("it is a cache");
        assert_eq!(opened.recovery, Recovery::Clean);
        assert!(
            [0, 7, 15, 19]
                .iter()
                .all(|&number| files.is_known(&opened.engine, number))
        );
        assert!(!files.is_known(&opened.engine, 9), "it was forgotten");
    }
}

#[test]
fn a_file_in_use_whose_block_cannot_be_read_does_not_come_back_after_its_removal() {
    let mut world = World::running(PolicyKind::Lru, LINE, BYTES, 64, 4);
    let (ssd, cache) = AtOnce::open(&mut world);
    let files = ManyFiles::new(&cache);
    world.ssd.flushed();
    let layout = inspect(ssd.clone()).expect("it is a cache").geometry.layout();
    *ssd.failing.lock().expect("no panic") = layout.files(0)..layout.files(1);
    let identity = ManyFiles::identity(0);
    cache.engine.forget(&identity, || Ok(())).expect("the SSD works");
    assert!(!cache.is_bypassed());
    // Another file has its handle, its size and its times when the power has failed.
    let after_cut = World {
        ssd: MemoryStore::device(world.ssd.flushed()),
        ..world
    };
    let opened = after_cut.open().engine;
    let next = MemoryStore::new(vec![99; 2 * LINE as usize]);
    let next = opened.engine.attach(identity, next).expect("the backing works");
    let mut out = vec![0; UNIT as usize];
    next.read(&mut out, 0, 0).expect("the backing works");
    assert!(out.iter().all(|&byte| byte == 99));
    drop(files);
}
