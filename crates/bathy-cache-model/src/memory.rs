//! What a cache takes of memory, and how that is kept within a budget.
//!
//! Memory that grows with the cache is its index, so many bytes for each line, and the stage, the lines that wait in memory for a
//! place on the SSD. The index is needed; the stage gets what it is worth, a [share](STAGE_SHARE) of the lines, but no more than a
//! quarter of the budget. So a cache needs more memory than its budget only if its index does, and a larger budget never makes
//! the stage smaller.

use bathy_policy::PolicyOptions;

use crate::lines::LineSize;

/// The share of the lines that the stage has at most: a 64th, 1.6 % of the SSD.
///
/// Measured with S3-FIFO over a week of a virtual disk at 5, 10 and 20 % of its blocks: a tenth misses 0.1235, 0.0773 and
/// 0.0671, a 64th 0.1211, 0.0776 and 0.0673, a 200th 0.1224, 0.0786 and 0.0676, all with the same writes to the SSD.
const STAGE_SHARE: u64 = 64;
/// The share of the budget that the stage has at most.
const STAGE_SHARE_OF_BUDGET: u64 = 4;
/// Lines of the cache for each file that it can know.
pub const LINES_PER_FILE: u64 = 8;
/// What each line takes, whatever its size, and each of its units of 4 KiB besides: the policy, places for changed and cached
/// records, the file table, samples; valid units, and the checksums of a cached record.
const INDEX_BYTES_OF_LINE: u64 = 38;
const INDEX_BITS_OF_UNIT: u64 = 5;
const UNIT_BYTES: u64 = 4096;
/// What grows neither with the cache nor with its threads: curves and latencies of some sources, the records that the smallest cache
/// keeps in memory, and the marks of regions.
const DAEMON_BYTES: u64 = 16 << 20;
/// What of a thread's buffers is for lines: those of a request of 1 MiB, of which the first and the last may be there in part, and some
/// that are kept for the next one.
pub const THREAD_LINES_BYTES: u64 = 3 << 19;
/// All of its buffers: 1 MiB more in which a request comes, and 1 MiB with which it is answered.
const THREAD_BYTES: u64 = THREAD_LINES_BYTES + (2 << 20);
/// Threads of a source, if nothing else is said.
pub const THREADS_OF_SOURCE: u64 = 32;

/// Memory that a cache may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Of the whole daemon.
    pub bytes: u64,
    /// Threads that answer requests, of all sources together.
    pub threads: u64,
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::of(4 << 30)
    }
}

/// What a cache takes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// What is known of its lines and files.
    pub index_bytes: u64,
    /// The lines in memory.
    pub stage_bytes: u64,
    /// What does not grow with it, the buffers of the daemon's threads above all.
    pub daemon_bytes: u64,
}

impl MemoryNeed {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.index_bytes + self.stage_bytes + self.daemon_bytes
    }
}

/// The budget of a cache, which may be too small for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a cache of {size} in lines of {line} needs {needed} of memory ({index} for its index, {stage} for lines in memory, {daemon} for the daemon), and may take {budget}",
    size = Bytes(self.size_bytes), line = Bytes(self.line_bytes), needed = Bytes(self.need.bytes()),
    index = Bytes(self.need.index_bytes), stage = Bytes(self.need.stage_bytes), daemon = Bytes(self.need.daemon_bytes),
    budget = Bytes(self.budget.bytes)
)]
pub struct OverBudget {
    /// The cache.
    pub size_bytes: u64,
    /// Its lines.
    pub line_bytes: u64,
    /// What it needs.
    pub need: MemoryNeed,
    /// What it may take.
    pub budget: MemoryBudget,
}

impl OverBudget {
    /// The largest cache of such lines that fits the budget.
    pub fn size_bytes_that_fits(&self) -> u64 {
        LineSize::new(self.line_bytes).map_or(0, |line| self.budget.lines_that_fit(line) * line.bytes())
    }

    /// The budget that the cache needs: with a larger budget it may have a larger stage.
    pub fn budget_needed(&self) -> MemoryBudget {
        let rest = self.need.index_bytes + self.need.daemon_bytes;
        // The stage has a share of the budget at most, and the rest the others.
        let with_stage = (rest * STAGE_SHARE_OF_BUDGET).div_ceil(STAGE_SHARE_OF_BUDGET - 1);
        let whole_stage = rest + self.size_bytes / STAGE_SHARE + self.line_bytes;
        MemoryBudget {
            bytes: with_stage.min(whole_stage).next_multiple_of(1 << 20),
            ..self.budget
        }
    }
}

impl MemoryBudget {
    /// So many bytes, for a cache of one source.
    pub const fn of(bytes: u64) -> Self {
        Self {
            bytes,
            threads: THREADS_OF_SOURCE,
        }
    }

    /// Lines of the stage in memory of a cache of `size_lines` in all. A single line is not divided.
    pub fn stage_lines(self, size_lines: u64, line: LineSize) -> u64 {
        if size_lines < 2 {
            return 0;
        }
        let most = (self.bytes / STAGE_SHARE_OF_BUDGET / line.bytes()).max(1);
        (size_lines / STAGE_SHARE).clamp(1, most)
    }

    /// Of the stage of a cache of `cache_lines`, the part that a source with `share_lines` of it fills. The sources of a cache
    /// use one stage as they use one SSD, so the parts of all of them are no more than it has. A share that is larger than the
    /// cache is a cache of its own.
    pub fn stage_lines_of_share(self, share_lines: u64, cache_lines: u64, line: LineSize) -> u64 {
        if share_lines < 2 {
            return 0;
        }
        let cache_lines = cache_lines.max(share_lines);
        let stage = self.stage_lines(cache_lines, line);
        let part = u128::from(share_lines) * u128::from(stage) / u128::from(cache_lines);
        (part as u64).max(1)
    }

    /// The options of a policy for a source with `size_lines` of a cache of `cache_lines`, or for all of a cache. The share of a sample's
    /// small cache is that of the cache it stands for.
    pub fn policy_options(self, size_lines: u64, cache_lines: u64, line: LineSize) -> PolicyOptions {
        let stage = self.stage_lines_of_share(size_lines, cache_lines, line);
        PolicyOptions {
            stage_ratio: stage as f64 / size_lines.max(1) as f64,
        }
    }

    /// What a cache of so many lines takes if it may take so much.
    pub fn need(self, size_lines: u64, line: LineSize) -> MemoryNeed {
        MemoryNeed {
            index_bytes: index_bytes(size_lines, line),
            stage_bytes: self.stage_lines(size_lines, line) * line.bytes(),
            daemon_bytes: DAEMON_BYTES + self.threads.saturating_mul(THREAD_BYTES),
        }
    }

    /// Whether a cache of so many lines fits.
    ///
    /// # Errors
    /// If it does not, with what it needs and what would fit.
    pub fn check(self, size_lines: u64, line: LineSize) -> Result<MemoryNeed, OverBudget> {
        let need = self.need(size_lines, line);
        if need.bytes() <= self.bytes {
            return Ok(need);
        }
        Err(OverBudget {
            size_bytes: size_lines.saturating_mul(line.bytes()),
            line_bytes: line.bytes(),
            need,
            budget: self,
        })
    }

    /// Lines of the largest cache that fits; 0 if none does.
    pub fn lines_that_fit(self, line: LineSize) -> u64 {
        let fits = |size_lines| self.check(size_lines, line).is_ok();
        let (mut smaller, mut larger) = (0, self.bytes / INDEX_BYTES_OF_LINE + 1);
        while larger - smaller > 1 {
            let middle = smaller + (larger - smaller) / 2;
            if fits(middle) {
                smaller = middle;
            } else {
                larger = middle;
            }
        }
        smaller
    }
}

/// Bytes of memory that the index of so many lines takes.
pub fn index_bytes(size_lines: u64, line: LineSize) -> u64 {
    let units = line.bytes().div_ceil(UNIT_BYTES);
    size_lines.saturating_mul(8 * INDEX_BYTES_OF_LINE + INDEX_BITS_OF_UNIT * units) / 8
}

/// A size as people read it.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl std::fmt::Display for Bytes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let step = (self.0.max(1).ilog2() / 10).min(4);
        let unit = ["B", "KiB", "MiB", "GiB", "TiB"][step as usize];
        let value = self.0 as f64 / f64::from(1 << 10_u32).powi(step as i32);
        // Three digits, but a whole number as it is.
        let digits = match value {
            _ if value.fract() == 0.0 => 0,
            ..10.0 => 2,
            ..100.0 => 1,
            _ => 0,
        };
        write!(out, "{value:.digits$} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: u64) -> LineSize {
        LineSize::new(bytes).expect("a power of two")
    }

    fn lines(bytes: u64) -> u64 {
        bytes >> 16
    }

    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;

    #[test]
    fn the_stage_is_a_64th_but_a_line_at_least_and_a_quarter_of_the_budget_at_most() {
        let of = |size_lines| MemoryBudget::default().stage_lines(size_lines, line(65_536));
        assert_eq!([0, 1, 2, 63, 128, 6400].map(of), [0, 0, 1, 1, 2, 100]);
        for size_bytes in [400 * GIB, TIB, 4 * TIB, 64 * TIB] {
            assert_eq!(of(lines(size_bytes)) * 65_536, GIB);
        }
        assert_eq!(MemoryBudget::default().stage_lines(1 << 20, line(1 << 30)), 1);
        for size in [2, 100, 12_345, 1 << 30] {
            let options = MemoryBudget::default().policy_options(size, size, line(65_536));
            let lines = (size as f64 * options.stage_ratio).round() as u64;
            assert_eq!(lines, of(size));
        }
    }

    #[test]
    fn sources_share_the_stage_of_their_cache_and_have_none_for_each() {
        let of = |share, cache| {
            MemoryBudget::default().stage_lines_of_share(lines(share), lines(cache), line(65_536))
        };
        // A quarter of 4 GiB in lines of 64 KiB is 2^14 lines, for 2^24 lines of SSD: a 1,024th, and not a 64th.
        assert_eq!(of(TIB, TIB), 1 << 14);
        assert_eq!(of(TIB / 8, TIB), 1 << 11);
        assert_eq!(of(TIB / 8, TIB / 8), 1 << 14, "as if it had the whole memory");
        // 64 GiB have 2^20 lines, of which a 64th fits.
        assert_eq!(
            [64, 32, 16].map(|gib| of(gib * GIB, 64 * GIB)),
            [1 << 14, 1 << 13, 1 << 12]
        );
        assert_eq!([0, 65_536, 131_072].map(|bytes| of(bytes, TIB)), [0, 0, 1]);
        assert_eq!(
            of(2 * TIB, TIB),
            1 << 14,
            "more than the cache is a cache of its own"
        );
    }

    #[test]
    fn the_largest_that_fits_does_and_one_line_more_does_not() {
        for budget in [256 << 20, GIB, 4 * GIB, 64 * GIB].map(MemoryBudget::of) {
            for line in [16, 64, 256].map(|kib| line(kib << 10)) {
                let fits = budget.lines_that_fit(line);
                let need = budget.check(fits, line).expect("it fits");
                assert!(need.bytes() <= budget.bytes);
                let over = budget.check(fits + 1, line).expect_err("it does not");
                assert_eq!(over.size_bytes_that_fits(), fits * line.bytes());
                // The budget that it says is needed is enough, and little more than that.
                let needed = over.budget_needed();
                assert!(needed.check(fits + 1, line).is_ok(), "{over:?} {needed:?}");
                assert!(needed.bytes <= budget.bytes + (2 << 20), "{over:?} {needed:?}");
            }
        }
        assert_eq!(MemoryBudget::of(1 << 20).lines_that_fit(line(65_536)), 0);
        // By default an SSD of 4 TB fits.
        let fits = MemoryBudget::default().lines_that_fit(line(65_536)) * 65_536;
        assert!((38 * TIB / 10..39 * TIB / 10).contains(&fits), "{fits}");
        // With ten sources it does not: a thread of each may have a request of its own.
        let of_ten = MemoryBudget {
            threads: 10 * THREADS_OF_SOURCE,
            ..MemoryBudget::default()
        };
        let fits = of_ten.lines_that_fit(line(65_536)) * 65_536;
        assert!((25 * TIB / 10..26 * TIB / 10).contains(&fits), "{fits}");
    }

    #[test]
    fn a_size_beyond_all_numbers_is_refused_and_not_taken_for_a_small_one() {
        let over = MemoryBudget::default().check(u64::MAX / 2, line(65_536));
        let over = over.expect_err("it does not fit");
        assert_eq!(over.size_bytes, u64::MAX);
        assert!(over.budget_needed().bytes > 1 << 50);
    }

    #[test]
    fn what_does_not_fit_is_said_with_its_figures() {
        let over = MemoryBudget::default().check(lines(8 * TIB), line(65_536));
        let over = over.expect_err("it does not fit");
        assert_eq!(
            over.to_string(),
            "a cache of 8 TiB in lines of 64 KiB needs 7.12 GiB of memory (6 GiB for its index, 1 GiB for lines in memory, \
             128 MiB for the daemon), and may take 4 GiB"
        );
        assert_eq!(
            over.budget_needed().bytes,
            8363 << 20,
            "of which a quarter is for the stage"
        );
    }

    #[test]
    fn sizes_read_well() {
        let shown = [0, 999, 1024, 1536, 12_345_678, 4 << 30, 1100 * GIB, 5000 * TIB]
            .map(|bytes| Bytes(bytes).to_string());
        assert_eq!(
            shown,
            [
                "0 B", "999 B", "1 KiB", "1.50 KiB", "11.8 MiB", "4 GiB", "1.07 TiB", "5000 TiB"
            ]
        );
    }
}
