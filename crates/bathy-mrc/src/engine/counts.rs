//! What is counted at one cache size: per window of time, in all, and with the error of a sample.

use crate::hash::mix64;

/// Windows beyond this many are counted in the last one, so that a wrong clock cannot take all memory.
pub const MAX_WINDOWS: u32 = 4096;
/// Independent parts of the sample whose disagreement is the standard error.
const PARTS: usize = 8;

/// Windows of equal length that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Start of the first; what is earlier counts in it.
    pub origin_ns: u64,
    /// Length, more than zero.
    pub length_ns: u64,
}

impl Windows {
    /// The number of the window that a time lies in.
    #[inline]
    pub fn index(self, time_ns: u64) -> u32 {
        let index = time_ns.saturating_sub(self.origin_ns) / self.length_ns.max(1);
        index.min(u64::from(MAX_WINDOWS - 1)) as u32
    }
}

/// Counts of one direction. Fractions come from samples, where a request counts by its sampled share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OpCounts {
    /// Requests.
    pub requests: f64,
    /// Requests served from the cache alone.
    pub requests_hit: f64,
    /// Requests with first touches of lines: they miss in a cache of any size.
    pub requests_cold: f64,
    /// Bytes.
    pub bytes: f64,
    /// Bytes served from the cache; of a write, bytes whose line was cached.
    pub bytes_hit: f64,
}

impl OpCounts {
    fn each(&mut self, other: Self, apply: impl Fn(&mut f64, f64)) {
        apply(&mut self.requests, other.requests);
        apply(&mut self.requests_hit, other.requests_hit);
        apply(&mut self.requests_cold, other.requests_cold);
        apply(&mut self.bytes, other.bytes);
        apply(&mut self.bytes_hit, other.bytes_hit);
    }
}

/// Counts of everything that was seen, or of one window of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineCounts {
    /// Reads.
    pub reads: OpCounts,
    /// Writes.
    pub writes: OpCounts,
    /// Bytes read from the backing.
    pub backing_read_bytes: f64,
    /// Bytes written to flash.
    pub flash_write_bytes: f64,
    /// Lines evicted.
    pub evictions: f64,
    /// Lines that admission refused.
    pub refused: f64,
}

impl EngineCounts {
    /// Adds the counts of another window, each times `scale`.
    pub fn add_scaled(&mut self, other: &Self, scale: f64) {
        let apply = |into: &mut f64, value: f64| *into += value * scale;
        self.reads.each(other.reads, apply);
        self.writes.each(other.writes, apply);
        apply(&mut self.backing_read_bytes, other.backing_read_bytes);
        apply(&mut self.flash_write_bytes, other.flash_write_bytes);
        apply(&mut self.evictions, other.evictions);
        apply(&mut self.refused, other.refused);
    }

    /// The counts times `scale`.
    #[must_use]
    pub fn scaled(&self, scale: f64) -> Self {
        let mut scaled = Self::default();
        scaled.add_scaled(self, scale);
        scaled
    }
}

/// The part of the sample that a region is in.
#[inline]
pub(super) fn part_of_region(region: u64) -> u8 {
    (mix64(region) >> 61) as u8
}

/// Read requests and hits of eight independent parts of a sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    requests: [f64; PARTS],
    hits: [f64; PARTS],
}

impl Parts {
    /// Adds the share of a read request that lies in a sampled region.
    #[inline]
    pub(super) fn add(&mut self, part: u8, share: f64, hit: bool) {
        let part = usize::from(part);
        self.requests[part] += share;
        self.hits[part] += if hit { share } else { 0.0 };
    }

    /// Standard error of the ratio of hits to requests; NaN when nothing was read.
    ///
    /// The variance of a ratio estimator (Cochran, Sampling Techniques, 1977, 6.3): residuals of each part against
    /// the common ratio, since the parts differ in their requests as much as in their hits.
    pub(super) fn stderr(&self) -> f64 {
        let whole: f64 = self.requests.iter().sum();
        if whole <= 0.0 {
            return f64::NAN;
        }
        let ratio = self.hits.iter().sum::<f64>() / whole;
        let squares: f64 = (0..PARTS)
            .map(|part| (self.hits[part] - ratio * self.requests[part]).powi(2))
            .sum();
        let parts = PARTS as f64;
        (squares * parts / (parts - 1.0)).sqrt() / whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_agree_have_no_error_and_parts_that_differ_have_one() {
        let mut parts = Parts::default();
        assert!(parts.stderr().is_nan());
        for key in 0..4000u64 {
            parts.add(part_of_region(key), 1.0, true);
        }
        assert!(parts.stderr() < f64::MIN_POSITIVE);
        // Independent coin flips: the standard error of a ratio of 1/2 over n is 1/(2 sqrt n).
        let mut coins = Parts::default();
        for key in 0..40_000u64 {
            coins.add(part_of_region(key), 1.0, mix64(key ^ 0xabcd) & 1 == 0);
        }
        let expected = 0.5 / 40_000f64.sqrt();
        assert!(
            (0.4 * expected..2.0 * expected).contains(&coins.stderr()),
            "{}",
            coins.stderr()
        );
    }

    #[test]
    fn windows_start_at_the_origin_and_are_bounded() {
        let windows = Windows {
            origin_ns: 1000,
            length_ns: 10,
        };
        assert_eq!(
            [0, 999, 1009, 1010, 1035].map(|t| windows.index(t)),
            [0, 0, 0, 1, 3]
        );
        assert_eq!(windows.index(u64::MAX), MAX_WINDOWS - 1);
        assert_eq!(
            Windows {
                origin_ns: 0,
                length_ns: 0
            }
            .index(7),
            7
        );
    }
}
