//! Eight sub-samples of a sample, by whose disagreement the error of an estimate is known.

use crate::curve::Weighted;
use crate::hash::mix64;
use crate::histogram::DistanceHistogram;
use crate::profile::Ops;
use crate::stack::{LruStack, WARM_AHEAD};
use crate::tracker::{TrackerOptions, scale};

/// Number of sub-samples.
pub const LANES: usize = 8;

/// What happened to a key of the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LaneStep {
    /// It was referenced, and stands for so many references.
    Touch { key: u64, weight: f64, write: bool },
    /// It left the sample.
    Leave(u64),
}

/// The sub-samples, each with a stack and a histogram of its own.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    salt: u64,
    group_bits: u32,
    stacks: Vec<LruStack>,
    /// Of each lane, reads and writes.
    histograms: Vec<[DistanceHistogram; 2]>,
}

impl Lanes {
    pub(crate) fn new(options: &TrackerOptions) -> Self {
        Self {
            salt: options.salt,
            group_bits: options.group_bits,
            stacks: vec![LruStack::new(); LANES],
            histograms: vec![[0, 1].map(|_| DistanceHistogram::new(options.resolution())); LANES],
        }
    }

    /// Follows what happened to the sample.
    pub(crate) fn follow(&mut self, steps: &[LaneStep]) {
        for steps in steps.chunks(WARM_AHEAD) {
            for step in steps {
                if let &LaneStep::Touch { key, .. } = step {
                    self.stacks[self.lane_of(key)].warm(std::iter::once(key));
                }
            }
            for &step in steps {
                match step {
                    LaneStep::Touch { key, weight, write } => {
                        let (lane, distance) = self.access(key, weight);
                        self.histograms[lane][usize::from(write)].add_option(distance, weight * LANES as f64);
                    }
                    LaneStep::Leave(key) => {
                        let lane = self.lane_of(key);
                        self.stacks[lane].remove(key);
                    }
                }
            }
        }
    }

    /// References a key without recording it: its lane, and the distance as the lane alone estimates it.
    pub(crate) fn access(&mut self, key: u64, weight: f64) -> (usize, Option<u64>) {
        let lane = self.lane_of(key);
        let distance = self.stacks[lane].access(key);
        (
            lane,
            distance.map(|distance| scale(distance, weight * LANES as f64)),
        )
    }

    /// A first touch was a reuse at a distance in a lane of the piece before.
    pub(crate) fn resolve(&mut self, lane: usize, distance: u64, weight: f64, write: bool) {
        self.histograms[lane][usize::from(write)].move_from_cold(distance, weight * LANES as f64);
    }

    /// Adds what the piece that follows has recorded.
    pub(crate) fn merge(&mut self, later: &Self) {
        let theirs = later.histograms.iter().flatten();
        for (mine, theirs) in self.histograms.iter_mut().flatten().zip(theirs) {
            mine.merge(theirs);
        }
    }

    /// Takes over the order of the last touches of the piece that follows, of the keys to keep.
    pub(crate) fn finish_join(&mut self, later: &Self, keep: impl Fn(u64) -> bool) {
        for (mine, theirs) in self.stacks.iter_mut().zip(&later.stacks) {
            for key in theirs.keys_oldest_first().filter(|&key| keep(key)) {
                mine.raise(key);
            }
        }
    }

    /// What each lane alone says of each size, for `total` references to lines by these operations.
    pub(crate) fn weighted(&self, sizes_lines: &[u64], ops: Ops, total: f64) -> Vec<Weighted> {
        let of_lane = |lane: &[DistanceHistogram; 2]| {
            let mut sum = Weighted {
                misses: vec![0.0; sizes_lines.len()],
                ..Weighted::default()
            };
            for (histogram, counts) in lane.iter().zip([ops != Ops::Writes, ops != Ops::Reads]) {
                if counts {
                    sum.add(&Weighted {
                        misses: histogram.miss_weights(sizes_lines),
                        cold: histogram.cold(),
                        sampled: histogram.total(),
                        total: 0.0,
                    });
                }
            }
            Weighted { total, ..sum }
        };
        self.histograms.iter().map(of_lane).collect()
    }

    /// The lanes split the sample as evenly among neighbours as the sample splits the lines: the digit sum in base
    /// eight moves on by a part of a turn whatever power of two lies between two neighbouring samples.
    #[inline]
    fn lane_of(&self, key: u64) -> usize {
        let unit = key >> self.group_bits;
        let digits = unit + (unit >> 3) + (unit >> 6) + (unit >> 9);
        ((digits + mix64((unit >> 12) ^ self.salt)) % LANES as u64) as usize
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let stacks: usize = self.stacks.iter().map(LruStack::memory_bytes).sum();
        let histograms = self.histograms.iter().flatten();
        let histograms: usize = histograms.map(DistanceHistogram::memory_bytes).sum();
        stacks + histograms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::SamplingHash;
    use crate::hash::threshold_of_rate;
    use crate::tracker::Sampling;

    #[test]
    fn lanes_share_a_sequential_sample_evenly() {
        let options = TrackerOptions::new(Sampling::Rate(1.0 / 32.0));
        let hash = SamplingHash::new(options.salt, options.strata_bits, options.group_bits);
        let threshold = threshold_of_rate(1.0 / 32.0);
        let lanes = Lanes::new(&options);
        let mut counts = [0usize; LANES];
        for key in (0..262_144u64).filter(|&key| hash.hash(key) <= threshold) {
            counts[lanes.lane_of(key)] += 1;
        }
        assert_eq!(counts.iter().sum::<usize>(), 8192);
        assert!(counts.iter().all(|&c| (900..1150).contains(&c)), "{counts:?}");
    }

    #[test]
    fn a_key_that_left_is_a_first_touch_again() {
        let mut lanes = Lanes::new(&TrackerOptions::new(Sampling::Size(100)));
        let touch = LaneStep::Touch {
            key: 5,
            weight: 1.0,
            write: false,
        };
        lanes.follow(&[touch, touch]);
        assert_eq!(lanes.access(5, 1.0).1, Some(0));
        lanes.follow(&[LaneStep::Leave(5)]);
        assert_eq!(lanes.access(5, 1.0).1, None);
    }
}
