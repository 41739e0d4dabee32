//! S3-FIFO: a small FIFO that newcomers must survive, a main FIFO with second chances, a ghost FIFO of the rejected.
//!
//! Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction, SOSP 2023. Sizes and thresholds
//! default to the paper's: a tenth of the lines in the small queue, a promotion needs two references after the
//! first, main entries survive up to three rounds. The ghost remembers as many keys as main holds lines.
//!
//! One thing is settled here that the paper leaves open: while there is free room and the small queue has its share,
//! newcomers go straight to main, so that a cold cache fills quickly. As in the paper both queues share one capacity; with
//! the small queue in memory and main on an SSD they cannot, see [`StagedFifo`](crate::StagedFifo).
//!
//! Limits: a workload whose blocks return once, after more than the small queue and before the ghost forgets (a slow
//! loop), pays each block's miss twice; with fewer than about fifty lines the small queue is too short to separate
//! reused blocks from the others.

use crate::index::{KeyIndex, NIL};
use crate::policy::{Replacement, SlabPolicy, Victim};
use crate::slab::Slab;

/// The parameters of [`S3Fifo`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct S3FifoOptions {
    /// The small queue's share of the capacity, above 0 and below 1; at least one line results.
    pub small_ratio: f64,
    /// Keys that the ghost queue remembers, as a share of the capacity; 0 to 16.
    pub ghost_ratio: f64,
    /// References in the small queue, after the first, that earn a place in main; 1 to 3.
    pub promote_at: u8,
}

impl S3FifoOptions {
    /// Lines of the small queue of a cache of `capacity`.
    ///
    /// # Panics
    /// If an option is outside its range.
    pub(crate) fn small_lines(&self, capacity: usize) -> usize {
        let (ratio, promote_at) = (self.small_ratio, self.promote_at);
        assert!(
            ratio > 0.0 && ratio < 1.0,
            "small_ratio must be above 0 and below 1 (got {ratio})"
        );
        assert!(
            (1..=FREQUENCY_MAX).contains(&promote_at),
            "promote_at must be 1 to 3 (got {promote_at})"
        );
        ((capacity as f64 * ratio) as usize).max(1)
    }

    /// Keys that the ghost queue of a cache of `capacity` lines remembers.
    ///
    /// # Panics
    /// If the option is outside its range.
    pub(crate) fn ghosts(&self, capacity: usize) -> usize {
        let ratio = self.ghost_ratio;
        assert!(
            (0.0..=16.0).contains(&ratio),
            "ghost_ratio must be 0 to 16 (got {ratio})"
        );
        (capacity as f64 * ratio) as usize
    }
}

impl Default for S3FifoOptions {
    fn default() -> Self {
        Self {
            small_ratio: 0.1,
            ghost_ratio: 0.9,
            promote_at: 2,
        }
    }
}

const MAIN: u8 = 0;
pub(crate) const SMALL: u8 = 1;
const GHOST: u8 = 2;

/// The flags of a slot count its references and saturate here.
pub(crate) const FREQUENCY_MAX: u8 = 3;

/// See the [module](self).
pub type S3Fifo<I> = SlabPolicy<S3FifoRules, I>;

/// The small, the main and the ghost queue.
#[derive(Debug, Clone)]
pub struct S3FifoRules {
    main_capacity: usize,
    small_capacity: usize,
    ghost_capacity: usize,
    promote_at: u8,
    frequency_max: u8,
}

impl S3FifoRules {
    /// Lines in the small queue at most, while nothing was removed.
    pub(crate) fn small_capacity(&self) -> usize {
        self.small_capacity
    }

    /// The same queues with a count of references that saturates at `frequency_max`, for policies built on them.
    pub(crate) fn saturating_at(self, frequency_max: u8) -> Self {
        debug_assert!((self.promote_at..=FREQUENCY_MAX).contains(&frequency_max));
        Self {
            frequency_max,
            ..self
        }
    }

    /// Evicts one line: from the small queue, unless main is above its share; from the other queue where that has none to
    /// give.
    fn make_room<I: KeyIndex>(&mut self, slab: &mut Slab<I>) -> Victim {
        let victim = if slab.len(MAIN) <= self.main_capacity {
            self.evict_small(slab).or_else(|| Self::evict_main(slab))
        } else {
            Self::evict_main(slab).or_else(|| self.evict_small(slab))
        };
        victim.expect("a line is not pinned")
    }

    /// Takes the oldest out of the small queue, into main if they were used enough, up to the first that was not: it
    /// leaves.
    #[inline]
    fn evict_small<I: KeyIndex>(&mut self, slab: &mut Slab<I>) -> Option<Victim> {
        loop {
            let slot = slab.oldest_unpinned(SMALL);
            if slot == NIL {
                return None;
            }
            if slab.flags(slot) < self.promote_at {
                return Some(slab.retire(slot, GHOST, self.ghost_capacity));
            }
            slab.move_to(slot, MAIN);
        }
    }

    /// Evicts the first entry of main that was not referenced since its last round. Each round takes one reference
    /// from an entry, so this ends after at most three rounds.
    fn evict_main<I: KeyIndex>(slab: &mut Slab<I>) -> Option<Victim> {
        loop {
            let slot = slab.oldest_unpinned(MAIN);
            if slot == NIL {
                return None;
            }
            if slab.flags(slot) == 0 {
                return Some(slab.evict(slot));
            }
            slab.count_down(slot);
            slab.move_to_front(slot, MAIN);
        }
    }
}

impl Replacement for S3FifoRules {
    type Options = S3FifoOptions;
    const RESIDENT_QUEUES: u8 = GHOST;

    fn ghosts_max(capacity: usize, options: &S3FifoOptions) -> usize {
        options.ghosts(capacity)
    }

    fn new(capacity: usize, _slots_end: usize, options: &S3FifoOptions) -> Self {
        let small_capacity = options.small_lines(capacity);
        Self {
            main_capacity: capacity - small_capacity,
            small_capacity,
            ghost_capacity: options.ghosts(capacity),
            promote_at: options.promote_at,
            frequency_max: FREQUENCY_MAX,
        }
    }

    #[inline]
    fn on_hit<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        slab.count_up(slot, self.frequency_max);
    }

    fn on_miss<I: KeyIndex>(&mut self, slab: &mut Slab<I>, key: u64, ghost: u32) -> (u32, Option<Victim>) {
        // Taken out of the ghost queue first, so that a victim which enters it cannot push it out.
        if ghost != NIL {
            slab.unlink(ghost);
        }
        let small_is_full = slab.len(SMALL) >= self.small_capacity;
        let cache_is_full = slab.len(SMALL) + slab.len(MAIN) >= slab.capacity();
        let victim = cache_is_full.then(|| self.make_room(slab));
        if ghost != NIL {
            slab.link(ghost, MAIN);
            return (ghost, victim);
        }
        let queue = if small_is_full && !cache_is_full {
            MAIN
        } else {
            SMALL
        };
        (slab.insert(key, queue), victim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{HashIndex, HashSeed};
    use crate::walk::walk;

    /// Five lines: two in the small queue, three in main; the ghost remembers four keys.
    fn five_lines() -> S3Fifo<HashIndex> {
        let options = S3FifoOptions {
            small_ratio: 0.4,
            ..S3FifoOptions::default()
        };
        S3Fifo::with_options(5, HashSeed(0), options)
    }

    #[test]
    fn two_more_references_earn_main_and_one_does_not() {
        let mut s3_fifo = five_lines();
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
        let mut s3_fifo = five_lines();
        walk(&mut s3_fifo, &[1, 2, 3, 4, 5]);
        for _ in 0..4 {
            walk(&mut s3_fifo, &[3]);
        }
        let rounds = (0..).take_while(|_| {
            let left = S3FifoRules::evict_main(&mut s3_fifo.slab).expect("nothing is pinned");
            s3_fifo.slab.insert(100 + left.key, MAIN);
            left.key != 3
        });
        // Of three entries two leave in the first round; then every third eviction passes 3 by: 2 + 2 + 2.
        assert_eq!(rounds.count(), 6);
    }
}
