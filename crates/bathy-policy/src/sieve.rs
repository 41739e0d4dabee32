//! SIEVE: a FIFO whose hand moves from old to new and evicts the first unvisited entry that it finds.
//!
//! Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is simpler than LRU, NSDI 2024. Unlike in CLOCK the survivors keep their
//! position, so newcomers and survivors separate: the hand soon works among the newcomers.
//!
//! Limits: it does not suit block storage. It has no defence against scans (its authors say so): a scan longer than
//! the cache moves the hand through everything. It was made for web objects whose popularity is skewed and steady.

use crate::index::KeyIndex;
use crate::policy::{Replacement, SlabPolicy, Victim};
use crate::slab::Slab;
use crate::slots::NIL;

const VISITED: u8 = 1;

/// See the [module](self).
pub type Sieve<I> = SlabPolicy<SieveRules, I>;

/// One queue in order of insertion; the flag of an entry is its visited bit.
#[derive(Debug, Clone)]
pub struct SieveRules {
    /// Where the next search for a victim begins; [`NIL`] means at the oldest.
    hand: u32,
}

impl Replacement for SieveRules {
    type Options = ();

    fn new(_capacity: usize, _slots_end: usize, (): &()) -> Self {
        Self { hand: NIL }
    }

    #[inline]
    fn on_hit<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        slab.add_flags(slot, VISITED);
    }

    /// Evicts the first unvisited entry from the hand towards the newest, then again from the oldest.
    #[inline]
    fn evict<I: KeyIndex>(&mut self, slab: &mut Slab<I>) -> Victim {
        let mut slot = self.hand;
        loop {
            if slot == NIL {
                slot = slab.oldest(0);
            }
            if !slab.is_pinned(slot) {
                if slab.flags(slot) != VISITED {
                    break;
                }
                slab.set_flags(slot, 0);
            }
            slot = slab.newer(0, slot);
        }
        self.hand = slab.newer(0, slot);
        slab.evict(slot)
    }

    fn on_remove<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        if slot == self.hand {
            self.hand = slab.newer(0, slot);
        }
        slab.remove(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::HashIndex;
    use crate::slots::HashSeed;
    use crate::walk::walk;

    #[test]
    fn a_survivor_keeps_its_place_behind_the_hand() {
        let mut sieve = Sieve::<HashIndex>::new(3, HashSeed(0));
        // At 4 the hand finds 1 visited, clears it and evicts 2. From there it goes on towards the newest: 3, 4, 5 as
        // they come, while 1 stays behind it, where CLOCK would have evicted 1 at 6.
        assert_eq!(
            walk(&mut sieve, &[1, 2, 3, 1, 4, 5, 6, 7, 1]),
            "1 2 3 1+ 4/2 5/3 6/4 7/5 1+"
        );
    }

    #[test]
    fn the_hand_starts_again_at_the_oldest_when_it_passes_the_newest() {
        let mut sieve = Sieve::<HashIndex>::new(2, HashSeed(0));
        // At 3 the hand clears 1 and evicts 2, the newest, so it is past the end. At 4 it starts again, at 1.
        assert_eq!(walk(&mut sieve, &[1, 2, 1, 3, 4]), "1 2 1+ 3/2 4/1");
    }

    #[test]
    fn removing_the_entry_under_the_hand_moves_the_hand_on() {
        use crate::policy::Policy;
        let mut sieve = Sieve::<HashIndex>::new(3, HashSeed(0));
        assert_eq!(walk(&mut sieve, &[1, 2, 3, 1, 4]), "1 2 3 1+ 4/2");
        assert!(sieve.remove(3).is_some(), "3 is under the hand, and 4 after it");
        assert_eq!(walk(&mut sieve, &[5, 6]), "5 6/4");
    }
}
