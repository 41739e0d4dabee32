//! What each fetch size would ask the backing for, and which one costs its disk least.

/// Fetch sizes that are tried: one unit, two, four and so on to 64.
pub(crate) const LEVELS: usize = 7;

/// Reads that say something. Until then the disk alone decides.
const READS_MIN: u64 = 64;
/// At so many reads what was counted is halved: what was long ago counts less.
const READS_MAX: u64 = 8192;
/// A smaller fetch is taken if it costs at most a 50th more than the best: it spares writes to the SSD.
const TOLERANCE: u128 = 50;
/// Before anything is known, what is fetched takes at most an eighth of the time of an access.
const FIRST_SHARE: u64 = 8;

/// What the backing was asked for, or would have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) reads: u64,
    pub(crate) units: u64,
}

/// Reads and units that caches with each fetch size ask for. A level is the binary logarithm of the units of a fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchCosts {
    unit_bytes: u64,
    levels: usize,
    asked: [Asked; LEVELS],
}

impl FetchCosts {
    /// Nothing is known yet.
    pub fn new(line_bytes: u64, unit_bytes: u64) -> Self {
        Self {
            unit_bytes,
            levels: (line_bytes / unit_bytes).trailing_zeros() as usize + 1,
            asked: [Asked::default(); LEVELS],
        }
    }

    /// How many levels there are: from what was asked for alone to the whole line.
    pub fn levels(&self) -> usize {
        self.levels
    }

    #[cfg(test)]
    pub(crate) fn asked(&self) -> [Asked; LEVELS] {
        self.asked
    }

    /// A read for which a cache with this fetch size had to fetch so many units, as it had not those that are `missing`.
    pub fn count(&mut self, level: usize, missing: u64, fetched: u64) {
        self.asked[level].reads += runs(missing);
        self.asked[level].units += u64::from(fetched.count_ones());
    }

    /// To be called after a read was counted for all levels.
    pub fn age(&mut self) {
        if self.asked[0].reads >= READS_MAX {
            for asked in &mut self.asked {
                asked.reads /= 2;
                asked.units /= 2;
            }
        }
    }

    /// The level to take, for a disk that transfers so many bytes in the time that an access takes besides.
    pub fn level(&self, break_even_bytes: u64) -> usize {
        let fits = |level: usize| self.unit_bytes << level <= break_even_bytes / FIRST_SHARE;
        if self.asked[0].reads < READS_MIN {
            return (1..self.levels).rev().find(|&level| fits(level)).unwrap_or(0);
        }
        let cost = |level: usize| {
            let asked = self.asked[level];
            u128::from(asked.reads) * u128::from(break_even_bytes)
                + u128::from(asked.units) * u128::from(self.unit_bytes)
        };
        let least = (0..self.levels).map(cost).min().unwrap_or(0);
        (0..self.levels)
            .find(|&level| cost(level) <= least + least / TOLERANCE)
            .unwrap_or(0)
    }
}

/// The neighbouring runs of units of a mask.
pub(crate) fn runs(units: u64) -> u64 {
    u64::from((units & !(units << 1)).count_ones())
}
