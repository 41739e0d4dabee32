//! A mask of a few bits for each slot, packed: one bit when a line is fetched whole, up to 64 otherwise.

/// Masks of 2^k bits by slot.
#[derive(Clone, Debug)]
pub(crate) struct Masks {
    words: Vec<u64>,
    /// The binary logarithm of a mask's bits.
    log_bits: u32,
}

impl Masks {
    /// Masks of `bits` bits, a power of two up to 64, all of them zero.
    pub(crate) fn new(bits: u64) -> Self {
        debug_assert!(bits.is_power_of_two() && bits <= 64);
        Self {
            words: Vec::new(),
            log_bits: bits.trailing_zeros(),
        }
    }

    /// Makes room for `slot`.
    #[inline]
    pub(crate) fn cover(&mut self, slot: u32) {
        let (word, _) = self.place(slot);
        if word >= self.words.len() {
            // An eighth more, because doubling would waste a quarter of the memory on average.
            let words = word + 1 + word / 8;
            self.words.reserve_exact(words - self.words.len());
            self.words.resize(words, 0);
        }
    }

    #[inline]
    fn place(&self, slot: u32) -> (usize, u32) {
        let bit = u64::from(slot) << self.log_bits;
        ((bit / 64) as usize, (bit % 64) as u32)
    }

    #[inline]
    pub(crate) fn ones(&self) -> u64 {
        u64::MAX >> (64 - (1 << self.log_bits))
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> u64 {
        let (word, shift) = self.place(slot);
        (self.words[word] >> shift) & self.ones()
    }

    /// Adds the bits of `mask`, which has none beyond the masks' width.
    #[inline]
    pub(crate) fn add(&mut self, slot: u32, mask: u64) {
        let (word, shift) = self.place(slot);
        self.words[word] |= mask << shift;
    }

    /// Removes the bits of `mask`, which has none beyond the masks' width.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32, mask: u64) {
        let (word, shift) = self.place(slot);
        self.words[word] &= !(mask << shift);
    }

    #[inline]
    pub(crate) fn clear(&mut self, slot: u32) {
        let (word, shift) = self.place(slot);
        self.words[word] &= !(self.ones() << shift);
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scramble(number: u64) -> u64 {
        let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ mixed >> 32
    }

    #[test]
    fn every_width_keeps_its_masks_apart() {
        for bits in [1u64, 2, 4, 8, 16, 32, 64] {
            let mut masks = Masks::new(bits);
            let mut model = vec![0u64; 300];
            for step in 0..3000u64 {
                let random = scramble(step);
                let id = (random % 300) as u32;
                masks.cover(id);
                if random >> 60 == 0 {
                    masks.clear(id);
                    model[id as usize] = 0;
                } else if random >> 60 < 4 {
                    let mask = scramble(random) & (u64::MAX >> (64 - bits));
                    masks.remove(id, mask);
                    model[id as usize] &= !mask;
                } else {
                    let mask = scramble(random) & (u64::MAX >> (64 - bits));
                    masks.add(id, mask);
                    model[id as usize] |= mask;
                }
            }
            masks.cover(299);
            for (id, &mask) in model.iter().enumerate() {
                assert_eq!(masks.get(id as u32), mask, "{bits} {id}");
            }
            assert!(masks.memory_bytes() as u64 <= 300 * bits / 8 * 9 / 8 + 16);
        }
    }
}
