//! W-TinyLFU: newcomers pass an LRU window, then must have been referenced more often lately than the main LRU's victim.
//!
//! Einziger, Friedman, Manes: `TinyLFU`: a highly efficient cache admission policy, ACM Transactions on Storage 13(4),
//! 2017. The window has a hundredth of the lines, at least one. Main is a segmented LRU (Karedla, Love, Wherry, IEEE
//! Computer 27(3), 1994) with four fifths protected. The challenger must be strictly more frequent. The paper's
//! door-keeper and the resizing of the window are left out.
//!
//! Limits: frequency is slow to forget, so it keeps yesterday's hot blocks when the working set moves (VM images do that
//! nightly); halving the sketch is one long pause per ten references a line, 8 bytes a line. Its counts depend on how
//! keys hash, so a miniature simulation with renumbered keys differs a little from the cache.

use crate::frequency_sketch::FrequencySketch;
use crate::index::KeyIndex;
use crate::policy::{Replacement, SlabPolicy, Victim};
use crate::slab::Slab;
use crate::slots::NIL;

const PROBATION: u8 = 0;
const PROTECTED: u8 = 1;
const WINDOW: u8 = 2;

/// See the [module](self).
pub type WTinyLfu<I> = SlabPolicy<WTinyLfuRules, I>;

/// The window, the two segments of main and the frequencies.
#[derive(Debug, Clone)]
pub struct WTinyLfuRules {
    sketch: FrequencySketch,
    window_capacity: usize,
    protected_capacity: usize,
}

impl WTinyLfuRules {
    /// Frees one line of a full cache. The window's oldest, if the window has its share, challenges main's oldest.
    fn make_room<I: KeyIndex>(&self, slab: &mut Slab<I>) -> Victim {
        let challenger = slab.oldest_unpinned(WINDOW);
        let champion = slab.oldest_unpinned_of(PROBATION, PROTECTED);
        let challenger_leaves = champion == NIL
            || challenger != NIL
                && slab.len(WINDOW) >= self.window_capacity
                && self.sketch.estimate(slab.key(challenger)) <= self.sketch.estimate(slab.key(champion));
        if challenger_leaves {
            return slab.evict(challenger);
        }
        let victim = slab.evict(champion);
        self.shift_window(slab);
        victim
    }

    /// Moves the window's oldest to main while the window has its share, so that a newcomer fits.
    fn shift_window<I: KeyIndex>(&self, slab: &mut Slab<I>) {
        if slab.len(WINDOW) >= self.window_capacity && slab.capacity() > self.window_capacity {
            slab.move_oldest(WINDOW, PROBATION);
        }
    }
}

impl Replacement for WTinyLfuRules {
    type Options = ();

    fn new(capacity: usize, _slots_end: usize, (): &()) -> Self {
        let window_capacity = (capacity / 100).max(1);
        Self {
            sketch: FrequencySketch::new(capacity),
            window_capacity,
            protected_capacity: (capacity - window_capacity) * 4 / 5,
        }
    }

    fn on_hit<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        self.sketch.add(slab.key(slot));
        if slab.queue(slot) == WINDOW {
            slab.move_to_front(slot, WINDOW);
            return;
        }
        slab.move_to(slot, PROTECTED);
        if slab.len(PROTECTED) > self.protected_capacity {
            slab.move_oldest(PROTECTED, PROBATION);
        }
    }

    fn on_miss<I: KeyIndex>(&mut self, slab: &mut Slab<I>, key: u64, _ghost: u32) -> (u32, Option<Victim>) {
        self.sketch.add(key);
        let is_full = slab.len(WINDOW) + slab.len(PROBATION) + slab.len(PROTECTED) == slab.capacity();
        let victim = is_full.then(|| self.make_room(slab));
        if !is_full {
            self.shift_window(slab);
        }
        (slab.insert(key, WINDOW), victim)
    }

    fn memory_bytes(&self) -> usize {
        self.sketch.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::HashIndex;
    use crate::slots::HashSeed;
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
