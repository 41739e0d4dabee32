//! What the begin of a file's use waits for: neither for the file nor for the SSD, unless something depends on it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use bathy_cache::format::Superblock;
use bathy_cache::{Beginning, BlockStore, CachedFile, Engine, FileIdentity, Stamp, open};
use bathy_cache_model::WriteMode;

use crate::common::{
    Event, LINE, Log, MemoryStore, MemoryWitness, REGION, SSD, UNIT, World, identity, passes_on,
};

/// The number of a file's store in the log.
const FILE: u8 = 1;

fn open_engine(world: &World) -> Arc<Engine> {
    let opened = open(world.ssd.clone(), world.witness.clone(), &world.options);
    opened.expect("it is a cache").engine
}

fn attach(engine: &Arc<Engine>, handle: u8, store: &Arc<MemoryStore>) -> CachedFile {
    let attached = engine.attach(identity(handle), store.clone());
    attached.expect("the backing works")
}

fn read_all(file: &CachedFile) -> Vec<u8> {
    let mut out = vec![0; file.size_bytes() as usize];
    assert_eq!(file.read(&mut out, 0, 0).expect("the backing works"), out.len());
    out
}

fn new_store() -> Arc<MemoryStore> {
    MemoryStore::new(Vec::new())
}

fn superblock(world: &World) -> Superblock {
    Superblock::decode(&world.ssd.bytes()[..4096]).expect("it is there")
}

/// The witness as a power cut leaves it.
fn copied(witness: &MemoryWitness) -> Arc<MemoryWitness> {
    Arc::new(MemoryWitness {
        generation: witness.generation.load(Ordering::SeqCst).into(),
        ..MemoryWitness::default()
    })
}

/// Flushes of a store since this was asked last.
fn flushes(log: &Log, store: u8) -> usize {
    let events = std::mem::take(&mut *log.lock().expect("no panic"));
    let is_flush = |event: &&Event| matches!(event, Event::Flush { store: it } if *it == store);
    events.iter().filter(is_flush).count()
}

#[test]
fn a_file_that_is_as_it_was_is_opened_without_a_flush_and_one_that_may_have_changed_is_made_durable() {
    let world = World::new(UNIT, 40, 1);
    let store = MemoryStore::new(vec![1; 4 * LINE as usize]);
    let log = Log::default();
    store.record(FILE, &log);
    let engine = open_engine(&world);
    drop(attach(&engine, 1, &store));
    let _of_a_new_file = flushes(&log, FILE);
    // Opened before in this session, and written to meanwhile.
    let file = attach(&engine, 1, &store);
    assert_eq!(flushes(&log, FILE), 0);
    file.write(&[2; UNIT as usize], 0, 0).expect("the backing works");
    drop(file);
    assert!((0..3).all(|_| engine.tidy()));
    assert_eq!(Arc::strong_count(&store), 1, "it is at rest");
    let _of_tidying = flushes(&log, FILE);
    let file = attach(&engine, 1, &store);
    assert!(read_all(&file) == store.bytes());
    assert_eq!(flushes(&log, FILE), 0);
    drop((file, engine));
    // Killed when it was at rest: its stamp says that it is as it was.
    let engine = open_engine(&world);
    let file = attach(&engine, 1, &store);
    assert_eq!((file.beginning(), flushes(&log, FILE)), (Beginning::Known, 0));
    // Killed when it was written to: what it has may not be durable yet, and its marks are taken back some time.
    file.write(&[3; UNIT as usize], 0, 0).expect("the backing works");
    drop((file, engine));
    let _so_far = flushes(&log, FILE);
    let engine = open_engine(&world);
    let file = attach(&engine, 1, &store);
    assert_eq!(flushes(&log, FILE), 1);
    assert!(read_all(&file) == store.bytes());
    assert!(engine.stop().expect("the backing works"));
    drop((file, engine));
    // Changed by somebody else, who need not have made that durable.
    store.change_offline(7, 7);
    let _so_far = flushes(&log, FILE);
    let engine = open_engine(&world);
    let file = attach(&engine, 1, &store);
    assert_eq!((file.beginning(), flushes(&log, FILE)), (Beginning::Dropped, 1));
    assert!(read_all(&file) == store.bytes());
}

#[test]
fn a_file_that_gave_way_and_finds_no_place_again_is_not_found_as_it_was_after_a_power_cut() {
    // 60 lines have 64 places.
    let world = World::new(UNIT, 60, 1);
    let mut bytes = vec![1; 8 * LINE as usize];
    let store = MemoryStore::new(bytes.clone());
    let engine = open_engine(&world);
    assert!(read_all(&attach(&engine, 1, &store)) == bytes);
    assert!(engine.tidy(), "its lines and its stamp are durable");
    world.ssd.flushed();
    let modified = store.modified();
    let others: Vec<_> = (2..=65)
        .map(|handle| attach(&engine, handle, &MemoryStore::new(vec![handle; 100])))
        .collect();
    assert_eq!(engine.counts().evicted_files, 1);
    let file = attach(&engine, 1, &store);
    assert_eq!(file.number(), 0, "all places are those of open files");
    bytes.fill(2);
    file.write(&bytes, 0, 0).expect("the backing works");
    // The power cut leaves the bytes of the write, not its time, and takes from the SSD what was not flushed.
    let after = World {
        ssd: MemoryStore::device(world.ssd.flushed()),
        witness: copied(&world.witness),
        ..world
    };
    let engine = open_engine(&after);
    let store = MemoryStore::with_modified(bytes.clone(), modified);
    assert!(read_all(&attach(&engine, 1, &store)) == bytes);
    drop((file, others));
}

#[test]
fn a_file_that_gave_way_waits_for_one_flush_when_it_comes_back_and_no_other_file_does() {
    let world = World::new(UNIT, 60, 1);
    let stores: Vec<_> = (0..66_u8).map(|byte| MemoryStore::new(vec![byte; 100])).collect();
    let engine = open_engine(&world);
    let open_and_close = |handle: u8| drop(attach(&engine, handle, &stores[usize::from(handle)]));
    (1..=64).for_each(open_and_close);
    let log = world.record();
    open_and_close(65);
    assert_eq!((engine.counts().evicted_files, flushes(&log, SSD)), (1, 0));
    // Without lines it left first.
    open_and_close(1);
    assert_eq!(flushes(&log, SSD), 1);
    open_and_close(1);
    // The one that gave way for it did so before that flush.
    open_and_close(2);
    assert_eq!(flushes(&log, SSD), 0);
    open_and_close(3);
    assert_eq!(flushes(&log, SSD), 1);
}

#[test]
fn a_file_that_gave_way_is_removed_after_its_record_is_gone_durably() {
    let world = World::new(UNIT, 60, 1);
    let engine = open_engine(&world);
    for handle in 1..=64 {
        attach(&engine, handle, &MemoryStore::new(vec![handle; 100]));
    }
    let log = world.record();
    attach(&engine, 65, &MemoryStore::new(vec![65; 100]));
    assert_eq!((engine.counts().evicted_files, flushes(&log, SSD)), (1, 0));
    // The one without lines that came first. What has its handle next may look as it did.
    let removed = engine.forget(&identity(1), || Ok(flushes(&log, SSD)));
    assert_eq!(removed.expect("it is removed"), 1);
    let unknown = engine.forget(&identity(66), || Ok(flushes(&log, SSD)));
    assert_eq!(unknown.expect("it is removed"), 0);
}

/// An SSD whose next flush does not end before so many regions are marked.
struct Gathering {
    store: Arc<MemoryStore>,
    engine: OnceLock<Arc<Engine>>,
    marked: AtomicU64,
    flushes: AtomicU64,
}

impl BlockStore for Gathering {
    passes_on!(read, write, stamp, size_bytes);

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        let marked = self.marked.swap(0, Ordering::SeqCst);
        while marked > 0 && self.engine.get().expect("opened").marked_regions() < marked {
            thread::yield_now();
        }
        self.store.flush()
    }
}

#[test]
fn first_writes_to_several_files_at_rest_wait_for_one_flush_together() {
    let mut world = World::new(UNIT, 60, 1);
    // Nothing but marks and records of files go to the SSD.
    world.options.write_mode = WriteMode::Invalidate;
    let ssd = Arc::new(Gathering {
        store: world.ssd.clone(),
        engine: OnceLock::new(),
        marked: AtomicU64::new(0),
        flushes: AtomicU64::new(0),
    });
    let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    let engine = opened.engine;
    assert!(ssd.engine.set(engine.clone()).is_ok());
    let files: Vec<_> = (1..=4)
        .map(|handle| attach(&engine, handle, &MemoryStore::new(vec![handle; 100])))
        .collect();
    let write_all = || {
        thread::scope(|scope| {
            for file in &files {
                scope.spawn(|| file.write(&[9; 100], 0, 0).expect("the backing works"));
            }
        });
    };
    write_all();
    let marked = engine.marked_regions();
    assert_eq!(marked, 4, "no two of them share a bit");
    assert!((0..3).all(|_| engine.tidy()));
    assert_eq!(engine.marked_regions(), 0);
    ssd.flushes.store(0, Ordering::SeqCst);
    ssd.marked.store(marked, Ordering::SeqCst);
    write_all();
    let flushes = ssd.flushes.load(Ordering::SeqCst);
    assert!(flushes <= 2, "{flushes}: one for the first, one for all others");
}

#[test]
fn a_new_file_that_is_written_and_closed_waits_for_no_flush_and_is_kept_when_it_was_tidied() {
    let world = World::new(UNIT, 60, 1);
    let log = world.record();
    let engine = open_engine(&world);
    let events_of = |what: &str, work: &mut dyn FnMut()| {
        log.lock().expect("no panic").clear();
        work();
        let events = std::mem::take(&mut *log.lock().expect("no panic"));
        let layout = superblock(&world).geometry.layout();
        // Data of lines may go to the SSD, and whatever else does may wait.
        let is_early = |event: &Event| match event {
            Event::Write { store, offset, .. } => *store == SSD && *offset < layout.data(0, 0),
            Event::Flush { .. } => true,
            _ => false,
        };
        assert!(!events.iter().any(is_early), "{what}");
    };
    let (kept, removed, untouched) = (new_store(), new_store(), new_store());
    kept.record(FILE, &log);
    let bytes = vec![5; UNIT as usize];
    events_of("made, written and closed", &mut || {
        for (handle, store) in [(1, &kept), (2, &removed)] {
            let file = attach(&engine, handle, store);
            file.write(&bytes, 0, 0).expect("the backing works");
        }
    });
    events_of("removed", &mut || {
        engine.forget(&identity(2), || Ok(())).expect("it is removed");
    });
    events_of("made and closed", &mut || {
        attach(&engine, 3, &untouched);
    });
    assert_eq!(engine.files().0, 1, "of the others nothing is kept");
    assert_eq!(Arc::strong_count(&removed), 1);
    // What a start finds if the power fails before it was tidied, and after that.
    let found = |store: &Arc<MemoryStore>| {
        let after = World {
            ssd: MemoryStore::device(world.ssd.bytes()),
            witness: copied(&world.witness),
            backing: world.backing.clone(),
            options: world.options,
            line: world.line,
        };
        let file = attach(&open_engine(&after), 1, store);
        assert!(read_all(&file) == bytes);
        file.beginning()
    };
    assert_eq!(found(&kept), Beginning::New);
    assert!((0..3).all(|_| engine.tidy()));
    assert_eq!((found(&kept), engine.marked_regions()), (Beginning::Known, 0));
    assert_eq!(attach(&engine, 1, &kept).counts().writes.requests, 1);
    assert!(engine.stop().expect("the backing works"));
}

#[test]
fn a_new_file_that_is_written_to_for_long_has_a_record_after_the_first_tidying() {
    let world = World::new(UNIT, 60, 1);
    let store = new_store();
    let engine = open_engine(&world);
    let file = attach(&engine, 1, &store);
    for number in 0..4_u8 {
        let write = file.write(&vec![number; 3 * LINE as usize], 0, 0);
        write.expect("the backing works");
        assert!(engine.tidy());
    }
    // Beyond the region that is marked.
    let far = 8 * LINE;
    file.write(&vec![9; 3 * LINE as usize], far, 0)
        .expect("the backing works");
    for number in 0..3 {
        file.write(&[number; 100], 0, 0).expect("the backing works");
        assert!(engine.tidy());
    }
    drop((file, engine));
    let engine = open_engine(&world);
    let file = attach(&engine, 1, &store);
    let is_held = |line: u64| file.holds(far + line * LINE, UNIT as usize);
    // A kill takes the line in memory.
    assert!((0..3).any(is_held), "it was killed, and was not at rest once");
    assert!(read_all(&file) == store.bytes());
}

/// The bytes of a region: of each line the first unit, at which a start looks that has nothing but a record to go by, and the others.
fn region(first: u8, others: u8) -> Vec<u8> {
    let byte = |at: u64| if at % LINE < UNIT { first } else { others };
    (0..REGION).map(byte).collect()
}

/// Makes some files more than may wait to be at rest, which is half of the places: each is written to and closed. If that is
/// wanted, it is flushed meanwhile and changed once more.
fn make_too_many(engine: &Arc<Engine>, is_flushed_meanwhile: bool) -> Vec<Arc<MemoryStore>> {
    let most = engine.files().1 as usize / 2;
    let stores: Vec<_> = (0..most + 20).map(|_| new_store()).collect();
    for (handle, store) in (0..).zip(&stores) {
        // From now on it is known what was flushed.
        store.flushed();
        let file = attach(engine, handle, store);
        file.write(&region(handle, handle)[..LINE as usize], 0, 0)
            .expect("the backing works");
        if is_flushed_meanwhile {
            file.flush().expect("the backing works");
            let changed = region(handle, handle + 100);
            file.write(&changed[..LINE as usize], 0, 0)
                .expect("the backing works");
        }
        drop(file);
        let held = stores.iter().filter(|store| Arc::strong_count(store) > 1);
        assert!(held.count() <= most + 1, "file {handle}");
    }
    stores
}

#[test]
fn files_that_are_made_faster_than_they_are_tidied_are_cached_and_keep_no_descriptors() {
    let world = World::new(UNIT, 200, 1);
    let engine = open_engine(&world);
    let stores = make_too_many(&engine, false);
    let all = stores.len() as u64;
    assert_eq!((engine.counts().evicted_files, engine.files().0), (0, all));
    assert!((0..3).all(|_| engine.tidy()));
    assert_eq!(engine.marked_regions(), 0);
    let hits = |engine: &Arc<Engine>| {
        let is_hit = |(handle, store): (u8, &Arc<MemoryStore>)| {
            let file = attach(engine, handle, store);
            let is_hit = file.holds(0, UNIT as usize);
            assert!(read_all(&file) == store.bytes());
            is_hit
        };
        (0..).zip(&stores).filter(|&it| is_hit(it)).count() as u64
    };
    assert_eq!(hits(&engine), all);
    // Those that were let go were used again.
    assert!((0..3).all(|_| engine.tidy()));
    drop(engine);
    let engine = open_engine(&world);
    let found = hits(&engine);
    assert!(
        (all - 10..=all).contains(&found),
        "{found} of {all}: a kill takes the lines in memory"
    );
}

type Hook = Box<dyn FnOnce() + Send>;

/// A file before whose next write or flush something else happens.
struct Hooked {
    store: Arc<MemoryStore>,
    before_write: Mutex<Option<Hook>>,
    before_flush: Mutex<Option<Hook>>,
}

impl Hooked {
    fn new(store: &Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            before_write: Mutex::default(),
            before_flush: Mutex::default(),
        })
    }

    fn run(hook: &Mutex<Option<Hook>>) {
        let hook = hook.lock().expect("no panic").take();
        if let Some(hook) = hook {
            hook();
        }
    }
}

impl BlockStore for Hooked {
    passes_on!(read, look, size_bytes);

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        Self::run(&self.before_write);
        self.store.write(data, offset)
    }

    fn flush(&self) -> io::Result<()> {
        Self::run(&self.before_flush);
        self.store.flush()
    }

    fn stamp(&self) -> io::Result<Stamp> {
        self.flush()?;
        self.store.stamp()
    }
}

/// What a power cut leaves that takes from a file what was not flushed, and nothing from the SSD.
struct Cut {
    ssd: Vec<u8>,
    witness: Arc<MemoryWitness>,
    file: Arc<MemoryStore>,
}

impl Cut {
    fn new(world: &World, store: &MemoryStore) -> Self {
        Self {
            ssd: world.ssd.bytes(),
            witness: copied(&world.witness),
            file: MemoryStore::with_modified(store.flushed(), store.modified()),
        }
    }

    fn assert_serves_the_file(self, handle: u8, world: World) {
        let after = World {
            ssd: MemoryStore::device(self.ssd),
            witness: self.witness,
            ..world
        };
        let file = attach(&open_engine(&after), handle, &self.file);
        assert!(read_all(&file) == self.file.bytes());
    }
}

#[test]
fn a_new_file_whose_marks_were_taken_back_before_its_bytes_were_durable_has_no_record_before_they_are() {
    let world = World::new(UNIT, 200, 1);
    let engine = open_engine(&world);
    let stores = make_too_many(&engine, true);
    let is_held = |store: &&Arc<MemoryStore>| Arc::strong_count(store) > 1;
    // The lines of the first are in memory.
    let let_go = stores
        .iter()
        .rposition(|store| !is_held(&store))
        .expect("some are") as u8;
    assert!((0..3).all(|_| engine.tidy()));
    assert_eq!(engine.marked_regions(), 0);
    let store = &stores[usize::from(let_go)];
    let flushed = store.flushed();
    assert!(
        flushed == region(let_go, let_go)[..LINE as usize],
        "nobody flushed it again"
    );
    let hooked = Hooked::new(store);
    let attach = || {
        engine
            .attach(identity(let_go), hooked.clone())
            .expect("the backing works")
    };
    let (file, world, cut) = (attach(), Arc::new(world), Arc::new(Mutex::new(None)));
    *hooked.before_flush.lock().expect("no panic") = Some(Box::new({
        let (file, world, store, cut) = (attach(), world.clone(), store.clone(), cut.clone());
        move || {
            // A record of it would be made durable by a write to the other region.
            file.write(&[0; 100], REGION, 0).expect("the backing works");
            *cut.lock().expect("no panic") = Some(Cut::new(&world, &store));
        }
    }));
    assert!(engine.tidy());
    let cut = cut.lock().expect("no panic").take().expect("it was flushed");
    drop((file, engine));
    let world = Arc::into_inner(world).expect("nobody has it");
    cut.assert_serves_the_file(let_go, world);
}

#[test]
fn a_new_file_that_is_written_to_when_it_gets_its_record_is_marked() {
    let mut world = World::new(UNIT, 100, 1);
    world.options.pending_records = 1;
    world.ssd.flushed();
    let ssd = Hooked::new(&world.ssd);
    let opened = open(ssd.clone(), world.witness.clone(), &world.options);
    let engine = opened.expect("it is a cache").engine;
    let store = new_store();
    store.flushed();
    let hooked = Hooked::new(&store);
    let attached = engine.attach(identity(1), hooked.clone());
    let file = attached.expect("the backing works");
    file.write(&region(1, 1), 0, 0).expect("the backing works");
    file.flush().expect("the backing works");
    // When its mark is set, and the flush of tidying comes too early for it.
    *hooked.before_write.lock().expect("no panic") = Some(Box::new({
        let engine = engine.clone();
        move || assert!(engine.tidy())
    }));
    file.write(&region(1, 2), 0, 0).expect("the backing works");
    write_records_of_lines(&engine);
    let (world, cut) = (Arc::new(world), Arc::new(Mutex::new(None)));
    *ssd.before_flush.lock().expect("no panic") = Some(Box::new({
        let (world, store, cut) = (world.clone(), store.clone(), cut.clone());
        move || {
            // Of what was written since the last flush the record of the file is there, and marks are not.
            let mut left = Cut::new(&world, &store);
            let layout = superblock(&world).geometry.layout();
            let marks = layout.intent() as usize..layout.files(0) as usize;
            left.ssd[marks.clone()].copy_from_slice(&world.ssd.flushed()[marks]);
            *cut.lock().expect("no panic") = Some(left);
        }
    }));
    file.write(&[3; 100], REGION, 0).expect("the backing works");
    let cut = cut.lock().expect("no panic").take().expect("it was flushed");
    assert!(cut.file.bytes() == region(1, 1));
    drop((file, engine, ssd));
    let world = Arc::into_inner(world).expect("nobody has it");
    cut.assert_serves_the_file(1, world);
}

/// Lines of another file come until those that were in memory have their records on the SSD.
fn write_records_of_lines(engine: &Arc<Engine>) {
    read_all(&attach(engine, 99, &MemoryStore::new(vec![3; 8 * LINE as usize])));
}

#[test]
fn a_file_that_was_new_is_marked_before_a_write_as_any_other_when_it_has_its_record() {
    let mut world = World::new(UNIT, 100, 1);
    world.options.pending_records = 1;
    let engine = open_engine(&world);
    let store = new_store();
    store.flushed();
    let file = attach(&engine, 1, &store);
    file.write(&region(1, 1), 0, 0).expect("the backing works");
    assert!((0..3).all(|_| engine.tidy()));
    assert_eq!(engine.marked_regions(), 0);
    file.write(&region(1, 2), 0, 0).expect("the backing works");
    write_records_of_lines(&engine);
    let cut = Cut::new(&world, &store);
    assert!(cut.file.bytes() == region(1, 1));
    drop((file, engine));
    cut.assert_serves_the_file(1, world);
}

#[test]
fn files_that_gave_way_are_remembered_until_the_ssd_is_flushed_and_no_more_than_some() {
    let world = World::new(UNIT, 60, 1);
    let engine = open_engine(&world);
    let store = MemoryStore::new(vec![1; 100]);
    let open_and_close = |number: u32| {
        let identity = FileIdentity::new(*identity(1).source(), &number.to_le_bytes());
        let file = engine.attach(identity.expect("it is short enough"), store.clone());
        drop(file.expect("the backing works"));
    };
    (0..200).for_each(open_and_close);
    let log = world.record();
    let before_bytes = engine.memory_bytes();
    // Nobody tidies.
    (200..20_000).for_each(open_and_close);
    assert!(engine.counts().evicted_files > 19_900);
    let more_bytes = engine.memory_bytes() - before_bytes;
    assert!(more_bytes < 200_000, "{more_bytes}");
    let flushes = flushes(&log, SSD);
    assert!((4..=5).contains(&flushes), "{flushes}");
}
