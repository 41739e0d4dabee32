//! One trace in memory, several threads: each takes a piece of the time axis, and the pieces are joined in order.

use std::ops::Range;

use crate::lines::LineSize;
use crate::profile::Profile;
use crate::tracker::TrackerOptions;

/// Pieces shorter than this are not worth a thread: joining costs as much as the distinct lines of a piece.
const MIN_PIECE: usize = 65_536;

/// Splits `0..len` into at most `pieces` ranges of nearly equal length.
pub fn split(len: usize, pieces: usize) -> Vec<Range<usize>> {
    let pieces = pieces.clamp(1, len.div_ceil(MIN_PIECE).max(1));
    (0..pieces)
        .map(|piece| len * piece / pieces..len * (piece + 1) / pieces)
        .collect()
}

/// Profiles `len` items with `threads` threads; `feed` gives the items of a range to a profile.
///
/// Exact and fixed-rate profiles equal what one thread gives; for a fixed size see [`Profile::join`].
pub fn profile<F>(len: usize, threads: usize, options: TrackerOptions, line: LineSize, feed: F) -> Profile
where
    F: Fn(&mut Profile, Range<usize>) + Sync,
{
    let ranges = split(len, threads);
    if ranges.len() == 1 {
        let mut profile = Profile::new(options, line);
        feed(&mut profile, 0..len);
        return profile;
    }
    let options = TrackerOptions {
        joinable: true,
        ..options
    };
    let feed = &feed;
    let mut pieces = std::thread::scope(|scope| {
        let workers: Vec<_> = ranges
            .into_iter()
            .map(|range| {
                scope.spawn(move || {
                    let mut profile = Profile::new(options, line);
                    feed(&mut profile, range);
                    profile
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect::<Vec<_>>()
    })
    .into_iter();
    let Some(mut whole) = pieces.next() else {
        return Profile::new(options, line);
    };
    for piece in pieces {
        whole.join(piece);
    }
    whole
}

/// Profiles line numbers with `threads` threads; see [`profile`].
pub fn profile_keys(keys: &[u64], threads: usize, options: TrackerOptions, line: LineSize) -> Profile {
    profile(keys.len(), threads, options, line, |profile, range| {
        profile.access_keys(&keys[range])
    })
}
