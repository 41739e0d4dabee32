//! Renumbers keys from 0 in the order of their first touch, so that what is kept per line is an array.

/// A growing map from keys to dense ids.
#[derive(Clone, Debug)]
pub struct KeyIds {
    /// Key and id; the id is `FREE` in an empty place.
    places: Vec<(u64, u32)>,
    shift: u32,
    len: u32,
}

const FREE: u32 = u32::MAX;
const INITIAL_PLACES: usize = 4096;

impl Default for KeyIds {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyIds {
    /// An empty map.
    pub fn new() -> Self {
        Self {
            places: vec![(0, FREE); INITIAL_PLACES],
            shift: 64 - INITIAL_PLACES.trailing_zeros(),
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

    /// The id of `key`, a new one at its first touch.
    ///
    /// # Panics
    /// At 2^32 - 1 distinct keys.
    #[inline]
    pub fn id(&mut self, key: u64) -> u32 {
        let mut place = self.home(key);
        loop {
            let (found, id) = self.places[place];
            if id == FREE {
                return self.insert(place, key);
            }
            if found == key {
                return id;
            }
            place = (place + 1) & (self.places.len() - 1);
        }
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        ((key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn insert(&mut self, place: usize, key: u64) -> u32 {
        let id = self.len;
        assert!(id < FREE, "more distinct keys than 32-bit ids");
        self.places[place] = (key, id);
        self.len += 1;
        if self.len as usize * 2 > self.places.len() {
            self.grow();
        }
        id
    }

    #[cold]
    fn grow(&mut self) {
        let count = self.places.len() * 2;
        let old = std::mem::replace(&mut self.places, vec![(0, FREE); count]);
        self.shift -= 1;
        for (key, id) in old.into_iter().filter(|&(_, id)| id != FREE) {
            let mut place = self.home(key);
            while self.places[place].1 != FREE {
                place = (place + 1) & (count - 1);
            }
            self.places[place] = (key, id);
        }
    }
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
}
