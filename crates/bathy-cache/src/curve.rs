//! The miss-ratio curves of the running cache and of its sources: what another size would give.
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

/// References that wait to be looked up together, a few microseconds' work. After a read of the SSD the processor's caches hold
/// other bytes than the sample: so the misses of many look-ups overlap.
const WAITING: usize = 16;
/// Lines of a cache that are followed at most: the error is about a point.
const CACHE_LINES: usize = 3072;
/// Lines of a source that are followed at most, as there may be many sources: the error is about two points.
const SOURCE_LINES: usize = 1024;
/// Lines that left the sample are forgotten when there are so many more than may be in it.
const LINES_LEFT: usize = 512;
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

/// What happens to a line. If it does not `allocate`, caches that do not have the line do not get it.
#[derive(Clone, Copy)]
enum Change {
    /// Units are read.
    Read { mask: u64, allocates: bool },
    /// Units are written whole, and parts of others perhaps.
    Write { mask: u64, allocates: bool },
    /// It leaves, whatever the size of the cache.
    Leave,
}

struct Sample {
    /// What happened last to lines, oldest first.
    waiting: Vec<(u64, Change)>,
    lines_max: usize,
    tracker: Tracker,
    distances: DistanceHistogram,
    /// Of each unit of the sampled lines, the greatest distance of the line since the unit was read or written.
    units: HashMap<u64, [u32; UNITS]>,
    reads: u64,
}

impl Sample {
    /// Counts what waits.
    fn settle(&mut self, hash: SamplingHash) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let keys = waiting.iter().map(|&(key, _)| key);
        self.tracker.warm(keys.clone());
        std::hint::black_box(keys.filter(|key| self.units.contains_key(key)).count());
        for (key, change) in waiting.drain(..) {
            match change {
                Change::Read { mask, allocates } => self.read(key, mask, allocates, hash),
                Change::Write { mask, allocates } => self.write(key, mask, allocates, hash),
                Change::Leave => drop(self.units.remove(&key)),
            }
        }
        self.waiting = waiting;
    }

    fn read(&mut self, key: u64, mask: u64, allocates: bool, hash: SamplingHash) {
        let (reach, weight) = if allocates || self.units.contains_key(&key) {
            let Some((distance, weight, units)) = self.touch(key, hash) else {
                return;
            };
            let mut reach = 0;
            for unit in of_mask(units, mask) {
                reach = reach.max(*unit);
                *unit = if allocates { 0 } else { distance };
            }
            (reach, weight)
        } else {
            (NEVER, 1.0 / self.tracker.rate())
        };
        self.reads += 1;
        let reach = (reach != NEVER).then_some(u64::from(reach));
        self.distances.add_option(reach, weight);
    }

    fn write(&mut self, key: u64, mask: u64, allocates: bool, hash: SamplingHash) {
        if !allocates && !self.units.contains_key(&key) {
            return;
        }
        if let Some((distance, _, units)) = self.touch(key, hash) {
            of_mask(units, mask).for_each(|unit| *unit = if allocates { 0 } else { distance });
        }
    }

    /// References a line: its distance, what a reference weighs, and its units.
    fn touch(&mut self, key: u64, hash: SamplingHash) -> Option<(u32, f64, &mut [u32; UNITS])> {
        let touch = self.tracker.touch(key)?;
        if self.units.len() >= self.lines_max + LINES_LEFT {
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
    /// Of all that is cached.
    pub(crate) fn of_cache() -> Self {
        Self::new(CACHE_LINES)
    }

    /// Of a source, as if it had a cache of its own.
    pub(crate) fn of_source() -> Self {
        Self::new(SOURCE_LINES)
    }

    fn new(lines_max: usize) -> Self {
        let options = TrackerOptions::new(Sampling::Size(lines_max));
        Self {
            hash: SamplingHash::new(options.salt, options.group_bits),
            threshold: AtomicU64::new(u64::MAX),
            reads: AtomicU64::new(0),
            sample: Mutex::new(Sample {
                waiting: Vec::with_capacity(WAITING),
                lines_max,
                tracker: Tracker::new(options),
                distances: DistanceHistogram::new(Resolution::LogLinear),
                units: HashMap::new(),
                reads: 0,
            }),
        }
    }

    fn add(&self, key: u64, change: Change) {
        if self.hash.hash(key) > self.threshold.load(Ordering::Relaxed) {
            return;
        }
        let mut sample = lock(&self.sample);
        sample.waiting.push((key, change));
        if sample.waiting.len() >= WAITING {
            sample.settle(self.hash);
            // A little more, as a rate is rounded: the tracker has the last word.
            let threshold = threshold_of_rate(sample.tracker.rate());
            self.threshold.store(threshold | 0xffff_ffff, Ordering::Relaxed);
        }
    }

    /// Units of a line are read. If it does not `allocate`, caches that do not have the line do not get it.
    pub(crate) fn read(&self, key: u64, mask: u64, allocates: bool) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.add(key, Change::Read { mask, allocates });
    }

    /// Units of a line are written whole, and parts of others perhaps. If it does not `allocate`, caches that do not have the
    /// line do not get it.
    pub(crate) fn write(&self, key: u64, mask: u64, allocates: bool) {
        self.add(key, Change::Write { mask, allocates });
    }

    /// A line leaves the cache, whatever its size.
    pub(crate) fn forget(&self, key: u64) {
        self.add(key, Change::Leave);
    }

    /// `None` before the first read of a sampled line.
    pub(crate) fn at(&self, sizes_lines: &[u64]) -> Option<MissRatioCurve> {
        let mut sample = lock(&self.sample);
        sample.settle(self.hash);
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

    #[test]
    fn who_goes_past_the_cache_misses_in_every_size_and_takes_no_place() {
        shuttle::check_random(read_past, 1);
    }

    fn read_past() {
        let curve = OnlineCurve::of_cache();
        curve.read(1, 1, true);
        for past in 2..10 {
            curve.read(past, 1, false);
            curve.write(past, 1, false);
        }
        curve.read(1, 1, true);
        curve.read(1, 1, false);
        let at = curve.at(&[1]).expect("it was read");
        assert_eq!((at.reads, at.reads_sampled), (11, 11));
        assert!((at.hit_ratios[0] - 2.0 / 11.0).abs() < 1e-9, "{at:?}");
    }

    #[test]
    fn a_line_that_left_does_not_come_back_by_a_read_that_goes_past() {
        shuttle::check_random(read_past_again, 1);
    }

    fn read_past_again() {
        let curve = OnlineCurve::of_cache();
        (1..10).for_each(|key| curve.read(key, 1, true));
        curve.read(1, 1, false);
        curve.read(1, 1, true);
        let at = curve.at(&[1, 20]).expect("it was read");
        assert!(at.hit_ratios[0].abs() < 1e-9, "{at:?}");
        assert!((at.hit_ratios[1] - 2.0 / 11.0).abs() < 1e-9, "{at:?}");
    }

    fn read_many() {
        let curve = OnlineCurve::of_cache();
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
