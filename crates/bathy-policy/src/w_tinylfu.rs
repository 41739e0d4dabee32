//! W-TinyLFU: newcomers pass an LRU window; whether they stay is a contest of recent frequency with the main LRU's victim.
//!
//! Einziger, Friedman, Manes: `TinyLFU`: a highly efficient cache admission policy, ACM Transactions on Storage 13(4),
//! 2017. The window has a hundredth of the lines, at least one. Main is a segmented LRU (Karedla, Love, Wherry, IEEE
//! Computer 27(3), 1994) with four fifths protected. The challenger must be strictly more frequent. The paper's
//! door-keeper and the resizing of the window are left out.
//!
//! When not to use it: frequency is slow to forget, so it keeps yesterday's hot blocks when the working set moves
//! (VM images do that nightly); halving the sketch is one long pause per ten references a line, 8 bytes a line. Its
//! counts depend on how keys hash, so a miniature simulation with renumbered keys differs a little from the cache.

use crate::frequency_sketch::FrequencySketch;
use crate::index::KeyIndex;
use crate::policy::{EvictionSink, Replacement};
use crate::slab::{NIL, Queue, Slab, checked_capacity};

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct WTinyLfu<I> {
    slab: Slab<I>,
    window: Queue,
    probation: Queue,
    protected: Queue,
    sketch: FrequencySketch,
    capacity: usize,
    window_capacity: usize,
    protected_capacity: usize,
}

impl<I: KeyIndex> WTinyLfu<I> {
    /// An empty cache of `capacity` lines.
    pub fn new(capacity: usize, config: I::Config) -> Self {
        let capacity = checked_capacity(capacity);
        let window_capacity = (capacity / 100).max(1);
        let protected_capacity = (capacity - window_capacity) * 4 / 5;
        let (slab, [window, probation, protected]) = Slab::new(capacity, config);
        let sketch = FrequencySketch::new(capacity);
        Self {
            slab,
            window,
            probation,
            protected,
            sketch,
            capacity,
            window_capacity,
            protected_capacity,
        }
    }

    /// Frees one line of a full cache. The window's oldest, if the window has its share, challenges main's oldest.
    fn evict<S: EvictionSink + ?Sized>(&mut self, sink: &mut S) {
        let challenger = self.window.back(&self.slab.links);
        let main = if self.probation.is_empty() {
            &self.protected
        } else {
            &self.probation
        };
        let champion = main.back(&self.slab.links);
        let challenger_leaves = champion == NIL
            || self.window.len() >= self.window_capacity
                && self.sketch.estimate(self.slab.key(challenger))
                    <= self.sketch.estimate(self.slab.key(champion));
        let loser = if challenger_leaves { challenger } else { champion };
        sink.evicted(self.slab.key(loser));
        self.on_remove(loser);
        if !challenger_leaves {
            self.shift_window();
        }
    }

    /// Moves the window's oldest to main while the window has its share, so that a newcomer fits.
    fn shift_window(&mut self) {
        if self.window.len() >= self.window_capacity && self.capacity > self.window_capacity {
            let oldest = self.window.pop_back(&mut self.slab.links);
            self.slab.set_tag(oldest, PROBATION);
            self.probation.push_front(&mut self.slab.links, oldest);
        }
    }
}

impl<I: KeyIndex> Replacement for WTinyLfu<I> {
    type Index = I;
    const NAME: &'static str = "w-tinylfu";

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
        self.window.len() + self.probation.len() + self.protected.len()
    }

    #[inline]
    fn is_resident(&self, _slot: u32) -> bool {
        true
    }

    fn on_hit(&mut self, slot: u32) {
        self.sketch.add(self.slab.key(slot));
        match self.slab.tag(slot) {
            WINDOW => self.window.move_to_front(&mut self.slab.links, slot),
            PROTECTED => self.protected.move_to_front(&mut self.slab.links, slot),
            _ => {
                self.probation.unlink(&mut self.slab.links, slot);
                self.slab.set_tag(slot, PROTECTED);
                self.protected.push_front(&mut self.slab.links, slot);
                if self.protected.len() > self.protected_capacity {
                    let demoted = self.protected.pop_back(&mut self.slab.links);
                    self.slab.set_tag(demoted, PROBATION);
                    self.probation.push_front(&mut self.slab.links, demoted);
                }
            }
        }
    }

    fn on_miss<S: EvictionSink + ?Sized>(&mut self, key: u64, _slot: u32, sink: &mut S) -> bool {
        self.sketch.add(key);
        if self.resident_len() == self.capacity {
            self.evict(sink);
        } else {
            self.shift_window();
        }
        let slot = self.slab.insert(key, WINDOW);
        self.window.push_front(&mut self.slab.links, slot);
        true
    }

    fn bytes_held(&self) -> usize {
        self.slab.memory_bytes() + self.sketch.memory_bytes()
    }

    fn on_remove(&mut self, slot: u32) {
        let queue = match self.slab.tag(slot) {
            WINDOW => &mut self.window,
            PROBATION => &mut self.probation,
            _ => &mut self.protected,
        };
        queue.unlink(&mut self.slab.links, slot);
        self.slab.release(slot);
    }

    fn on_restore(&mut self, key: u64, _slot: u32) {
        let to_main = self.probation.len() + self.protected.len() < self.capacity - self.window_capacity;
        let slot = self.slab.insert(key, if to_main { PROBATION } else { WINDOW });
        let queue = if to_main {
            &mut self.probation
        } else {
            &mut self.window
        };
        queue.push_front(&mut self.slab.links, slot);
    }

    fn for_each_slot_in_restore_order(&self, visit: &mut dyn FnMut(u32)) {
        self.probation.for_each(&self.slab.links, visit);
        self.protected.for_each(&self.slab.links, visit);
        self.window.for_each(&self.slab.links, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{HashIndex, HashSeed};
    use crate::walk::walk;

    #[test]
    fn the_challenger_must_be_strictly_more_frequent() {
        // Four lines: one in the window, three in main, of which two can be protected.
        let mut w_tinylfu = WTinyLfu::<HashIndex>::new(4, HashSeed(0));
        // At 5 the window's 4 challenges main's oldest, 1. Both were seen once, so 4 leaves.
        assert_eq!(walk(&mut w_tinylfu, &[1, 2, 3, 4, 5]), "1 2 3 4 5/4");
        // 5 is seen three times in the window and wins against 1.
        assert_eq!(walk(&mut w_tinylfu, &[5, 5, 6]), "5+ 5+ 6/1");
        // The hit protects 2, so the contest is with 3 now; 6 was seen once, as 3 was, and loses.
        assert_eq!(walk(&mut w_tinylfu, &[2, 7]), "2+ 7/6");
        // Three are hit in main but only two can be protected: 2 is on probation again, and seen twice, like 7.
        assert_eq!(walk(&mut w_tinylfu, &[3, 5, 7, 8]), "3+ 5+ 7+ 8/7");
        assert_eq!(walk(&mut w_tinylfu, &[8, 8, 9]), "8+ 8+ 9/2");
    }
}
