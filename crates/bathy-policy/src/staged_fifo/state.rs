//! The state of the policy as records.

use super::{OCCUPIED, REFERENCES, StagedFifo};
use crate::durable::{Durable, ImportError, StateRecord};
use crate::places::{HashPlaces, PlaceIndex};
use crate::policy::Policy;
use crate::slots::NIL;

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
    use super::super::tests::five_lines;
    use super::*;

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
