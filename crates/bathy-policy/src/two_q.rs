//! 2Q: newcomers wait in a FIFO; only what is asked for again after it left that FIFO enters the LRU.
//!
//! Johnson, Shasha: 2Q: a low overhead high performance buffer management replacement algorithm, VLDB 1994; the full
//! version, with the authors' recommended sizes: A1in a quarter of the lines, A1out remembers half as many keys as
//! there are lines. A reference inside A1in changes nothing, since it is likely correlated with the first.
//!
//! When not to use it: everything worth keeping is missed twice, so it is slow to fill, and under a workload that
//! shifts quickly plain LRU adapts sooner. A hit in Am moves a queue entry, which needs a lock under threads.

use crate::index::KeyIndex;
use crate::policy::{EvictionSink, Replacement};
use crate::slab::{NIL, Queue, Slab, checked_capacity};

const A1_IN: u8 = 0;
const AM: u8 = 1;
const A1_OUT: u8 = 2;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct TwoQ<I> {
    slab: Slab<I>,
    a1_in: Queue,
    am: Queue,
    a1_out: Queue,
    capacity: usize,
    a1_in_capacity: usize,
    a1_out_capacity: usize,
}

impl<I: KeyIndex> TwoQ<I> {
    /// An empty cache of `capacity` lines.
    pub fn new(capacity: usize, config: I::Config) -> Self {
        let capacity = checked_capacity(capacity);
        let (a1_in_capacity, a1_out_capacity) = (capacity / 4, capacity / 2);
        let (slab, [a1_in, am, a1_out]) = Slab::new(capacity + a1_out_capacity, config);
        Self {
            slab,
            a1_in,
            am,
            a1_out,
            capacity,
            a1_in_capacity,
            a1_out_capacity,
        }
    }

    /// The paper's `reclaimfor`: A1in pays while it is above its share, otherwise Am, whose victims are not
    /// remembered. If A1in is not above its share then Am is not empty.
    fn reclaim<S: EvictionSink + ?Sized>(&mut self, sink: &mut S) {
        if self.a1_in.len() <= self.a1_in_capacity {
            let victim = self.am.pop_back(&mut self.slab.links);
            sink.evicted(self.slab.release(victim));
            return;
        }
        let victim = self.a1_in.pop_back(&mut self.slab.links);
        sink.evicted(self.slab.key(victim));
        if self.a1_out_capacity == 0 {
            self.slab.release(victim);
            return;
        }
        self.slab.set_tag(victim, A1_OUT);
        self.a1_out.push_front(&mut self.slab.links, victim);
        if self.a1_out.len() > self.a1_out_capacity {
            let forgotten = self.a1_out.pop_back(&mut self.slab.links);
            self.slab.release(forgotten);
        }
    }
}

impl<I: KeyIndex> Replacement for TwoQ<I> {
    type Index = I;
    const NAME: &'static str = "2q";

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
        self.a1_in.len() + self.am.len()
    }

    #[inline]
    fn is_resident(&self, slot: u32) -> bool {
        self.slab.tag(slot) != A1_OUT
    }

    #[inline]
    fn on_hit(&mut self, slot: u32) {
        if self.slab.tag(slot) == AM {
            self.am.move_to_front(&mut self.slab.links, slot);
        }
    }

    fn on_miss<S: EvictionSink + ?Sized>(&mut self, key: u64, remembered: u32, sink: &mut S) -> bool {
        // Taken out of A1out first, so that the victim which enters A1out cannot push it out.
        if remembered != NIL {
            self.a1_out.unlink(&mut self.slab.links, remembered);
        }
        if self.resident_len() == self.capacity {
            self.reclaim(sink);
        }
        if remembered == NIL {
            let slot = self.slab.insert(key, A1_IN);
            self.a1_in.push_front(&mut self.slab.links, slot);
        } else {
            self.slab.set_tag(remembered, AM);
            self.am.push_front(&mut self.slab.links, remembered);
        }
        true
    }

    fn on_remove(&mut self, slot: u32) {
        let queue = match self.slab.tag(slot) {
            A1_IN => &mut self.a1_in,
            AM => &mut self.am,
            _ => &mut self.a1_out,
        };
        queue.unlink(&mut self.slab.links, slot);
        self.slab.release(slot);
    }

    fn on_restore(&mut self, key: u64, remembered: u32) {
        if remembered != NIL {
            self.on_remove(remembered);
        }
        let to_am = self.am.len() < self.capacity - self.a1_in_capacity;
        let slot = self.slab.insert(key, if to_am { AM } else { A1_IN });
        let queue = if to_am { &mut self.am } else { &mut self.a1_in };
        queue.push_front(&mut self.slab.links, slot);
    }

    fn for_each_slot_in_restore_order(&self, visit: &mut dyn FnMut(u32)) {
        self.am.for_each(&self.slab.links, visit);
        self.a1_in.for_each(&self.slab.links, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{HashIndex, HashSeed};
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
