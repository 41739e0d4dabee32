//! CLOCK: a FIFO in which an entry that was referenced since its last turn gets a second chance.
//!
//! Corbató: A paging experiment with the Multics system, MIT Project MAC report MAC-M-384, 1968. One reference bit per
//! entry; it is clear in a newcomer. The hand that sweeps a ring is written here as the equivalent queue whose oldest
//! entry is pushed in again.
//!
//! Limits: as with LRU a scan flushes everything, because every newcomer stays for a whole round. An eviction may step
//! over many referenced entries, so its worst case is O(capacity).

use crate::index::KeyIndex;
use crate::policy::{Replacement, SlabPolicy, Victim};
use crate::slab::Slab;

const REFERENCED: u8 = 1;

/// See the [module](self).
pub type Clock<I> = SlabPolicy<ClockRules, I>;

/// One queue; the flag of an entry is its reference bit.
#[derive(Debug, Clone)]
pub struct ClockRules;

impl Replacement for ClockRules {
    type Options = ();

    fn new(_capacity: usize, _slots_end: usize, (): &()) -> Self {
        Self
    }

    #[inline]
    fn on_hit<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        slab.add_flags(slot, REFERENCED);
    }

    /// Evicts the oldest entry that is not referenced. A round clears every bit, so the second round finds one.
    #[inline]
    fn evict<I: KeyIndex>(&mut self, slab: &mut Slab<I>) -> Victim {
        loop {
            let slot = slab.oldest_unpinned(0);
            if slab.flags(slot) != REFERENCED {
                return slab.evict(slot);
            }
            slab.set_flags(slot, 0);
            slab.move_to_front(slot, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::HashIndex;
    use crate::slots::HashSeed;
    use crate::walk::walk;

    #[test]
    fn a_mark_is_worth_one_more_round() {
        let mut clock = Clock::<HashIndex>::new(3, HashSeed(0));
        // At 4 the oldest, 1, is marked: it loses the mark and goes round, so 2 leaves. At 5 comes 3, and at 6 it is
        // 1's turn again, without a mark now.
        assert_eq!(walk(&mut clock, &[1, 2, 3, 1, 4, 5, 6]), "1 2 3 1+ 4/2 5/3 6/1");
    }

    #[test]
    fn when_all_are_marked_the_oldest_leaves() {
        let mut clock = Clock::<HashIndex>::new(3, HashSeed(0));
        assert_eq!(walk(&mut clock, &[1, 2, 3, 3, 2, 1, 4]), "1 2 3 3+ 2+ 1+ 4/1");
    }
}
