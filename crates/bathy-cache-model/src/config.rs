//! How a cache is set up.

use bathy_policy::PolicyOptions;

use crate::fetch::FetchSize;
use crate::lines::LineSize;

/// What a write does to lines that are not cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The written blocks enter the cache, if admitted.
    Allocate,
    /// Only blocks whose line is cached are updated.
    Update,
    /// The line leaves the cache.
    Invalidate,
}

/// Runs of requests, each of which begins where the last one ended, that go past the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCutoff {
    /// Those that are longer do.
    pub bytes: u64,
    /// Only writes make a run, and only they go past.
    pub is_of_writes: bool,
}

/// Which filters stand before the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdmissionOptions {
    /// Enter at the n-th miss, once the cache is 80 % full.
    pub n_hit: Option<u8>,
    /// Long runs go past. It takes effect in [`RequestSplitter`](crate::RequestSplitter).
    pub stream_cutoff: Option<StreamCutoff>,
    /// Bytes a day that may be written to flash, new lines and changes together; a day's worth can be saved up. What leaves the
    /// stage in memory for the SSD is thinned so that the budget lasts.
    pub write_budget_bytes_per_day: Option<u64>,
}

/// Units of a line at most: one bit each.
pub const MAX_UNITS: u64 = 64;

/// A cache, apart from its policy and size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheConfig {
    /// Line size.
    pub line: LineSize,
    /// Bytes that are valid or not together: a power of two, at most the line, at least a 64th of it.
    pub unit_bytes: u64,
    /// What a miss fetches.
    pub fetch: FetchSize,
    /// Writes to what is not cached.
    pub write_mode: WriteMode,
    /// Filters.
    pub admission: AdmissionOptions,
}

impl CacheConfig {
    /// Whether the units fit the line, and a fixed fetch size both.
    pub fn is_valid(&self) -> bool {
        let (line, unit) = (self.line.bytes(), self.unit_bytes);
        let fetch_fits = match self.fetch {
            FetchSize::Fixed(bytes) => bytes.is_power_of_two() && (unit..=line).contains(&bytes),
            FetchSize::Adaptive { .. } => true,
        };
        unit.is_power_of_two() && unit <= line && line / unit <= MAX_UNITS && fetch_fits
    }
}

/// The share of the lines that the stage in memory has by default: a 64th, 1.6 % of the SSD.
///
/// Measured with S3-FIFO over a week of a virtual disk at 5, 10 and 20 % of its blocks: a tenth misses 0.1235, 0.0773 and
/// 0.0671, a 64th 0.1211, 0.0776 and 0.0673, a 200th 0.1224, 0.0786 and 0.0676, all with the same writes to the SSD.
const STAGE_SHARE: u64 = 64;

/// The most bytes that the stage has by default, however large the cache is.
pub const STAGE_BYTES_MAX: u64 = 4 << 30;

/// Lines of the default stage in memory of a cache of `size_lines` in all. A single line is not divided.
pub fn stage_lines(size_lines: u64, line: LineSize) -> u64 {
    if size_lines < 2 {
        return 0;
    }
    let most = (STAGE_BYTES_MAX / line.bytes()).max(1);
    (size_lines / STAGE_SHARE).clamp(1, most)
}

/// The options of a policy in a cache of `size_lines` with the default stage. The share of a sample's small cache is that
/// of the cache it stands for.
#[must_use]
pub fn with_stage(options: PolicyOptions, size_lines: u64, line: LineSize) -> PolicyOptions {
    let stage = stage_lines(size_lines, line);
    PolicyOptions {
        stage_ratio: (stage > 0).then(|| stage as f64 / size_lines as f64),
        ..options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_is_a_64th_but_a_line_at_least_and_four_gib_at_most() {
        let line = |bytes| LineSize::new(bytes).expect("a power of two");
        let of = |size_lines| stage_lines(size_lines, line(65_536));
        assert_eq!([0, 1, 2, 63, 128, 6400].map(of), [0, 0, 1, 1, 2, 100]);
        // 400 GiB in lines of 64 KiB: the bound, and not the 40 GiB of a tenth.
        assert_eq!(of(400 << 14) * 65_536, 4 << 30);
        assert_eq!(stage_lines(1 << 20, line(1 << 30)), 4);
        for size in [2, 100, 12_345, 1 << 30] {
            let ratio = with_stage(PolicyOptions::default(), size, line(65_536)).stage_ratio;
            let lines = (size as f64 * ratio.expect("there is a stage")).round() as u64;
            assert_eq!(lines, of(size));
        }
    }
}
