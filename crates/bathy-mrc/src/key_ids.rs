//! Renumbers keys from 0 in the order of their first touch, so that what is kept per line is an array.

/// A growing map from keys to dense ids: 15 to 23 bytes a key.
#[derive(Clone, Debug)]
pub struct KeyIds {
    /// Low half of the key, high half, id; the id is `FREE` in an empty place. Twelve bytes without padding.
    places: Vec<[u32; 3]>,
    len: u32,
}

/// The most keys that a caller should let in: ids stay below it, and some numbers above are left for others' use.
pub const MOST_KEYS: u64 = u32::MAX as u64 - 15;

const FREE: u32 = u32::MAX;
const EMPTY: [u32; 3] = [0, 0, FREE];
const INITIAL_PLACES: usize = 1024;

impl Default for KeyIds {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyIds {
    /// An empty map.
    pub fn new() -> Self {
        Self {
            places: vec![EMPTY; INITIAL_PLACES],
            len: 0,
        }
    }

    /// Number of distinct keys seen.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no key was seen.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<[u32; 3]>()
    }

    /// The id of `key`, a new one at its first touch.
    ///
    /// # Panics
    /// At 2^32 - 1 distinct keys. Who cannot know that there are fewer compares [`KeyIds::len`] with [`MOST_KEYS`].
    #[inline]
    pub fn id(&mut self, key: u64) -> u32 {
        let mut place = home(key, self.places.len());
        loop {
            let [low, high, id] = self.places[place];
            if id == FREE {
                return self.insert(place, key);
            }
            if (u64::from(high) << 32) | u64::from(low) == key {
                return id;
            }
            place = next(place, self.places.len());
        }
    }

    fn insert(&mut self, place: usize, key: u64) -> u32 {
        let id = self.len;
        assert!(id < FREE, "more distinct keys than 32-bit ids");
        self.places[place] = [key as u32, (key >> 32) as u32, id];
        self.len += 1;
        // Four fifths at most are in use: short searches, and half again as many places then leave eight fifteenths.
        if self.len as usize * 5 > self.places.len() * 4 {
            self.grow();
        }
        id
    }

    #[cold]
    fn grow(&mut self) {
        let count = self.places.len() + self.places.len() / 2;
        let old = std::mem::replace(&mut self.places, vec![EMPTY; count]);
        for entry in old.into_iter().filter(|entry| entry[2] != FREE) {
            let mut place = home((u64::from(entry[1]) << 32) | u64::from(entry[0]), count);
            while self.places[place][2] != FREE {
                place = next(place, count);
            }
            self.places[place] = entry;
        }
    }
}

/// The first place to look in: the range of a multiplicative hash mapped onto `places` in order (Lemire 2019).
#[inline]
fn home(key: u64, places: usize) -> usize {
    let hash = (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((u128::from(hash) * places as u128) >> 64) as usize
}

#[inline]
fn next(place: usize, places: usize) -> usize {
    if place + 1 == places { 0 } else { place + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_dense_and_stable() {
        let mut ids = KeyIds::new();
        for round in 0..2 {
            for key in 0..50_000u64 {
                assert_eq!(
                    ids.id(key.wrapping_mul(0xdead_beef_1234_5677)),
                    key as u32,
                    "round {round}"
                );
            }
        }
        assert_eq!(ids.len(), 50_000);
    }

    #[test]
    fn a_key_costs_at_most_23_bytes() {
        let mut ids = KeyIds::new();
        for key in 0..300_000u64 {
            ids.id(key << 20);
            if key > 1000 {
                assert!(ids.memory_bytes() <= 23 * ids.len(), "{key}");
            }
        }
    }
}
