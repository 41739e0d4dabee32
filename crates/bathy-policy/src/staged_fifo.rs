//! S3-FIFO and `Clock2Q+` with the small queue in memory and main on an SSD: the policy that a cache runs.
//!
//! Newcomers stay in memory until they have earned a place on the SSD, so only what enters main is written to it. The two
//! queues cannot share room as in the papers ([`S3Fifo`](crate::S3Fifo), [`Clock2QPlus`](crate::Clock2QPlus)), and that
//! saves memory: a queue of a fixed number of lines is a ring of places with a hand, as in CLOCK, and the order of its
//! lines is that of their places. There are no links, and ghosts are a ring of 40-bit hashes: 9 bytes a line, 5 a ghost and
//! 5.3 for either in the table make 23.6 bytes a line of S3-FIFO and 19.5 of `Clock2Q+`.
//!
//! Where the rings differ from queues: a line that was removed leaves its place, and so its age, to the next newcomer of
//! its queue; the ghosts are the lines that left last, less those that came back; a pinned line that the hand finds is
//! passed over until the next round.
//!
//! Limits: see [`S3Fifo`](crate::S3Fifo) and [`Clock2QPlus`](crate::Clock2QPlus). A place is not given to another queue, so
//! that the share of memory cannot be changed without a new policy ([`Durable`](crate::Durable) takes lines along).

use crate::clock2q_plus::Clock2QPlusOptions;
use crate::durable::{Durable, ImportError, StateRecord};
use crate::index::NIL;
use crate::places::{HashPlaces, PlaceIndex};
use crate::policy::{Access, Inserted, Policy, Promotion, Victim, check_capacity};
use crate::s3_fifo::{FREQUENCY_MAX, S3FifoOptions};

/// The parameters of [`StagedFifo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagedOptions {
    memory_lines: usize,
    ghosts: usize,
    promote_at: u8,
    frequency_max: u8,
    window: u32,
}

impl StagedOptions {
    /// S3-FIFO with a small queue of `memory_lines`, whatever [`S3FifoOptions::small_ratio`] says.
    pub fn s3_fifo(capacity: usize, memory_lines: usize, options: &S3FifoOptions) -> Self {
        // For its checks.
        options.small_lines(capacity);
        Self {
            memory_lines,
            ghosts: options.ghosts(capacity),
            promote_at: options.promote_at,
            frequency_max: FREQUENCY_MAX,
            window: 0,
        }
    }

    /// `Clock2Q+` with a small queue of `memory_lines`, whatever [`Clock2QPlusOptions::small_ratio`] says.
    pub fn clock2q_plus(capacity: usize, memory_lines: usize, options: &Clock2QPlusOptions) -> Self {
        Self {
            frequency_max: 1,
            window: options.window(memory_lines),
            ..Self::s3_fifo(capacity, memory_lines, &options.queues())
        }
    }
}

/// The lower bits of a place's tag count references.
const REFERENCES: u8 = 3;
const OCCUPIED: u8 = 1 << 6;
const PINNED: u8 = 1 << 7;

/// Consecutive places, used in turn.
#[derive(Debug, Clone)]
struct Ring {
    start: u32,
    places: u32,
    /// Places that hold something; not kept of ghosts.
    len: u32,
    /// The place whose turn it is, counted from `start`.
    hand: u32,
    /// Places from this one on were never used, counted from `start`. Until all were, the hand rests.
    fresh: u32,
    /// The first place that was given back, or [`NIL`]; the others follow through [`PlaceIndex::noted`].
    hole: u32,
}

impl Ring {
    fn new(start: usize, places: usize) -> Self {
        Self {
            start: start as u32,
            places: places as u32,
            len: 0,
            hand: 0,
            fresh: 0,
            hole: NIL,
        }
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.len < self.places
    }

    /// The place at the hand, which moves on.
    #[inline]
    fn turn(&mut self) -> u32 {
        let place = self.start + self.hand;
        self.hand = if self.hand + 1 == self.places {
            0
        } else {
            self.hand + 1
        };
        place
    }

    /// Takes a place that holds nothing, if there is one.
    #[inline]
    fn take_free(&mut self, index: &impl PlaceIndex) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        self.len += 1;
        if self.hole != NIL {
            let place = self.hole;
            self.hole = index.noted(place);
            return Some(place);
        }
        self.fresh += 1;
        Some(self.start + self.fresh - 1)
    }

    /// Gives a place back.
    fn give_back(&mut self, index: &mut impl PlaceIndex, place: u32) {
        index.note(place, self.hole);
        self.hole = place;
        self.len -= 1;
    }

    /// How many places were used after this one.
    #[inline]
    fn age(&self, place: u32) -> u32 {
        let next = if self.fresh < self.places {
            self.fresh
        } else {
            self.hand
        };
        let (place, newest) = (place - self.start, next + self.places - 1);
        let age = newest - place;
        if age >= self.places {
            age - self.places
        } else {
            age
        }
    }
}

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

impl Durable for StagedFifo<HashPlaces> {
    fn export(&self, emit: &mut dyn FnMut(StateRecord)) {
        self.for_each_resident(&mut |key, slot| {
            let references = self.tags[slot as usize] & REFERENCES;
            emit(StateRecord::Line {
                slot,
                key,
                references,
            });
        });
        for ring in [&self.main, &self.small] {
            let mut slot = ring.hole;
            while slot != NIL {
                emit(StateRecord::Free { slot });
                slot = self.index.noted(slot);
            }
        }
        for number in 0..self.ghosts.places {
            let known_by = self.index.ghost(self.ghosts.start + number);
            if known_by != 0 {
                emit(StateRecord::Ghost { number, known_by });
            }
        }
        emit(StateRecord::Hands {
            main: self.main.hand,
            small: self.small.hand,
            ghosts: self.ghosts.hand,
        });
    }

    fn import(&mut self, records: &mut dyn Iterator<Item = StateRecord>) -> Result<(), ImportError> {
        assert!(self.is_empty(), "a state is taken over into a new policy");
        let mut freed = Vec::new();
        for record in records {
            let check = |holds: bool, error: fn(StateRecord) -> ImportError| {
                if holds { Ok(()) } else { Err(error(record)) }
            };
            match record {
                StateRecord::Line {
                    slot,
                    key,
                    references,
                } => {
                    check(self.is_line(slot), ImportError::OutOfRange)?;
                    let free = self.tags[slot as usize] == 0 && self.index.find(key) == NIL;
                    check(free, ImportError::Duplicate)?;
                    self.index.insert(key, slot);
                    self.tags[slot as usize] = OCCUPIED | references.min(self.frequency_max);
                    let is_in_memory = self.is_in_memory(slot);
                    let ring = if is_in_memory {
                        &mut self.small
                    } else {
                        &mut self.main
                    };
                    ring.len += 1;
                }
                StateRecord::Free { slot } => {
                    check(self.is_line(slot), ImportError::OutOfRange)?;
                    check(self.tags[slot as usize] == 0, ImportError::Duplicate)?;
                    // Taken for now, so that it is not free twice.
                    self.tags[slot as usize] = OCCUPIED;
                    freed.push(slot);
                }
                StateRecord::Ghost { number, known_by } => {
                    let place = self.ghosts.start + number;
                    let fits = number < self.ghosts.places && HashPlaces::is_ghost(known_by);
                    check(fits, ImportError::OutOfRange)?;
                    check(self.index.ghost(place) == 0, ImportError::Duplicate)?;
                    self.index.insert_ghost(known_by, place);
                }
                StateRecord::Hands { main, small, ghosts } => {
                    for (ring, hand) in [
                        (&mut self.main, main),
                        (&mut self.small, small),
                        (&mut self.ghosts, ghosts),
                    ] {
                        check(hand < ring.places.max(1), ImportError::OutOfRange)?;
                        ring.hand = hand;
                    }
                }
            }
        }
        self.chain_free_places(&freed);
        Ok(())
    }
}

impl StagedFifo<HashPlaces> {
    /// Makes the places of `freed` the next ones to be used, in this order, and then those of each ring below the highest
    /// in use.
    fn chain_free_places(&mut self, freed: &[u32]) {
        for ring in [&mut self.main, &mut self.small] {
            let (start, end) = (ring.start, ring.start + ring.places);
            let used = (start..end).rev().find(|&slot| self.tags[slot as usize] != 0);
            ring.fresh = used.map_or(0, |slot| slot + 1 - start);
            let fresh = start + ring.fresh;
            for slot in (start..fresh).rev().filter(|&slot| self.tags[slot as usize] == 0) {
                self.index.note(slot, ring.hole);
                ring.hole = slot;
            }
            for &slot in freed.iter().rev().filter(|&&slot| start <= slot && slot < fresh) {
                self.tags[slot as usize] = 0;
                self.index.note(slot, ring.hole);
                ring.hole = slot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::HashSeed;
    use crate::walk::walk;

    /// Five lines: two in memory, three on the SSD; the ghosts are four.
    fn five_lines() -> StagedFifo<HashPlaces> {
        let options = StagedOptions::s3_fifo(5, 2, &S3FifoOptions::default());
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
        let options = StagedOptions::s3_fifo(1, 0, &S3FifoOptions::default());
        let mut policy = StagedFifo::<HashPlaces>::new(1, HashSeed(0), options);
        assert_eq!(walk(&mut policy, &[1, 2, 2, 3, 3]), "1 2/1 2+ 3/2 3+");
        assert!(!policy.is_in_memory(0));
    }

    #[test]
    fn an_import_refuses_what_cannot_be_a_state() {
        let line = |slot, key| StateRecord::Line {
            slot,
            key,
            references: 9,
        };
        let import = |records: &[StateRecord]| five_lines().import(&mut records.iter().copied());
        assert_eq!(import(&[line(0, 7), line(4, 8)]), Ok(()));
        for (records, out_of_range) in [
            ([line(0, 7), line(5, 8)], true),
            ([line(0, 7), line(0, 8)], false),
            ([line(0, 7), line(1, 7)], false),
            ([line(0, 7), StateRecord::Free { slot: 0 }], false),
            ([line(0, 7), StateRecord::Free { slot: 5 }], true),
            (
                [
                    line(0, 7),
                    StateRecord::Ghost {
                        number: 4,
                        known_by: 1,
                    },
                ],
                true,
            ),
            (
                [
                    line(0, 7),
                    StateRecord::Ghost {
                        number: 0,
                        known_by: 1 << 40,
                    },
                ],
                true,
            ),
            (
                [
                    line(0, 7),
                    StateRecord::Hands {
                        main: 3,
                        small: 0,
                        ghosts: 0,
                    },
                ],
                true,
            ),
        ] {
            let expected = if out_of_range {
                ImportError::OutOfRange
            } else {
                ImportError::Duplicate
            };
            assert_eq!(import(&records), Err(expected(records[1])));
        }
    }
}
