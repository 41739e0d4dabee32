//! How much a miss fetches beside what it was asked for.
//!
//! Which size pays depends on the disk and on the use of neighbours. The disk is one number, given by who knows it: the bytes
//! that it transfers in the time that one access takes besides. The use of neighbours is measured here, on a sample of the
//! lines: for each fetch size the trial keeps which units would be valid, and counts the reads and the units that the backing
//! would have been asked for. Which lines are cached does not depend on the fetch size (but under a write budget), so all
//! sizes are tried on the same lines and the same requests, and what they differ by is the fetch size alone.

use std::collections::HashMap;

use crate::fetch_costs::FetchCosts;
use crate::masks::Masks;

/// How much a miss that is kept fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchSize {
    /// Aligned blocks of so many bytes: a power of two, at least a unit, at most a line. A unit is what was asked for alone.
    Fixed(u64),
    /// Blocks of the size that costs the disk least.
    Adaptive {
        /// Bytes that the disk transfers in the time that an access takes besides: a hard disk with 8 ms and 150 MB/s 1.2 MB.
        break_even_bytes: u64,
    },
}

/// Where a read that misses is fetched from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// As in [`FetchSize::Adaptive`], for this read; a fixed size does not ask.
    pub break_even_bytes: u64,
    /// Bytes of the line that the backing has: a file ends within its last line, and nothing is fetched beyond.
    pub line_end: u32,
}

/// Units of sampled lines that were fetched beside what was asked for, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AheadUnits {
    /// Units fetched.
    pub fetched: u64,
    /// Of these, units that were read before their line left or they were written.
    pub used: u64,
}

/// One newcomer of so many is sampled in a large cache; of a small one, enough for this many lines at a time.
const PERIOD_MAX: u64 = 128;
const LINES_MIN: u64 = 128;

/// See the [module](self).
pub(crate) struct FetchTrial {
    period: u64,
    draw: u64,
    /// Sampled lines by slot, with their place in `masks`.
    places: HashMap<u32, u32>,
    free: Vec<u32>,
    /// Of each place, the units that each fetch size would have made valid, and those fetched ahead and not used yet.
    masks: Masks,
    costs: FetchCosts,
    ahead: AheadUnits,
}

impl FetchTrial {
    pub(crate) fn new(line_bytes: u64, unit_bytes: u64, capacity: usize) -> Self {
        let line_units = line_bytes / unit_bytes;
        let period = (capacity as u64 / LINES_MIN).clamp(1, PERIOD_MAX);
        // With a quarter to spare: a sample is not exactly one of so many.
        let lines = capacity / period as usize * 5 / 4;
        let costs = FetchCosts::new(line_bytes, unit_bytes);
        let mut trial = Self {
            period,
            draw: 0,
            places: HashMap::with_capacity(lines),
            free: Vec::new(),
            masks: Masks::new(line_units),
            costs,
            ahead: AheadUnits::default(),
        };
        trial.masks.cover(trial.mask(lines as u32, trial.costs.levels()));
        trial
    }

    fn mask(&self, place: u32, level: usize) -> u32 {
        place * (self.costs.levels() as u32 + 1) + level as u32
    }

    /// A line got a slot.
    pub(crate) fn entered(&mut self, slot: u32) {
        self.left(slot);
        // Not every n-th: requests may have a period of their own.
        self.draw = self
            .draw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        if (self.draw >> 33) % self.period != 0 {
            return;
        }
        let place = self.free.pop().unwrap_or(self.places.len() as u32);
        self.masks.cover(self.mask(place, self.costs.levels()));
        for level in 0..=self.costs.levels() {
            self.masks.clear(self.mask(place, level));
        }
        self.places.insert(slot, place);
    }

    /// The line of a slot left, or lost its units.
    pub(crate) fn left(&mut self, slot: u32) {
        self.free.extend(self.places.remove(&slot));
    }

    /// A line moved to a slot that was free.
    pub(crate) fn moved(&mut self, from: u32, to: u32) {
        self.left(to);
        if let Some(place) = self.places.remove(&from) {
            self.places.insert(to, place);
        }
    }

    /// A read of units of a cached line, of which the backing has `there`.
    pub(crate) fn read(&mut self, slot: u32, touched: u64, there: u64) {
        let Some(&place) = self.places.get(&slot) else {
            return;
        };
        for level in 0..self.costs.levels() {
            let mask = self.mask(place, level);
            let valid = self.masks.get(mask);
            let missing = touched & !valid;
            if missing != 0 {
                let fetched = blocks(missing, level, valid | !there);
                self.costs.count(level, missing, fetched);
                self.masks.add(mask, fetched);
            }
        }
        let mask = self.mask(place, self.costs.levels());
        let used = touched & self.masks.get(mask);
        self.ahead.used += u64::from(used.count_ones());
        self.masks.remove(mask, used);
        self.costs.age();
    }

    /// Units of a cached line were fetched beside what was asked for.
    pub(crate) fn fetched_ahead(&mut self, slot: u32, units: u64) {
        if let Some(&place) = self.places.get(&slot) {
            self.ahead.fetched += u64::from(units.count_ones());
            self.masks.add(self.mask(place, self.costs.levels()), units);
        }
    }

    /// A write to units of a cached line, of which it covers some.
    pub(crate) fn written(&mut self, slot: u32, touched: u64, covered: u64) {
        if let Some(&place) = self.places.get(&slot) {
            for level in 0..self.costs.levels() {
                self.masks.add(self.mask(place, level), covered);
            }
            self.masks.remove(self.mask(place, self.costs.levels()), touched);
        }
    }

    /// The fetch size to take, as the binary logarithm of its units.
    pub(crate) fn level(&self, break_even_bytes: u64) -> usize {
        self.costs.level(break_even_bytes)
    }

    pub(crate) fn ahead(&self) -> AheadUnits {
        self.ahead
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            // The table keeps a byte beside each entry, and an eighth free.
            + self.places.capacity() * 8 / 7 * (size_of::<(u32, u32)>() + 1)
            + self.free.capacity() * size_of::<u32>()
            + self.masks.memory_bytes()
    }
}

/// The units to fetch for `missing`: those around them in their aligned blocks of `2^level` units, up to the next unit that is
/// `taken`. So there are never more runs than without.
pub fn blocks(missing: u64, level: usize, taken: u64) -> u64 {
    if level == 0 {
        return missing;
    }
    let block_units = 1u32 << level;
    let block = u64::MAX >> (64 - block_units);
    // The first unit of each block.
    let firsts = u64::MAX / block;
    let mut any = missing;
    for step in 0..level {
        any |= any >> (1 << step);
    }
    let open = (any & firsts).wrapping_mul(block) & !taken | missing;
    let (mut up, mut down) = (missing, missing);
    let (mut open_up, mut open_down) = (open & !firsts, open & !(firsts << (block_units - 1)));
    for step in 0..level {
        let shift = 1 << step;
        up |= open_up & up << shift;
        open_up &= open_up << shift;
        down |= open_down & down >> shift;
        open_down &= open_down >> shift;
    }
    up | down
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch_costs::{Asked, LEVELS, runs};
    use crate::{AdmissionOptions, CacheConfig, CacheModel, LineSize, Part, WriteMode};
    use bathy_policy::{HashIndex, HashSeed, Lru};
    use proptest::prelude::*;

    /// Unit by unit: as far as a block and what is taken let it.
    fn plainly(missing: u64, level: usize, taken: u64) -> u64 {
        let block_units = 1 << level;
        let mut fetched = missing;
        for unit in (0..64i32).filter(|unit| missing >> unit & 1 == 1) {
            let block = unit / block_units;
            for step in [-1, 1] {
                let mut at = unit + step;
                while (0..64).contains(&at) && at / block_units == block && taken >> at & 1 == 0 {
                    fetched |= 1 << at;
                    at += step;
                }
            }
        }
        fetched
    }

    proptest! {
        #[test]
        fn blocks_are_filled_up_to_what_is_taken(missing: u64, more: u64, taken: u64, level in 0..LEVELS) {
            for missing in [missing, missing & more, missing & more & missing.rotate_left(7)] {
                let taken = taken & !missing;
                let fetched = blocks(missing, level, taken);
                prop_assert_eq!(fetched, plainly(missing, level, taken), "{:x} {} {:x}", missing, level, taken);
                prop_assert!(runs(fetched) <= runs(missing));
            }
        }
    }

    /// A read or write of units of a line: whether it writes, the line, the first unit and the unit after the last.
    type Request = (bool, u64, u32, u32);

    fn run(cache: &mut CacheModel<Lru<HashIndex>>, requests: &[Request]) -> Asked {
        let mut asked = Asked::default();
        for &(write, key, start, end) in requests {
            let part = Part {
                key,
                start: start * 4096,
                end: end * 4096,
                bypasses: false,
            };
            if write {
                let plan = cache.write(&part, 0);
                cache.write_done(plan.ticket, true);
            } else if let Some(miss) = cache.read(&part, 0).miss {
                asked.reads += runs(miss.fetch);
                asked.units += u64::from(miss.fetch.count_ones());
                miss.fill.map(|fill| cache.fill_done(fill, true));
            }
        }
        asked
    }

    proptest! {
        /// Where every line is sampled, the trial of each size is what the cache with that size does.
        #[test]
        fn what_is_tried_is_what_a_fixed_size_asks_for(
            capacity in 1..20usize,
            line_units in prop::sample::select(vec![4u32, 16, 64]),
            requests in prop::collection::vec((prop::bool::weighted(0.3), 0..30u64, 0..64u32, 1..5u32), 1..400),
        ) {
            let in_line = |(write, key, start, units): (bool, u64, u32, u32)| {
                let start = start % line_units;
                (write, key, start, (start + units).min(line_units))
            };
            let requests: Vec<Request> = requests.into_iter().map(in_line).collect();
            let cache = |fetch| CacheModel::new(
                CacheConfig {
                    line: LineSize::new(u64::from(line_units) * 4096).expect("a power of two"),
                    unit_bytes: 4096,
                    fetch,
                    write_mode: WriteMode::Allocate,
                    admission: AdmissionOptions::default(),
                },
                Lru::<HashIndex>::new(capacity, HashSeed(1)),
            );
            let mut adaptive = cache(FetchSize::Adaptive { break_even_bytes: HDD });
            run(&mut adaptive, &requests);
            let tried = adaptive.trial.as_ref().expect("it is adaptive").costs.asked();
            let levels = line_units.trailing_zeros() as usize + 1;
            for (level, &tried) in tried.iter().enumerate().take(levels) {
                prop_assert_eq!(tried, run(&mut cache(FetchSize::Fixed(4096 << level)), &requests), "{}", level);
            }
        }
    }

    fn trial() -> FetchTrial {
        // Every line is sampled.
        FetchTrial::new(65_536, 4096, 100)
    }

    const HDD: u64 = 1_200_000;
    const SSD: u64 = 50_000;
    const ALL: u64 = 0xffff;

    #[test]
    fn before_anything_is_known_the_disk_decides() {
        assert_eq!([HDD, SSD, 0].map(|bytes| trial().level(bytes)), [4, 0, 0]);
        assert_eq!(trial().level(100_000), 1);
    }

    #[test]
    fn neighbours_that_are_read_later_are_fetched_and_others_only_where_bytes_cost_nothing() {
        let mut together = trial();
        let mut alone = trial();
        for line in 0..200 {
            together.entered(line);
            alone.entered(line);
            for unit in 0..8 {
                together.read(line, 1 << unit, ALL);
            }
            alone.read(line, 1 << (line % 16), ALL);
        }
        assert_eq!([HDD, SSD].map(|bytes| together.level(bytes)), [3, 3]);
        assert_eq!([HDD, SSD].map(|bytes| alone.level(bytes)), [0, 0]);
    }

    #[test]
    fn a_tenth_of_the_lines_with_a_second_read_pays_on_a_hard_disk_and_not_on_flash() {
        let mut trial = trial();
        for line in 0..1000 {
            trial.entered(line % 50);
            trial.read(line % 50, 1, ALL);
            if line % 10 == 0 {
                trial.read(line % 50, 1 << 9, ALL);
            }
        }
        assert_eq!([HDD, SSD].map(|bytes| trial.level(bytes)), [4, 0]);
    }

    #[test]
    fn written_units_are_not_fetched_and_lines_that_left_are_forgotten() {
        let mut trial = trial();
        trial.entered(3);
        trial.written(3, 0b111, 0b010);
        trial.read(3, 0b010, ALL);
        assert_eq!(trial.costs.asked()[0], Asked::default());
        trial.read(3, 0b001, ALL);
        assert_eq!(trial.costs.asked().map(|asked| asked.units)[..5], [1, 1, 1, 1, 1]);
        trial.moved(3, 7);
        trial.fetched_ahead(7, 0b1100);
        trial.read(7, 0b1000, ALL);
        trial.written(7, 0b0100, 0);
        trial.read(7, 0b0100, ALL);
        assert_eq!(trial.ahead(), AheadUnits { fetched: 2, used: 1 });
        trial.left(7);
        let asked = trial.costs.asked();
        trial.read(7, 1 << 15, ALL);
        assert_eq!(trial.costs.asked(), asked);
        let memory_bytes = trial.memory_bytes();
        for slot in 0..1000 {
            trial.entered(slot);
            trial.left(slot);
        }
        assert_eq!(trial.memory_bytes(), memory_bytes);
    }
}
