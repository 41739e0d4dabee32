//! A mask of a few bits for each line, packed: one bit when a line is fetched whole, up to 64 otherwise.

/// Masks of 2^k bits by line id.
#[derive(Clone, Debug)]
pub(super) struct Masks {
    words: Vec<u64>,
    /// The binary logarithm of a mask's bits.
    log_bits: u32,
}

impl Masks {
    /// Masks of `bits` bits, a power of two up to 64, all of them zero.
    pub(super) fn new(bits: u64) -> Self {
        debug_assert!(bits.is_power_of_two() && bits <= 64);
        Self {
            words: Vec::new(),
            log_bits: bits.trailing_zeros(),
        }
    }

    /// Makes room for the line `id`.
    #[inline]
    pub(super) fn cover(&mut self, id: u32) {
        let (word, _) = self.place(id);
        if word >= self.words.len() {
            // An eighth more, because doubling would waste a quarter of the memory on average.
            let words = word + 1 + word / 8;
            self.words.reserve_exact(words - self.words.len());
            self.words.resize(words, 0);
        }
    }

    #[inline]
    fn place(&self, id: u32) -> (usize, u32) {
        let bit = u64::from(id) << self.log_bits;
        ((bit / 64) as usize, (bit % 64) as u32)
    }

    #[inline]
    fn ones(&self) -> u64 {
        u64::MAX >> (64 - (1 << self.log_bits))
    }

    #[inline]
    pub(super) fn get(&self, id: u32) -> u64 {
        let (word, shift) = self.place(id);
        self.words[word] >> shift & self.ones()
    }

    /// Adds the bits of `mask`, which has none beyond the masks' width.
    #[inline]
    pub(super) fn add(&mut self, id: u32, mask: u64) {
        let (word, shift) = self.place(id);
        self.words[word] |= mask << shift;
    }

    #[inline]
    pub(super) fn clear(&mut self, id: u32) {
        let (word, shift) = self.place(id);
        self.words[word] &= !(self.ones() << shift);
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_keeps_its_masks_apart() {
        for bits in [1u64, 2, 4, 8, 16, 32, 64] {
            let mut masks = Masks::new(bits);
            let mut model = vec![0u64; 300];
            for step in 0..3000u64 {
                let random = crate::hash::mix64(step);
                let id = (random % 300) as u32;
                masks.cover(id);
                if random >> 60 == 0 {
                    masks.clear(id);
                    model[id as usize] = 0;
                } else {
                    let mask = crate::hash::mix64(random) & (u64::MAX >> (64 - bits));
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
