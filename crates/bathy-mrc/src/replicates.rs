//! Eight sub-samples of a sample, by whose disagreement the error of an estimate is known.

use crate::curve::Weighted;
use crate::hash::{REPLICATES, SamplingHash};
use crate::histogram::DistanceHistogram;
use crate::recorder::Ops;
use crate::self_check::relative_stderr;
use crate::stack::{LruStack, WARM_AHEAD};
use crate::tracker::{TrackerOptions, scale};

/// What happened to a key of the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ReplicateStep {
    /// It was referenced, and stands for so many references.
    Touch { key: u64, weight: f64, write: bool },
    /// It left the sample.
    Leave(u64),
}

/// The sub-samples, each with a stack and a histogram of its own.
#[derive(Clone, Debug)]
pub(crate) struct Replicates {
    hash: SamplingHash,
    stacks: Vec<LruStack>,
    /// Of each replicate, reads and writes.
    histograms: Vec<[DistanceHistogram; 2]>,
}

impl Replicates {
    pub(crate) fn new(options: &TrackerOptions) -> Self {
        Self {
            hash: SamplingHash::new(options.salt, options.group_bits),
            stacks: vec![LruStack::new(); REPLICATES],
            histograms: vec![[0, 1].map(|_| DistanceHistogram::new(options.resolution())); REPLICATES],
        }
    }

    /// Follows what happened to the sample.
    pub(crate) fn follow(&mut self, steps: &[ReplicateStep]) {
        for steps in steps.chunks(WARM_AHEAD) {
            for step in steps {
                if let &ReplicateStep::Touch { key, .. } = step {
                    self.stacks[self.replicate_of(key)].warm(std::iter::once(key));
                }
            }
            for &step in steps {
                match step {
                    ReplicateStep::Touch { key, weight, write } => {
                        let (replicate, distance) = self.access(key, weight);
                        self.histograms[replicate][usize::from(write)]
                            .add_option(distance, weight * REPLICATES as f64);
                    }
                    ReplicateStep::Leave(key) => {
                        let replicate = self.replicate_of(key);
                        self.stacks[replicate].remove(key);
                    }
                }
            }
        }
    }

    /// References a key without recording it: its replicate, and the distance as the replicate alone estimates it.
    pub(crate) fn access(&mut self, key: u64, weight: f64) -> (usize, Option<u64>) {
        let replicate = self.replicate_of(key);
        let distance = self.stacks[replicate].access(key);
        (
            replicate,
            distance.map(|distance| scale(distance, weight * REPLICATES as f64)),
        )
    }

    /// A first touch was a reuse at a distance in a replicate of the piece before.
    pub(crate) fn resolve(&mut self, replicate: usize, distance: u64, weight: f64, write: bool) {
        self.histograms[replicate][usize::from(write)].move_from_cold(distance, weight * REPLICATES as f64);
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

    /// What each replicate alone says of each size, for `total` references to lines by these operations.
    pub(crate) fn weighted(&self, sizes_lines: &[u64], ops: Ops, total: f64) -> Vec<Weighted> {
        let of_replicate = |replicate: &[DistanceHistogram; 2]| {
            let mut sum = Weighted {
                misses: vec![0.0; sizes_lines.len()],
                ..Weighted::default()
            };
            for (histogram, counts) in replicate.iter().zip([ops != Ops::Writes, ops != Ops::Reads]) {
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
        self.histograms.iter().map(of_replicate).collect()
    }

    /// Relative standard error of the number of lines that the sample stands for.
    pub(crate) fn lines_stderr(&self) -> f64 {
        relative_stderr(&std::array::from_fn(|replicate| {
            self.stacks[replicate].len() as f64
        }))
    }

    #[inline]
    fn replicate_of(&self, key: u64) -> usize {
        self.hash.replicate(key, self.hash.hash(key))
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
    use crate::tracker::Sampling;

    #[test]
    fn a_key_that_left_is_a_first_touch_again() {
        let mut replicates = Replicates::new(&TrackerOptions::new(Sampling::Size(100)));
        let touch = ReplicateStep::Touch {
            key: 5,
            weight: 1.0,
            write: false,
        };
        replicates.follow(&[touch, touch]);
        assert_eq!(replicates.access(5, 1.0).1, Some(0));
        replicates.follow(&[ReplicateStep::Leave(5)]);
        assert_eq!(replicates.access(5, 1.0).1, None);
    }
}
