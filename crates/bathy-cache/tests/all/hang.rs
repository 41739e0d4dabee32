//! The SSD stops to answer, at each of its operations in turn: all callers go on, no byte is wrong, and what the SSD has is
//! void afterwards, also when it does late what it was told.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bathy_cache::{ColdReason, OpenError, Recovery, void};

use crate::common::{Fault, Random, UNIT, World, assert_serves_backing};

const BYTES: u64 = 512 << 10;
const THREADS: u64 = 3;
/// Far above what an operation of a store in memory takes, also on a busy machine.
const DEADLINE: Duration = Duration::from_millis(500);
/// Whoever takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A session from opening to a stop, with callers that have a third of the file each. Whether the cache could be opened.
fn session(world: &World) -> bool {
    let engine = match world.try_open() {
        Ok(opened) => opened.engine,
        Err(OpenError::Io(_)) => {
            void(&*world.witness).expect("the witness works");
            return false;
        }
        Err(error) => panic!("{error}"),
    };
    let share = BYTES / THREADS / UNIT * UNIT;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, mut oracle) = (&engine, world.backing.bytes());
            scope.spawn(move || {
                let mut random = Random(thread);
                for number in 0..60 {
                    let len = (1 + random.below(6)) * UNIT - 512 * random.below(8);
                    let offset = thread * share + random.below(share - len) / 512 * 512;
                    let range = offset as usize..(offset + len) as usize;
                    match random.below(20) {
                        0..10 => {
                            let mut out = vec![0; len as usize];
                            engine
                                .read(&mut out, offset, number)
                                .expect("no error of the SSD");
                            assert!(out == oracle[range], "thread {thread} request {number}");
                        }
                        10..18 => {
                            random.fill(&mut oracle[range.clone()]);
                            engine
                                .write(&oracle[range], offset, number)
                                .expect("no error of the SSD");
                        }
                        18 => drop(engine.tidy()),
                        _ => engine.flush().expect("no error of the SSD"),
                    }
                }
            });
        }
    });
    engine.stop().expect("no error of the SSD");
    true
}

/// Runs a session whose SSD hangs at its n-th operation, and then the next one. Whether the cache was opened, and whether the
/// session had so many operations.
fn hang_at(number: u64) -> (bool, bool) {
    let mut world = World::new(BYTES, 12, 2);
    world.options.ssd_deadline = Some(DEADLINE);
    world.options.ssd_write_deadline = Some(DEADLINE);
    world.ssd.set_fault(Fault::Hang(number));
    let is_open = session(&world);
    let is_hung = world.ssd.operations() > number;
    // It does now what it was told then.
    world.ssd.release();
    let opened = world.open();
    if is_hung {
        let cold = Recovery::Cold(ColdReason::Generation);
        assert_eq!(opened.recovery, cold, "hung at operation {number}");
    }
    let context = format!("hung at operation {number}");
    assert_serves_backing(&opened.engine, &world.backing.bytes(), 16_384, &context);
    (is_open, is_hung)
}

#[test]
fn all_callers_go_on_without_an_ssd_that_hangs() {
    let (done, outcome) = mpsc::channel();
    // Each number in turn, several sessions at once, because they wait most of the time.
    let next = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    for _ in 0..16 {
        let (done, next) = (done.clone(), next.clone());
        thread::spawn(move || {
            loop {
                let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                // What comes later is like what came before.
                let number = if number < 64 {
                    number
                } else {
                    64 + (number - 64) * 5
                };
                let (is_open, is_hung) = hang_at(number);
                if done.send((number, is_open)).is_err() || !is_hung {
                    break;
                }
            }
        });
    }
    drop(done);
    let (mut sessions, mut not_opened, mut last) = (0, 0, 0);
    while let Ok((number, is_open)) = match outcome.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a caller hangs, after operation {last} or so"),
        received => received,
    } {
        sessions += 1;
        not_opened += u64::from(!is_open);
        last = last.max(number);
    }
    eprintln!("{sessions} sessions, {not_opened} of them without a superblock, up to operation {last}");
    assert!(
        sessions > 50 && not_opened > 0 && not_opened < 10,
        "{sessions} {not_opened}"
    );
}

#[test]
fn what_hangs_is_named_with_what_it_was_asked_for_and_since_when() {
    let mut world = World::new(BYTES, 12, 2);
    world.options.ssd_deadline = Some(DEADLINE);
    world.options.ssd_write_deadline = Some(DEADLINE);
    let cache = world.open().engine;
    world.ssd.set_fault(Fault::Hang(0));
    cache
        .write(&[1; UNIT as usize], 0, 0)
        .expect("no error of the SSD");
    let problem = cache.ssd_problem().expect("it was given up");
    let (asked, since) = problem.split_once(" since ").expect("it says since when");
    assert!(
        asked.starts_with("nvme-of-a-test has not answered a"),
        "{problem}"
    );
    assert!(since.ends_with(" UTC (500ms)"), "{problem}");
    world.ssd.release();
}
