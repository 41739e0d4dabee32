//! The ranks of a chunk: [`crate::rank::RankTree`] for so few positions that all of it is two levels in fixed arrays.

use crate::chunk::CHUNK;
use crate::positions::ones;
use crate::rank::{AFTER_U16, FAN};

const WORD: usize = 64;
const WORDS: usize = CHUNK / WORD;
const GROUPS: usize = WORDS / FAN;

/// Positions of which some are live, in the order in which they were taken.
#[derive(Clone, Debug)]
pub(crate) struct ChunkRanks {
    live: [u64; WORDS],
    /// Live positions in the words before, in the group, that of the head not counted.
    words: [[u16; FAN]; GROUPS],
    /// Live positions in the groups before.
    groups: [u16; GROUPS],
    head: usize,
}

impl ChunkRanks {
    /// No position is taken.
    pub(crate) fn new() -> Self {
        Self {
            live: [0; WORDS],
            words: [[0; FAN]; GROUPS],
            groups: [0; GROUPS],
            head: 0,
        }
    }

    /// The position that is taken next.
    #[inline]
    pub(crate) fn head(&self) -> usize {
        self.head
    }

    /// Takes the position at the head; there are `CHUNK` of them.
    #[inline]
    pub(crate) fn take(&mut self) {
        let word = self.head / WORD % WORDS;
        self.live[word] |= 1 << (self.head % WORD);
        self.head += 1;
        if self.head % WORD == 0 {
            self.add_after(word, self.live[word].count_ones() as u16);
        }
    }

    /// Moves a live position, one of `count`, to the head and returns how many live ones lay after it.
    #[inline]
    pub(crate) fn renew(&mut self, position: usize, count: usize) -> usize {
        let (word, bit) = (position / WORD % WORDS, position % WORD);
        let up_to = self.live[word] & (u64::MAX >> (WORD - 1 - bit));
        let rank = up_to.count_ones() as usize
            + usize::from(self.words[word / FAN][word % FAN])
            + usize::from(self.groups[word / FAN]);
        self.live[word] &= !(1 << bit);
        if word != self.head / WORD {
            self.add_after(word, u16::MAX);
        }
        self.take();
        count - rank
    }

    /// Adds to all that lies after a word; minus one is the largest number.
    #[inline]
    fn add_after(&mut self, word: usize, amount: u16) {
        let (group, member) = (word / FAN, word % FAN);
        // A compiler that sees that the first member never changes shifts its vectors by one, and a load that lies
        // across two of the last stores waits for them.
        let masks = std::hint::black_box(&AFTER_U16);
        let words = &mut self.words[group];
        let after = &masks[member];
        *words = std::array::from_fn(|index| words[index].wrapping_add(amount & after[index]));
        let groups = &mut self.groups;
        let after = &masks[group];
        *groups = std::array::from_fn(|index| groups[index].wrapping_add(amount & after[index]));
    }

    /// The live positions, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        ones(&self.live)
    }
}
