//! FIFO: the line that came first is evicted, used or not.
//!
//! Belady: A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5(2), 1966; the
//! anomaly that a larger FIFO can miss more often is Belady, Nelson, Shedler, CACM 12(6), 1969.
//!
//! Limits: nearly always one of its descendants (CLOCK, SIEVE, S3-FIFO) costs as little and misses less. It is the
//! lower baseline: a policy that misses more than FIFO does not suit the workload.

use crate::index::KeyIndex;
use crate::policy::{Replacement, SlabPolicy};
use crate::slab::Slab;

/// See the [module](self).
pub type Fifo<I> = SlabPolicy<FifoRules, I>;

/// One queue in order of insertion.
#[derive(Debug, Clone)]
pub struct FifoRules;

impl Replacement for FifoRules {
    type Options = ();

    fn new(_capacity: usize, _slots_end: usize, (): &()) -> Self {
        Self
    }

    #[inline]
    fn on_hit<I: KeyIndex>(&mut self, _slab: &mut Slab<I>, _slot: u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::HashIndex;
    use crate::slots::HashSeed;
    use crate::walk::walk;

    #[test]
    fn the_first_in_leaves_however_often_it_was_used() {
        let mut fifo = Fifo::<HashIndex>::new(3, HashSeed(0));
        assert_eq!(walk(&mut fifo, &[1, 2, 3, 1, 1, 4, 1]), "1 2 3 1+ 1+ 4/1 1/2");
    }

    #[test]
    fn a_larger_fifo_can_miss_more_often() {
        // The example of Belady, Nelson and Shedler: 9 misses with three lines, 10 with four.
        let keys = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];
        let misses = |capacity| {
            let mut fifo = Fifo::<HashIndex>::new(capacity, HashSeed(0));
            walk(&mut fifo, &keys)
                .split(' ')
                .filter(|step| !step.contains('+'))
                .count()
        };
        assert_eq!((misses(3), misses(4)), (9, 10));
    }
}
