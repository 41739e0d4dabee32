//! The stage in memory has another size in another session, as its budget has: nothing is believed that was never on the SSD.

use bathy_cache::{Recovery, inspect};
use bathy_cache_model::MemoryBudget;

use crate::common::{LINE, Random, UNIT, World, assert_serves_backing, assert_usage};

const BYTES: u64 = 6 << 20;
const LINES: u64 = 512;

/// A budget of which the stage gets so many lines.
fn stage_of(lines: u64) -> MemoryBudget {
    MemoryBudget::of(4 * lines * LINE)
}

#[test]
fn sessions_with_stages_of_other_sizes_serve_what_the_backing_has() {
    let mut world = World::new(BYTES, LINES, 2);
    let mut random = Random(3);
    let (mut hits, mut kept, mut stages) = (0, 0, Vec::new());
    for session in 0..60 {
        world.options.memory = stage_of(1 + random.below(8));
        let (cache, found) = {
            let opened = world.open();
            (opened.engine, opened.recovery)
        };
        stages.push(inspect(world.ssd.clone()).expect("it is a cache").stage_slots);
        kept += assert_usage(&cache, "found").lines;
        let before = cache.counts().reads.requests_hit;
        assert_serves_backing(
            &cache,
            &world.backing.bytes(),
            LINE as usize,
            &format!("session {session}, {found:?}"),
        );
        hits += cache.counts().reads.requests_hit - before;
        for _ in 0..300 {
            // Often to few lines, which are in memory then.
            let line = random.below(BYTES / LINE);
            let line = if random.chance(0.5) { line % 8 } else { line };
            let offset = line * LINE + random.below(LINE / UNIT) * UNIT;
            let mut data = vec![0; UNIT as usize];
            random.fill(&mut data);
            cache.write(&data, offset, 0).expect("the backing works");
        }
        // Marks are taken back: whatever is believed after a kill is believed without them.
        while cache.marked_regions() > 0 {
            cache.tidy();
        }
        if random.chance(0.5) {
            assert!(cache.stop().expect("the backing works"));
        } else {
            assert!(found == Recovery::Clean || session == 0 || matches!(found, Recovery::Unclean { .. }));
        }
    }
    stages.sort_unstable();
    stages.dedup();
    assert!(stages.len() >= 4, "{stages:?}");
    assert!(
        hits > 60 * 100 && kept > 60 * 100,
        "{hits} hits, {kept} lines kept"
    );
}

#[test]
fn a_cache_that_did_not_say_how_large_its_stage_was_had_a_64th() {
    let world = World::new(BYTES, LINES, 2);
    let superblock = inspect(world.ssd.clone()).expect("it is a cache");
    let before = bathy_cache::format::Superblock {
        stage_slots: 0,
        ..superblock
    };
    assert_eq!(before.slots_in_memory(), superblock.geometry.slots / 64);
    let lru = bathy_cache::format::Superblock {
        policy: bathy_policy::PolicyKind::Lru,
        ..superblock
    };
    assert_eq!(lru.slots_in_memory(), 0, "it has no stage");
}
