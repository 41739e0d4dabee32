//! Random requests, restarts and kills against an array of bytes.

use crate::common::{
    Cache, Fault, LINE, LINE_SIZES, MemoryStore, RUNS_GO_PAST, Random, World, assert_serves_backing, identity,
};
use bathy_cache::{ColdReason, Recovery};
use bathy_cache_model::AdmissionOptions;
use bathy_policy::PolicyKind;

/// Requests of the short form; `BATHY_TORTURE_OPS` makes it longer.
fn operations() -> u64 {
    let asked = std::env::var("BATHY_TORTURE_OPS").ok();
    asked.map_or(120_000, |text| text.parse().expect("a number of operations"))
}

const BYTES: u64 = 4 << 20;

/// A request: mostly whole units near where others go, some bytes anywhere, some of several lines.
fn request(random: &mut Random, line: u64) -> (u64, usize) {
    let hot = random.chance(0.7);
    let place = random.below(if hot { BYTES / 8 } else { BYTES });
    let (offset, len) = match random.below(10) {
        0..6 => (place / 4096 * 4096, (1 + random.below(4)) * 4096),
        6..8 => (place, 1 + random.below(9000)),
        8 => (place / 512 * 512, 512 * (1 + random.below(16))),
        _ => (place / line * line, random.below(5) * line),
    };
    (offset, len.min(BYTES - offset) as usize)
}

#[test]
fn requests_restarts_and_kills_against_an_array_of_bytes() {
    let of_line = |line: u64| {
        [
            (line, 1, (640 << 10) / line, AdmissionOptions::default()),
            (line, 1, (640 << 10) / line, RUNS_GO_PAST),
            (line, 4, (2080 << 10) / line, AdmissionOptions::default()),
            (line, 4, (2080 << 10) / line, RUNS_GO_PAST),
        ]
    };
    for (line, shards, lines, admission) in LINE_SIZES.into_iter().flat_map(of_line) {
        let mut world = World::running(PolicyKind::S3Fifo, line, BYTES, lines, shards);
        world.options.admission = admission;
        let mut random = Random(u64::from(shards));
        let mut oracle = world.backing.bytes();
        let mut engine = world.open().engine;
        let (mut stops, mut kills, mut hits, mut went_past) = (0, 0, 0, 0);
        let operations = operations() / 6;
        for operation in 0..operations {
            let (offset, len) = request(&mut random, line);
            let range = offset as usize..offset as usize + len;
            match random.below(1000) {
                0 => assert!(engine.tidy()),
                1 => engine.flush().expect("the backing works"),
                2 => {
                    hits += engine.counts().reads.requests_hit;
                    went_past += engine.went_past();
                    if random.chance(0.5) {
                        assert!(engine.stop().expect("the backing works"));
                        stops += 1;
                        let opened = world.open();
                        assert_eq!(opened.recovery, Recovery::Clean);
                        engine = opened.engine;
                    } else {
                        drop(engine);
                        kills += 1;
                        let opened = world.open();
                        assert!(matches!(opened.recovery, Recovery::Unclean { .. }));
                        engine = opened.engine;
                    }
                }
                3..450 => {
                    random.fill(&mut oracle[range.clone()]);
                    engine
                        .write(&oracle[range], offset, operation)
                        .expect("the backing works");
                }
                _ => {
                    let mut out = vec![0xee; len];
                    engine
                        .read(&mut out, offset, operation)
                        .expect("the backing works");
                    assert!(out == oracle[range], "operation {operation}");
                }
            }
        }
        let counts = engine.counts();
        assert!(stops > 3 && kills > 3, "{stops} stops, {kills} kills");
        assert!(
            hits + counts.reads.requests_hit > operations / 10,
            "{hits} {counts:?}"
        );
        assert_eq!(went_past > 0, admission.stream_cutoff.is_some());
        assert_eq!(counts.ssd_errors, 0);
        assert!(oracle == world.backing.bytes());
    }
}

fn lines(engine: &Cache) -> usize {
    let mut lines = 0;
    engine.for_each_line(&mut |_| lines += 1);
    lines
}

#[test]
fn a_file_that_was_changed_without_the_cache_is_dropped_and_others_are_not() {
    for is_clean in [true, false] {
        let world = World::new(1 << 20, 80, 2);
        let engine = world.open().engine;
        let other = MemoryStore::new(vec![5; 1 << 18]);
        let file = engine
            .engine
            .attach(identity(9), other.clone())
            .expect("the backing works");
        assert_serves_backing(&engine, &world.backing.bytes(), 65_536, "first");
        let mut out = vec![0; 1 << 18];
        assert_eq!(file.read(&mut out, 0, 0).expect("the backing works"), 1 << 18);
        engine.write(&[1; 4096], 0, 0).expect("the backing works");
        // The second time it is seen that the file is at rest.
        assert!(engine.tidy() && engine.tidy());
        if is_clean {
            assert!(engine.stop().expect("the backing works"));
        }
        drop((file, engine));
        world.backing.change_offline(300_000, 9);
        let opened = world.open();
        assert_eq!(
            opened.recovery == Recovery::Clean,
            is_clean,
            "{:?}",
            opened.recovery
        );
        assert_eq!(opened.engine.counts().changed_files, 1);
        let of_other = lines(&opened.engine);
        assert!(of_other > 10, "{of_other}");
        let file = opened
            .engine
            .engine
            .attach(identity(9), other)
            .expect("the backing works");
        assert_eq!(opened.engine.counts().changed_files, 1);
        assert_eq!(file.read(&mut out, 0, 0).expect("the backing works"), 1 << 18);
        assert!(opened.engine.counts().reads.bytes_hit >= of_other as u64 * LINE - LINE);
        assert_serves_backing(&opened.engine, &world.backing.bytes(), 65_536, "changed");
    }
}

#[test]
fn a_file_in_use_that_was_changed_without_the_cache_after_a_kill_is_seen_in_the_lines() {
    let world = World::new(1 << 20, 80, 2);
    let engine = world.open().engine;
    assert_serves_backing(&engine, &world.backing.bytes(), 65_536, "first");
    engine.write(&[1; 4096], 0, 0).expect("the backing works");
    assert!(engine.tidy());
    drop(engine);
    // Not in one place: a few lines are compared.
    for offset in (0..1 << 20).step_by(4096) {
        world.backing.change_offline(offset + 77, 9);
    }
    let opened = world.open();
    assert_eq!(opened.engine.counts().changed_files, 1);
    assert_eq!(lines(&opened.engine), 0);
    drop(opened);
    // The lines from before the change may still be on the SSD, with the number that the file had.
    let opened = world.open();
    assert_eq!(opened.engine.counts().changed_files, 0);
    assert_serves_backing(&opened.engine, &world.backing.bytes(), 65_536, "changed");
}

#[test]
fn a_file_in_use_that_was_cut_without_the_cache_has_nothing_beyond_its_end() {
    let world = World::new(1 << 20, 80, 2);
    let engine = world.open().engine;
    assert_serves_backing(&engine, &world.backing.bytes(), 65_536, "first");
    engine.write(&[1; 4096], 0, 0).expect("the backing works");
    assert!(engine.tidy());
    drop(engine);
    world.backing.resize(500_000);
    let opened = world.open();
    assert_eq!(
        opened.engine.counts().changed_files,
        0,
        "what is left is as it was"
    );
    let store = world.backing.clone();
    opened.engine.write(&[3; 10], 900_000, 0).expect("it grows");
    assert_serves_backing(&opened.engine, &world.backing.bytes(), 4096, "grown");
    opened
        .engine
        .file
        .resize(1 << 20, || {
            store.resize(1 << 20);
            Ok(())
        })
        .expect("it grows");
    assert_serves_backing(&opened.engine, &world.backing.bytes(), 4096, "grown");
}

#[test]
fn another_witness_makes_it_cold() {
    let mut world = World::new(1 << 20, 40, 2);
    let engine = world.open().engine;
    assert_serves_backing(&engine, &world.backing.bytes(), 65_536, "first");
    drop(engine);
    world.witness = std::sync::Arc::default();
    let opened = world.open();
    assert_eq!(opened.recovery, Recovery::Cold(ColdReason::Generation));
    assert_eq!(lines(&opened.engine), 0);
}

#[test]
fn errors_of_the_backing_reach_the_caller_unchanged_and_are_not_cached() {
    let world = World::new(1 << 20, 60, 1);
    let engine = world.open().engine;
    let mut out = vec![0; 8192];
    world.backing.set_fault(Fault::From(0));
    let error = engine.read(&mut out, 0, 0).expect_err("the backing fails");
    assert_eq!(error.raw_os_error(), Some(5));
    assert_eq!(
        engine
            .write(&out, 0, 0)
            .expect_err("the backing fails")
            .raw_os_error(),
        Some(5)
    );
    assert_eq!(
        engine.flush().expect_err("the backing fails").raw_os_error(),
        Some(5)
    );
    world.backing.set_fault(Fault::None);
    // A write that failed may have changed some sectors; what is served is what is there.
    assert_serves_backing(&engine, &world.backing.bytes(), 8192, "healed");
    assert_eq!(engine.counts().ssd_errors, 0);
    for (offset, len, expected) in [(1 << 20, 1, 0), (u64::MAX, 1, 0), ((1 << 20) - 1, 2, 1)] {
        let read = engine.file.read(&mut out[..len], offset, 0);
        assert_eq!(read.expect("the backing works"), expected, "up to the end");
    }
    let error = engine.write(&[0; 2], u64::MAX, 0).expect_err("beyond all ends");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn a_flush_that_fails_in_the_background_is_reported_and_its_lines_are_forgotten() {
    let world = World::new(1 << 20, 60, 1);
    let engine = world.open().engine;
    engine.write(&[1; 4096], 0, 0).expect("written");
    let mut out = vec![0; 4096];
    engine.read(&mut out, 8 * REGION_BYTES, 0).expect("read");
    // The first call finds the region in use.
    engine.tidy();
    world.backing.set_fault(Fault::Flushes);
    engine.tidy();
    world.backing.set_fault(Fault::None);
    let mut lines = Vec::new();
    engine.for_each_line(&mut |line| lines.push(line.offset_bytes));
    assert_eq!(lines, [8 * REGION_BYTES]);
    assert!(
        engine.flush().is_err(),
        "the kernel reports it once; we pass it on"
    );
    assert!(engine.flush().is_ok());
    engine.tidy();
    assert_eq!(engine.marked_regions(), 1, "what was lost is not known");
    assert!(!engine.stop().expect("flushed"), "not a clean stop");
}

#[test]
fn a_file_that_cannot_be_made_durable_when_it_is_at_rest_has_lost_writes_too() {
    let world = World::new(1 << 20, 60, 1);
    let engine = world.open().engine;
    engine.write(&[1; 4096], 0, 0).expect("written");
    engine.tidy();
    // The flush succeeds, and what comes after it fails.
    world.backing.set_fault(Fault::Nth(1));
    assert!(!engine.tidy());
    world.backing.set_fault(Fault::None);
    assert_eq!(engine.marked_regions(), 1);
    assert!(engine.flush().is_err() && engine.flush().is_ok());
    assert!(!engine.stop().expect("flushed"), "not a clean stop");
}

#[test]
fn after_the_stop_nothing_is_written() {
    let world = World::new(1 << 20, 60, 1);
    let engine = world.open().engine;
    // Many lines, so that what forgets them would write.
    assert_serves_backing(&engine, &world.backing.bytes(), 65_536, "first");
    engine.write(&[1; 4096], 0, 0).expect("written");
    engine.tidy();
    engine.file.forget(|| Ok(())).expect("it is removed");
    assert!(engine.stop().expect("the backing works"));
    let (ssd, backing) = (world.ssd.bytes(), world.backing.bytes());
    let stopped = std::io::ErrorKind::NotConnected;
    let mut out = [0; 10];
    let kind = |result: std::io::Result<()>| result.expect_err("it was stopped").kind();
    assert_eq!(kind(engine.read(&mut out, 0, 0)), stopped);
    assert_eq!(kind(engine.write(&out, 0, 0)), stopped);
    assert_eq!(kind(engine.flush()), stopped);
    assert_eq!(kind(engine.file.discard(0..10, || Ok(()))), stopped);
    assert_eq!(kind(engine.engine.forget(&identity(1), || Ok(()))), stopped);
    let attached = engine.engine.attach(identity(5), world.backing.clone());
    assert_eq!(kind(attached.map(drop)), stopped);
    assert!(!engine.tidy() && !engine.stop().expect("it does nothing"));
    drop(engine);
    assert!(world.ssd.bytes() == ssd && world.backing.bytes() == backing);
}

const REGION_BYTES: u64 = crate::common::REGION;
