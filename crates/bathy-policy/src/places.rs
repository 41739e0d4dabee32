//! From a key to its place in the rings of a [`StagedFifo`](crate::StagedFifo): places of lines, then places of ghosts.
//!
//! A line is known by its key, a ghost by less where that saves memory.

use crate::slot_table::SlotTable;
use crate::slots::cover;
use crate::slots::{HashSeed, NIL, Universe, mix};

/// Which key is at which place. Lines have the places below `lines`, ghosts those from there on.
pub trait PlaceIndex {
    /// What must be known besides the number of places.
    type Config: Copy;

    /// An empty index.
    fn new(lines: usize, ghosts: usize, config: Self::Config) -> Self;
    /// The place of `key`, or [`NIL`].
    fn find(&self, key: u64) -> u32;
    /// The key of the line at an occupied place.
    fn key(&self, place: u32) -> u64;
    /// Puts `key`, which must be absent, at the free place of a line.
    fn insert(&mut self, key: u64, place: u32);
    /// The line at `from` is at `to` from now on, which is free: a place of a line, or of a ghost.
    fn shift(&mut self, from: u32, to: u32);
    /// The ghost at `ghost`, found for `key`, is the line at `place` from now on.
    fn revive(&mut self, key: u64, ghost: u32, place: u32);
    /// Forgets the line at an occupied place, or the ghost at a place, if there is one.
    fn clear(&mut self, place: u32);
    /// What the ghost at a place is known by; 0 where there is none.
    fn ghost(&self, place: u32) -> u64;
    /// Puts a ghost that is known by `ghost`, not 0, at a free place.
    fn insert_ghost(&mut self, ghost: u64, place: u32);
    /// Keeps a number at the free place of a line, where the key of a line would be.
    fn note(&mut self, place: u32, number: u32);
    /// The number kept there.
    fn noted(&self, place: u32) -> u32;
    /// Bytes held.
    fn memory_bytes(&self) -> usize;
}

/// The upper bits of the hash that a ghost is known by, all that a [`SlotTable`] looks at among them. One of
/// them is always set. With fifty million ghosts one unknown key in ten thousand is taken for a ghost, and enters main at its
/// first miss; with half a million one in a million is.
const GHOST_BITS: u32 = 40;

/// Any `u64` is a key: a [`SlotTable`] over keys, and 40 bits of the hash for each ghost. All memory is allocated at once.
#[derive(Debug, Clone)]
pub struct HashPlaces {
    table: SlotTable,
    known: Known,
}

/// What is known of each place.
#[derive(Debug, Clone)]
struct Known {
    keys: Vec<u64>,
    /// The upper bits of the hash of each ghost, in two arrays for lack of a 40-bit integer; both 0 at a free place.
    ghosts_high: Vec<u32>,
    ghosts_low: Vec<u8>,
    seed: u64,
}

impl Known {
    /// The lowest of the bits that a ghost is known by is set, so that no ghost looks like a free place.
    #[inline]
    fn hash(&self, key: u64) -> u64 {
        mix(key ^ self.seed) | 1 << (u64::BITS - GHOST_BITS)
    }

    /// What is known of the hash of the line or ghost at an occupied place: all of it, or its upper bits.
    #[inline]
    fn hash_at(&self, place: u32) -> u64 {
        match self.keys.get(place as usize) {
            Some(&key) => self.hash(key),
            None => hash_of_ghost(self.ghost(place)),
        }
    }

    #[inline]
    fn ghost(&self, place: u32) -> u64 {
        let index = place as usize - self.keys.len();
        u64::from(self.ghosts_high[index]) << 8 | u64::from(self.ghosts_low[index])
    }

    #[inline]
    fn set_ghost(&mut self, place: u32, ghost: u64) {
        let index = place as usize - self.keys.len();
        self.ghosts_high[index] = (ghost >> 8) as u32;
        self.ghosts_low[index] = ghost as u8;
    }
}

impl HashPlaces {
    /// Whether a ghost can be known by this.
    pub(crate) fn is_ghost(known_by: u64) -> bool {
        known_by & 1 == 1 && known_by >> GHOST_BITS == 0
    }
}

#[inline]
fn ghost_of_hash(hash: u64) -> u64 {
    hash >> (u64::BITS - GHOST_BITS)
}

/// A hash with the upper half, which a table needs, of the one that the ghost was made of.
#[inline]
fn hash_of_ghost(ghost: u64) -> u64 {
    ghost << (u64::BITS - GHOST_BITS)
}

impl PlaceIndex for HashPlaces {
    type Config = HashSeed;

    fn new(lines: usize, ghosts: usize, seed: HashSeed) -> Self {
        let places = lines + ghosts;
        Self {
            // A third more buckets than entries: half more would be more than 24 bytes a line.
            table: SlotTable::new(places + places / 3 + 8, places),
            known: Known {
                keys: vec![0; lines],
                ghosts_high: vec![0; ghosts],
                ghosts_low: vec![0; ghosts],
                seed: seed.0,
            },
        }
    }

    #[inline]
    fn find(&self, key: u64) -> u32 {
        let known = &self.known;
        let hash = known.hash(key);
        self.table
            .find(hash, |place| match known.keys.get(place as usize) {
                Some(&other) => other == key,
                None => known.ghost(place) == ghost_of_hash(hash),
            })
    }

    #[inline]
    fn key(&self, place: u32) -> u64 {
        self.known.keys[place as usize]
    }

    #[inline]
    fn insert(&mut self, key: u64, place: u32) {
        self.known.keys[place as usize] = key;
        self.table.insert(self.known.hash(key), place);
    }

    #[inline]
    fn shift(&mut self, from: u32, to: u32) {
        let key = self.key(from);
        let hash = self.known.hash(key);
        match self.known.keys.get_mut(to as usize) {
            Some(place) => *place = key,
            None => self.known.set_ghost(to, ghost_of_hash(hash)),
        }
        self.table.replace(hash, from, to);
    }

    #[inline]
    fn revive(&mut self, key: u64, ghost: u32, place: u32) {
        self.known.set_ghost(ghost, 0);
        self.known.keys[place as usize] = key;
        self.table.replace(self.known.hash(key), ghost, place);
    }

    #[inline]
    fn clear(&mut self, place: u32) {
        let is_ghost = place as usize >= self.known.keys.len();
        if is_ghost && self.ghost(place) == 0 {
            return;
        }
        let known = &self.known;
        self.table
            .remove(known.hash_at(place), place, |place| known.hash_at(place));
        if is_ghost {
            self.known.set_ghost(place, 0);
        }
    }

    #[inline]
    fn ghost(&self, place: u32) -> u64 {
        self.known.ghost(place)
    }

    fn insert_ghost(&mut self, ghost: u64, place: u32) {
        self.known.set_ghost(place, ghost);
        self.table.insert(hash_of_ghost(ghost), place);
    }

    fn note(&mut self, place: u32, number: u32) {
        self.known.keys[place as usize] = u64::from(number);
    }

    fn noted(&self, place: u32) -> u32 {
        self.known.keys[place as usize] as u32
    }

    fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
            + self.known.keys.capacity() * size_of::<u64>()
            + self.known.ghosts_high.capacity() * size_of::<u32>()
            + self.known.ghosts_low.capacity()
    }
}

/// Keys that were renumbered 0..n: a place for every possible key, and the key at every place. Ghosts are known exactly.
#[derive(Debug, Clone)]
pub struct DensePlaces {
    /// By key: its place and 1, or 0.
    places: Vec<u32>,
    /// By place: its key and 1, or 0 at the free place of a ghost.
    keys: Vec<u32>,
}

impl PlaceIndex for DensePlaces {
    type Config = Universe;

    fn new(lines: usize, ghosts: usize, universe: Universe) -> Self {
        assert!(
            lines + ghosts < NIL as usize,
            "a policy holds less than 2^32 keys"
        );
        Self {
            places: vec![0; universe.0],
            keys: vec![0; lines + ghosts],
        }
    }

    #[inline]
    fn find(&self, key: u64) -> u32 {
        let place = usize::try_from(key).ok().and_then(|key| self.places.get(key));
        place.map_or(NIL, |&place| place.wrapping_sub(1))
    }

    #[inline]
    fn key(&self, place: u32) -> u64 {
        u64::from(self.keys[place as usize] - 1)
    }

    /// # Panics
    /// If `key` is not below 2^32 less the reserved numbers.
    #[inline]
    fn insert(&mut self, key: u64, place: u32) {
        assert!(
            key < u64::from(NIL) - 4,
            "a renumbered key must be below 2^32 - 5 (got {key})"
        );
        if key as usize >= self.places.len() {
            // An eighth more, because doubling would waste a quarter of the memory on average.
            cover(&mut self.places, key as usize + key as usize / 8 + 64);
        }
        self.places[key as usize] = place + 1;
        self.keys[place as usize] = key as u32 + 1;
    }

    #[inline]
    fn shift(&mut self, from: u32, to: u32) {
        let key = self.keys[from as usize];
        self.keys[to as usize] = key;
        self.places[key as usize - 1] = to + 1;
    }

    #[inline]
    fn revive(&mut self, _key: u64, ghost: u32, place: u32) {
        self.shift(ghost, place);
        self.keys[ghost as usize] = 0;
    }

    #[inline]
    fn clear(&mut self, place: u32) {
        let key = std::mem::take(&mut self.keys[place as usize]);
        if key != 0 {
            self.places[key as usize - 1] = 0;
        }
    }

    #[inline]
    fn ghost(&self, place: u32) -> u64 {
        u64::from(self.keys[place as usize])
    }

    fn insert_ghost(&mut self, ghost: u64, place: u32) {
        self.insert(ghost - 1, place);
    }

    fn note(&mut self, place: u32, number: u32) {
        self.keys[place as usize] = number;
    }

    fn noted(&self, place: u32) -> u32 {
        self.keys[place as usize]
    }

    fn memory_bytes(&self) -> usize {
        (self.places.capacity() + self.keys.capacity()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_move_and_become_ghosts<P: PlaceIndex>(mut index: P) {
        index.insert(5, 0);
        index.insert(6, 1);
        assert_eq!([5, 6, 7].map(|key| index.find(key)), [0, 1, NIL]);
        index.shift(0, 2);
        assert_eq!((index.find(5), index.key(2)), (2, 5));
        index.shift(2, 4);
        assert_eq!(index.find(5), 4, "a ghost is found by its key");
        let ghost = index.ghost(4);
        assert_ne!(ghost, 0);
        index.clear(4);
        index.clear(4);
        assert_eq!((index.find(5), index.ghost(4)), (NIL, 0));
        index.insert_ghost(ghost, 3);
        assert_eq!(index.find(5), 3);
        index.clear(1);
        assert_eq!(index.find(6), NIL);
        index.note(1, 77);
        assert_eq!(index.noted(1), 77);
    }

    #[test]
    fn both_indexes_do() {
        lines_move_and_become_ghosts(HashPlaces::new(3, 2, HashSeed(3)));
        lines_move_and_become_ghosts(DensePlaces::new(3, 2, Universe(0)));
    }
}
