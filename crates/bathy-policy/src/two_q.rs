//! 2Q: newcomers enter a FIFO; only a block that is referenced again after it left that FIFO enters the LRU.
//!
//! Johnson, Shasha: 2Q: a low overhead high performance buffer management replacement algorithm, VLDB 1994; the full
//! version, with the authors' recommended sizes: A1in has a quarter of the lines, A1out remembers half as many keys as
//! there are lines. A reference inside A1in changes nothing, since it is likely correlated with the first.
//!
//! Limits: every block worth keeping is missed twice, so the cache is slow to fill, and under a workload that shifts
//! quickly plain LRU adapts sooner. A hit in Am moves a queue entry, which needs a lock under threads.

use crate::index::KeyIndex;
use crate::policy::{Replacement, SlabPolicy, Victim};
use crate::slab::Slab;
use crate::slots::NIL;

const AM: u8 = 0;
const A1_IN: u8 = 1;
const A1_OUT: u8 = 2;

/// See the [module](self).
pub type TwoQ<I> = SlabPolicy<TwoQRules, I>;

/// The queues A1in, Am and A1out of the paper.
#[derive(Debug, Clone)]
pub struct TwoQRules {
    a1_in_capacity: usize,
    a1_out_capacity: usize,
}

impl TwoQRules {
    /// The paper's `reclaimfor`: evicts from A1in while it is above its share, otherwise from Am, whose victims are not
    /// remembered. If A1in is not above its share then Am is not empty.
    fn reclaim<I: KeyIndex>(&self, slab: &mut Slab<I>) -> Victim {
        let slot = if slab.len(A1_IN) <= self.a1_in_capacity {
            slab.oldest_unpinned_of(AM, A1_IN)
        } else {
            slab.oldest_unpinned_of(A1_IN, AM)
        };
        if slab.queue(slot) == AM {
            slab.evict(slot)
        } else {
            slab.retire(slot, A1_OUT, self.a1_out_capacity)
        }
    }
}

impl Replacement for TwoQRules {
    type Options = ();
    const RESIDENT_QUEUES: u8 = A1_OUT;

    fn ghosts_max(capacity: usize, (): &()) -> usize {
        capacity / 2
    }

    fn new(capacity: usize, _slots_end: usize, (): &()) -> Self {
        Self {
            a1_in_capacity: capacity / 4,
            a1_out_capacity: Self::ghosts_max(capacity, &()),
        }
    }

    #[inline]
    fn on_hit<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        if slab.queue(slot) == AM {
            slab.move_to_front(slot, AM);
        }
    }

    fn on_miss<I: KeyIndex>(&mut self, slab: &mut Slab<I>, key: u64, ghost: u32) -> (u32, Option<Victim>) {
        // Taken out of A1out first, so that the victim which enters A1out cannot push it out.
        if ghost != NIL {
            slab.unlink(ghost);
        }
        let is_full = slab.len(AM) + slab.len(A1_IN) == slab.capacity();
        let victim = is_full.then(|| self.reclaim(slab));
        if ghost == NIL {
            return (slab.insert(key, A1_IN), victim);
        }
        slab.link(ghost, AM);
        (ghost, victim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::HashIndex;
    use crate::slots::HashSeed;
    use crate::walk::walk;

    #[test]
    fn only_a_return_after_leaving_a1_in_leads_to_am() {
        // Four lines: A1in's share is one, A1out remembers two.
        let mut two_q = TwoQ::<HashIndex>::new(4, HashSeed(0));
        // All is in A1in, which pays: 1 and 2 leave and are remembered. 1 returns and enters Am; A1in pays with 3.
        assert_eq!(walk(&mut two_q, &[1, 2, 3, 4, 5, 6, 1]), "1 2 3 4 5/1 6/2 1/3");
        // The hit on 4 in A1in does not help it. A1out now remembers 3 and 4 and no more 2, which enters A1in again.
        assert_eq!(walk(&mut two_q, &[4, 7, 2]), "4+ 7/4 2/5");
        // 4, 5 and 6 return one by one as A1in shrinks to its share; then Am pays, with its oldest, 1.
        assert_eq!(walk(&mut two_q, &[4, 5, 6]), "4/6 5/7 6/1");
        // What Am evicts is not remembered: 1 enters A1in, which is above its share then, so 2 goes at the next miss.
        assert_eq!(walk(&mut two_q, &[1, 8]), "1/4 8/2");
    }
}
