//! The SSD fails at each of its operations in turn, once or from then on: no error and no wrong byte at the caller, then or
//! after a restart on an SSD that came back with whatever it had.

use bathy_cache::{ColdReason, OpenError, Recovery};

use crate::common::{BACKING, Event, Fault, MemoryStore, Random, UNIT, World, assert_serves_backing};

const BYTES: u64 = 512 << 10;

/// A session from opening to a clean stop. The operations of the SSD.
fn session(world: &World, fault: Fault) -> u64 {
    let mut oracle = world.backing.bytes();
    let mut random = Random(3);
    world.ssd.set_fault(fault);
    let engine = match world.try_open() {
        Ok(opened) => opened.engine,
        // Without a superblock nothing is known; whoever starts the cache decides what then.
        Err(OpenError::Io(_)) => return world.ssd.operations(),
        Err(error) => panic!("{error}"),
    };
    for number in 0..150 {
        let offset = random.below(BYTES / UNIT) * UNIT / (1 + random.below(4)) / 512 * 512;
        let len = ((1 + random.below(6)) * UNIT).min(BYTES - offset) as usize;
        let range = offset as usize..offset as usize + len;
        match random.below(20) {
            0..10 => {
                let mut out = vec![0; len];
                engine
                    .read(&mut out, offset, number)
                    .expect("no error reaches the caller");
                assert!(out == oracle[range], "{fault:?}: request {number}");
            }
            10..18 => {
                random.fill(&mut oracle[range.clone()]);
                engine
                    .write(&oracle[range], offset, number)
                    .expect("no error reaches the caller");
            }
            18 => {
                engine.tidy();
            }
            _ => engine.flush().expect("no error reaches the caller"),
        }
    }
    assert!(oracle == world.backing.bytes());
    engine.stop().expect("no error reaches the caller");
    world.ssd.operations()
}

#[test]
fn no_error_of_the_ssd_reaches_the_caller() {
    for is_lasting in [false, true] {
        for errors_max in [0.0, 1000.0] {
            let (mut number, mut stale, mut bypassed) = (0, 0, 0);
            loop {
                let mut world = World::new(BYTES, 20, 1);
                world.options.error_budget.errors_max = errors_max;
                let fault = if is_lasting {
                    Fault::From(number)
                } else {
                    Fault::Nth(number)
                };
                let operations = session(&world, fault);
                world.ssd.set_fault(Fault::None);
                let opened = world.open();
                match opened.recovery {
                    Recovery::Cold(ColdReason::Generation) => stale += 1,
                    Recovery::Clean | Recovery::Unclean { .. } => {}
                    other => panic!("{fault:?}: {other:?}"),
                }
                bypassed += 1;
                assert_serves_backing(
                    &opened.engine,
                    &world.backing.bytes(),
                    16_384,
                    &format!("{fault:?}"),
                );
                // Nothing failed: the session has no more operations.
                if operations <= number {
                    break;
                }
                // Each in turn where it is forgiven; where the first one ends the use of the SSD, some of them.
                number += if is_lasting || errors_max == 0.0 { 4 } else { 1 };
            }
            eprintln!(
                "lasting {is_lasting}, budget {errors_max}: {bypassed} sessions, {stale} void after it"
            );
            assert!(bypassed > 100 && (stale > 0 || !is_lasting));
        }
    }
}

#[test]
fn an_ssd_that_failed_and_its_witness_with_it_stops_writes_instead_of_making_them_stale() {
    let world = World::new(BYTES, 20, 1);
    let engine = world.open().engine;
    world.ssd.set_fault(Fault::From(0));
    world
        .witness
        .fails
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let log = world.record();
    let mut out = vec![0; 4096];
    engine.read(&mut out, 0, 0).expect("reads go on");
    assert!(engine.write(&out, 0, 0).is_err());
    let is_write = |event: &Event| matches!(event, Event::Write { store: BACKING, .. });
    assert!(!log.lock().expect("no panic").iter().any(is_write));
    world
        .witness
        .fails
        .store(false, std::sync::atomic::Ordering::SeqCst);
    engine.write(&[7; 4096], 0, 0).expect("the witness works again");
    assert!(engine.is_bypassed());
    engine.read(&mut out, 0, 0).expect("reads go on");
    assert_eq!(out, [7; 4096]);
}

#[test]
fn another_file_system_or_a_truncated_ssd_is_refused() {
    let mut world = World::new(BYTES, 20, 1);
    let bytes = world.ssd.bytes();
    world.ssd = MemoryStore::new(bytes[..bytes.len() - 65_536].to_vec());
    assert!(matches!(world.try_open(), Err(OpenError::SsdTooSmall { .. })));
    world.ssd = MemoryStore::new(vec![0; bytes.len()]);
    assert!(matches!(world.try_open(), Err(OpenError::Superblock(_))));
    assert!(
        world.ssd.bytes().iter().all(|&byte| byte == 0),
        "nothing was written"
    );
}
