//! Threads read and write the same cells at once, where lines are filled, written, evicted and tidied: what each saw is as if
//! one request had been carried out after the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bathy_cache_model::WriteMode;

use crate::common::{LINE, MemoryStore, Random, World};
use crate::history::{CELL, History, Operation, Request, check, linearize, record};

const THREADS: u64 = 4;

/// Requests of each thread; `BATHY_TORTURE_OPS` is the number of all.
fn requests() -> u64 {
    let asked = std::env::var("BATHY_TORTURE_OPS").ok();
    asked.map_or(60_000, |text| text.parse().expect("a number of requests")) / (THREADS * MODES.len() as u64)
}

const MODES: [WriteMode; 3] = [WriteMode::Allocate, WriteMode::Update, WriteMode::Invalidate];

#[test]
fn what_threads_see_of_a_cell_is_as_if_one_request_came_after_the_other() {
    for mode in MODES {
        // Six lines, and room for three.
        let bytes = 6 * LINE;
        let mut world = World::new(bytes, 3, 1);
        world.options.write_mode = mode;
        world.backing = MemoryStore::new(vec![0; bytes as usize]);
        world.backing.set_yields();
        let engine = world.open().engine;
        let (clock, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let (clock, is_over, engine) = (&clock, &is_over, &engine);
        // In parts, so that the search has few states to remember.
        let mut operations = 0;
        for part in 0..requests().div_ceil(1000) {
            let histories: Vec<History> = std::thread::scope(|scope| {
                let run = |thread| {
                    move || {
                        let mut random = Random(part << 8 | thread);
                        let mut carry_out = |request: Request<'_>, offset| match request {
                            Request::Read(out) => engine.read(out, offset, 0).expect("the backing works"),
                            Request::Write(data) => engine.write(data, offset, 0).expect("the backing works"),
                        };
                        let cells = bytes / CELL as u64;
                        record(
                            clock,
                            thread,
                            1000,
                            cells,
                            &mut |end| random.below(end),
                            false,
                            &mut carry_out,
                        )
                    }
                };
                let running: Vec<_> = (0..THREADS).map(|thread| scope.spawn(run(thread))).collect();
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        engine.tidy();
                        std::thread::yield_now();
                    }
                });
                let histories = running
                    .into_iter()
                    .map(|it| it.join().expect("no cell is torn"))
                    .collect();
                is_over.store(true, Ordering::Relaxed);
                histories
            });
            is_over.store(false, Ordering::Relaxed);
            // The next part begins with zeroes again.
            engine
                .write(&vec![0; bytes as usize], 0, 0)
                .expect("the backing works");
            operations += check(&histories);
        }
        let counts = engine.counts();
        assert!(
            counts.reads.requests_hit > 0 && counts.evictions > 0,
            "{counts:?}"
        );
        eprintln!(
            "{mode:?}: {operations} operations on cells, {} hits",
            counts.reads.requests_hit
        );
    }
}

fn operation(began: u64, ended: u64, is_write: bool, value: u64) -> Operation {
    Operation {
        began,
        ended,
        is_write,
        value,
    }
}

#[test]
fn the_search_accepts_what_could_have_happened_and_nothing_else() {
    let (read, write) = (
        |began, ended, value| operation(began, ended, false, value),
        |began, ended, value| operation(began, ended, true, value),
    );
    // A write under way is seen by some and not yet by others, until one has seen it.
    assert!(linearize(0, &[&[write(0, 9, 1)], &[read(1, 3, 0)], &[read(2, 4, 1)]]).is_ok());
    assert!(linearize(0, &[&[write(0, 9, 1)], &[read(1, 2, 1)], &[read(3, 4, 0)]]).is_err());
    // Of two writes at once either may be the last one, for all.
    let writes = [&[write(0, 4, 1)][..], &[write(1, 5, 2)]];
    for last in [1, 2] {
        assert!(linearize(0, &[writes[0], writes[1], &[read(6, 7, last), read(8, 9, last)]]).is_ok());
    }
    assert!(linearize(0, &[writes[0], writes[1], &[read(6, 7, 1), read(8, 9, 2)]]).is_err());
    // What was acknowledged is not forgotten, and nobody reads what nobody wrote.
    assert!(linearize(0, &[&[write(0, 1, 1)], &[read(2, 3, 0)]]).is_err());
    assert!(linearize(0, &[&[write(0, 1, 1)], &[read(2, 3, 7)]]).is_err());
}

#[test]
fn the_search_finds_one_stale_read_in_a_history_of_threads() {
    let (clock, register) = (AtomicU64::new(0), AtomicU64::new(0));
    let histories: Vec<History> = std::thread::scope(|scope| {
        let run = |thread| {
            let (clock, register) = (&clock, &register);
            move || {
                let mut random = Random(thread);
                let mut carry_out = |request: Request<'_>, _| match request {
                    Request::Read(out) => {
                        let value = register.load(Ordering::SeqCst).to_le_bytes();
                        out.chunks_exact_mut(8)
                            .for_each(|word| word.copy_from_slice(&value));
                    }
                    Request::Write(data) => {
                        let value = data[..8].try_into().expect("8 bytes");
                        register.store(u64::from_le_bytes(value), Ordering::SeqCst);
                    }
                };
                record(
                    clock,
                    thread,
                    2000,
                    1,
                    &mut |end| random.below(end),
                    false,
                    &mut carry_out,
                )
            }
        };
        let running: Vec<_> = (0..THREADS).map(|thread| scope.spawn(run(thread))).collect();
        running
            .into_iter()
            .map(|it| it.join().expect("no panic"))
            .collect()
    });
    assert_eq!(check(&histories), THREADS * 2000);
    let mut threads: Vec<Vec<Operation>> = histories
        .into_iter()
        .map(|mut it| it.remove(&0).expect("a cell"))
        .collect();
    // A read returns what the second to last write before it had made.
    let written: Vec<Operation> = threads
        .iter()
        .flatten()
        .filter(|it| it.is_write)
        .copied()
        .collect();
    let late = threads[0].iter().rposition(|it| !it.is_write).expect("a read");
    let oldest = written.iter().min_by_key(|it| it.began).expect("a write");
    threads[0][late].value = oldest.value;
    let threads: Vec<&[Operation]> = threads.iter().map(Vec::as_slice).collect();
    assert!(linearize(0, &threads).is_err());
}
