//! The miss-ratio curve of the running cache: what another size would give.
//!
//! Fixed-size SHARDS (Waldspurger et al., FAST'15): the stack distances of at most so many lines, chosen by a hash of their
//! keys. It is that of LRU; the other policies of a cache miss about a tenth less. A line is cached in units: one that was
//! read or written before is there in caches of which the line has not left since. So for each unit the greatest
//! distance of its line since then is kept.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bathy_mrc::hash::{SamplingHash, threshold_of_rate};
use bathy_mrc::histogram::{DistanceHistogram, Resolution};
use bathy_mrc::{Sampling, Tracker, TrackerOptions};

use crate::engine::lock;
use crate::sync::Mutex;

/// Lines that are followed at most: the error is about a point.
const SAMPLED_LINES: usize = 3072;
/// Lines that left the sample are forgotten when there are so many.
const LINES_MAX: usize = SAMPLED_LINES + 512;
/// A line has 16 units at most.
const UNITS: usize = 16;
/// Of a unit that was never read or written.
const NEVER: u32 = u32::MAX;

/// What a cache of another size would have served of the reads since the start.
#[derive(Clone, Debug, PartialEq)]
pub struct MissRatioCurve {
    /// Reads of lines: a request counts once for each line that it touches.
    pub reads: u64,
    /// Of these, the reads of lines in the sample.
    pub reads_sampled: u64,
    /// The share of lines that is in the sample now.
    pub sampling_rate: f64,
    /// Hit ratios, in the order of the sizes asked for.
    pub hit_ratios: Vec<f64>,
}

struct Sample {
    tracker: Tracker,
    distances: DistanceHistogram,
    /// Of each unit of the sampled lines, the greatest distance of the line since the unit was read or written.
    units: HashMap<u64, [u32; UNITS]>,
    reads: u64,
}

impl Sample {
    /// References a line: its distance, what a reference weighs, and its units.
    fn touch(&mut self, key: u64, hash: SamplingHash) -> Option<(u32, f64, &mut [u32; UNITS])> {
        let touch = self.tracker.touch(key)?;
        if self.units.len() >= LINES_MAX {
            let threshold = threshold_of_rate(self.tracker.rate());
            self.units.retain(|&key, _| hash.hash(key) <= threshold);
        }
        let distance = touch.distance.unwrap_or(u64::from(NEVER)).min(u64::from(NEVER)) as u32;
        let units = self.units.entry(key).or_insert([NEVER; UNITS]);
        for unit in &mut *units {
            *unit = (*unit).max(distance);
        }
        Some((distance, touch.weight, units))
    }
}

/// The distances of the units of a mask.
fn of_mask(units: &mut [u32; UNITS], mask: u64) -> impl Iterator<Item = &mut u32> {
    let numbered = units.iter_mut().enumerate();
    numbered
        .filter(move |(unit, _)| mask >> unit & 1 != 0)
        .map(|(_, distance)| distance)
}

/// See the [module](self).
pub(crate) struct OnlineCurve {
    hash: SamplingHash,
    /// Keys with higher hashes are not in the sample. It only falls.
    threshold: AtomicU64,
    reads: AtomicU64,
    sample: Mutex<Sample>,
}

impl OnlineCurve {
    pub(crate) fn new() -> Self {
        let options = TrackerOptions::new(Sampling::Size(SAMPLED_LINES));
        Self {
            hash: SamplingHash::new(options.salt, options.group_bits),
            threshold: AtomicU64::new(u64::MAX),
            reads: AtomicU64::new(0),
            sample: Mutex::new(Sample {
                tracker: Tracker::new(options),
                distances: DistanceHistogram::new(Resolution::LogLinear),
                units: HashMap::new(),
                reads: 0,
            }),
        }
    }

    fn in_sample(&self, key: u64, use_it: impl FnOnce(&mut Sample)) {
        if self.hash.hash(key) > self.threshold.load(Ordering::Relaxed) {
            return;
        }
        let mut sample = lock(&self.sample);
        use_it(&mut sample);
        // A little more, as a rate is rounded: the tracker has the last word.
        let threshold = threshold_of_rate(sample.tracker.rate());
        self.threshold.store(threshold | 0xffff_ffff, Ordering::Relaxed);
    }

    /// Units of a line are read. If it does not `allocate`, caches that do not have the line do not get it.
    pub(crate) fn read(&self, key: u64, mask: u64, allocates: bool) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.in_sample(key, |sample| {
            if !allocates && !sample.units.contains_key(&key) {
                sample.reads += 1;
                sample.distances.add_option(None, 1.0 / sample.tracker.rate());
                return;
            }
            let Some((_, weight, units)) = sample.touch(key, self.hash) else {
                return;
            };
            let mut reach = 0;
            for unit in of_mask(units, mask) {
                reach = reach.max(*unit);
                *unit = 0;
            }
            sample.reads += 1;
            let reach = (reach != NEVER).then_some(u64::from(reach));
            sample.distances.add_option(reach, weight);
        });
    }

    /// Units of a line are written whole, and parts of others perhaps. If it does not `allocate`, caches that do not have the
    /// line do not get it.
    pub(crate) fn write(&self, key: u64, mask: u64, allocates: bool) {
        self.in_sample(key, |sample| {
            if !allocates && !sample.units.contains_key(&key) {
                return;
            }
            if let Some((distance, _, units)) = sample.touch(key, self.hash) {
                of_mask(units, mask).for_each(|unit| *unit = if allocates { 0 } else { distance });
            }
        });
    }

    /// A line leaves the cache, whatever its size.
    pub(crate) fn forget(&self, key: u64) {
        self.in_sample(key, |sample| {
            sample.units.remove(&key);
        });
    }

    /// `None` before the first read of a sampled line.
    pub(crate) fn at(&self, sizes_lines: &[u64]) -> Option<MissRatioCurve> {
        let sample = lock(&self.sample);
        let total = sample.distances.total();
        let misses = sample.distances.miss_weights(sizes_lines);
        (sample.reads > 0).then(|| MissRatioCurve {
            reads: self.reads.load(Ordering::Relaxed),
            reads_sampled: sample.reads,
            sampling_rate: sample.tracker.rate(),
            hit_ratios: misses.iter().map(|misses| 1.0 - misses / total).collect(),
        })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let sample = lock(&self.sample);
        sample.tracker.memory_bytes()
            + sample.distances.memory_bytes()
            + sample.units.capacity() * (size_of::<(u64, [u32; UNITS])>() + 1) * 8 / 7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_read_it_takes_two_megabytes_at_most() {
        // Its lock is one of shuttle's here.
        shuttle::check_random(read_many, 1);
    }

    fn read_many() {
        let curve = OnlineCurve::new();
        let mut key: u64 = 1;
        let mut most = 0;
        for number in 0..3_000_000_u64 {
            key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
            curve.read(key >> 40 << (number % 3), 1 << (number % 16), true);
            if number % 10_000 == 0 {
                most = most.max(curve.memory_bytes());
            }
        }
        assert!(most <= 2 << 20, "{most}");
        let at = curve.at(&[1, 1 << 30]).expect("it was read");
        assert!(at.sampling_rate < 0.01 && at.reads == 3_000_000, "{at:?}");
    }
}
