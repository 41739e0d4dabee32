//! Which files leave a full file table: those whose lines are used least.
//!
//! A CLOCK that counts (GCLOCK, Smith 1978): a file gets heat when it comes and from each request that finds lines of it, and a
//! hand goes round the slots and takes some away. A file that cannot pay leaves. The more lines a file has, the less it pays, as
//! they would have to be read anew: a file of one line that nobody asks for stays for one round, one of 16 lines and more for
//! sixteen. A file without lines leaves at once.
//!
//! A look of the hand takes heat that was given before, or finds who leaves, or passes a file in use: so an eviction costs a
//! constant number of looks, on average over the requests before it, while a constant share of the files is not in use. None
//! costs more than [`LOOKS_MAX`]: if none of those had to leave, the coldest of them does, and if all were in use, none, and the
//! next eviction looks on behind them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// What a file gets when it comes, and for a request that found lines of it.
const GIVEN: u8 = 16;
/// A file has no more.
const HEAT_MAX: u8 = 7 * GIVEN;
/// Files that leave together at most, as their records often lie in one block.
const LEAVE_MAX: usize = 16;
/// An eviction looks at so many slots: the file table is locked meanwhile, and holds millions.
const LOOKS_MAX: usize = 4096;
/// After the first that leaves so many slots are looked at for others.
const LOOKS_AHEAD: usize = 64;

/// The heat of the file in each slot. It is a hint: of two changes at once one may be lost.
#[derive(Clone, Debug)]
pub(crate) struct Heat(Arc<[AtomicU8]>);

impl Heat {
    fn of(&self, slot: u32) -> u8 {
        self.0[slot as usize].load(Ordering::Relaxed)
    }

    fn set(&self, slot: u32, heat: u8) {
        self.0[slot as usize].store(heat, Ordering::Relaxed);
    }

    /// A request found lines of the file in this slot, if there is such a slot.
    pub(crate) fn add(&self, slot: u32) {
        let before = self.0.get(slot as usize).map(|heat| heat.load(Ordering::Relaxed));
        // Nothing is written for a file that is as hot as can be: requests of several threads share the cache line.
        if let Some(before) = before.filter(|&before| before < HEAT_MAX) {
            self.set(slot, before + GIVEN.min(HEAT_MAX - before));
        }
    }
}

/// What a file pays in each round.
fn paid(lines: u32) -> u8 {
    match lines {
        0 => u8::MAX,
        1..GIVEN_LINES => GIVEN / lines as u8,
        _ => 1,
    }
}

const GIVEN_LINES: u32 = GIVEN as u32;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct HeatClock {
    pub(crate) heat: Heat,
    hand: u32,
}

impl HeatClock {
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            heat: Heat((0..slots).map(|_| AtomicU8::new(0)).collect()),
            hand: 0,
        }
    }

    /// A file comes to a slot.
    pub(crate) fn begin(&self, slot: u32) {
        self.heat.set(slot, GIVEN);
    }

    /// The slots of the files that leave, in order; none if none of those that it looks at can. `lines_of` is how many lines the file in a slot has, and
    /// `None` of a slot whose file cannot leave.
    pub(crate) fn leave(&mut self, lines_of: impl Fn(u32) -> Option<u32>) -> Vec<u32> {
        let slots = self.heat.0.len();
        let leave_max = (slots / 64).clamp(1, LEAVE_MAX);
        let (mut leaving, mut coldest) = (Vec::new(), None);
        let mut looks = slots.min(LOOKS_MAX);
        while looks > 0 && leaving.len() < leave_max {
            looks -= 1;
            let slot = self.hand;
            self.hand = if slot as usize + 1 == slots { 0 } else { slot + 1 };
            let Some(lines) = lines_of(slot) else {
                continue;
            };
            let (heat, paid) = (self.heat.of(slot), paid(lines));
            if heat < paid {
                if leaving.is_empty() {
                    looks = looks.min(LOOKS_AHEAD);
                }
                leaving.push(slot);
                continue;
            }
            self.heat.set(slot, heat - paid);
            let rounds_left = (heat - paid) / paid;
            if coldest.is_none_or(|(fewest, _)| rounds_left < fewest) {
                coldest = Some((rounds_left, slot));
            }
        }
        if leaving.is_empty() {
            leaving.extend(coldest.map(|(_, slot)| slot));
        }
        leaving.sort_unstable();
        leaving
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.heat.0.len()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn clock_of(slots: u32) -> HeatClock {
        let clock = HeatClock::new(slots);
        (0..slots).for_each(|slot| clock.begin(slot));
        clock
    }

    #[test]
    fn who_was_asked_for_or_has_many_lines_stays() {
        let mut clock = clock_of(5);
        clock.heat.add(1);
        clock.heat.add(u32::MAX);
        // The file in slot 3 has 1000 lines, the one in slot 4 is in use.
        let lines_of = |slot| (slot != 4).then_some(if slot == 3 { 1000 } else { 1 });
        // Nobody has to leave yet, and of those who would next the first does.
        assert_eq!(clock.leave(lines_of), [0]);
        clock.begin(0);
        assert_eq!(clock.leave(lines_of), [2]);
        clock.begin(2);
        assert_eq!(
            clock.leave(lines_of),
            [0],
            "nobody asked for it, and the hand comes to it first"
        );
        clock.begin(0);
        assert_eq!(clock.leave(lines_of), [1], "its request was some rounds ago");
        let others = |slot| lines_of(slot).filter(|_| slot > 2);
        assert_eq!(clock.leave(others), [3], "nobody else can");
        assert_eq!(clock.leave(|_| None), [0; 0]);
    }

    #[test]
    fn who_has_no_lines_leaves_at_once_with_neighbours() {
        let mut clock = clock_of(1024);
        (0..1024).for_each(|slot| clock.heat.add(slot));
        let lines_of = |slot| Some(u32::from(slot % 100 > 20));
        assert_eq!(clock.leave(lines_of), (0..16).collect::<Vec<_>>());
        assert_eq!(clock.leave(lines_of), (16..21).collect::<Vec<_>>());
    }

    #[test]
    fn where_all_files_are_in_use_an_eviction_looks_at_few_and_the_next_one_goes_on_behind_them() {
        let slots = 1 << 20;
        let mut clock = clock_of(slots);
        let looks = Cell::new(0_u64);
        let in_use = |_| {
            looks.set(looks.get() + 1);
            None
        };
        assert_eq!(clock.leave(in_use), [0; 0]);
        let looked = looks.get();
        assert!(looked <= 4096, "{looked} looks");
        // The one file that is not in use is found by and by.
        let only = 5 * looked as u32;
        let tries = (1..10).find(|_| clock.leave(|slot| (slot == only).then_some(1)) == [only]);
        assert_eq!(tries, Some(5));
    }

    #[test]
    fn an_eviction_costs_a_constant_number_of_looks_and_never_more_than_a_round() {
        let slots = 4096;
        let mut clock = clock_of(slots);
        let looks = Cell::new(0_u64);
        let mut requests = 0;
        let mut random = 7_u64;
        let (mut evictions, mut most) = (0, 0);
        while evictions < 40_000 {
            // Most requests go to few files, and every fourth file has many lines.
            for _ in 0..2 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let slot = (random >> 33) as u32 % slots;
                clock.heat.add(if random >> 63 == 0 { slot } else { slot % 64 });
                requests += 1;
            }
            let before = looks.get();
            let leaving = clock.leave(|slot| {
                looks.set(looks.get() + 1);
                Some(if slot % 4 == 0 { 500 } else { 1 })
            });
            most = most.max(looks.get() - before);
            assert!(!leaving.is_empty());
            for slot in leaving {
                assert!(slot >= 64 || slot % 4 != 0, "it is hot and large");
                evictions += 1;
                clock.begin(slot);
            }
        }
        assert!(most <= u64::from(slots), "{most}");
        let looks_each = looks.get() as f64 / f64::from(evictions + requests);
        assert!(
            looks_each < 4.0,
            "{looks_each} looks for each file that came or was asked for"
        );
    }
}
