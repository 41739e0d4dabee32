//! S3-FIFO: a small FIFO that newcomers must survive, a main FIFO with second chances, a ghost FIFO of the rejected.
//!
//! Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction, SOSP 2023. Sizes and thresholds
//! default to the paper's: a tenth of the lines in the small queue, a promotion needs two references after the
//! first, main entries survive up to three rounds. The ghost remembers as many keys as main holds lines.
//!
//! Two things are settled here that the paper leaves open. While there is free room and the small queue has its
//! share, newcomers go straight to main, so that a cold cache fills quickly. And the small queue can live in memory
//! ([`S3FifoOptions::small_in_ram`]): then both queues are bounded by themselves, because main is a fixed number of
//! lines on an SSD, and only what enters main is written to it.
//!
//! When not to use it: a workload whose blocks return once, after more than the small queue and before the ghost
//! forgets (a slow loop), pays each block's miss twice; with fewer than about fifty lines the small queue is too
//! short to tell anything.

use crate::index::KeyIndex;
use crate::policy::{EvictionSink, Replacement};
use crate::slab::{NIL, Queue, Slab, checked_capacity};

/// The parameters of [`S3Fifo`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct S3FifoOptions {
    /// The small queue's share of the capacity, above 0 and below 1; at least one line results.
    pub small_ratio: f64,
    /// Keys that the ghost queue remembers, as a share of the capacity; 0 to 16. A key costs 29 bytes of memory.
    pub ghost_ratio: f64,
    /// References in the small queue, after the first, that earn a place in main; 1 to 3.
    pub promote_at: u8,
    /// The small queue is in memory and main on the SSD: neither borrows room from the other, and only entering
    /// main is a flash write. Otherwise the two share the capacity as in the paper.
    pub small_in_ram: bool,
}

impl Default for S3FifoOptions {
    fn default() -> Self {
        Self {
            small_ratio: 0.1,
            ghost_ratio: 0.9,
            promote_at: 2,
            small_in_ram: false,
        }
    }
}

/// Which queue a slot is in: the upper bits of its tag. The lower two count references.
const SMALL: u8 = 0 << 2;
const MAIN: u8 = 1 << 2;
const GHOST: u8 = 2 << 2;
const FREQUENCY: u8 = 3;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct S3Fifo<I> {
    slab: Slab<I>,
    small: Queue,
    main: Queue,
    ghost: Queue,
    capacity: usize,
    small_capacity: usize,
    ghost_capacity: usize,
    promote_at: u8,
    /// Where the count of references saturates, at most [`FREQUENCY`].
    max_frequency: u8,
    small_in_ram: bool,
    main_insertions: u64,
}

impl<I: KeyIndex> S3Fifo<I> {
    /// An empty cache of `capacity` lines, small and main queue together, with the paper's parameters.
    pub fn new(capacity: usize, config: I::Config) -> Self {
        Self::with_options(capacity, config, S3FifoOptions::default())
    }

    /// An empty cache of `capacity` lines, small and main queue together.
    ///
    /// # Panics
    /// If an option is outside its range.
    pub fn with_options(capacity: usize, config: I::Config, options: S3FifoOptions) -> Self {
        let capacity = checked_capacity(capacity);
        assert!(
            options.small_ratio > 0.0 && options.small_ratio < 1.0,
            "small_ratio is between 0 and 1"
        );
        assert!(
            options.ghost_ratio >= 0.0 && options.ghost_ratio <= 16.0,
            "ghost_ratio is 0 to 16"
        );
        assert!(
            (1..=FREQUENCY).contains(&options.promote_at),
            "promote_at is 1 to 3"
        );
        let small_capacity = ((capacity as f64 * options.small_ratio) as usize).max(1);
        let ghost_capacity = (capacity as f64 * options.ghost_ratio) as usize;
        let (slab, [small, main, ghost]) = Slab::new(capacity + ghost_capacity, config);
        Self {
            slab,
            small,
            main,
            ghost,
            capacity,
            small_capacity,
            ghost_capacity,
            promote_at: options.promote_at,
            max_frequency: FREQUENCY,
            // A single line cannot be split between memory and SSD.
            small_in_ram: options.small_in_ram && capacity > small_capacity,
            main_insertions: 0,
        }
    }

    /// Lines in the small queue at most, while nothing was removed.
    pub fn small_capacity(&self) -> usize {
        self.small_capacity
    }

    /// The same queues with a count of references that saturates at `max_frequency`, for policies built on them.
    pub(crate) fn saturating_at(self, max_frequency: u8) -> Self {
        debug_assert!((self.promote_at..=FREQUENCY).contains(&max_frequency));
        Self {
            max_frequency,
            ..self
        }
    }

    /// Whether the resident key in `slot` is in the small queue.
    #[inline]
    pub(crate) fn is_in_small(&self, slot: u32) -> bool {
        self.slab.tag(slot) & !FREQUENCY == SMALL
    }

    /// The newest in the small queue, or [`NIL`].
    #[inline]
    pub(crate) fn newest_in_small(&self) -> u32 {
        self.small.front(&self.slab.links)
    }

    fn main_capacity(&self) -> usize {
        self.capacity - self.small_capacity
    }

    /// Makes room for one line as the paper does: both queues draw on one capacity.
    fn evict_shared<S: EvictionSink + ?Sized>(&mut self, sink: &mut S) {
        if self.main.len() <= self.main_capacity() {
            while !self.small.is_empty() {
                if self.pop_small(sink) {
                    return;
                }
            }
        }
        self.evict_main(sink);
    }

    /// Takes the oldest out of the small queue: into main if it was used enough, else out of the cache.
    /// Returns whether a line became free.
    #[inline]
    fn pop_small<S: EvictionSink + ?Sized>(&mut self, sink: &mut S) -> bool {
        let slot = self.small.pop_back(&mut self.slab.links);
        if self.slab.tag(slot) & FREQUENCY >= self.promote_at {
            self.enter_main(slot, sink);
            return false;
        }
        sink.evicted(self.slab.key(slot));
        self.enter_ghost(slot);
        true
    }

    fn insert_into_main<S: EvictionSink + ?Sized>(&mut self, key: u64, sink: &mut S) -> bool {
        let slot = self.slab.insert(key, MAIN);
        self.enter_main(slot, sink);
        true
    }

    /// Links an unlinked slot into main with no references.
    #[inline]
    fn enter_main<S: EvictionSink + ?Sized>(&mut self, slot: u32, sink: &mut S) {
        self.main_insertions += 1;
        self.slab.set_tag(slot, MAIN);
        self.main.push_front(&mut self.slab.links, slot);
        if self.small_in_ram {
            sink.promoted(self.slab.key(slot));
        }
    }

    #[inline]
    fn enter_ghost(&mut self, slot: u32) {
        if self.ghost_capacity == 0 {
            self.slab.release(slot);
            return;
        }
        self.slab.set_tag(slot, GHOST);
        self.ghost.push_front(&mut self.slab.links, slot);
        if self.ghost.len() > self.ghost_capacity {
            let oldest = self.ghost.pop_back(&mut self.slab.links);
            self.slab.release(oldest);
        }
    }

    /// Evicts the first entry of main that was not referenced since its last round. Each pass takes one reference
    /// from an entry, so this ends after at most three rounds.
    fn evict_main<S: EvictionSink + ?Sized>(&mut self, sink: &mut S) {
        loop {
            let slot = self.main.back(&self.slab.links);
            let tag = self.slab.tag(slot);
            if tag & FREQUENCY == 0 {
                self.main.unlink(&mut self.slab.links, slot);
                sink.evicted(self.slab.release(slot));
                return;
            }
            self.slab.set_tag(slot, tag - 1);
            self.main.move_to_front(&mut self.slab.links, slot);
        }
    }

    /// With queues that do not share room: makes room in main for one line.
    fn make_room_in_main<S: EvictionSink + ?Sized>(&mut self, sink: &mut S) {
        while self.main.len() >= self.main_capacity() {
            self.evict_main(sink);
        }
    }

    /// With queues that do not share room: makes room in the small queue for one line.
    fn make_room_in_small<S: EvictionSink + ?Sized>(&mut self, sink: &mut S) {
        while self.small.len() >= self.small_capacity {
            let oldest = self.small.back(&self.slab.links);
            if self.slab.tag(oldest) & FREQUENCY >= self.promote_at {
                self.make_room_in_main(sink);
            }
            self.pop_small(sink);
        }
    }
}

impl<I: KeyIndex> Replacement for S3Fifo<I> {
    type Index = I;
    const NAME: &'static str = "s3-fifo";

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
        self.small.len() + self.main.len()
    }

    #[inline]
    fn is_resident(&self, slot: u32) -> bool {
        self.slab.tag(slot) < GHOST
    }

    #[inline]
    fn on_hit(&mut self, slot: u32) {
        let tag = self.slab.tag(slot);
        self.slab
            .set_tag(slot, tag + u8::from(tag & FREQUENCY < self.max_frequency));
    }

    fn on_miss<S: EvictionSink + ?Sized>(&mut self, key: u64, ghost: u32, sink: &mut S) -> bool {
        if ghost != NIL {
            self.ghost.unlink(&mut self.slab.links, ghost);
        }
        let small_is_full = self.small.len() >= self.small_capacity;
        let cache_is_full = self.resident_len() >= self.capacity;
        if ghost != NIL {
            if self.small_in_ram {
                self.make_room_in_main(sink);
            } else if cache_is_full {
                self.evict_shared(sink);
            }
            self.enter_main(ghost, sink);
            return true;
        }
        if self.small_in_ram {
            if small_is_full && !cache_is_full {
                return self.insert_into_main(key, sink);
            }
            self.make_room_in_small(sink);
        } else if cache_is_full {
            self.evict_shared(sink);
        } else if small_is_full {
            return self.insert_into_main(key, sink);
        }
        let slot = self.slab.insert(key, SMALL);
        self.small.push_front(&mut self.slab.links, slot);
        true
    }

    fn on_restore(&mut self, key: u64, ghost: u32) {
        if ghost != NIL {
            self.on_remove(ghost);
        }
        if self.main.len() < self.main_capacity() {
            let slot = self.slab.insert(key, MAIN);
            self.main.push_front(&mut self.slab.links, slot);
        } else {
            let slot = self.slab.insert(key, SMALL);
            self.small.push_front(&mut self.slab.links, slot);
        }
    }

    fn has_memory_stage(&self) -> bool {
        self.small_in_ram
    }

    fn lines_written(&self) -> u64 {
        if self.small_in_ram {
            self.main_insertions
        } else {
            self.slab.insertions()
        }
    }

    fn on_remove(&mut self, slot: u32) {
        let queue = match self.slab.tag(slot) & !FREQUENCY {
            SMALL => &mut self.small,
            MAIN => &mut self.main,
            _ => &mut self.ghost,
        };
        queue.unlink(&mut self.slab.links, slot);
        self.slab.release(slot);
    }

    fn for_each_slot_in_restore_order(&self, visit: &mut dyn FnMut(u32)) {
        self.main.for_each(&self.slab.links, visit);
        self.small.for_each(&self.slab.links, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{HashIndex, HashSeed};
    use crate::walk::walk;

    use crate::policy::Policy;

    /// Five lines: two in the small queue, three in main; the ghost remembers four keys.
    fn five_lines(small_in_ram: bool) -> S3Fifo<HashIndex> {
        let options = S3FifoOptions {
            small_ratio: 0.4,
            small_in_ram,
            ..S3FifoOptions::default()
        };
        S3Fifo::with_options(5, HashSeed(0), options)
    }

    #[test]
    fn two_more_references_earn_main_and_one_does_not() {
        let mut s3_fifo = five_lines(false);
        // 1 and 2 fill the small queue; while there is room, 3, 4 and 5 go straight to main. At 6 the small queue
        // pays: 1 has two references and moves to main, 2 has none and becomes a ghost.
        assert_eq!(
            walk(&mut s3_fifo, &[1, 2, 3, 4, 5, 1, 1, 6]),
            "1 2 3 4 5 1+ 1+ 6/2"
        );
        // Main holds four now, one more than its share, so it pays: 3. The ghost 2 returns straight to main, for
        // which 6 leaves the small queue.
        assert_eq!(walk(&mut s3_fifo, &[7, 2]), "7/3 2/6");
        // Main is above its share again. Its oldest, 4, was referenced and goes round; 5 leaves.
        assert_eq!(walk(&mut s3_fifo, &[4, 8]), "4+ 8/5");
        // One reference in the small queue is not enough: 7 goes, then 8.
        assert_eq!(walk(&mut s3_fifo, &[8, 9, 10]), "8+ 9/7 10/8");
    }

    #[test]
    fn in_main_three_references_are_three_more_rounds_and_a_fourth_counts_for_nothing() {
        let mut s3_fifo = five_lines(false);
        walk(&mut s3_fifo, &[1, 2, 3, 4, 5]);
        for _ in 0..4 {
            walk(&mut s3_fifo, &[3]);
        }
        let rounds = (0..).take_while(|_| {
            let mut left = 0;
            s3_fifo.evict_main(&mut |key| left = key);
            let slot = s3_fifo.slab.insert(100 + left, MAIN);
            s3_fifo.main.push_front(&mut s3_fifo.slab.links, slot);
            left != 3
        });
        // Of three entries two leave in the first round; then every third eviction passes 3 by: 2 + 2 + 2.
        assert_eq!(rounds.count(), 6);
    }

    #[test]
    fn with_the_small_queue_in_memory_a_promotion_makes_its_own_room_in_main() {
        struct Writes(Vec<u64>, Vec<u64>);
        impl EvictionSink for Writes {
            fn evicted(&mut self, key: u64) {
                self.1.push(key);
            }
            fn promoted(&mut self, key: u64) {
                self.0.push(key);
            }
        }
        let mut s3_fifo = five_lines(true);
        let mut sink = Writes(Vec::new(), Vec::new());
        for key in [1, 2, 3, 4, 5, 1, 1, 6, 7, 2] {
            s3_fifo.access_with(key, &mut sink);
        }
        // Filling writes 3, 4 and 5. At 6 the oldest in memory, 1, is promoted, for which 3 leaves main. At 7 it is
        // 2, unused, that leaves memory; it returns from the ghost to main, in the place of 4.
        assert_eq!(sink.0, [3, 4, 5, 1, 2]);
        assert_eq!(sink.1, [3, 2, 4]);
        assert_eq!(s3_fifo.flash_writes(), 5);
        assert_eq!((s3_fifo.small.len(), s3_fifo.main.len()), (2, 3));
    }
}
