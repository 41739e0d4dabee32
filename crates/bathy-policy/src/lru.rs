//! LRU: the least recently used line is evicted.
//!
//! Mattson, Gecsei, Slutz, Traiger: Evaluation techniques for storage hierarchies, IBM Systems Journal 9(2), 1970.
//! A stack algorithm: a larger cache holds everything that a smaller one holds, so one pass over a trace gives the
//! whole miss ratio curve.
//!
//! Limits: scans and loops larger than the cache flush it, and every hit moves a queue entry, which takes a lock per
//! hit under threads. It is the baseline of the other policies because its curve is exactly predictable.

use crate::durable::{Durable, ImportError, StateRecord};
use crate::index::{HashIndex, KeyIndex};
use crate::policy::{Policy, Replacement, SlabPolicy};
use crate::slab::Slab;
use crate::slots::{FIRST_SLOT, NIL};

/// See the [module](self).
pub type Lru<I> = SlabPolicy<LruRules, I>;

/// One queue in order of the last reference.
#[derive(Debug, Clone)]
pub struct LruRules;

impl Replacement for LruRules {
    type Options = ();

    fn new(_capacity: usize, _slots_end: usize, (): &()) -> Self {
        Self
    }

    #[inline]
    fn on_hit<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        slab.move_to_front(slot, 0);
    }
}

impl Durable for Lru<HashIndex> {
    fn export(&self, emit: &mut dyn FnMut(StateRecord)) {
        self.for_each_resident(&mut |key, slot| {
            emit(StateRecord::Line {
                slot,
                key,
                references: 0,
            });
        });
        self.slab.index().for_each_free(&mut |slot| {
            emit(StateRecord::Free {
                slot: slot - FIRST_SLOT,
            });
        });
    }

    fn import(&mut self, records: &mut dyn Iterator<Item = StateRecord>) -> Result<(), ImportError> {
        assert!(self.is_empty(), "a state is taken over into a new policy");
        let mut is_known = vec![false; self.slots_end()];
        let mut freed = Vec::new();
        for record in records {
            let (StateRecord::Line { slot, .. } | StateRecord::Free { slot }) = record else {
                return Err(ImportError::OutOfRange(record));
            };
            match is_known.get_mut(slot as usize) {
                None => return Err(ImportError::OutOfRange(record)),
                Some(true) => return Err(ImportError::Duplicate(record)),
                Some(is_known) => *is_known = true,
            }
            match record {
                StateRecord::Line { key, .. } if self.slab.find(key) == NIL => {
                    self.slab.insert_at(key, slot + FIRST_SLOT, 0);
                }
                StateRecord::Line { .. } => return Err(ImportError::Duplicate(record)),
                _ => freed.push(slot + FIRST_SLOT),
            }
        }
        self.slab
            .free_others(&freed, |slot| is_known[(slot - FIRST_SLOT) as usize]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::HashSeed;
    use crate::walk::walk;

    #[test]
    fn the_one_unused_for_longest_leaves() {
        let mut lru = Lru::<HashIndex>::new(3, HashSeed(0));
        // The hit makes 1 the newest, so 2 goes, then 3. By then 1 is the oldest again, but it is used once more,
        // which leaves 4.
        assert_eq!(
            walk(&mut lru, &[1, 2, 3, 1, 4, 5, 1, 6]),
            "1 2 3 1+ 4/2 5/3 1+ 6/4"
        );
    }
}
