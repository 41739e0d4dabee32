//! Histories of requests at once, and whether they are linearizable: whether each request could have happened at one moment
//! between its begin and its end (Herlihy and Wing 1990). Each cell of 512 bytes is a register, and is searched for itself, as
//! Wing and Gong (1993) do, with the states remembered that led nowhere (Lowe 2017). Each thread has one request at a time, so a
//! state is how far each thread is and what the register holds.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const CELL: usize = 512;

/// What a request did to a cell, between two ticks of the clock of all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) is_write: bool,
    /// Written or found.
    pub(crate) value: u64,
}

/// What one thread did to each register, by its first byte, in order.
pub(crate) type History = BTreeMap<u64, Vec<Operation>>;

/// A request for the store under test.
pub(crate) enum Request<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
}

/// Makes requests for the first `cells` cells as thread `thread`, each with values of its own.
///
/// The kernel copies to and from its page cache without a lock: a buffered read finds parts of a buffered write that it meets,
/// also on the bare directory (of 200 million cells that were read from ext4 while two threads wrote, 18,687). Where cells
/// `may_tear` so, their first, a middle and their last word are registers of their own.
pub(crate) fn record(
    clock: &AtomicU64,
    thread: u64,
    requests: u64,
    cells: u64,
    below: &mut dyn FnMut(u64) -> u64,
    may_tear: bool,
    carry_out: &mut dyn FnMut(Request<'_>, u64),
) -> History {
    let mut history = History::new();
    for number in 1..=requests {
        // Threads meet in the first cells; the others drive lines out.
        let reach = if below(4) == 0 { cells } else { cells / 8 };
        let first = below(reach.max(1));
        let range: Range<u64> = first..(first + 1 + below(20)).min(cells);
        let mut bytes = vec![0; (range.end - range.start) as usize * CELL];
        let is_write = below(2) == 0;
        for cell in bytes.chunks_exact_mut(8) {
            cell.copy_from_slice(&(number << 8 | thread).to_le_bytes());
        }
        let offset = range.start * CELL as u64;
        let began = clock.fetch_add(1, Ordering::SeqCst);
        if is_write {
            carry_out(Request::Write(&bytes), offset);
        } else {
            carry_out(Request::Read(&mut bytes), offset);
        }
        let ended = clock.fetch_add(1, Ordering::SeqCst);
        for (cell, bytes) in range.zip(bytes.chunks_exact(CELL)) {
            let is_possible = |word: &[u8]| {
                let number = word[1..]
                    .iter()
                    .rev()
                    .fold(0, |number, &byte| number << 8 | u64::from(byte));
                may_tear && number <= requests || *word == bytes[..8]
            };
            assert!(
                bytes.chunks_exact(8).all(is_possible),
                "thread {thread} request {number}: half of a write in cell {cell}"
            );
            for place in [0, CELL / 2, CELL - 8]
                .into_iter()
                .take(if may_tear { 3 } else { 1 })
            {
                let word = bytes[place..place + 8].try_into().expect("8 bytes");
                let register = cell * CELL as u64 + place as u64;
                history.entry(register).or_default().push(Operation {
                    began,
                    ended,
                    is_write,
                    value: u64::from_le_bytes(word),
                });
            }
        }
    }
    history
}

/// Checks all cells, which held zeroes at first. How many operations there were.
pub(crate) fn check(histories: &[History]) -> u64 {
    let mut cells: BTreeMap<u64, Vec<&[Operation]>> = BTreeMap::new();
    for (cell, operations) in histories.iter().flatten() {
        cells.entry(*cell).or_default().push(operations);
    }
    for (cell, threads) in &cells {
        linearize(0, threads).unwrap_or_else(|stuck| panic!("byte {cell}: {stuck}"));
    }
    cells
        .values()
        .flatten()
        .map(|operations| operations.len() as u64)
        .sum()
}

/// Searches an order of the operations of one register. The error is where the longest one ends.
pub(crate) fn linearize(initial: u64, threads: &[&[Operation]]) -> Result<(), String> {
    let mut waiting = vec![(vec![0_usize; threads.len()], initial)];
    let mut seen = HashSet::new();
    let mut furthest = (0, String::new());
    while let Some((mut done, value)) = waiting.pop() {
        let next = |done: &[usize]| -> Vec<(usize, Operation)> {
            let each = threads.iter().zip(done).enumerate();
            let all: Vec<_> = each
                .filter_map(|(thread, (it, &at))| Some((thread, *it.get(at)?)))
                .collect();
            // Only what began before everything else that is left had ended can be first.
            let first_end = all.iter().map(|(_, it)| it.ended).min().unwrap_or(0);
            all.into_iter().filter(|(_, it)| it.began < first_end).collect()
        };
        let mut candidates = next(&done);
        // A read that finds the value may go first without harm to any other order.
        while let Some((thread, _)) = candidates
            .iter()
            .find(|(_, it)| !it.is_write && it.value == value)
        {
            done[*thread] += 1;
            candidates = next(&done);
        }
        if candidates.is_empty() {
            return Ok(());
        }
        if !seen.insert((done.clone(), value)) {
            continue;
        }
        let length = done.iter().sum::<usize>();
        if length >= furthest.0 {
            furthest = (
                length,
                format!("after {length} operations it holds {value:#x}: {candidates:?}"),
            );
        }
        for (thread, it) in candidates.into_iter().filter(|(_, it)| it.is_write) {
            let mut done = done.clone();
            done[thread] += 1;
            waiting.push((done, it.value));
        }
    }
    Err(furthest.1)
}
