//! An estimate of how often keys were referenced lately: 16 counters of four bits per line of the cache.
//!
//! A count-min sketch (Cormode, Muthukrishnan: J. Algorithms 55(1), 2005) of saturating four-bit counters with
//! conservative update, halved at regular intervals: the ageing of `TinyLFU` (Einziger, Friedman, Manes, ACM TOS
//! 13(4), 2017). All counters of a key are in one 64-byte block, so that an estimate costs one cache miss
//! (Putze, Sanders, Singler: Cache-, hash- and space-efficient Bloom filters, WEA 2007).
//!
//! Limits: counts end at 15, and a key that shares its counters with more frequent keys is overestimated.

use crate::slots::mix;

const WORDS_PER_BLOCK: usize = 8;
const ROWS: usize = 4;
const MAX_COUNT: u64 = 15;

/// A block: eight words of sixteen counters; each row owns two words, that is 32 counters.
type Block = [u64; WORDS_PER_BLOCK];

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct FrequencySketch {
    blocks: Vec<Block>,
    additions: u64,
    /// Additions after which all counters are halved: ten per line.
    sample: u64,
}

impl FrequencySketch {
    /// A sketch for a cache of `capacity` lines: at least one word, that is four counters per row, for each line.
    pub fn new(capacity: usize) -> Self {
        let blocks = capacity.div_ceil(WORDS_PER_BLOCK);
        Self {
            blocks: vec![[0; WORDS_PER_BLOCK]; blocks],
            additions: 0,
            sample: 10 * capacity as u64,
        }
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
    }

    /// The block of `key`, and 20 bits that choose its counter in each row.
    #[inline]
    fn locate(&self, key: u64) -> (usize, u32) {
        // Offset so that key 0 is not the fixed point of the mixing function.
        let hash = mix(key.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let block = ((u128::from(hash) * self.blocks.len() as u128) >> 64) as usize;
        (block, hash as u32)
    }

    /// The count of `key`, 0 to 15; never below the truth since the last halving, unless that is above 15.
    #[inline]
    pub fn estimate(&self, key: u64) -> u64 {
        let (block, choice) = self.locate(key);
        smallest(&self.blocks[block], choice)
    }

    /// Counts one more reference to `key`. Only the smallest of its counters grow.
    #[inline]
    pub fn add(&mut self, key: u64) {
        let (block, choice) = self.locate(key);
        let words = &mut self.blocks[block];
        let count = smallest(words, choice);
        if count < MAX_COUNT {
            for row in 0..ROWS {
                let (word, shift) = counter(row, choice);
                words[word] += u64::from((words[word] >> shift) & MAX_COUNT == count) << shift;
            }
        }
        self.additions += 1;
        if self.additions >= self.sample {
            self.halve();
        }
    }

    fn halve(&mut self) {
        for word in self.blocks.as_flattened_mut() {
            *word = (*word >> 1) & 0x7777_7777_7777_7777;
        }
        self.additions /= 2;
    }
}

/// The word of a key's counter in `row` of its block, and the shift of the counter in the word.
#[inline]
fn counter(row: usize, choice: u32) -> (usize, u32) {
    let counter = (choice >> (5 * row)) & 31;
    (
        (2 * row + counter as usize / 16) % WORDS_PER_BLOCK,
        counter % 16 * 4,
    )
}

/// The smallest of a key's counters.
#[inline]
fn smallest(words: &Block, choice: u32) -> u64 {
    (0..ROWS).fold(MAX_COUNT, |smallest, row| {
        let (word, shift) = counter(row, choice);
        smallest.min((words[word] >> shift) & MAX_COUNT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_never_fall_short_and_are_mostly_exact() {
        let mut sketch = FrequencySketch::new(4096);
        // Key k is seen k % 12 times: 22 k additions, below the 41 k at which the counters are halved.
        for key in 0..4096u64 {
            (0..key % 12).for_each(|_| sketch.add(key));
        }
        let estimates: Vec<(u64, u64)> = (0..4096).map(|key| (key % 12, sketch.estimate(key))).collect();
        assert!(estimates.iter().all(|&(truth, estimate)| estimate >= truth));
        let exact = estimates
            .iter()
            .filter(|(truth, estimate)| truth == estimate)
            .count();
        assert!(exact > 3700, "{exact} of 4096 estimates are exact");
    }

    #[test]
    fn counts_saturate_and_are_halved_after_ten_additions_per_line() {
        let mut sketch = FrequencySketch::new(8);
        (0..79).for_each(|_| sketch.add(5));
        assert_eq!(sketch.estimate(5), 15);
        sketch.add(5);
        assert_eq!(sketch.estimate(5), 7);
        (0..39).for_each(|_| sketch.add(6));
        assert_eq!(
            sketch.estimate(6),
            15,
            "the next halving is forty additions later"
        );
        sketch.add(6);
        assert_eq!((sketch.estimate(5), sketch.estimate(6)), (3, 7));
    }
}
