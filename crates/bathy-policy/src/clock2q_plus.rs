//! Clock2Q+: the three queues of S3-FIFO, with references soon after the first one ignored.
//!
//! Zhai, Marthen, Balivada and others: Clock2Q+: a simple and efficient replacement algorithm for metadata cache in
//! `VMware` vSAN, arXiv 2511.21958 (2025), VLDB 2026. A block's first references come in bunches (a B-tree leaf serves
//! many neighbouring addresses), so a reference while the block is in the newer half of the small queue, the
//! correlation window, does not count; one outside it is enough for main, whose entries have one mark as in CLOCK.
//! Age is counted in insertions into the small queue. Queue shares are the paper's: small a tenth of the lines, the
//! ghost as many keys as half the lines. Another implementation has a ghost of 0.9; the file `CROSSCHECK.md` has what
//! that changes.
//!
//! Limits: with large lines the references of one bunch are one request already, and a popular block that is referenced
//! only in its first moments is evicted and must be missed again. With fewer than about fifty lines the window is a
//! handful of references.

use crate::index::KeyIndex;
use crate::policy::{Replacement, SlabPolicy, Victim};
use crate::s3_fifo::{S3FifoOptions, S3FifoRules, SMALL};
use crate::slab::{Slab, cover};

/// The parameters of [`Clock2QPlus`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clock2QPlusOptions {
    /// The small queue's share of the capacity, above 0 and below 1; at least one line results.
    pub small_ratio: f64,
    /// Keys that the ghost queue remembers, as a share of the capacity.
    pub ghost_ratio: f64,
    /// The share of the small queue, from its newest entry, in which references do not count; 0 to 1.
    pub window_ratio: f64,
}

impl Default for Clock2QPlusOptions {
    fn default() -> Self {
        Self {
            small_ratio: 0.1,
            ghost_ratio: 0.5,
            window_ratio: 0.5,
        }
    }
}

impl Clock2QPlusOptions {
    /// The queues without the window.
    pub(crate) fn queues(&self) -> S3FifoOptions {
        S3FifoOptions {
            small_ratio: self.small_ratio,
            ghost_ratio: self.ghost_ratio,
            promote_at: 1,
        }
    }

    /// The window of a small queue of so many lines, in insertions.
    ///
    /// # Panics
    /// If the option is outside its range.
    pub(crate) fn window(&self, small_lines: usize) -> u32 {
        let ratio = self.window_ratio;
        assert!(
            (0.0..=1.0).contains(&ratio),
            "window_ratio must be 0 to 1 (got {ratio})"
        );
        (small_lines as f64 * ratio).ceil() as u32
    }
}

/// See the [module](self).
pub type Clock2QPlus<I> = SlabPolicy<Clock2QPlusRules, I>;

/// The queues of S3-FIFO and the ages of the entries of the small one.
#[derive(Debug, Clone)]
pub struct Clock2QPlusRules {
    queues: S3FifoRules,
    /// For each slot in the small queue, the number of insertions into that queue up to its own.
    inserted_at: Vec<u32>,
    /// Insertions into the small queue so far; it wraps, but no entry stays for 2^32 insertions.
    insertions: u32,
    window: u32,
}

impl Clock2QPlusRules {
    /// Notes the age of `slot`, which was just inserted, if it is in the small queue.
    #[inline]
    fn stamp<I: KeyIndex>(&mut self, slab: &Slab<I>, slot: u32) {
        if slab.queue(slot) == SMALL {
            self.insertions = self.insertions.wrapping_add(1);
            cover(&mut self.inserted_at, slab.slots_end());
            self.inserted_at[slot as usize] = self.insertions;
        }
    }
}

impl Replacement for Clock2QPlusRules {
    type Options = Clock2QPlusOptions;
    const RESIDENT_QUEUES: u8 = S3FifoRules::RESIDENT_QUEUES;

    fn ghosts_max(capacity: usize, options: &Clock2QPlusOptions) -> usize {
        S3FifoRules::ghosts_max(capacity, &options.queues())
    }

    fn new(capacity: usize, slots_end: usize, options: &Clock2QPlusOptions) -> Self {
        let queues = S3FifoRules::new(capacity, slots_end, &options.queues()).saturating_at(1);
        Self {
            window: options.window(queues.small_capacity()),
            queues,
            inserted_at: vec![0; slots_end],
            insertions: 0,
        }
    }

    #[inline]
    fn on_hit<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        if slab.queue(slot) == SMALL {
            let age = self.insertions.wrapping_sub(self.inserted_at[slot as usize]);
            if age < self.window {
                return;
            }
        }
        self.queues.on_hit(slab, slot);
    }

    fn on_miss<I: KeyIndex>(&mut self, slab: &mut Slab<I>, key: u64, ghost: u32) -> (u32, Option<Victim>) {
        let (slot, victim) = self.queues.on_miss(slab, key, ghost);
        self.stamp(slab, slot);
        (slot, victim)
    }

    fn memory_bytes(&self) -> usize {
        self.inserted_at.capacity() * size_of::<u32>()
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
