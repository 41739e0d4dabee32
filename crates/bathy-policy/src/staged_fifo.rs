//! S3-FIFO and `Clock2Q+`, with the small queue in memory and main on an SSD.
//!
//! Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction, SOSP 2023. Newcomers enter the small
//! queue; those that were used there move to main, the others leave and are remembered as ghosts for a while; a ghost that is
//! asked for again enters main, where a reference is another round. A line needs two references after the first, and the
//! ghosts are nine tenths of the lines.
//!
//! Zhai, Marthen, Balivada and others: Clock2Q+: a simple and efficient replacement algorithm for metadata cache in
//! `VMware` vSAN, arXiv 2511.21958 (2025), VLDB 2026. A block's first references come in bunches (a B-tree leaf serves many
//! neighbouring addresses), so a reference while the block is in the newer half of the small queue, the correlation window,
//! does not count; one outside it is enough for main, whose lines have one mark as in CLOCK. Age is counted in insertions into
//! the small queue, and the ghosts are half of the lines. Another implementation has a ghost of 0.9; the file `CROSSCHECK.md`
//! has what that changes.
//!
//! Newcomers stay in memory until they have earned a place on the SSD, so only what enters main is written to it. The two
//! queues cannot share room as in the papers, and that saves memory: a queue of a fixed number of lines is a ring of places
//! with a hand, and the order of its lines is that of their places. There are no links, and ghosts are a ring of 40-bit
//! hashes: 9 bytes a line, 5 a ghost and 5.3 for either in the table make 23.6 bytes a line of S3-FIFO and 19.5 of `Clock2Q+`.
//! The papers' form, which agrees with another implementation to the last miss, is in `tests/common/shared_queues.rs`; a test
//! holds the two within 5 % of each other's misses.
//!
//! Where the rings differ from queues: a line that was removed leaves its place, and so its age, to the next newcomer of
//! its queue; the ghosts are the lines that left last, less those that came back; a pinned line that the hand finds is
//! passed over until the next round.
//!
//! Limits: a popular line whose second reference comes after it left the ghosts starts from the beginning. With large lines
//! the references of one bunch are one request already. With a small queue of few lines the window is a handful of
//! references. A place is not given to another queue, so that the share of memory cannot be changed without a new policy
//! ([`Durable`](crate::Durable) takes lines along).

mod ring;
mod state;

use crate::places::PlaceIndex;
use crate::policy::{Access, Inserted, Policy, Promotion, Victim, check_capacity};
use crate::slots::NIL;
use ring::Ring;

/// Which of the two policies a [`StagedFifo`] is, and its numbers of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagedOptions {
    memory_lines: usize,
    ghosts: usize,
    /// References in the small queue, after the first, that earn a place in main.
    promote_at: u8,
    frequency_max: u8,
    /// References to a line younger than this do not count, in insertions into the small queue.
    window: u32,
}

impl StagedOptions {
    /// S3-FIFO with a small queue of `memory_lines`.
    pub fn s3_fifo(capacity: usize, memory_lines: usize) -> Self {
        Self {
            memory_lines,
            ghosts: share(capacity, 0.9),
            promote_at: 2,
            frequency_max: REFERENCES,
            window: 0,
        }
    }

    /// `Clock2Q+` with a small queue of `memory_lines`.
    pub fn clock2q_plus(capacity: usize, memory_lines: usize) -> Self {
        Self {
            memory_lines,
            ghosts: share(capacity, 0.5),
            promote_at: 1,
            frequency_max: 1,
            window: memory_lines.div_ceil(2) as u32,
        }
    }
}

fn share(capacity: usize, ratio: f64) -> usize {
    (capacity as f64 * ratio) as usize
}

/// The lower bits of a place's tag count references.
const REFERENCES: u8 = 3;
const OCCUPIED: u8 = 1 << 6;
const PINNED: u8 = 1 << 7;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct StagedFifo<P> {
    index: P,
    /// Of each line's place, what the constants above say.
    tags: Vec<u8>,
    main: Ring,
    small: Ring,
    ghosts: Ring,
    promote_at: u8,
    frequency_max: u8,
    /// References to a line younger than this do not count, in insertions into the small queue.
    window: u32,
}

impl<P: PlaceIndex> StagedFifo<P> {
    /// An empty cache of `capacity` lines.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than 2^30 lines, or all of it would be in memory.
    pub fn new(capacity: usize, config: P::Config, options: StagedOptions) -> Self {
        check_capacity(capacity);
        let small = options.memory_lines;
        assert!(
            small < capacity,
            "memory_lines must be less than the capacity of {capacity} (got {small})"
        );
        Self {
            index: P::new(capacity, options.ghosts, config),
            tags: vec![0; capacity],
            main: Ring::new(0, capacity - small),
            small: Ring::new(capacity - small, small),
            ghosts: Ring::new(capacity, options.ghosts),
            promote_at: options.promote_at,
            frequency_max: options.frequency_max,
            window: options.window,
        }
    }

    /// Whether what an index found is a line, not a ghost and not [`NIL`].
    #[inline]
    fn is_line(&self, place: u32) -> bool {
        (place as usize) < self.tags.len()
    }

    #[inline]
    fn on_hit(&mut self, place: u32) {
        if self.window > 0 && place >= self.small.start && self.small.age(place) < self.window {
            return;
        }
        let tag = &mut self.tags[place as usize];
        *tag += u8::from(*tag & REFERENCES < self.frequency_max);
    }

    /// A place in main: a free one, or that of the first line that is not pinned and was not referenced since its last
    /// round. Each round takes one reference from a line. `None` if all are pinned.
    #[inline]
    fn place_in_main(&mut self) -> Option<(u32, Option<Victim>)> {
        if let Some(place) = self.main.take_free(&self.index) {
            return Some((place, None));
        }
        let mut passed = 0;
        while passed < self.main.places {
            let slot = self.main.turn();
            let tag = &mut self.tags[slot as usize];
            if *tag & PINNED != 0 {
                passed += 1;
            } else if *tag & REFERENCES > 0 {
                *tag -= 1;
                passed = 0;
            } else {
                let key = self.index.key(slot);
                self.index.clear(slot);
                return Some((slot, Some(Victim { key, slot })));
            }
        }
        None
    }

    /// Makes the line at `slot` a ghost; its place is free.
    #[inline]
    fn retire(&mut self, slot: u32) -> Victim {
        let key = self.index.key(slot);
        if self.ghosts.places == 0 {
            self.index.clear(slot);
        } else {
            let ghost = self.ghosts.turn();
            self.index.clear(ghost);
            self.index.shift(slot, ghost);
        }
        Victim { key, slot }
    }

    /// Makes a place in the full small queue: its oldest line leaves or, if it was used enough, moves to main.
    #[inline]
    fn make_room_in_memory(&mut self) -> Option<Inserted> {
        for _ in 0..self.small.places {
            let slot = self.small.turn();
            let tag = self.tags[slot as usize];
            if tag & PINNED != 0 {
                continue;
            }
            if tag & REFERENCES < self.promote_at {
                let victim = Some(self.retire(slot));
                return Some(Inserted {
                    slot,
                    victim,
                    promotion: None,
                });
            }
            if let Some((to, victim)) = self.place_in_main() {
                let key = self.index.key(slot);
                self.index.shift(slot, to);
                self.tags[to as usize] = OCCUPIED;
                let promotion = Some(Promotion { key, from: slot, to });
                return Some(Inserted {
                    slot,
                    victim,
                    promotion,
                });
            }
        }
        None
    }

    #[inline]
    fn insert_absent(&mut self, key: u64, ghost: u32) -> Option<Inserted> {
        let at = |(slot, victim)| Inserted {
            slot,
            victim,
            promotion: None,
        };
        let inserted = if ghost == NIL {
            let inserted = if let Some(slot) = self.small.take_free(&self.index) {
                at((slot, None))
            } else if self.main.has_room() || self.small.places == 0 {
                at(self.place_in_main()?)
            } else {
                self.make_room_in_memory()?
            };
            self.index.insert(key, inserted.slot);
            inserted
        } else {
            let inserted = at(self.place_in_main()?);
            self.index.revive(key, ghost, inserted.slot);
            inserted
        };
        self.tags[inserted.slot as usize] = OCCUPIED;
        Some(inserted)
    }
}

impl<P: PlaceIndex> Policy for StagedFifo<P> {
    #[inline]
    fn reference(&mut self, key: u64) -> Option<u32> {
        let slot = self.find(key)?;
        self.on_hit(slot);
        Some(slot)
    }

    #[inline]
    fn find(&self, key: u64) -> Option<u32> {
        let place = self.index.find(key);
        self.is_line(place).then_some(place)
    }

    #[inline]
    fn insert(&mut self, key: u64) -> Option<Inserted> {
        let place = self.index.find(key);
        debug_assert!(!self.is_line(place), "{key} is resident");
        self.insert_absent(key, place)
    }

    fn insert_in_memory(&mut self, key: u64) -> Option<Inserted> {
        let (slot, victim) = if let Some(slot) = self.small.take_free(&self.index) {
            (slot, None)
        } else {
            let mut turns = (0..self.small.places).map(|_| self.small.turn());
            let slot = turns.find(|&slot| self.tags[slot as usize] & PINNED == 0)?;
            (slot, Some(self.retire(slot)))
        };
        // Looked for now: who left may have driven it out.
        let ghost = self.index.find(key);
        debug_assert!(!self.is_line(ghost), "{key} is resident");
        if ghost == NIL {
            self.index.insert(key, slot);
        } else {
            self.index.revive(key, ghost, slot);
        }
        self.tags[slot as usize] = OCCUPIED;
        Some(Inserted {
            slot,
            victim,
            promotion: None,
        })
    }

    #[inline]
    fn access(&mut self, key: u64) -> Access {
        let place = self.index.find(key);
        if self.is_line(place) {
            self.on_hit(place);
            return Access::Hit;
        }
        self.insert_absent(key, place);
        Access::Miss
    }

    #[inline]
    fn pin(&mut self, slot: u32) {
        self.tags[slot as usize] |= PINNED;
    }

    #[inline]
    fn unpin(&mut self, slot: u32) {
        self.tags[slot as usize] &= !PINNED;
    }

    #[inline]
    fn is_pinned(&self, slot: u32) -> bool {
        self.tags[slot as usize] & PINNED != 0
    }

    fn remove(&mut self, key: u64) -> Option<u32> {
        let place = self.index.find(key);
        if place == NIL {
            return None;
        }
        self.index.clear(place);
        if !self.is_line(place) {
            return None;
        }
        self.tags[place as usize] = 0;
        let is_in_memory = self.is_in_memory(place);
        let ring = if is_in_memory {
            &mut self.small
        } else {
            &mut self.main
        };
        ring.give_back(&mut self.index, place);
        Some(place)
    }

    fn len(&self) -> usize {
        (self.main.len + self.small.len) as usize
    }

    fn capacity(&self) -> usize {
        self.tags.len()
    }

    fn slots_end(&self) -> usize {
        self.tags.len()
    }

    fn memory_lines(&self) -> usize {
        self.small.places as usize
    }

    fn lines_in_memory(&self) -> usize {
        self.small.len as usize
    }

    #[inline]
    fn is_in_memory(&self, slot: u32) -> bool {
        slot >= self.small.start
    }

    fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.tags.capacity()
    }

    fn key_at(&self, slot: u32) -> Option<u64> {
        (self.tags[slot as usize] & OCCUPIED != 0).then(|| self.index.key(slot))
    }

    fn for_each_resident(&self, visit: &mut dyn FnMut(u64, u32)) {
        for (slot, &tag) in (0..).zip(&self.tags) {
            if tag & OCCUPIED != 0 {
                visit(self.index.key(slot), slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::HashPlaces;
    use crate::slots::HashSeed;
    use crate::walk::walk;

    /// Five lines: two in memory, three on the SSD; the ghosts are four.
    pub(in crate::staged_fifo) fn five_lines() -> StagedFifo<HashPlaces> {
        let options = StagedOptions::s3_fifo(5, 2);
        StagedFifo::new(5, HashSeed(0), options)
    }

    #[test]
    fn a_promotion_makes_its_own_room_on_the_ssd() {
        let mut policy = five_lines();
        // 1 and 2 fill the memory; while there is room, 3, 4 and 5 go straight to the SSD.
        assert_eq!(walk(&mut policy, &[1, 2, 3, 4, 5, 1, 1]), "1 2 3 4 5 1+ 1+");
        // The oldest in memory, 1, has two references and is promoted, for which 3 leaves. Then 2, unused, leaves memory,
        // and returns from the ghosts to the SSD, in the place of 4.
        assert_eq!(walk(&mut policy, &[6, 7, 2]), "6/3^1 7/2 2/4");
        assert_eq!([1, 2, 5].map(|key| policy.find(key)), [Some(0), Some(1), Some(2)]);
        assert_eq!([6, 7].map(|key| policy.find(key)), [Some(3), Some(4)]);
        assert_eq!(
            (
                policy.memory_lines(),
                policy.is_in_memory(3),
                policy.is_in_memory(2)
            ),
            (2, true, false)
        );
    }

    #[test]
    fn a_removed_line_leaves_its_place_to_the_next_newcomer_of_its_queue() {
        let mut policy = five_lines();
        walk(&mut policy, &[1, 2, 3, 4, 5]);
        assert_eq!(
            (policy.remove(4), policy.remove(4), policy.len()),
            (Some(1), None, 4)
        );
        // The memory is full and the SSD has room: 6 goes there, into the place of 4.
        assert_eq!(walk(&mut policy, &[6]), "6");
        assert_eq!(policy.find(6), Some(1));
        policy.remove(1);
        policy.remove(3);
        assert_eq!(walk(&mut policy, &[7, 8]), "7 8");
        assert_eq!([7, 8].map(|key| policy.find(key)), [Some(3), Some(0)]);
    }

    #[test]
    fn pinned_lines_are_passed_over_and_where_all_are_pinned_nobody_enters() {
        let mut policy = five_lines();
        walk(&mut policy, &[1, 2, 3, 4, 5]);
        policy.pin(3);
        assert_eq!(walk(&mut policy, &[6]), "6/2", "1 is pinned");
        policy.pin(policy.find(6).expect("resident"));
        assert_eq!(policy.insert(7), None);
        // The ghost 2 needs a place on the SSD, where 3 is the oldest.
        policy.pin(0);
        assert_eq!(walk(&mut policy, &[2]), "2/4");
        policy.unpin(3);
        assert_eq!(walk(&mut policy, &[7]), "7/1");
    }

    #[test]
    fn without_a_write_nobody_is_promoted_and_a_ghost_enters_memory() {
        let mut policy = five_lines();
        // 1 has the references to be promoted, and leaves.
        walk(&mut policy, &[1, 2, 3, 4, 5, 1, 1]);
        let into_memory = |policy: &mut StagedFifo<HashPlaces>, key| {
            let inserted = policy.insert_in_memory(key).expect("nothing is pinned");
            assert_eq!(
                (inserted.promotion, policy.is_in_memory(inserted.slot)),
                (None, true)
            );
            inserted.victim.map(|victim| victim.key)
        };
        assert_eq!(
            [6, 1, 7].map(|key| into_memory(&mut policy, key)),
            [Some(1), Some(2), Some(6)]
        );
        assert_eq!([3, 4, 5].map(|key| policy.find(key)), [Some(0), Some(1), Some(2)]);
        policy.pin(3);
        policy.pin(4);
        assert_eq!(policy.insert_in_memory(8), None);
    }

    #[test]
    fn a_cache_of_one_line_has_no_stage() {
        let options = StagedOptions::s3_fifo(1, 0);
        let mut policy = StagedFifo::<HashPlaces>::new(1, HashSeed(0), options);
        assert_eq!(walk(&mut policy, &[1, 2, 2, 3, 3]), "1 2/1 2+ 3/2 3+");
        assert!(!policy.is_in_memory(0));
    }
}
