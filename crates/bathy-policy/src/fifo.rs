//! FIFO: the one that came first leaves, used or not.
//!
//! Belady: A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5(2), 1966; the
//! anomaly that a larger FIFO can miss more often is Belady, Nelson, Shedler, CACM 12(6), 1969.
//!
//! When not to use it: nearly always one of its descendants (CLOCK, SIEVE, S3-FIFO) is as cheap and misses less.
//! It is here as the floor: a policy that does worse than FIFO is being used on the wrong workload.

use crate::index::KeyIndex;
use crate::policy::{EvictionSink, Replacement};
use crate::slab::{Queue, Slab, checked_capacity};

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Fifo<I> {
    slab: Slab<I>,
    queue: Queue,
    capacity: usize,
}

impl<I: KeyIndex> Fifo<I> {
    /// An empty cache of `capacity` lines.
    pub fn new(capacity: usize, config: I::Config) -> Self {
        let capacity = checked_capacity(capacity);
        let (slab, [queue]) = Slab::new(capacity, config);
        Self {
            slab,
            queue,
            capacity,
        }
    }
}

impl<I: KeyIndex> Replacement for Fifo<I> {
    type Index = I;
    const NAME: &'static str = "fifo";

    #[inline]
    fn slab(&self) -> &Slab<I> {
        &self.slab
    }

    #[inline]
    fn slab_mut(&mut self) -> &mut Slab<I> {
        &mut self.slab
    }

    fn capacity_lines(&self) -> usize {
        self.capacity
    }

    #[inline]
    fn resident_len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    fn is_resident(&self, _slot: u32) -> bool {
        true
    }

    #[inline]
    fn on_hit(&mut self, _slot: u32) {}

    #[inline]
    fn on_miss<S: EvictionSink + ?Sized>(&mut self, key: u64, _slot: u32, sink: &mut S) -> bool {
        if self.queue.len() == self.capacity {
            let victim = self.queue.pop_back(&mut self.slab.links);
            sink.evicted(self.slab.release(victim));
        }
        let slot = self.slab.insert(key, 0);
        self.queue.push_front(&mut self.slab.links, slot);
        true
    }

    fn on_remove(&mut self, slot: u32) {
        self.queue.unlink(&mut self.slab.links, slot);
        self.slab.release(slot);
    }

    fn for_each_slot_in_restore_order(&self, visit: &mut dyn FnMut(u32)) {
        self.queue.for_each(&self.slab.links, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{HashIndex, HashSeed};
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
