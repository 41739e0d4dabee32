//! One bit for each position of an order.

/// Which positions are live.
#[derive(Clone, Debug, Default)]
pub(crate) struct PositionBits {
    words: Vec<u64>,
}

impl PositionBits {
    /// `count` positions, a multiple of 64, none of them live.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            words: vec![0; count / 64],
        }
    }

    /// The first `live` of `count` positions are live.
    pub(crate) fn packed(count: usize, live: usize) -> Self {
        let mut bits = Self::new(count);
        bits.words[..live / 64].fill(u64::MAX);
        if live % 64 > 0 {
            bits.words[live / 64] = (1 << (live % 64)) - 1;
        }
        bits
    }

    #[inline]
    pub(crate) fn set(&mut self, position: usize) {
        self.words[position / 64] |= 1u64 << (position % 64);
    }

    #[inline]
    pub(crate) fn clear(&mut self, position: usize) {
        self.words[position / 64] &= !(1u64 << (position % 64));
    }

    /// The words, lowest positions first and in the low bits.
    #[inline]
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The live positions in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        ones(&self.words)
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

/// The numbers of the bits that are set, lowest first.
pub(crate) fn ones(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(|(index, &word)| {
        let mut rest = word;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let bit = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            Some(index * 64 + bit)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_positions_are_the_first() {
        for live in [0, 1, 63, 64, 65, 127, 128] {
            let bits = PositionBits::packed(128, live);
            assert!(bits.iter().eq(0..live), "{live}");
        }
        let mut bits = PositionBits::new(256);
        bits.set(3);
        bits.set(200);
        bits.set(64);
        bits.clear(3);
        assert!(bits.iter().eq([64, 200]));
    }
}
