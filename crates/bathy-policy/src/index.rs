//! From a key to the slot that holds it: a compact hash table for any key, an array for renumbered ones.

use crate::slab::NIL;

/// Maps keys to slots of a [`Slab`](crate::slab::Slab). The slab keeps the keys; it passes them in as `keys`.
pub trait KeyIndex {
    /// What has to be known besides the number of entries.
    type Config: Copy;

    /// An empty index for at most `max_entries` keys. All its memory is allocated here.
    fn new(max_entries: usize, config: Self::Config) -> Self;
    /// The most different keys that can exist under `config`; a slab need not be larger.
    fn distinct_keys(config: Self::Config) -> usize;
    /// The slot of `key`, or [`NIL`].
    fn find(&self, key: u64, keys: &[u64]) -> u32;
    /// Adds `key`, which must be absent.
    fn insert(&mut self, key: u64, slot: u32);
    /// Removes `key`, which must be present at `slot`.
    fn remove(&mut self, key: u64, slot: u32);
}

/// The number of different keys under a [`DenseIndex`]: keys are below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Universe(pub usize);

/// One array element per possible key: four bytes a key, one read a look-up.
///
/// For traces whose keys were renumbered 0..n. Not for a live cache, whose keys are not known in advance.
#[derive(Debug, Clone)]
pub struct DenseIndex {
    slots: Vec<u32>,
}

impl KeyIndex for DenseIndex {
    type Config = Universe;

    fn new(_max_entries: usize, universe: Universe) -> Self {
        Self {
            slots: vec![NIL; universe.0],
        }
    }

    fn distinct_keys(universe: Universe) -> usize {
        universe.0
    }

    #[inline]
    fn find(&self, key: u64, _keys: &[u64]) -> u32 {
        usize::try_from(key)
            .ok()
            .and_then(|key| self.slots.get(key))
            .copied()
            .unwrap_or(NIL)
    }

    /// # Panics
    /// If `key` is not below the universe.
    #[inline]
    fn insert(&mut self, key: u64, slot: u32) {
        self.slots[key as usize] = slot;
    }

    #[inline]
    fn remove(&mut self, key: u64, slot: u32) {
        debug_assert_eq!(self.slots[key as usize], slot);
        self.slots[key as usize] = NIL;
    }
}

/// The seed of a [`HashIndex`]. It changes speed, never what a policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HashSeed(pub u64);

/// Open addressing with linear probing: eight bytes a place, at most two thirds of the places in use.
///
/// A place holds a slot and the upper half of its key's hash; the key itself is compared in the slab. The home of
/// an entry is a monotone function of that half alone, so deletion can close the gap by shifting entries back
/// without reading a key, and there are no tombstones that slow down a cache that has run for a year.
#[derive(Debug, Clone)]
pub struct HashIndex {
    /// `hash half << 32 | slot`; the slot is [`NIL`] in a free place.
    places: Vec<u64>,
    seed: u64,
}

const FREE: u64 = NIL as u64;

impl HashIndex {
    /// The upper half of the finaliser of `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014).
    #[inline]
    fn hash_half(&self, key: u64) -> u64 {
        let mut hash = key ^ self.seed;
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (hash ^ (hash >> 31)) >> 32
    }

    /// Maps the range of hash halves onto the places in order, without a division (Lemire 2019).
    #[inline]
    fn home(&self, half: u64) -> usize {
        ((half * self.places.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, place: usize) -> usize {
        if place + 1 == self.places.len() {
            0
        } else {
            place + 1
        }
    }
}

impl KeyIndex for HashIndex {
    type Config = HashSeed;

    fn new(max_entries: usize, seed: HashSeed) -> Self {
        let places = max_entries + max_entries / 2 + 8;
        assert!(places < NIL as usize, "the index holds less than 2^32 places");
        Self {
            places: vec![FREE; places],
            seed: seed.0,
        }
    }

    fn distinct_keys(_seed: HashSeed) -> usize {
        usize::MAX
    }

    #[inline]
    fn find(&self, key: u64, keys: &[u64]) -> u32 {
        let half = self.hash_half(key);
        let mut place = self.home(half);
        loop {
            let entry = self.places[place];
            let slot = entry as u32;
            if slot == NIL || (entry >> 32 == half && keys[slot as usize] == key) {
                return slot;
            }
            place = self.next(place);
        }
    }

    #[inline]
    fn insert(&mut self, key: u64, slot: u32) {
        let half = self.hash_half(key);
        let mut place = self.home(half);
        while self.places[place] as u32 != NIL {
            place = self.next(place);
        }
        self.places[place] = half << 32 | u64::from(slot);
    }

    fn remove(&mut self, key: u64, slot: u32) {
        let half = self.hash_half(key);
        let mut gap = self.home(half);
        while self.places[gap] as u32 != slot {
            debug_assert_ne!(self.places[gap], FREE, "the key to remove is present");
            gap = self.next(gap);
        }
        let mut place = self.next(gap);
        loop {
            let entry = self.places[place];
            if entry as u32 == NIL {
                break;
            }
            // The entry may move into the gap unless its home lies (cyclically) after the gap.
            let home = self.home(entry >> 32);
            let stays = if gap <= place {
                gap < home && home <= place
            } else {
                gap < home || home <= place
            };
            if !stays {
                self.places[gap] = entry;
                gap = place;
            }
            place = self.next(place);
        }
        self.places[gap] = FREE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn hash_index_equals_a_map_through_collisions_and_deletions() {
        // 48 slots make 80 places; keys come from a small range, so they return often and probes run into each
        // other and around the end.
        let mut index = HashIndex::new(48, HashSeed(7));
        let mut keys = vec![u64::MAX; 48];
        let mut model: HashMap<u64, u32> = HashMap::new();
        let mut free: Vec<u32> = (0..48).collect();
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (state >> 33) % 97;
            assert_eq!(index.find(key, &keys), model.get(&key).copied().unwrap_or(NIL));
            if let Some(slot) = model.remove(&key) {
                index.remove(key, slot);
                free.push(slot);
            } else if let Some(slot) = free.pop() {
                keys[slot as usize] = key;
                index.insert(key, slot);
                model.insert(key, slot);
            }
        }
        assert_eq!(
            index.places.iter().filter(|&&entry| entry != FREE).count(),
            model.len()
        );
    }

    #[test]
    fn dense_index_answers_nil_beyond_its_universe() {
        let mut index = DenseIndex::new(4, Universe(4));
        index.insert(3, 1);
        assert_eq!(index.find(3, &[]), 1);
        assert_eq!(index.find(4, &[]), NIL);
        assert_eq!(index.find(u64::MAX, &[]), NIL);
        index.remove(3, 1);
        assert_eq!(index.find(3, &[]), NIL);
    }
}
