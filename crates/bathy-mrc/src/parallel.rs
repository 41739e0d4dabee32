//! One trace in memory, several threads.
//!
//! A sample of a fixed size is cut by its work: one thread tracks the sample, another the lanes that tell its error.
//! Pieces of time would each begin at rate one and cost more than they save.
//!
//! All else is cut by time: each thread takes a piece of the time axis, and the pieces are joined in order.
//!
//! Pieces of equal length do not take equal time: a trace warms up, and a later piece must be joined. So a thread that
//! is done takes the later half of what the slowest one has left, as a piece of its own. Joining an exact piece costs
//! one access for each of its distinct lines; there, later pieces are made shorter and only long remainders are split.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::lines::LineSize;
use crate::profile::Profile;
use crate::tracker::{Half, Sampling, TrackerOptions};

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

/// Profiles `len` items with `threads` threads; `feed` gives the items of a range to a profile.
///
/// Every profile equals what one thread gives. A fixed size uses two threads at most.
pub fn profile<F>(len: usize, threads: usize, options: TrackerOptions, line: LineSize, feed: F) -> Profile
where
    F: Fn(&mut Profile, Range<usize>) + Sync,
{
    if matches!(options.sampling, Sampling::Size(_)) && threads > 1 && len >= MIN_PIECE {
        return sample_and_lanes(len, options, line, feed);
    }
    let remaining = if options.sampling == Sampling::Exact {
        Remaining::new(len, threads, EXACT_SHRINK, (len / 4).max(2 * MIN_PIECE))
    } else {
        Remaining::new(len, threads, 1.0, 2 * MIN_PIECE)
    };
    let workers = remaining.count();
    if workers == 1 {
        let mut profile = Profile::new(options, line);
        feed(&mut profile, 0..len);
        return profile;
    }
    let more = options.joinable;
    let options = TrackerOptions {
        joinable: true,
        ..options
    };
    let (feed, remaining) = (&feed, &remaining);
    let work = move |first: usize| {
        let mut done = Vec::new();
        let mut piece = Some(first);
        while let Some(number) = piece {
            let mut profile = Profile::new(options, line);
            let mut start = None;
            while let Some(range) = remaining.take(number) {
                start.get_or_insert(range.start);
                feed(&mut profile, range);
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

/// A sample of a fixed size in one thread, its lanes in another.
fn sample_and_lanes<F>(len: usize, options: TrackerOptions, line: LineSize, feed: F) -> Profile
where
    F: Fn(&mut Profile, Range<usize>) + Sync,
{
    let half = |half: Half| {
        let mut profile = Profile::of_half(options, line, half);
        feed(&mut profile, 0..len);
        profile
    };
    let (mut sample, lanes) = std::thread::scope(|scope| {
        let lanes = scope.spawn(|| half(Half::Lanes));
        let sample = half(Half::Sample);
        let lanes = lanes
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sample, lanes)
    });
    sample.complete(lanes);
    sample
}

/// Profiles line numbers with `threads` threads; see [`profile`].
pub fn profile_keys(keys: &[u64], threads: usize, options: TrackerOptions, line: LineSize) -> Profile {
    profile(keys.len(), threads, options, line, |profile, range| {
        profile.access_keys(&keys[range]);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ops, Unit};

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

    #[test]
    fn any_number_of_threads_gives_the_same_curve() {
        let keys: Vec<u64> = (0..500_000u64)
            .map(|step| crate::hash::mix64(step) % (1 + step / 10))
            .collect();
        let line = LineSize::new(4096).expect("valid");
        let sizes: Vec<u64> = (0..300).map(|step| step * 100).collect();
        for sampling in [Sampling::Exact, Sampling::Rate(0.1)] {
            let options = TrackerOptions::new(sampling);
            let one = profile_keys(&keys, 1, options, line).curve(&sizes, Unit::Lines, Ops::All);
            for threads in [2, 3, 7] {
                let many = profile_keys(&keys, threads, options, line).curve(&sizes, Unit::Lines, Ops::All);
                assert!(
                    one.miss_ratio
                        .iter()
                        .zip(&many.miss_ratio)
                        .all(|(a, b)| (a - b).abs() < 1e-12)
                );
            }
        }
    }

    #[test]
    fn a_profile_of_several_threads_goes_on_as_that_of_one() {
        let keys: Vec<u64> = (0..600_000u64)
            .map(|step| crate::hash::mix64(step) % 50_000)
            .collect();
        let (head, tail) = keys.split_at(400_000);
        let line = LineSize::new(4096).expect("valid");
        let sizes: Vec<u64> = (0..100).map(|step| step * 500).collect();
        for sampling in [Sampling::Exact, Sampling::Rate(0.1), Sampling::Size(1000)] {
            let options = TrackerOptions::new(sampling);
            let [one, two] = [1, 2].map(|threads| {
                let mut profile = profile_keys(head, threads, options, line);
                profile.access_keys(tail);
                profile.curve(&sizes, Unit::Lines, Ops::All).miss_ratio
            });
            assert!(one.iter().zip(&two).all(|(a, b)| (a - b).abs() < 1e-12));
        }
    }

    #[test]
    fn a_sample_and_its_lanes_apart_equal_both_together() {
        let line = LineSize::new(4096).expect("valid");
        let sizes: Vec<u64> = (0..300).map(|step| step * 100).collect();
        let feed = |profile: &mut Profile, range: Range<usize>| {
            for step in range {
                let random = crate::hash::mix64(step as u64);
                profile.access_io(crate::Io {
                    offset_bytes: random % (1 + step as u64 / 10) * 4096,
                    length_bytes: 4096 << (random >> 62),
                    write: random & (1 << 40) == 0,
                    volume: 0,
                });
            }
        };
        for joinable in [false, true] {
            let options = TrackerOptions {
                joinable,
                ..TrackerOptions::new(Sampling::Size(1000))
            };
            let [mut one, mut two] = [1, 2].map(|threads| profile(200_000, threads, options, line, feed));
            assert_eq!(one.tracker().tracked(), two.tracker().tracked());
            // What follows finds both in the same state.
            feed(&mut one, 200_000..250_000);
            feed(&mut two, 200_000..250_000);
            for unit in [Unit::Lines, Unit::Requests, Unit::Bytes] {
                for ops in [Ops::Reads, Ops::Writes] {
                    assert_eq!(one.curve(&sizes, unit, ops), two.curve(&sizes, unit, ops));
                    assert_eq!(one.self_check(&sizes).stderr(), two.self_check(&sizes).stderr());
                }
            }
        }
    }
}
