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

use crate::chunk::Chunk;
use crate::hash::{SamplingHash, rate_of_threshold, threshold_of_rate};
use crate::histogram::Resolution;
use crate::stack::LruStack;

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
}

/// Tracks the stack distances of a stream of keys.
#[derive(Clone, Debug)]
pub struct Tracker {
    options: TrackerOptions,
    hash: SamplingHash,
    threshold: u64,
    weight: f64,
    limit: usize,
    /// Sampled keys by hash, only kept when their number is limited.
    by_hash: BinaryHeap<(u64, u64)>,
    stack: LruStack,
    /// Keys that have left the sample since they were last asked for.
    left: Vec<u64>,
}

impl Tracker {
    /// An empty tracker.
    ///
    /// # Panics
    /// When the rate is outside (0, 1] or the size is zero; the callers check what users give them.
    pub fn new(options: TrackerOptions) -> Self {
        let (rate, limit) = match options.sampling {
            Sampling::Exact => (1.0, usize::MAX),
            Sampling::Rate(rate) => (rate, usize::MAX),
            Sampling::Size(size) => (1.0, size),
        };
        assert!(rate > 0.0 && rate <= 1.0, "a sampling rate lies in (0, 1]");
        assert!(limit > 0, "a sample holds at least one line");
        let threshold = threshold_of_rate(rate);
        Self {
            options,
            hash: SamplingHash::new(options.salt, options.group_bits),
            threshold,
            weight: 1.0 / rate_of_threshold(threshold),
            limit,
            by_hash: BinaryHeap::new(),
            stack: LruStack::new(),
            left: Vec::new(),
        }
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
            + self.left.capacity() * size_of::<u64>()
            + self.by_hash.capacity() * size_of::<(u64, u64)>()
    }

    /// See [`LruStack::warm`].
    #[inline]
    pub fn warm(&self, keys: impl Iterator<Item = u64>) {
        self.stack.warm(keys);
    }

    /// References `key`; `None` when it is not sampled.
    #[inline]
    pub fn touch(&mut self, key: u64) -> Option<Touch> {
        if self.is_exact() {
            return Some(Touch {
                distance: self.stack.access(key),
                weight: 1.0,
            });
        }
        self.touch_hashed(key, self.hash.hash(key))
    }

    /// As [`Tracker::touch`], of a sample, for a key whose hash is known.
    #[inline]
    pub(crate) fn touch_hashed(&mut self, key: u64, hash: u64) -> Option<Touch> {
        self.samples_hash(hash).then(|| self.touch_sampled(key, hash))
    }

    /// The distances of a chunk in exact tracking; see [`LruStack::access_chunk`].
    pub(crate) fn distances(&mut self, chunk: &Chunk) -> Vec<u32> {
        self.stack.access_chunk(chunk)
    }

    /// Whether a key of this hash is in the sample at the present threshold.
    #[inline]
    pub(crate) fn samples_hash(&self, hash: u64) -> bool {
        hash <= self.threshold
    }

    /// The highest hash that is sampled now.
    pub(crate) fn threshold(&self) -> u64 {
        self.threshold
    }

    fn touch_sampled(&mut self, key: u64, hash: u64) -> Touch {
        let weight = self.weight;
        let distance = self.stack.access(key);
        if distance.is_none() && self.limit != usize::MAX {
            self.by_hash.push((hash, key));
            if self.by_hash.len() > self.limit {
                self.lower_threshold_to_limit();
            }
        }
        Touch {
            distance: distance.map(|distance| scale(distance, weight)),
            weight,
        }
    }

    /// Whether keys have left the sample since they were last asked for.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// The keys that have left the sample since they were last asked for.
    pub(crate) fn take_left(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.left.drain(..)
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
            self.stack.remove(key);
            self.left.push(key);
        }
        self.threshold = threshold;
        self.weight = 1.0 / rate_of_threshold(threshold);
    }

    /// Whether a key is in the sample at the present threshold.
    pub(crate) fn samples(&self, key: u64) -> bool {
        self.is_exact() || self.samples_hash(self.hash.hash(key))
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
    }
}

/// A distance in a sample, in lines of the trace.
#[inline]
pub(crate) fn scale(distance: u64, weight: f64) -> u64 {
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
}
