//! How a cache is set up.

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
