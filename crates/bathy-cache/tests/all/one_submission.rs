//! The data that a read finds on the SSD are read by one submission, whatever lines it is of, and each line fails by itself.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bathy_cache::{Aligned, BlockStore, ErrorBudget, Place, PlacesRead, Until, inspect, open, parts_of};
use bathy_cache_model::FetchSize;
use bathy_policy::PolicyKind;

use crate::common::{Cache, Fault, LINE, MemoryStore, UNIT, World, assert_usage, passes_on};

const BYTES: u64 = 40 * LINE;
/// Where data begin.
const DATA_START: u64 = 1 << 20;

/// An SSD that reads places at once.
struct AtOnce {
    store: Arc<MemoryStore>,
    /// The places of each submission of reads of data.
    submissions: Mutex<Vec<usize>>,
    /// What cannot be read.
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
    passes_on!(read, write, flush, stamp, size_bytes);

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
