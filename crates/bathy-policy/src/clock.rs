//! CLOCK: a FIFO in which an entry that was referenced since its last turn gets another one.
//!
//! Corbató: A paging experiment with the Multics system, MIT Project MAC report MAC-M-384, 1968. One mark per entry;
//! newcomers come unmarked. The hand that sweeps a ring is written here as the equivalent queue whose oldest entry
//! is pushed in again.
//!
//! When not to use it: like LRU it lets a scan flush everything, as every newcomer lives a whole round. An eviction
//! may step over many marked entries, so its worst case is O(capacity).

use crate::index::KeyIndex;
use crate::policy::{EvictionSink, Replacement};
use crate::slab::{Queue, Slab, checked_capacity};

const REFERENCED: u8 = 1;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Clock<I> {
    slab: Slab<I>,
    queue: Queue,
    capacity: usize,
}

impl<I: KeyIndex> Clock<I> {
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

    /// Evicts the oldest entry that is not marked. A round clears every mark, so the second finds one.
    fn evict(&mut self) -> u64 {
        loop {
            let slot = self.queue.back(&self.slab.links);
            if self.slab.tag(slot) != REFERENCED {
                self.queue.unlink(&mut self.slab.links, slot);
                return self.slab.release(slot);
            }
            self.slab.set_tag(slot, 0);
            self.queue.move_to_front(&mut self.slab.links, slot);
        }
    }
}

impl<I: KeyIndex> Replacement for Clock<I> {
    type Index = I;
    const NAME: &'static str = "clock";

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
    fn on_hit(&mut self, slot: u32) {
        self.slab.set_tag(slot, REFERENCED);
    }

    #[inline]
    fn on_miss<S: EvictionSink + ?Sized>(&mut self, key: u64, _slot: u32, sink: &mut S) -> bool {
        if self.queue.len() == self.capacity {
            sink.evicted(self.evict());
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
