//! How many live positions lie before one: the order-statistic half of the LRU stack.
//!
//! Positions are only ever taken at the end (the head). Each live one is a bit. Words of 64 bits stand in groups of
//! 16, these groups in groups of 16, and so on; every member of a group knows how many live positions lie before it in
//! its group. So a rank is one number of each level and the bits of one word, without a loop that ends at random, and
//! a change adds to those members of one group on each level that come after it, a few vector instructions. What lies
//! before a position never includes the word of the head, so taking a position changes no number at all: a word is
//! counted once, when the head leaves it.
//!
//! Sums of plain counts would need fewer additions, but a vector load of what was just stored as single numbers waits
//! until the store has left the store buffer, and here every access follows a change.

use crate::positions::PositionBits;

/// Positions of a word.
const WORD: usize = 64;
/// Members of a group.
pub(crate) const FAN: usize = 16;

/// Positions of which some are live, with the number of live ones before each.
#[derive(Clone, Debug)]
pub(crate) struct RankTree {
    live: PositionBits,
    /// Groups of words: live positions in the words before, in the group, that of the head not counted.
    words: Vec<[u16; FAN]>,
    /// The same for groups of `FAN` words, of `FAN * FAN` words, and so on, until one group holds all.
    levels: Vec<Vec<[u32; FAN]>>,
    capacity: usize,
    /// Of another width than `count`, or compilers count both in one vector, which the next load of one waits for.
    head: u32,
    count: usize,
}

impl RankTree {
    /// Takes up to `capacity` positions, a multiple of 64.
    pub(crate) fn new(capacity: usize) -> Self {
        Self::packed(capacity, 0)
    }

    /// The first `count` positions are taken and live.
    pub(crate) fn packed(capacity: usize, count: usize) -> Self {
        let words = capacity / WORD;
        let mut tree = Self {
            live: PositionBits::packed(capacity, count),
            words: vec![[0; FAN]; words.div_ceil(FAN)],
            levels: Vec::new(),
            capacity,
            head: count as u32,
            count,
        };
        let mut groups = tree.words.len();
        while groups > 1 {
            tree.levels.push(vec![[0; FAN]; groups.div_ceil(FAN)]);
            groups = groups.div_ceil(FAN);
        }
        for word in 0..count / WORD {
            tree.count_word(word);
        }
        tree
    }

    /// Positions that there are, taken or not.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The position that is taken next.
    #[inline]
    pub(crate) fn head(&self) -> usize {
        self.head as usize
    }

    /// Live positions.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The live positions, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.live.iter()
    }

    /// Takes the position at the head. There must be one.
    #[inline]
    pub(crate) fn take(&mut self) {
        let head = self.head();
        self.live.set(head);
        self.head += 1;
        self.count += 1;
        if (head + 1) % WORD == 0 {
            self.count_word(head / WORD);
        }
    }

    /// Gives up a live position.
    #[inline]
    pub(crate) fn give_up(&mut self, position: usize) {
        self.live.clear(position);
        self.count -= 1;
        let word = position / WORD;
        if word == self.head() / WORD {
            return;
        }
        self.add_after(word, u32::MAX);
    }

    /// Adds to all that lies after a word; minus one is the largest number.
    #[inline]
    fn add_after(&mut self, word: usize, amount: u32) {
        // A compiler that sees that the first member never changes shifts its vectors by one, and a load that lies
        // across two of the last stores waits for them.
        let (masks_u16, masks_u32) = std::hint::black_box((&AFTER_U16, &AFTER_U32));
        let group = &mut self.words[word / FAN];
        let after = &masks_u16[word % FAN];
        *group = std::array::from_fn(|member| group[member].wrapping_add(amount as u16 & after[member]));
        let mut node = word / FAN;
        for level in &mut self.levels {
            let group = &mut level[node / FAN];
            let after = &masks_u32[node % FAN];
            *group = std::array::from_fn(|member| group[member].wrapping_add(amount & after[member]));
            node /= FAN;
        }
    }

    /// Moves a live position to the head, which must be free, and returns how many live ones lay after it.
    #[inline]
    pub(crate) fn renew(&mut self, position: usize) -> u64 {
        let after = self.leave(position);
        self.take();
        after as u64
    }

    /// Gives up a live position and returns how many live ones lie after it.
    #[inline]
    pub(crate) fn leave(&mut self, position: usize) -> usize {
        let after = self.count - self.rank(position);
        self.give_up(position);
        after
    }

    /// Live positions up to and including `position`.
    #[inline]
    fn rank(&self, position: usize) -> usize {
        let word = position / WORD;
        let up_to = self.live.words()[word] & (u64::MAX >> (WORD - 1 - position % WORD));
        let mut rank = up_to.count_ones() + u32::from(self.words[word / FAN][word % FAN]);
        let mut node = word / FAN;
        for level in &self.levels {
            rank += level[node / FAN][node % FAN];
            node /= FAN;
        }
        rank as usize
    }

    /// The head has left a word: it counts from now on.
    #[inline]
    fn count_word(&mut self, word: usize) {
        self.add_after(word, self.live.words()[word].count_ones());
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let levels: usize = self.levels.iter().map(Vec::capacity).sum();
        self.live.memory_bytes()
            + self.words.capacity() * size_of::<[u16; FAN]>()
            + levels * size_of::<[u32; FAN]>()
    }
}

/// For each member, all ones for those after it and zero for the others, in numbers of a type.
macro_rules! after {
    ($number:ty) => {{
        let mut masks = [[0; FAN]; FAN];
        let mut member = 0;
        while member < FAN {
            let mut after = member + 1;
            while after < FAN {
                masks[member][after] = <$number>::MAX;
                after += 1;
            }
            member += 1;
        }
        masks
    }};
}

/// Ones for the members after one: compilers turn an addition under a mask from a table into vector instructions, and
/// one under a comparison into a branch for each member.
pub(crate) static AFTER_U16: [[u16; FAN]; FAN] = after!(u16);

/// As [`AFTER_U16`].
static AFTER_U32: [[u32; FAN]; FAN] = after!(u32);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: the live positions in a list.
    fn check(capacity: usize, packed: usize, choices: &[u64]) {
        let mut tree = RankTree::packed(capacity, packed);
        let mut naive: Vec<usize> = (0..packed).collect();
        for &choice in choices {
            if tree.head() == tree.capacity() {
                break;
            }
            let index = (choice >> 8) as usize % naive.len().max(1);
            match choice % 4 {
                _ if naive.is_empty() => {
                    naive.push(tree.head());
                    tree.take();
                }
                0 => {
                    naive.push(tree.head());
                    tree.take();
                }
                1 => tree.give_up(naive.remove(index)),
                _ => {
                    let position = naive.remove(index);
                    let head = tree.head();
                    assert_eq!(tree.renew(position), (naive.len() - index) as u64);
                    naive.push(head);
                }
            }
            assert_eq!(tree.len(), naive.len());
        }
        assert!(tree.iter().eq(naive.iter().copied()));
        for (index, &position) in naive.iter().enumerate() {
            assert_eq!(tree.rank(position), index + 1);
        }
    }

    proptest! {
        #[test]
        fn ranks_are_those_of_a_list(
            choices in prop::collection::vec(any::<u64>(), 1..1500), packed in 0usize..700
        ) {
            check(2048, packed, &choices);
        }
    }

    #[test]
    fn every_level_counts() {
        // More than 16 * 16 words, so that there are groups of groups.
        let capacity = 20 * FAN * WORD;
        let choices: Vec<u64> = (0..1000).map(crate::hash::mix64).collect();
        check(capacity, capacity - 1500, &choices);
        assert_eq!(RankTree::new(capacity).levels.len(), 2);
    }
}
