//! Which slot a key has: a compact hash table for any key, the key itself for renumbered ones.

/// No slot.
pub const NIL: u32 = u32::MAX;

/// Slots are numbered from here; the numbers below are the anchors of queues.
pub const FIRST_SLOT: u32 = 4;

/// Gives keys their slots and knows them by it. A [`Slab`](crate::slab::Slab) keeps what belongs to a slot.
pub trait KeyIndex {
    /// What has to be known besides the number of entries.
    type Config: Copy;

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

/// Keys under a [`DenseIndex`] for which there is room from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Universe(pub usize);

/// The key is the slot: no table, no keys, a bit for each possible key.
///
/// For traces whose keys were renumbered 0..n. What the slab keeps of a slot it then keeps of every possible key, so a
/// cache that holds a small share of the keys takes less memory with a [`HashIndex`]. Keys beyond the universe find
/// room, at the price of moving everything. Not for a live cache, whose keys are any number.
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
        let present = word.is_some_and(|word| word >> (slot % 64) & 1 != 0);
        if present { slot as u32 } else { NIL }
    }

    /// # Panics
    /// If `key` is not below 2^32 less the reserved numbers.
    #[inline]
    fn insert(&mut self, key: u64) -> u32 {
        let slot = key.saturating_add(u64::from(FIRST_SLOT));
        assert!(
            slot < u64::from(NIL),
            "renumbered keys are below 2^32, and {key} is not"
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

/// The seed of a [`HashIndex`]. It changes speed, never what a policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HashSeed(pub u64);

/// Open addressing with linear probing: eight bytes a place, at most two thirds of the places in use. All memory is
/// allocated in [`KeyIndex::new`].
///
/// A place holds a slot and the upper half of its key's hash; the key itself is compared in the slot. The home of
/// an entry is a monotone function of that half alone, so deletion can close the gap by shifting entries back
/// without reading a key, and there are no tombstones that slow down a cache that has run for a year.
#[derive(Debug, Clone)]
pub struct HashIndex {
    /// `hash half << 32 | slot`; the slot is [`NIL`] in a free place.
    places: Vec<u64>,
    /// By slot; of a free slot that was used before, the next free one.
    keys: Vec<u64>,
    /// First free slot that was used before; the others follow through `keys`.
    free: u32,
    /// Slots from here on were never used.
    fresh: u32,
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
            keys: vec![0; max_entries + FIRST_SLOT as usize],
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
        let half = self.hash_half(key);
        let mut place = self.home(half);
        loop {
            let entry = self.places[place];
            let slot = entry as u32;
            if slot == NIL || (entry >> 32 == half && self.keys[slot as usize] == key) {
                return slot;
            }
            place = self.next(place);
        }
    }

    /// # Panics
    /// If all slots are taken: a policy that lets it come to that has miscounted.
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
        let half = self.hash_half(key);
        let mut place = self.home(half);
        while self.places[place] as u32 != NIL {
            place = self.next(place);
        }
        self.places[place] = half << 32 | u64::from(slot);
        slot
    }

    fn remove(&mut self, slot: u32) -> u64 {
        let key = self.keys[slot as usize];
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
        self.keys[slot as usize] = u64::from(self.free);
        self.free = slot;
        key
    }

    #[inline]
    fn key(&self, slot: u32) -> u64 {
        self.keys[slot as usize]
    }

    fn memory_bytes(&self) -> usize {
        (self.places.capacity() + self.keys.capacity()) * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Keys come from a small range, so they return often and probes run into each other and around the end.
    fn equals_a_map<I: KeyIndex>(index: &mut I) -> usize {
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
        model.len()
    }

    #[test]
    fn hash_index_equals_a_map_through_collisions_and_deletions() {
        // 48 slots make 80 places.
        let mut index = HashIndex::new(48, HashSeed(7));
        let held = equals_a_map(&mut index);
        let used = index.places.iter().filter(|&&entry| entry != FREE).count();
        assert_eq!(used, held);
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
