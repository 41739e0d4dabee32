//! LRU: the least recently used leaves.
//!
//! Mattson, Gecsei, Slutz, Traiger: Evaluation techniques for storage hierarchies, IBM Systems Journal 9(2), 1970.
//! A stack algorithm: a larger cache holds everything that a smaller one holds, which is what lets one pass over a
//! trace give the whole miss-ratio curve.
//!
//! When not to use it: scans and loops larger than the cache flush it, and every hit moves a queue entry, which
//! under threads means a lock per hit. It is here as the yardstick and because its curve is exactly predictable.

use crate::index::KeyIndex;
use crate::policy::{EvictionSink, Replacement};
use crate::slab::{Queue, Slab, checked_capacity};

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Lru<I> {
    slab: Slab<I>,
    queue: Queue,
    capacity: usize,
}

impl<I: KeyIndex> Lru<I> {
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

impl<I: KeyIndex> Replacement for Lru<I> {
    type Index = I;
    const NAME: &'static str = "lru";

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
        self.queue.move_to_front(&mut self.slab.links, slot);
    }

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
    fn the_one_unused_for_longest_leaves() {
        let mut lru = Lru::<HashIndex>::new(3, HashSeed(0));
        // The hit makes 1 the newest, so 2 goes, then 3. By then 1 is the oldest again, but it is used once more,
        // which leaves 4.
        assert_eq!(
            walk(&mut lru, &[1, 2, 3, 1, 4, 5, 1, 6]),
            "1 2 3 1+ 4/2 5/3 1+ 6/4"
        );
    }
}
