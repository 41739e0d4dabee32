//! n-hit: a block enters at its n-th miss; until the cache is nearly full every block enters.
//!
//! The promotion policy of the same name in Open CAS (Open CAS Linux admin guide, "nhit"), whose defaults, three
//! misses and a trigger at 80 % occupancy, are ours. Misses are counted for a bounded number of keys; when there are
//! more, the key that has been tracked longest is forgotten.
//!
//! Limits: it adds nothing to S3-FIFO with its small queue in memory, which is such a filter already and also serves
//! hits. Every block worth keeping is read from the backing device n times, so with a high threshold or a short memory
//! the hit ratio falls.

use crate::admission::Admission;
use crate::index::{HashIndex, KeyIndex};
use crate::slab::Links;
use crate::slots::{HashSeed, NIL};

/// The one queue of tracked keys.
const ORDER: u8 = 0;

/// The parameters of [`NHit`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NHitOptions {
    /// The miss at which a block enters, 1 to 255.
    pub threshold: u8,
    /// The fill level of the cache below which every block enters, 0 to 1.
    pub fill_trigger: f64,
    /// Keys whose misses are counted, at 23 bytes each. Twice the lines of the cache is a good value.
    pub tracked_keys: usize,
}

impl NHitOptions {
    /// Open CAS's defaults for a cache of `capacity_lines`.
    pub fn for_capacity(capacity_lines: usize) -> Self {
        Self {
            threshold: 3,
            fill_trigger: 0.8,
            tracked_keys: 2 * capacity_lines,
        }
    }
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct NHit {
    tracked: HashIndex,
    /// By slot.
    misses: Vec<u8>,
    order: Links,
    options: NHitOptions,
    /// Whether the cache has reached the trigger.
    filters: bool,
}

impl NHit {
    /// A filter that assumes an empty cache until [`Admission::observe_fill`] is called.
    ///
    /// # Panics
    /// If an option is outside its range or no key can be tracked.
    pub fn new(options: NHitOptions) -> Self {
        assert!(options.threshold >= 1, "threshold must be 1 to 255 (got 0)");
        assert!(
            (0.0..=1.0).contains(&options.fill_trigger),
            "fill_trigger must be 0 to 1 (got {})",
            options.fill_trigger
        );
        assert!(
            options.tracked_keys >= 1,
            "tracked_keys must be at least 1 (got 0)"
        );
        let tracked = HashIndex::new(options.tracked_keys, HashSeed::default());
        Self {
            misses: vec![0; tracked.slots_end()],
            order: Links::new(tracked.slots_end()),
            tracked,
            options,
            filters: options.fill_trigger <= 0.0,
        }
    }

    fn forget(&mut self, slot: u32) {
        self.order.unlink(ORDER, slot);
        self.tracked.remove(slot);
    }
}

impl Admission for NHit {
    fn admit(&mut self, key: u64, _time_ns: u64, _bytes: u64) -> bool {
        if !self.filters || self.options.threshold == 1 {
            return true;
        }
        let slot = self.tracked.find(key);
        if slot == NIL {
            if self.order.len(ORDER) == self.options.tracked_keys {
                self.forget(self.order.back(ORDER));
            }
            let slot = self.tracked.insert(key);
            self.order.push_front(ORDER, slot);
            self.misses[slot as usize] = 1;
            return false;
        }
        let misses = &mut self.misses[slot as usize];
        *misses += 1;
        let admitted = *misses >= self.options.threshold;
        if admitted {
            self.forget(slot);
        }
        admitted
    }

    fn observe_fill(&mut self, resident_lines: usize, capacity_lines: usize) {
        self.filters = resident_lines as f64 >= capacity_lines as f64 * self.options.fill_trigger;
    }

    fn memory_bytes(&self) -> usize {
        self.tracked.memory_bytes() + self.misses.capacity() + self.order.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_enters_until_the_trigger_then_the_third_miss_does() {
        let mut n_hit = NHit::new(NHitOptions::for_capacity(10));
        n_hit.observe_fill(7, 10);
        assert!(n_hit.admit(1, 0, 1));
        n_hit.observe_fill(8, 10);
        let answers: Vec<bool> = (0..4).map(|_| n_hit.admit(2, 0, 1)).collect();
        assert_eq!(
            answers,
            [false, false, true, false],
            "after it entered, counting starts again"
        );
    }

    #[test]
    fn the_key_tracked_longest_is_forgotten_first() {
        let mut n_hit = NHit::new(NHitOptions {
            threshold: 2,
            fill_trigger: 0.0,
            tracked_keys: 2,
        });
        for key in [1, 2, 3] {
            assert!(!n_hit.admit(key, 0, 1));
        }
        assert!(!n_hit.admit(1, 0, 1), "3 pushed 1 out, and now 1 pushes 2 out");
        assert!(n_hit.admit(3, 0, 1));
        assert!(!n_hit.admit(2, 0, 1));
    }
}
