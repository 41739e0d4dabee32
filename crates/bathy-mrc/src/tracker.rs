//! Stack distances of a stream of keys: of all of them, of a fixed share, or of a fixed number.
//!
//! *Exact* is Mattson's stack. *Fixed rate* is SHARDS (Waldspurger et al., FAST'15): only keys whose hash lies
//! under a threshold are tracked, and a distance among them stands for `1 / rate` times as many lines. *Fixed size*
//! keeps at most so many keys and lowers the threshold when one more arrives, so memory is bounded whatever the trace
//! holds. A sampled reference carries the weight `1 / rate` of the moment, so no histogram needs rescaling later.
//!
//! Two pieces of a trace can be tracked apart and joined (Niu et al., PARDA, IPDPS'12): the only distances that a
//! piece cannot know are those of its own first touches, and replaying these in order onto the stack of the piece
//! before yields exactly the distances that one pass would have seen.

use std::collections::BinaryHeap;

use crate::hash::{DEFAULT_STRATA_BITS, SamplingHash, mix64, rate_of_threshold, threshold_of_rate};
use crate::histogram::Resolution;
use crate::stack::LruStack;

/// Number of sub-samples by which an estimate is checked against itself.
pub const LANES: usize = 8;

/// What a tracker of a sample keeps. A key is in the sample exactly when it is in the lane that its number names, so
/// either half meets the same first touches and lowers its threshold at the same moments: both can run by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// The sample and its lanes.
    Both,
    /// The sample.
    Sample,
    /// The lanes.
    Lanes,
}

/// How many of the keys are tracked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// All. Memory grows with the distinct lines of the trace.
    Exact,
    /// A fixed share in (0, 1]. Memory grows with the distinct lines times the rate.
    Rate(f64),
    /// At most this many lines. Memory is bounded.
    Size(usize),
}

/// What to sample and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrackerOptions {
    /// How many of the keys are tracked.
    pub sampling: Sampling,
    /// Selects one of 2^64 samples.
    pub salt: u64,
    /// Neighbouring lines among which samples are spread evenly, as a power of two; see [`SamplingHash`].
    pub strata_bits: u32,
    /// Neighbouring lines that are sampled together, as a power of two.
    pub group_bits: u32,
    /// Whether the result can be joined to that of the piece of trace before it; costs memory per first touch.
    pub joinable: bool,
}

impl TrackerOptions {
    /// The defaults that the accuracy figures are measured with.
    pub fn new(sampling: Sampling) -> Self {
        Self {
            sampling,
            salt: 0,
            strata_bits: DEFAULT_STRATA_BITS,
            group_bits: 0,
            joinable: false,
        }
    }

    /// The histogram resolution that suits the sampling.
    pub fn resolution(&self) -> Resolution {
        if self.sampling == Sampling::Exact {
            Resolution::Exact
        } else {
            Resolution::LogLinear
        }
    }
}

/// A sampled reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touch {
    /// Estimated number of distinct other lines since the last touch; `None` at the first.
    pub distance: Option<u64>,
    /// References that this one stands for.
    pub weight: f64,
    /// Sub-sample of the key, and the distance as that sub-sample alone estimates it. Absent in exact tracking.
    pub lane: Option<(usize, Option<u64>)>,
}

/// Tracks the stack distances of a stream of keys.
#[derive(Clone, Debug)]
pub struct Tracker {
    options: TrackerOptions,
    half: Half,
    hash: SamplingHash,
    threshold: u64,
    weight: f64,
    limit: usize,
    /// Sampled keys by hash, only kept when their number is limited.
    by_hash: BinaryHeap<(u64, u64)>,
    stack: LruStack,
    lanes: Vec<LruStack>,
}

impl Tracker {
    /// An empty tracker.
    ///
    /// # Panics
    /// When the rate is outside (0, 1] or the size is zero; the callers check what users give them.
    pub fn new(options: TrackerOptions) -> Self {
        Self::of_half(options, Half::Both)
    }

    /// As [`Tracker::new`], for half of the work on a sample; see [`Tracker::complete`].
    pub(crate) fn of_half(options: TrackerOptions, half: Half) -> Self {
        let (rate, limit) = match options.sampling {
            Sampling::Exact => (1.0, usize::MAX),
            Sampling::Rate(rate) => (rate, usize::MAX),
            Sampling::Size(size) => (1.0, size),
        };
        assert!(rate > 0.0 && rate <= 1.0, "a sampling rate lies in (0, 1]");
        assert!(limit > 0, "a sample holds at least one line");
        let threshold = threshold_of_rate(rate);
        let lanes = if options.sampling == Sampling::Exact {
            0
        } else {
            LANES
        };
        Self {
            options,
            half,
            hash: SamplingHash::new(options.salt, options.strata_bits, options.group_bits),
            threshold,
            weight: 1.0 / rate_of_threshold(threshold),
            limit,
            by_hash: BinaryHeap::new(),
            stack: LruStack::new(),
            lanes: vec![LruStack::new(); lanes],
        }
    }

    /// What it keeps.
    #[inline]
    pub(crate) fn half(&self) -> Half {
        self.half
    }

    /// Takes over the lanes of the other half, which saw the same keys in the same order.
    pub(crate) fn complete(&mut self, lanes: Self) {
        debug_assert_eq!((self.half, lanes.half), (Half::Sample, Half::Lanes));
        debug_assert_eq!(self.threshold, lanes.threshold, "both halves sample the same");
        self.lanes = lanes.lanes;
        self.half = Half::Both;
    }

    /// The options it was made with.
    pub fn options(&self) -> &TrackerOptions {
        &self.options
    }

    /// Whether every key is tracked by definition rather than because the rate happens to be one.
    pub fn is_exact(&self) -> bool {
        self.options.sampling == Sampling::Exact
    }

    /// The share of keys that is sampled now.
    pub fn rate(&self) -> f64 {
        1.0 / self.weight
    }

    /// Keys tracked now.
    pub fn tracked(&self) -> usize {
        self.stack.len()
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.stack.memory_bytes()
            + self.lanes.iter().map(LruStack::memory_bytes).sum::<usize>()
            + self.by_hash.capacity() * size_of::<(u64, u64)>()
    }

    /// Positions of the keys of `keys` that are sampled now; a superset of those that still are when their turn comes.
    #[inline]
    pub(crate) fn filter(&self, keys: &[u64], out: &mut Vec<u32>) {
        self.hash.filter(keys, self.threshold, out);
    }

    /// See [`LruStack::warm`].
    #[inline]
    pub(crate) fn warm(&self, keys: impl Iterator<Item = u64>) {
        self.stack.warm(keys);
    }

    /// References `key`; `None` when it is not sampled.
    #[inline]
    pub fn touch(&mut self, key: u64) -> Option<Touch> {
        if self.is_exact() {
            return Some(Touch {
                distance: self.stack.access(key),
                weight: 1.0,
                lane: None,
            });
        }
        let hash = self.hash.hash(key);
        if hash > self.threshold {
            None
        } else {
            Some(self.touch_sampled(key, hash))
        }
    }

    fn touch_sampled(&mut self, key: u64, hash: u64) -> Touch {
        let weight = self.weight;
        let distance = (self.half != Half::Lanes).then(|| self.stack.access(key));
        let lane = (self.half != Half::Sample).then(|| {
            let lane = self.lane_of(key);
            (lane, self.lanes[lane].access(key))
        });
        let first = distance
            .or(lane.map(|(_, distance)| distance))
            .is_some_and(|distance| distance.is_none());
        if first && self.limit != usize::MAX {
            self.by_hash.push((hash, key));
            if self.by_hash.len() > self.limit {
                self.lower_threshold_to_limit();
            }
        }
        Touch {
            distance: distance.flatten().map(|d| scale(d, weight)),
            weight,
            lane: lane.map(|(lane, distance)| (lane, distance.map(|d| scale(d, weight * LANES as f64)))),
        }
    }

    /// The lanes split the sample as evenly among neighbours as the sample splits the lines: the digit sum in base
    /// eight moves on by a part of a turn whatever power of two lies between two neighbouring samples.
    #[inline]
    fn lane_of(&self, key: u64) -> usize {
        let unit = key >> self.options.group_bits;
        let digits = unit + (unit >> 3) + (unit >> 6) + (unit >> 9);
        ((digits + mix64((unit >> 12) ^ self.options.salt)) % LANES as u64) as usize
    }

    fn lower_threshold_to_limit(&mut self) {
        while self.by_hash.len() > self.limit {
            let Some(&(largest, _)) = self.by_hash.peek() else {
                return;
            };
            self.set_threshold(largest.saturating_sub(1));
        }
    }

    /// Drops every key above `threshold`. Equal hashes leave together, so the sample stays a set of whole groups.
    fn set_threshold(&mut self, threshold: u64) {
        while let Some(&(hash, key)) = self.by_hash.peek() {
            if hash <= threshold {
                break;
            }
            self.by_hash.pop();
            if self.half != Half::Lanes {
                self.stack.remove(key);
            }
            if self.half != Half::Sample {
                let lane = self.lane_of(key);
                self.lanes[lane].remove(key);
            }
        }
        self.threshold = threshold;
        self.weight = 1.0 / rate_of_threshold(threshold);
    }

    /// Whether a key is in the sample at the present threshold.
    pub(crate) fn samples(&self, key: u64) -> bool {
        self.is_exact() || self.hash.hash(key) <= self.threshold
    }

    /// Brings two trackers of a fixed size to the lower threshold of the two, before the first touches of the later
    /// one are replayed onto the earlier one.
    pub(crate) fn align(&mut self, later: &mut Self) {
        if self.limit != usize::MAX {
            let threshold = self.threshold.min(later.threshold);
            self.set_threshold(threshold);
            later.set_threshold(threshold);
        }
    }

    /// After the first touches of `later` were replayed: takes over the order of its last touches.
    pub(crate) fn finish_join(&mut self, later: &Self) {
        // The replay itself may have lowered the threshold of a fixed size.
        for key in later
            .stack
            .keys_oldest_first()
            .filter(|&key| self.hash.hash(key) <= self.threshold)
        {
            self.stack.raise(key);
        }
        for (mine, theirs) in self.lanes.iter_mut().zip(&later.lanes) {
            for key in theirs
                .keys_oldest_first()
                .filter(|&key| self.hash.hash(key) <= self.threshold)
            {
                mine.raise(key);
            }
        }
    }
}

#[inline]
fn scale(distance: u64, weight: f64) -> u64 {
    (distance as f64 * weight) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_size_is_never_exceeded_and_the_rate_follows() {
        let mut tracker = Tracker::new(TrackerOptions::new(Sampling::Size(100)));
        for key in 0..50_000u64 {
            tracker.touch(key);
            assert!(tracker.tracked() <= 100);
        }
        let expected = 100.0 / 50_000.0;
        assert!(
            (tracker.rate() / expected - 1.0).abs() < 0.3,
            "rate {}",
            tracker.rate()
        );
        assert!(tracker.memory_bytes() < 1 << 20);
    }

    #[test]
    fn lanes_share_a_sequential_sample_evenly() {
        let mut tracker = Tracker::new(TrackerOptions::new(Sampling::Rate(1.0 / 32.0)));
        let mut counts = [0usize; LANES];
        for key in 0..262_144u64 {
            if let Some(Touch {
                lane: Some((lane, _)),
                ..
            }) = tracker.touch(key)
            {
                counts[lane] += 1;
            }
        }
        let total: usize = counts.iter().sum();
        assert_eq!(total, 8192);
        assert!(counts.iter().all(|&c| (900..1150).contains(&c)), "{counts:?}");
    }
}
