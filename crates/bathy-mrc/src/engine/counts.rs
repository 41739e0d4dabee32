//! What is counted at one cache size: per window of time, in all, and with the error of a sample.

use crate::curve::Estimate;
use crate::hash::REPLICATES;

/// Windows beyond this many are counted in the last one, so that a wrong clock cannot take all memory.
pub const MAX_WINDOWS: u32 = 4096;

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
    /// Of these, bytes that writes changed or added in lines on flash; the rest fills lines or moves them there.
    pub flash_update_bytes: f64,
    /// Lines evicted.
    pub evictions: f64,
    /// Times that a line was kept out of the cache by admission, or left as its change was not admitted.
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
        apply(&mut self.flash_update_bytes, other.flash_update_bytes);
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

/// Requests and bytes of a window, all of them, reads and then writes.
pub(super) type Totals = [OpTotals; 2];

/// Requests and bytes of one direction, sampled or not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct OpTotals {
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

impl OpCounts {
    /// What the counts of a sample, scaled, say of a trace of so many requests and bytes.
    fn toward(self, totals: OpTotals, estimate: Estimate) -> Self {
        let (requests, bytes) = (totals.requests as f64, totals.bytes as f64);
        // Of what was not sampled at all nothing is known.
        if self.requests <= 0.0 || self.bytes <= 0.0 {
            return self;
        }
        if estimate == Estimate::Adjusted {
            let hit = |all: f64, seen: f64, hit: f64| (all - (seen - hit)).clamp(0.0, all);
            return Self {
                requests,
                requests_hit: hit(requests, self.requests, self.requests_hit),
                requests_cold: self.requests_cold.min(requests),
                bytes,
                bytes_hit: hit(bytes, self.bytes, self.bytes_hit),
            };
        }
        Self {
            requests,
            requests_hit: self.requests_hit * requests / self.requests,
            requests_cold: self.requests_cold * requests / self.requests,
            bytes,
            bytes_hit: self.bytes_hit * bytes / self.bytes,
        }
    }
}

impl EngineCounts {
    /// What the counts of a sample, scaled, say of a window of which all requests and bytes are known, by the estimates
    /// for reads and for writes.
    ///
    /// *Raw* trusts the ratios of the sample. *Adjusted* trusts its misses, as `SHARDS_adj` does (Waldspurger et al.,
    /// FAST'15): what a sample has too many or too few of are above all its hottest lines, and these hit. What writes
    /// put on flash follows their bytes in either case, hot or not; fills and evictions follow the misses.
    #[must_use]
    pub(super) fn toward(mut self, totals: &Totals, estimates: [Estimate; 2]) -> Self {
        let bytes = self.reads.bytes + self.writes.bytes;
        let mut filled = self.flash_write_bytes - self.flash_update_bytes;
        if estimates[0] == Estimate::Raw && bytes > 0.0 {
            let scale = (totals[0].bytes + totals[1].bytes) as f64 / bytes;
            self.backing_read_bytes *= scale;
            self.evictions *= scale;
            self.refused *= scale;
            filled *= scale;
        }
        if self.writes.bytes > 0.0 {
            self.flash_update_bytes *= totals[1].bytes as f64 / self.writes.bytes;
        }
        self.flash_write_bytes = filled + self.flash_update_bytes;
        self.reads = self.reads.toward(totals[0], estimates[0]);
        self.writes = self.writes.toward(totals[1], estimates[1]);
        self
    }
}

/// Requests and hits of one direction in eight independent parts of a sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    requests: [f64; REPLICATES],
    hits: [f64; REPLICATES],
}

impl Parts {
    /// Adds the share of a request that lies in a sampled region.
    #[inline]
    pub(super) fn add(&mut self, part: u8, share: f64, hit: bool) {
        let part = usize::from(part);
        self.requests[part] += share;
        self.hits[part] += if hit { share } else { 0.0 };
    }

    /// Standard error of what the misses say of `expected` requests in the sample; NaN without requests.
    pub(super) fn adjusted_stderr(&self, expected: f64) -> f64 {
        if self.requests.iter().sum::<f64>() <= 0.0 || expected <= 0.0 {
            return f64::NAN;
        }
        let parts = REPLICATES as f64;
        let misses = self.requests.iter().zip(&self.hits).map(|(all, hits)| all - hits);
        let mean = misses.clone().sum::<f64>() / parts;
        let squares: f64 = misses.map(|misses| (misses - mean).powi(2)).sum();
        (squares * parts / (parts - 1.0)).sqrt() / expected
    }

    /// Standard error of the ratio of hits to requests; NaN without requests.
    ///
    /// The variance of a ratio estimator (Cochran, Sampling Techniques, 1977, 6.3): residuals of each part against
    /// the common ratio, since the parts differ in their requests as much as in their hits.
    pub(super) fn raw_stderr(&self) -> f64 {
        let whole: f64 = self.requests.iter().sum();
        if whole <= 0.0 {
            return f64::NAN;
        }
        let ratio = self.hits.iter().sum::<f64>() / whole;
        let squares: f64 = (0..REPLICATES)
            .map(|part| (self.hits[part] - ratio * self.requests[part]).powi(2))
            .sum();
        let parts = REPLICATES as f64;
        (squares * parts / (parts - 1.0)).sqrt() / whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix64;

    fn part(key: u64) -> u8 {
        (mix64(key) % REPLICATES as u64) as u8
    }

    #[test]
    fn parts_that_agree_have_no_error_and_parts_that_differ_have_one() {
        let mut parts = Parts::default();
        assert!(parts.raw_stderr().is_nan());
        for key in 0..4000u64 {
            parts.add(part(key), 1.0, true);
        }
        assert!(parts.raw_stderr() < f64::MIN_POSITIVE);
        // Independent coin flips: the standard error of a ratio of 1/2 over n is 1/(2 sqrt n).
        let mut coins = Parts::default();
        for key in 0..40_000u64 {
            coins.add(part(key), 1.0, mix64(key ^ 0xabcd) & 1 == 0);
        }
        let expected = 0.5 / 40_000f64.sqrt();
        assert!(
            (0.4 * expected..2.0 * expected).contains(&coins.raw_stderr()),
            "{}",
            coins.raw_stderr()
        );
    }

    /// A hundredth of the lines takes half of the reads, and the sample has none of these or twice its share.
    #[test]
    fn misses_are_trusted_where_a_sample_misses_the_hot_lines() {
        let truth = 0.5 + 0.5 * 0.2;
        let totals: Totals = [
            OpTotals {
                requests: 10_000,
                bytes: 40_960_000,
            },
            OpTotals::default(),
        ];
        for hot in [0.0, 5000.0, 10_000.0] {
            let requests = 5000.0 + hot;
            let hits = 1000.0 + hot;
            let counts = EngineCounts {
                reads: OpCounts {
                    requests,
                    requests_hit: hits,
                    requests_cold: 500.0,
                    bytes: requests * 4096.0,
                    bytes_hit: hits * 4096.0,
                },
                ..EngineCounts::default()
            };
            let adjusted = counts.toward(&totals, [Estimate::Adjusted; 2]).reads;
            assert!((adjusted.requests_hit / adjusted.requests - truth).abs() < 1e-12);
            assert!((adjusted.bytes_hit / adjusted.bytes - truth).abs() < 1e-12);
            let raw = counts.toward(&totals, [Estimate::Raw; 2]).reads;
            assert!((raw.requests_hit / raw.requests - hits / requests).abs() < 1e-12);
            assert!((raw.requests - 10_000.0).abs() < 1e-9);
        }
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
