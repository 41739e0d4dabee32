//! n-hit: a block enters at its n-th miss; until the cache is nearly full everything enters.
//!
//! The promotion policy of the same name in Open CAS (Open CAS Linux admin guide, "nhit"), whose defaults, three
//! misses and a trigger at 80 % occupancy, are ours. Misses are counted for a bounded number of keys; when there are
//! more, the key that has been tracked longest is forgotten.
//!
//! When not to use it: with S3-FIFO whose small queue is in memory, which already is such a filter, only with data in
//! it. Every block that is worth keeping is read from the backing n times, so with a high threshold or a short memory
//! the hit ratio falls.

use crate::admission::Admission;
use crate::index::{HashIndex, HashSeed};
use crate::slab::{NIL, Queue, Slab};

/// The parameters of [`NHit`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NHitOptions {
    /// The miss at which a block enters, 1 to 255.
    pub threshold: u8,
    /// The share of the cache below which everything enters, 0 to 1.
    pub fill_trigger: f64,
    /// Keys whose misses are counted, at 29 bytes each. Twice the lines of the cache is a good measure.
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
    /// The tag is the number of misses so far.
    seen: Slab<HashIndex>,
    order: Queue,
    options: NHitOptions,
    /// Whether the cache has reached the trigger.
    filters: bool,
}

impl NHit {
    /// A filter that takes the cache for empty until [`Admission::observe_fill`] says otherwise.
    ///
    /// # Panics
    /// If an option is outside its range or no key can be tracked.
    pub fn new(options: NHitOptions) -> Self {
        assert!(options.threshold >= 1, "threshold is 1 to 255");
        assert!(
            (0.0..=1.0).contains(&options.fill_trigger),
            "fill_trigger is 0 to 1"
        );
        assert!(options.tracked_keys >= 1, "at least one key is tracked");
        let (seen, [order]) = Slab::new(options.tracked_keys, HashSeed::default());
        Self {
            seen,
            order,
            options,
            filters: options.fill_trigger <= 0.0,
        }
    }
}

impl Admission for NHit {
    fn admit(&mut self, key: u64, _time_ns: u64, _bytes: u64) -> bool {
        if !self.filters || self.options.threshold == 1 {
            return true;
        }
        let slot = self.seen.find(key);
        if slot == NIL {
            if self.order.len() == self.options.tracked_keys {
                let oldest = self.order.pop_back(&mut self.seen.links);
                self.seen.release(oldest);
            }
            let slot = self.seen.insert(key, 1);
            self.order.push_front(&mut self.seen.links, slot);
            return false;
        }
        let misses = self.seen.tag(slot) + 1;
        if misses < self.options.threshold {
            self.seen.set_tag(slot, misses);
            return false;
        }
        self.order.unlink(&mut self.seen.links, slot);
        self.seen.release(slot);
        true
    }

    fn observe_fill(&mut self, resident_lines: usize, capacity_lines: usize) {
        self.filters = resident_lines as f64 >= capacity_lines as f64 * self.options.fill_trigger;
    }

    fn memory_bytes(&self) -> usize {
        self.seen.memory_bytes()
    }

    fn name(&self) -> &'static str {
        "n-hit"
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
