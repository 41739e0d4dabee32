//! Clock2Q+: the three queues of S3-FIFO, with references soon after the first one ignored.
//!
//! Zhai, Marthen, Balivada and others: Clock2Q+: a simple and efficient replacement algorithm for metadata cache in
//! `VMware` vSAN, arXiv 2511.21958 (2025), VLDB 2026. A block's first references come in bunches (a B-tree leaf serves
//! many neighbouring addresses), so a reference while the block is in the newer half of the small queue, the
//! correlation window, does not count; one outside it is enough for main, whose entries have one mark as in CLOCK.
//! Age is counted in insertions into the small queue. Queue shares are the paper's: small a tenth of the lines, the
//! ghost as many keys as half the lines.
//!
//! When not to use it: with large lines a bunch of references is one request already, and a popular block that is
//! asked for only in its first moments is lost and must be missed again. With fewer than about fifty lines the
//! window is a handful of references.

use crate::index::KeyIndex;
use crate::policy::{EvictionSink, Replacement};
use crate::s3_fifo::{S3Fifo, S3FifoOptions};
use crate::slab::Slab;

/// The parameters of [`Clock2QPlus`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clock2QPlusOptions {
    /// The small queue's share of the capacity, above 0 and below 1; at least one line results.
    pub small_ratio: f64,
    /// Keys that the ghost queue remembers, as a share of the capacity.
    pub ghost_ratio: f64,
    /// The share of the small queue, from its newest entry, in which references do not count; 0 to 1.
    pub window_ratio: f64,
    /// As [`S3FifoOptions::small_in_ram`].
    pub small_in_ram: bool,
}

impl Default for Clock2QPlusOptions {
    fn default() -> Self {
        Self {
            small_ratio: 0.1,
            ghost_ratio: 0.5,
            window_ratio: 0.5,
            small_in_ram: false,
        }
    }
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Clock2QPlus<I> {
    queues: S3Fifo<I>,
    /// For each slot in the small queue, the number of insertions into that queue up to its own.
    inserted_at: Vec<u32>,
    /// Insertions into the small queue so far; it wraps, but no entry stays long enough to notice.
    insertions: u32,
    window: u32,
}

impl<I: KeyIndex> Clock2QPlus<I> {
    /// An empty cache of `capacity` lines with the paper's parameters.
    pub fn new(capacity: usize, config: I::Config) -> Self {
        Self::with_options(capacity, config, Clock2QPlusOptions::default())
    }

    /// An empty cache of `capacity` lines, small and main queue together.
    ///
    /// # Panics
    /// If an option is outside its range.
    pub fn with_options(capacity: usize, config: I::Config, options: Clock2QPlusOptions) -> Self {
        assert!(
            (0.0..=1.0).contains(&options.window_ratio),
            "window_ratio is 0 to 1"
        );
        let queues = S3Fifo::with_options(
            capacity,
            config,
            S3FifoOptions {
                small_ratio: options.small_ratio,
                ghost_ratio: options.ghost_ratio,
                promote_at: 1,
                small_in_ram: options.small_in_ram,
            },
        )
        .saturating_at(1);
        let window = (queues.small_capacity() as f64 * options.window_ratio).ceil() as u32;
        let inserted_at = vec![0; queues.slab().slots_end()];
        Self {
            queues,
            inserted_at,
            insertions: 0,
            window,
        }
    }

    /// Notes the age of `slot` if it was just inserted into the small queue.
    #[inline]
    fn stamp_newest(&mut self, key: u64) {
        let newest = self.queues.newest_in_small();
        if newest != crate::slab::NIL && self.queues.slab().key(newest) == key {
            self.insertions = self.insertions.wrapping_add(1);
            let slots_end = self.queues.slab().slots_end();
            if self.inserted_at.len() < slots_end {
                self.inserted_at.reserve_exact(slots_end - self.inserted_at.len());
                self.inserted_at.resize(slots_end, 0);
            }
            self.inserted_at[newest as usize] = self.insertions;
        }
    }
}

impl<I: KeyIndex> Replacement for Clock2QPlus<I> {
    type Index = I;
    const NAME: &'static str = "clock2q+";

    #[inline]
    fn slab(&self) -> &Slab<I> {
        self.queues.slab()
    }

    #[inline]
    fn slab_mut(&mut self) -> &mut Slab<I> {
        self.queues.slab_mut()
    }

    fn capacity_lines(&self) -> usize {
        self.queues.capacity_lines()
    }

    #[inline]
    fn resident_len(&self) -> usize {
        self.queues.resident_len()
    }

    #[inline]
    fn is_resident(&self, slot: u32) -> bool {
        self.queues.is_resident(slot)
    }

    #[inline]
    fn on_hit(&mut self, slot: u32) {
        if self.queues.is_in_small(slot) {
            let age = self.insertions.wrapping_sub(self.inserted_at[slot as usize]);
            if age < self.window {
                return;
            }
        }
        self.queues.on_hit(slot);
    }

    fn on_miss<S: EvictionSink + ?Sized>(&mut self, key: u64, ghost: u32, sink: &mut S) -> bool {
        let inserted = self.queues.on_miss(key, ghost, sink);
        self.stamp_newest(key);
        inserted
    }

    fn on_remove(&mut self, slot: u32) {
        self.queues.on_remove(slot);
    }

    fn on_restore(&mut self, key: u64, ghost: u32) {
        self.queues.on_restore(key, ghost);
        self.stamp_newest(key);
    }

    fn bytes_held(&self) -> usize {
        self.queues.bytes_held() + self.inserted_at.capacity() * size_of::<u32>()
    }

    fn lines_written(&self) -> u64 {
        self.queues.lines_written()
    }

    fn for_each_slot_in_restore_order(&self, visit: &mut dyn FnMut(u32)) {
        self.queues.for_each_slot_in_restore_order(visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{HashIndex, HashSeed};
    use crate::walk::walk;

    #[test]
    fn a_reference_in_the_window_does_not_count_and_one_after_it_is_enough() {
        // Eight lines: four in the small queue, the newer two of which are the window; four in main.
        let options = Clock2QPlusOptions {
            small_ratio: 0.5,
            ..Clock2QPlusOptions::default()
        };
        let mut clock2q_plus = Clock2QPlus::<HashIndex>::with_options(8, HashSeed(0), options);
        // 1 to 4 are in the small queue, 5 to 8 in main. 1 is out of the window, 3 and 4 are in it. At 9 the hit has
        // brought 1 to main, and 2 leaves.
        assert_eq!(
            walk(&mut clock2q_plus, &[1, 2, 3, 4, 5, 6, 7, 8]),
            "1 2 3 4 5 6 7 8"
        );
        assert_eq!(walk(&mut clock2q_plus, &[1, 3, 4, 9]), "1+ 3+ 4+ 9/2");
        // Main is one above its share and pays with 5. Then it is the turn of 3 and 4, whose hits did not count.
        assert_eq!(walk(&mut clock2q_plus, &[10, 11, 12]), "10/5 11/3 12/4");
        // 9 to 12 are in the small queue. 10 has two insertions after it, just outside the window; 11 has one.
        assert_eq!(walk(&mut clock2q_plus, &[10, 11, 13, 14]), "10+ 11+ 13/9 14/11");
    }

    #[test]
    fn in_main_any_number_of_references_is_one_mark() {
        let mut clock2q_plus = Clock2QPlus::<HashIndex>::new(4, HashSeed(0));
        // 1 is in the small queue, 2, 3 and 4 are in main, and 2 is hit three times. 1 leaves and returns to main.
        assert_eq!(
            walk(&mut clock2q_plus, &[1, 2, 3, 4, 2, 2, 2, 5, 1]),
            "1 2 3 4 2+ 2+ 2+ 5/1 1/5"
        );
        // Main pays at every second step from here. The mark saves 2 the first time, so 3 leaves in its stead.
        assert_eq!(walk(&mut clock2q_plus, &[6, 5, 7, 6, 8]), "6/3 5/6 7/4 6/7 8/1");
        // When its turn comes again nothing is left of the three hits.
        assert_eq!(walk(&mut clock2q_plus, &[7, 9]), "7/8 9/2");
    }
}
