//! SIEVE: a FIFO whose hand moves from old to new and evicts the unvisited where it finds them.
//!
//! Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is simpler than LRU, NSDI 2024. Unlike CLOCK the survivors keep their
//! place, so newcomers and survivors separate: the hand soon works among the newcomers.
//!
//! When not to use it: block storage. It has no defence against scans (its authors say so): a scan longer than the
//! cache walks the hand through everything. It was made for web objects whose popularity is skewed and steady.

use crate::index::KeyIndex;
use crate::policy::{EvictionSink, Replacement};
use crate::slab::{NIL, Queue, Slab, checked_capacity};

const VISITED: u8 = 1;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Sieve<I> {
    slab: Slab<I>,
    queue: Queue,
    /// Where the next search for a victim begins; [`NIL`] means at the oldest.
    hand: u32,
    capacity: usize,
}

impl<I: KeyIndex> Sieve<I> {
    /// An empty cache of `capacity` lines.
    pub fn new(capacity: usize, config: I::Config) -> Self {
        let capacity = checked_capacity(capacity);
        let (slab, [queue]) = Slab::new(capacity, config);
        Self {
            slab,
            queue,
            hand: NIL,
            capacity,
        }
    }

    /// Evicts the first unvisited entry from the hand towards the newest, then again from the oldest.
    fn evict(&mut self) -> u64 {
        let mut slot = self.hand;
        loop {
            if slot == NIL {
                slot = self.queue.back(&self.slab.links);
            }
            if self.slab.tag(slot) != VISITED {
                break;
            }
            self.slab.set_tag(slot, 0);
            slot = self.queue.newer(&self.slab.links, slot);
        }
        self.hand = self.queue.newer(&self.slab.links, slot);
        self.queue.unlink(&mut self.slab.links, slot);
        self.slab.release(slot)
    }
}

impl<I: KeyIndex> Replacement for Sieve<I> {
    type Index = I;
    const NAME: &'static str = "sieve";

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
        self.slab.set_tag(slot, VISITED);
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
        if slot == self.hand {
            self.hand = self.queue.newer(&self.slab.links, slot);
        }
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
        assert!(sieve.remove(3), "3 is under the hand, and 4 after it");
        assert_eq!(walk(&mut sieve, &[5, 6]), "5 6/4");
    }
}
