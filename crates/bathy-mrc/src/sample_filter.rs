//! Which lines of a trace are in the sample: the part of sampling that needs no memory of what came before.

use std::ops::Range;

use crate::hash::SamplingHash;
use crate::items::Items;
use crate::recorder::Totals;
use crate::tracker::TrackerOptions;
use bathy_cache_model::{Io, LineSize};

/// A line of a request that is in the sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledLine {
    pub(crate) key: u64,
    pub(crate) hash: u64,
    /// Share of the request's lines.
    pub(crate) share: f64,
    /// Bytes that the request covers.
    pub(crate) bytes: u32,
    /// Tells the requests of a batch apart.
    pub(crate) request: u32,
    pub(crate) write: bool,
}

/// The sampled lines of a batch, and the totals of all.
#[derive(Debug)]
pub(crate) enum Filtered {
    /// How many keys there were; those in the sample with their hashes.
    Keys { count: usize, sampled: Vec<(u64, u64)> },
    /// Lines of requests.
    Requests {
        /// Of reads, then of writes.
        totals: [Totals; 2],
        sampled: Vec<SampledLine>,
    },
}

/// Filters the items of `range` at a threshold that may only be lowered before they are referenced.
pub(crate) fn filter_items(
    items: &Items<'_>,
    range: Range<usize>,
    options: &TrackerOptions,
    line: LineSize,
    threshold: u64,
) -> Filtered {
    match items {
        Items::Keys(keys) => filter_keys(&keys[range], options, threshold),
        Items::Requests(columns) => filter_ios(columns.ios(range), options, line, threshold),
    }
}

fn hash_of(options: &TrackerOptions) -> SamplingHash {
    SamplingHash::new(options.salt, options.group_bits)
}

fn filter_keys(keys: &[u64], options: &TrackerOptions, threshold: u64) -> Filtered {
    let (hash, mut positions) = (hash_of(options), Vec::new());
    hash.filter(keys, threshold, &mut positions);
    let sampled = positions.iter().map(|&position| {
        let key = keys[position as usize];
        (key, hash.hash(key))
    });
    Filtered::Keys {
        count: keys.len(),
        sampled: sampled.collect(),
    }
}

/// As [`filter_items`], of requests one by one; fewer than 2^32.
pub(crate) fn filter_ios(
    ios: impl Iterator<Item = Io>,
    options: &TrackerOptions,
    line: LineSize,
    threshold: u64,
) -> Filtered {
    let hash = hash_of(options);
    let (mut sampled, mut totals) = (Vec::new(), [Totals::default(); 2]);
    for (request, io) in ios.enumerate() {
        let pieces = line.pieces(io);
        totals[usize::from(io.write)].count(io, pieces.lines());
        let share = 1.0 / pieces.lines() as f64;
        let lines = pieces.map(|(key, bytes)| SampledLine {
            key,
            hash: hash.hash(key),
            share,
            bytes,
            request: request as u32,
            write: io.write,
        });
        sampled.extend(lines.filter(|line| line.hash <= threshold));
    }
    Filtered::Requests { totals, sampled }
}
