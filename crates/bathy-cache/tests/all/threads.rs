//! Several threads on the same lines. Each has units of its own in every line, and always reads there what it wrote last. To
//! the end of the backing all write, one over the other; in the end the cache has there what the backing has.

use std::sync::atomic::{AtomicBool, Ordering};

use bathy_policy::{CachePolicy, PolicyKind};

use crate::common::{LINE, Random, UNIT, World, assert_serves_backing, assert_usage};

const THREADS: u64 = 4;
const BYTES: u64 = 1 << 20;
/// Where all write.
const SHARED: u64 = BYTES - (32 << 10);

#[test]
fn what_a_thread_wrote_it_reads_whatever_others_do_to_the_same_lines() {
    for policy in CachePolicy::KINDS {
        all_write(policy);
    }
}

fn all_write(policy: PolicyKind) {
    let world = World::running(policy, LINE, BYTES, 24, 2);
    world.backing.set_yields();
    let engine = world.open().engine;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (engine, mut own) = (&engine, world.backing.bytes());
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for number in 0..10_000 {
                        if random.chance(0.1) {
                            let mut data = vec![0; 1 + random.below(9000) as usize];
                            random.fill(&mut data);
                            let offset =
                                SHARED + random.below(BYTES - SHARED - data.len() as u64) / 512 * 512;
                            engine.write(&data, offset, number).expect("the backing works");
                            continue;
                        }
                        // Few lines, so that threads meet.
                        let group = random.below(SHARED / UNIT / THREADS);
                        let group = if random.chance(0.8) { group / 16 } else { group };
                        let offset = (group * THREADS + thread) * UNIT;
                        let range = offset as usize..(offset + UNIT) as usize;
                        if random.chance(0.4) {
                            // Whole units, and parts of them.
                            let part = if random.chance(0.5) {
                                0..UNIT as usize
                            } else {
                                512..1536
                            };
                            let range = range.start + part.start..range.start + part.end;
                            random.fill(&mut own[range.clone()]);
                            engine
                                .write(&own[range.clone()], range.start as u64, number)
                                .expect("the backing works");
                        } else if random.chance(0.3) {
                            // Others' units too, for fills that meet their writes.
                            let start = offset / (4 * UNIT) * 4 * UNIT;
                            let mut out = vec![0; 4 * UNIT as usize];
                            engine.read(&mut out, start, number).expect("the backing works");
                            let at = (offset - start) as usize;
                            assert!(
                                out[at..at + UNIT as usize] == own[range],
                                "thread {thread} request {number}"
                            );
                        } else {
                            let mut out = vec![0; UNIT as usize];
                            engine.read(&mut out, offset, number).expect("the backing works");
                            assert!(out == own[range], "thread {thread} request {number}");
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                engine.tidy();
                engine.flush().expect("the backing works");
                std::thread::yield_now();
            }
        });
        let results: Vec<_> = workers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, Ordering::Relaxed);
        for result in results {
            result.expect("no thread read a wrong byte");
        }
    });
    let counts = engine.counts();
    assert!(
        counts.reads.requests_hit > 1000 && counts.evictions > 1000,
        "{counts:?}"
    );
    assert_eq!((counts.mismatches, counts.ssd_errors), (0, 0));
    assert_usage(&engine, "after the threads");
    assert_serves_backing(&engine, &world.backing.bytes(), 4096, "what all wrote");
    // A power cut now: what is in memory is gone.
    drop(engine);
    let opened = world.open();
    assert_serves_backing(
        &opened.engine,
        &world.backing.bytes(),
        16_384,
        "after the threads",
    );
}
