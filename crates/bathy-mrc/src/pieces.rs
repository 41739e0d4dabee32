//! A trace cut by time: each thread profiles a piece of the time axis, and the pieces are joined in order.
//!
//! Pieces of equal length do not take equal time: a trace warms up, and a later piece must be joined. So a thread that
//! is done takes the later half of what the slowest one has left, as a piece of its own. Joining an exact piece costs
//! one access for each of its distinct lines; there, later pieces are made shorter and only long remainders are split.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::items::Items;
use crate::profile::Profile;
use crate::tracker::{Sampling, TrackerOptions};
use bathy_cache_model::LineSize;

/// Items that a thread takes from its piece at a time.
const CHUNK: usize = 32_768;

/// Pieces shorter than this are not worth a thread: joining costs as much as the distinct lines of a piece.
const MIN_PIECE: usize = 65_536;

/// Length of an exact piece relative to the one before.
const EXACT_SHRINK: f64 = 0.75;

/// What is left of each piece. A piece that was split has a new one behind it.
struct Remaining {
    pieces: Mutex<Vec<Range<usize>>>,
    /// Remainders shorter than this are not split.
    split_min: usize,
}

impl Remaining {
    /// One piece for each thread, each `shrink` times as long as the one before.
    fn new(len: usize, threads: usize, shrink: f64, split_min: usize) -> Self {
        let count = threads.clamp(1, (len / MIN_PIECE).max(1));
        let weight = |pieces: usize| (0..pieces).map(|piece| shrink.powi(piece as i32)).sum::<f64>();
        let bound = |pieces: usize| {
            if pieces == count {
                len
            } else {
                (len as f64 * weight(pieces) / weight(count)) as usize
            }
        };
        let ranges = (0..count).map(|piece| bound(piece)..bound(piece + 1));
        Self {
            pieces: Mutex::new(ranges.collect()),
            split_min,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Range<usize>>> {
        // The ranges are whole after every statement, so a panic elsewhere leaves nothing broken.
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> usize {
        self.lock().len()
    }

    /// The next chunk of a piece.
    fn take(&self, piece: usize) -> Option<Range<usize>> {
        let mut pieces = self.lock();
        let range = &mut pieces[piece];
        let end = range.end.min(range.start + CHUNK);
        let chunk = range.start..end;
        range.start = end;
        (!chunk.is_empty()).then_some(chunk)
    }

    /// Splits the piece with the most left and returns the number of the new piece.
    fn steal(&self) -> Option<usize> {
        let mut pieces = self.lock();
        let victim = pieces.iter_mut().max_by_key(ExactSizeIterator::len)?;
        if victim.len() < self.split_min {
            return None;
        }
        let middle = victim.start.midpoint(victim.end);
        let stolen = middle..victim.end;
        victim.end = middle;
        pieces.push(stolen);
        Some(pieces.len() - 1)
    }
}

/// Profiles `items` with `threads` threads, in pieces. Not for a fixed size, whose pieces would each begin at rate one.
pub(crate) fn profile(items: &Items<'_>, threads: usize, options: TrackerOptions, line: LineSize) -> Profile {
    let len = items.len();
    let remaining = if options.sampling == Sampling::Exact {
        Remaining::new(len, threads, EXACT_SHRINK, (len / 4).max(2 * MIN_PIECE))
    } else {
        Remaining::new(len, threads, 1.0, 2 * MIN_PIECE)
    };
    let workers = remaining.count();
    let more = options.joinable;
    let options = TrackerOptions {
        joinable: true,
        ..options
    };
    let remaining = &remaining;
    let work = move |first: usize| {
        let mut done = Vec::new();
        let mut piece = Some(first);
        while let Some(number) = piece {
            let mut profile = Profile::new(options, line);
            let mut start = None;
            while let Some(range) = remaining.take(number) {
                start.get_or_insert(range.start);
                profile.access_items(items, range);
            }
            done.extend(start.map(|start| (start, profile)));
            piece = remaining.steal();
        }
        done
    };
    let mut pieces: Vec<(usize, Profile)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|piece| scope.spawn(move || work(piece)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    pieces.sort_by_key(|(start, _)| *start);
    let last = pieces.len().saturating_sub(1);
    let mut pieces = pieces.into_iter().map(|(_, profile)| profile).enumerate();
    let Some((_, mut whole)) = pieces.next() else {
        return Profile::new(options, line);
    };
    for (index, piece) in pieces {
        whole.join_piece(piece, more || index < last);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_are_stolen_lose_and_double_nothing() {
        let remaining = Remaining::new(10 * MIN_PIECE, 2, 0.8, 2 * MIN_PIECE);
        let mut taken: Vec<Range<usize>> = remaining.take(0).into_iter().collect();
        while let Some(piece) = remaining.steal() {
            taken.extend(remaining.take(piece));
        }
        for piece in 0..remaining.count() {
            while let Some(range) = remaining.take(piece) {
                taken.push(range);
            }
        }
        taken.sort_by_key(|range| range.start);
        assert_eq!(taken[0].start, 0);
        assert!(taken.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(taken.last().map(|range| range.end), Some(10 * MIN_PIECE));
    }
}
