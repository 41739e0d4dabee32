//! The LRU stack as an order-statistic structure over access times.
//!
//! The stack distance of an access is the number of distinct other keys touched since the last access to its key
//! (Mattson et al., 1970); the access hits in an LRU cache of `c` lines exactly when the distance is below `c`.
//! Each live key owns the position of its last access. Positions are only ever taken at the end; when they run out,
//! the live ones are renumbered in order, so memory is bounded by the number of distinct live keys, never by the
//! length of the trace.
//!
//! Two structures meet in positions: where a key was last ([`LastAccesses`], a hash probe that misses the cache), and how many
//! live positions lie after that ([`RankTree`], arithmetic on small tables).

use crate::chunk::{Chunk, FIRST_TOUCH, Searched};
use crate::last_access::{LastAccesses, MAX_POSITIONS};
use crate::rank::RankTree;

const FIRST_POSITIONS: usize = 64;

/// Keys whose table entries are read ahead together.
pub(crate) const WARM_AHEAD: usize = 64;

/// A set of keys ordered by last access, with the rank of a key in O(log n).
#[derive(Clone, Debug)]
pub struct LruStack {
    last_accesses: LastAccesses,
    ranks: RankTree,
    /// Slots of the keys of a chunk, kept for its memory only.
    chunk_slots: Vec<u32>,
}

impl Default for LruStack {
    fn default() -> Self {
        Self::new()
    }
}

impl LruStack {
    /// An empty stack, which takes no memory: there may be very many, of which most see few keys.
    pub fn new() -> Self {
        Self {
            last_accesses: LastAccesses::new(),
            ranks: RankTree::new(0),
            chunk_slots: Vec::new(),
        }
    }

    /// Number of distinct live keys.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Whether no key is live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held, for the memory statements of the callers.
    pub fn memory_bytes(&self) -> usize {
        self.last_accesses.memory_bytes()
            + self.ranks.memory_bytes()
            + self.chunk_slots.capacity() * size_of::<u32>()
    }

    /// Moves `key` to the top and returns its distance before that, or `None` at the first touch.
    #[inline]
    pub fn access(&mut self, key: u64) -> Option<u64> {
        self.make_room(1);
        let head = self.ranks.head();
        match self.last_accesses.touch(key, head) {
            None => {
                self.ranks.take();
                None
            }
            Some(position) if position + 1 == head => Some(0),
            Some(position) => Some(self.ranks.renew(position)),
        }
    }

    /// The distances of a chunk of accesses; [`LruStack::distance_of`] reads them.
    pub(crate) fn access_chunk(&mut self, chunk: &Chunk) -> Vec<u32> {
        match chunk {
            Chunk::Searched(chunk) => self.resolve(chunk),
            Chunk::Plain(keys) => {
                let mut distances = Vec::with_capacity(keys.len());
                for keys in keys.chunks(WARM_AHEAD) {
                    self.warm(keys.iter().copied());
                    // Distances are below the number of positions, which 32 bits hold.
                    let each = keys.iter().map(|&key| self.access(key));
                    distances.extend(
                        each.map(|distance| distance.map_or(FIRST_TOUCH, |distance| distance as u32)),
                    );
                }
                distances
            }
        }
    }

    /// Gives the first touches of a chunk their distances, and moves all its keys to the top in the order of their last
    /// touches.
    ///
    /// The keys leave the stack at their first touch and come back together, so a distance is the number of keys that
    /// are still above, and the keys of the chunk that were touched before.
    fn resolve(&mut self, chunk: &Searched) -> Vec<u32> {
        self.make_room(chunk.keys.len());
        self.last_accesses.reserve(chunk.keys.len());
        let mut distances = chunk.distances.clone();
        self.chunk_slots.clear();
        let mut first_touches = chunk.first_touches.iter().enumerate();
        for keys in chunk.keys.chunks(WARM_AHEAD) {
            self.warm(keys.iter().copied());
            for (&key, (touched, &access)) in keys.iter().zip(&mut first_touches) {
                let (slot, position) = self.last_accesses.claim(key);
                self.chunk_slots.push(slot);
                if let Some(position) = position {
                    distances[usize::from(access)] = (touched + self.ranks.leave(position)) as u32;
                }
            }
        }
        for &index in &chunk.by_last_touch {
            self.last_accesses
                .put(self.chunk_slots[usize::from(index)], self.ranks.head());
            self.ranks.take();
        }
        distances
    }

    /// What a chunk says of an access.
    #[inline]
    pub(crate) fn distance_of(distance: u32) -> Option<u64> {
        (distance != FIRST_TOUCH).then_some(u64::from(distance))
    }

    /// Reads the table where each of `keys` will be looked for, all at once: see [`LastAccesses::warm`].
    #[inline]
    pub fn warm(&self, keys: impl Iterator<Item = u64>) {
        self.last_accesses.warm(keys);
    }

    /// As [`LruStack::access`] where the distance does not matter: half the work.
    pub fn raise(&mut self, key: u64) {
        self.make_room(1);
        let head = self.ranks.head();
        match self.last_accesses.touch(key, head) {
            Some(position) if position + 1 == head => {}
            before => {
                if let Some(position) = before {
                    self.ranks.give_up(position);
                }
                self.ranks.take();
            }
        }
    }

    /// Whether `key` is live.
    pub fn contains(&self, key: u64) -> bool {
        self.last_accesses.position(key).is_some()
    }

    /// Forgets `key`; distances measured later no longer count it. Returns whether it was live.
    pub fn remove(&mut self, key: u64) -> bool {
        let position = self.last_accesses.remove(key);
        if let Some(position) = position {
            self.ranks.give_up(position);
        }
        position.is_some()
    }

    /// Live keys from the least to the most recently used.
    pub fn keys_oldest_first(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranks
            .iter()
            .map(|position| self.last_accesses.key_at(position))
    }

    /// Renumbers the live positions when fewer than `count` are left. There are doubly as many from then on when more
    /// than a quarter is live, so that the cost of a renumbering is spread over at least three times as many accesses
    /// as it moves keys.
    #[inline]
    fn make_room(&mut self, count: usize) {
        if self.ranks.head() + count > self.ranks.capacity() {
            self.renumber(count);
        }
    }

    #[cold]
    fn renumber(&mut self, count: usize) {
        let mut positions = self.ranks.capacity().max(FIRST_POSITIONS);
        while positions < MAX_POSITIONS && (self.len() * 4 > positions || self.len() + count > positions) {
            positions = (positions * 2).min(MAX_POSITIONS);
        }
        assert!(
            self.len() + count <= positions,
            "more distinct keys than 32-bit positions"
        );
        self.last_accesses.renumber(self.ranks.iter(), positions);
        self.ranks = RankTree::packed(positions, self.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{CHUNK, ChunkSearch};
    use proptest::prelude::*;

    /// The definition, in O(n) per access.
    #[derive(Default)]
    struct NaiveStack(Vec<u64>);

    impl NaiveStack {
        fn access(&mut self, key: u64) -> Option<u64> {
            let found = self.0.iter().rev().position(|&k| k == key);
            if let Some(distance) = found {
                let index = self.0.len() - 1 - distance;
                self.0.remove(index);
            }
            self.0.push(key);
            found.map(|d| d as u64)
        }
    }

    proptest! {
        #[test]
        fn equals_the_naive_stack_with_removals(
            ops in prop::collection::vec((0u64..400, 0u8..20), 1..3000)
        ) {
            let mut fast = LruStack::new();
            let mut naive = NaiveStack::default();
            for (key, kind) in ops {
                if kind == 0 {
                    let expected = naive.0.iter().position(|&k| k == key);
                    if let Some(index) = expected {
                        naive.0.remove(index);
                    }
                    prop_assert_eq!(fast.remove(key), expected.is_some());
                } else {
                    prop_assert_eq!(fast.access(key), naive.access(key));
                }
            }
            prop_assert_eq!(fast.keys_oldest_first().collect::<Vec<_>>(), naive.0);
        }
    }

    #[test]
    fn chunks_give_the_same_distances_and_order_as_single_accesses() {
        let keys: Vec<u64> = (0..400_000u64)
            .map(|step| {
                let random = crate::hash::mix64(step);
                // Half of it repeats little, so that some chunks are not searched.
                random
                    % [50, 1 + step / 8, 1 << 20, 1 << 20]
                        [(random >> 40) as usize % 2 + (step >> 18) as usize * 2]
            })
            .collect();
        let (mut single, mut in_chunks) = (LruStack::new(), LruStack::new());
        let mut search = ChunkSearch::default();
        let mut plain = 0;
        for (length, part) in [1, 2, 63, 777, 2 * CHUNK]
            .into_iter()
            .cycle()
            .zip(keys.chunks(20_000))
        {
            for keys in part.chunks(length) {
                let chunks = search.chunks(keys);
                plain += chunks
                    .iter()
                    .filter(|chunk| matches!(chunk, Chunk::Plain(_)))
                    .count();
                let distances = chunks.iter().flat_map(|chunk| in_chunks.access_chunk(chunk));
                assert!(
                    keys.iter()
                        .map(|&key| single.access(key))
                        .eq(distances.map(LruStack::distance_of))
                );
            }
            assert!(in_chunks.keys_oldest_first().eq(single.keys_oldest_first()));
        }
        assert!(plain > 0);
    }

    #[test]
    fn an_empty_stack_takes_no_memory_and_one_of_few_keys_little() {
        let mut stack = LruStack::new();
        assert_eq!(stack.memory_bytes(), 0);
        assert!(!stack.contains(1) && !stack.remove(1));
        stack.warm(0..10);
        stack.raise(1);
        assert_eq!((stack.access(2), stack.access(1)), (None, Some(1)));
        assert!(stack.memory_bytes() < 1024, "{}", stack.memory_bytes());
    }

    #[test]
    fn survives_compaction_and_growth() {
        let mut stack = LruStack::new();
        let mut naive = NaiveStack::default();
        let mut state = 1u64;
        for step in 0..60_000u64 {
            state = crate::hash::mix64(state.wrapping_add(step));
            let key = if step % 3 == 0 { state % 37 } else { state % 2500 };
            assert_eq!(stack.access(key << 33), naive.access(key << 33));
        }
        assert!(
            stack.memory_bytes() < 2500 * 400,
            "memory follows distinct keys, not accesses"
        );
    }
}
