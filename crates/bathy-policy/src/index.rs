//! From a key to its slot: a compact hash table for any key, the key itself for renumbered ones.
//!
//! Limits: less than 2^32 entries, all of one owner; a table does not grow.

use crate::places::{DensePlaces, HashPlaces, PlaceIndex};
use crate::slot_table::SlotTable;
use crate::slots::{FIRST_SLOT, HashSeed, NIL, Universe, mix};

/// Gives each key a slot. A policy keeps what it knows about a key by that slot.
pub trait KeyIndex {
    /// What must be known besides the number of entries.
    type Config: Copy;
    /// The index of a policy whose slots are places in rings, for the same keys.
    type Places: PlaceIndex<Config = Self::Config> + Send + 'static;

    /// An empty index for at most `max_entries` keys.
    fn new(max_entries: usize, config: Self::Config) -> Self;
    /// All slots are below this number. Only [`KeyIndex::insert`] raises it, and only that of a [`DenseIndex`].
    fn slots_end(&self) -> usize;
    /// The slot of `key`, or [`NIL`].
    fn find(&self, key: u64) -> u32;
    /// Takes a slot for `key`, which must be absent.
    fn insert(&mut self, key: u64) -> u32;
    /// Frees an occupied slot and returns its key.
    fn remove(&mut self, slot: u32) -> u64;
    /// The key in an occupied slot.
    fn key(&self, slot: u32) -> u64;
    /// Bytes held.
    fn memory_bytes(&self) -> usize;
}

/// The key is the slot: no table, no keys, a bit for each possible key.
///
/// For traces whose keys were renumbered 0..n. A policy then has a slot for every possible key, so a cache that holds a
/// small share of the keys takes less memory with a [`HashIndex`]. Keys beyond the universe are accepted; each growth
/// copies everything. Not for a live cache, whose keys can be any number.
#[derive(Debug, Clone)]
pub struct DenseIndex {
    present: Vec<u64>,
}

impl DenseIndex {
    #[cold]
    fn grow(&mut self, slot: u32) {
        let words = slot as usize / 64 + 1;
        // An eighth more, because doubling would waste a quarter of the memory on average.
        let words = words.max(self.present.len() + self.present.len() / 8 + 8);
        self.present.reserve_exact(words - self.present.len());
        self.present.resize(words, 0);
    }
}

impl KeyIndex for DenseIndex {
    type Config = Universe;
    type Places = DensePlaces;

    fn new(_max_entries: usize, universe: Universe) -> Self {
        Self {
            present: vec![0; (universe.0 + FIRST_SLOT as usize).div_ceil(64)],
        }
    }

    fn slots_end(&self) -> usize {
        self.present.len() * 64
    }

    #[inline]
    fn find(&self, key: u64) -> u32 {
        let slot = key.saturating_add(u64::from(FIRST_SLOT));
        let word = usize::try_from(slot / 64)
            .ok()
            .and_then(|word| self.present.get(word));
        let present = word.is_some_and(|word| (word >> (slot % 64)) & 1 != 0);
        if present { slot as u32 } else { NIL }
    }

    /// # Panics
    /// If `key` is not below 2^32 less the reserved numbers.
    #[inline]
    fn insert(&mut self, key: u64) -> u32 {
        let slot = key.saturating_add(u64::from(FIRST_SLOT));
        assert!(
            slot < u64::from(NIL),
            "a renumbered key must be below 2^32 - 5 (got {key})"
        );
        let slot = slot as u32;
        if slot as usize >= self.slots_end() {
            self.grow(slot);
        }
        self.present[slot as usize / 64] |= 1 << (slot % 64);
        slot
    }

    #[inline]
    fn remove(&mut self, slot: u32) -> u64 {
        debug_assert_ne!(self.find(self.key(slot)), NIL, "the key to remove is present");
        self.present[slot as usize / 64] &= !(1 << (slot % 64));
        self.key(slot)
    }

    #[inline]
    fn key(&self, slot: u32) -> u64 {
        u64::from(slot - FIRST_SLOT)
    }

    fn memory_bytes(&self) -> usize {
        self.present.capacity() * size_of::<u64>()
    }
}

/// Any `u64` is a key: a [`SlotTable`] over the keys in their slots, 14 bytes a slot. All memory is allocated in
/// [`KeyIndex::new`].
#[derive(Debug, Clone)]
pub struct HashIndex {
    table: SlotTable,
    /// By slot; of a free slot that was used before, the next free one.
    keys: Vec<u64>,
    /// First free slot that was used before; the others follow through `keys`.
    free: u32,
    /// Slots from here on were never used.
    fresh: u32,
    seed: u64,
}

impl HashIndex {
    #[inline]
    fn hash(&self, key: u64) -> u64 {
        mix(key ^ self.seed)
    }

    /// Takes `slot` for `key`, both of them free. Used on a new index; [`HashIndex::free_others`] ends it.
    pub(crate) fn insert_at(&mut self, key: u64, slot: u32) {
        self.keys[slot as usize] = key;
        self.fresh = self.fresh.max(slot + 1);
        self.table.insert(self.hash(key), slot);
    }

    /// Makes the slots of `freed` the next ones to be used, in this order; then come those below the highest slot in use
    /// that `is_known` does not know, and then the rest. Ends what [`HashIndex::insert_at`] began.
    pub(crate) fn free_others(&mut self, freed: &[u32], is_known: impl Fn(u32) -> bool) {
        let highest = freed.iter().map(|slot| slot + 1).max().unwrap_or(0);
        self.fresh = self.fresh.max(highest);
        let others: Vec<u32> = (FIRST_SLOT..self.fresh).filter(|&slot| !is_known(slot)).collect();
        self.free = NIL;
        for &slot in freed.iter().chain(&others).rev() {
            self.keys[slot as usize] = u64::from(self.free);
            self.free = slot;
        }
    }

    /// Calls `visit` with each free slot that was used before, the one used next first.
    pub(crate) fn for_each_free(&self, visit: &mut dyn FnMut(u32)) {
        let mut slot = self.free;
        while slot != NIL {
            visit(slot);
            slot = self.keys[slot as usize] as u32;
        }
    }
}

impl KeyIndex for HashIndex {
    type Config = HashSeed;
    type Places = HashPlaces;

    fn new(max_entries: usize, seed: HashSeed) -> Self {
        let slots_end = max_entries + FIRST_SLOT as usize;
        Self {
            table: SlotTable::new(max_entries + max_entries / 2 + 8, slots_end),
            keys: vec![0; slots_end],
            free: NIL,
            fresh: FIRST_SLOT,
            seed: seed.0,
        }
    }

    fn slots_end(&self) -> usize {
        self.keys.len()
    }

    #[inline]
    fn find(&self, key: u64) -> u32 {
        self.table
            .find(self.hash(key), |slot| self.keys[slot as usize] == key)
    }

    /// # Panics
    /// If all slots are taken, which is a mistake of the policy.
    #[inline]
    fn insert(&mut self, key: u64) -> u32 {
        let slot = if self.free == NIL {
            let slot = self.fresh;
            assert!(
                (slot as usize) < self.keys.len(),
                "all slots of the index are taken"
            );
            self.fresh += 1;
            slot
        } else {
            let slot = self.free;
            self.free = self.keys[slot as usize] as u32;
            slot
        };
        self.keys[slot as usize] = key;
        self.table.insert(self.hash(key), slot);
        slot
    }

    fn remove(&mut self, slot: u32) -> u64 {
        let key = self.keys[slot as usize];
        let Self {
            table, keys, seed, ..
        } = self;
        table.remove(mix(key ^ *seed), slot, |slot| mix(keys[slot as usize] ^ *seed));
        self.keys[slot as usize] = u64::from(self.free);
        self.free = slot;
        key
    }

    #[inline]
    fn key(&self, slot: u32) -> u64 {
        self.keys[slot as usize]
    }

    fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.keys.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Keys come from a small range, so they return often and probes run into each other and around the end.
    fn equals_a_map<I: KeyIndex>(index: &mut I) {
        let mut model: HashMap<u64, u32> = HashMap::new();
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (state >> 33) % 97;
            assert_eq!(index.find(key), model.get(&key).copied().unwrap_or(NIL));
            if let Some(slot) = model.remove(&key) {
                assert_eq!((index.key(slot), index.remove(slot)), (key, key));
            } else if model.len() < 48 {
                let slot = index.insert(key);
                assert!(slot >= FIRST_SLOT && (slot as usize) < index.slots_end());
                assert!(model.insert(key, slot).is_none());
            }
        }
    }

    #[test]
    fn hash_index_equals_a_map_through_collisions_and_deletions() {
        equals_a_map(&mut HashIndex::new(48, HashSeed(7)));
    }

    #[test]
    fn dense_index_equals_a_map_whatever_universe_was_announced() {
        for universe in [0, 10, 97, 1000] {
            equals_a_map(&mut DenseIndex::new(48, Universe(universe)));
        }
    }

    #[test]
    fn dense_index_answers_nil_beyond_its_universe() {
        let mut index = DenseIndex::new(4, Universe(4));
        let slot = index.insert(3);
        assert_eq!(index.find(3), slot);
        assert_eq!([4, 1 << 20, u64::MAX].map(|key| index.find(key)), [NIL; 3]);
        index.remove(slot);
        assert_eq!(index.find(3), NIL);
    }
}
