//! A cache of another size has what it had, and believes nothing that an earlier size left. Power cuts on the way are among
//! those of `power_cut`.

use bathy_cache::{CachedLine, Recovery, ResizeError, inspect, resize};

use bathy_cache_model::MemoryBudget;

use crate::common::{Fault, LINE, Random, UNIT, World, assert_serves_backing};

const BYTES: u64 = 2 << 20;

fn lines_of(engine: &bathy_cache::Engine) -> Vec<CachedLine> {
    let mut lines = Vec::new();
    engine.for_each_line(&mut |line| lines.push(line));
    lines.sort_unstable_by_key(|line| (line.file, line.offset_bytes));
    lines
}

/// Those of a stopped cache, which is stopped again.
fn stopped_lines(world: &World) -> Vec<CachedLine> {
    let cache = world.open().engine;
    let lines = lines_of(&cache);
    assert!(cache.stop().expect("it works"));
    lines
}

/// A stopped cache on an SSD with room for more.
fn stopped(lines: u64, seed: u64) -> World {
    let world = World::new(BYTES, lines, 2);
    world.ssd.resize(5 << 20);
    let cache = world.open().engine;
    let mut random = Random(seed);
    for _ in 0..8 * lines {
        let offset = random.below(BYTES / UNIT) * UNIT;
        cache.read(&mut [0; UNIT as usize], offset, 0).expect("it works");
    }
    assert!(cache.stop().expect("it works"));
    world
}

#[test]
fn a_larger_cache_has_all_lines_and_a_smaller_one_those_of_its_slots() {
    let world = stopped(40, 1);
    let before = stopped_lines(&world);
    assert!(before.len() > 30);
    // By extents, one after the other.
    for size_bytes in [(2 << 20) + 20 * LINE, (4 << 20) + 8 * LINE, 5 << 20] {
        resize(world.ssd.clone(), size_bytes, MemoryBudget::default()).expect("there is room");
        let opened = world.open();
        assert_eq!(opened.recovery, Recovery::Clean);
        let after = lines_of(&opened.engine);
        let place = |line: &CachedLine| (line.place, line.offset_bytes, line.valid_units);
        assert_eq!(
            after.iter().map(place).collect::<Vec<_>>(),
            before.iter().map(place).collect::<Vec<_>>()
        );
        assert!(opened.engine.capacity_lines() > before.len() as u64);
        for line in &after {
            let hits = opened.engine.counts().reads.requests_hit;
            let unit = u64::from(line.valid_units.trailing_zeros());
            let mut out = [0; UNIT as usize];
            opened
                .engine
                .read(&mut out, line.offset_bytes + unit * UNIT, 0)
                .expect("it works");
            assert_eq!(opened.engine.counts().reads.requests_hit, hits + 1, "{line:?}");
        }
        opened.engine.stop().expect("it works");
    }
    let before = stopped_lines(&world);
    resize(world.ssd.clone(), (1 << 20) + 20 * LINE, MemoryBudget::default()).expect("it is smaller");
    let opened = world.open();
    let after = lines_of(&opened.engine);
    assert!(after.len() >= 10 && after.len() < before.len());
    assert!(
        after
            .iter()
            .all(|line| before.iter().any(|other| other.place == line.place))
    );
    assert_serves_backing(&opened.engine, &world.backing.bytes(), 65_536, "smaller");
}

#[test]
fn records_of_a_size_before_are_void_when_their_slots_come_back() {
    for seed in 0..40 {
        let world = stopped(40, seed);
        let mut random = Random(seed);
        let mut sizes = vec![(1 << 20) + 10 * LINE, (1 << 20) + (20 + seed % 20) * LINE];
        if seed % 2 == 1 {
            // The extent that went comes back at the same place.
            sizes = vec![
                (2 << 20) + 30 * LINE,
                (1 << 20) + 10 * LINE,
                (2 << 20) + 30 * LINE,
            ];
        }
        for size_bytes in sizes {
            resize(world.ssd.clone(), size_bytes, MemoryBudget::default()).expect("there is room");
            let cache = world.open().engine;
            for _ in 0..100 {
                let mut data = [0; UNIT as usize];
                let offset = random.below(BYTES / UNIT) * UNIT;
                if random.chance(0.5) {
                    random.fill(&mut data);
                    cache.write(&data, offset, 0).expect("it works");
                } else {
                    cache.read(&mut data, offset, 0).expect("it works");
                }
            }
            assert!(cache.stop().expect("it works"));
        }
        // Killed with all marks taken back: what lies on the SSD is believed.
        let cache = world.open().engine;
        assert!(cache.tidy() && cache.tidy());
        drop(cache);
        let opened = world.open();
        assert!(matches!(opened.recovery, Recovery::Unclean { .. }));
        assert_eq!(opened.engine.counts().changed_files, 0);
        assert_serves_backing(
            &opened.engine,
            &world.backing.bytes(),
            65_536,
            &format!("seed {seed}"),
        );
    }
}

#[test]
fn only_a_cache_that_was_stopped_gets_another_size_and_errors_change_nothing() {
    let world = stopped(20, 3);
    let before = inspect(world.ssd.clone()).expect("it is a cache");
    for (size_bytes, is_beyond) in [(6 << 20, true), (1 << 20, false), (4096, false)] {
        let refused =
            resize(world.ssd.clone(), size_bytes, MemoryBudget::default()).expect_err("it does not fit");
        assert_eq!(
            matches!(refused, ResizeError::Beyond { .. }),
            is_beyond,
            "{refused}"
        );
        assert_eq!(inspect(world.ssd.clone()).expect("it is a cache"), before);
    }
    for operation in 0.. {
        let world = stopped(20, 3);
        world.ssd.set_fault(Fault::Nth(operation));
        let resized = resize(world.ssd.clone(), 5 << 20, MemoryBudget::default());
        let is_over = world.ssd.operations() <= operation;
        world.ssd.set_fault(Fault::None);
        // One of both superblocks may be unreadable.
        assert!(resized.is_ok() || !is_over, "operation {operation}");
        let found = inspect(world.ssd.clone()).expect("one of the two is whole");
        // A superblock can be whole though its write or its flush failed: then the new one counts.
        assert!(
            found == before || found.is_clean && found.sequence > before.sequence,
            "{operation}"
        );
        let context = format!("operation {operation}");
        assert_serves_backing(&world.open().engine, &world.backing.bytes(), 65_536, &context);
        if is_over {
            break;
        }
    }
    let opened = world.open();
    opened.engine.tidy();
    drop(opened);
    assert!(matches!(
        resize(world.ssd.clone(), 2 << 20, MemoryBudget::default()),
        Err(ResizeError::Unclean)
    ));
}
