//! The LRU stack as an order-statistic structure over access times.
//!
//! The stack distance of an access is the number of distinct other keys touched since the last access to its key
//! (Mattson et al., 1970); the access hits in an LRU cache of `c` lines exactly when the distance is below `c`.
//! Each live key owns one bit at the position of its last access. A Fenwick tree over blocks of 256 bits counts the
//! bits before a position, so an access costs one hash probe and a walk over a tree that fits the first cache
//! levels. Positions are only ever taken at the end; when they run out, the live ones are renumbered in order, so
//! memory is bounded by the number of distinct live keys, never by the length of the trace.

const WORDS_PER_BLOCK: usize = 4;
const POSITIONS_PER_BLOCK: usize = WORDS_PER_BLOCK * 64;
const EMPTY: u32 = u32::MAX;
const INITIAL_POSITIONS: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    /// Position of the last access, or `EMPTY`.
    position: u32,
}

/// A set of keys ordered by last access, with the rank of a key in O(log n).
#[derive(Clone, Debug)]
pub struct LruStack {
    slots: Vec<Slot>,
    shift: u32,
    /// Slot of the key that owns a position; meaningful only where the bit is set.
    slot_at: Vec<u32>,
    bits: Vec<u64>,
    fenwick: Vec<u32>,
    head: usize,
    live: usize,
}

impl Default for LruStack {
    fn default() -> Self {
        Self::new()
    }
}

impl LruStack {
    /// An empty stack.
    pub fn new() -> Self {
        let mut stack = Self {
            slots: Vec::new(),
            shift: 0,
            slot_at: Vec::new(),
            bits: Vec::new(),
            fenwick: Vec::new(),
            head: 0,
            live: 0,
        };
        stack.set_slots(1024);
        stack.set_positions(INITIAL_POSITIONS);
        stack
    }

    /// Number of distinct live keys.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether no key is live.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Bytes held, for the memory statements of the callers.
    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + (self.slot_at.capacity() + self.fenwick.capacity()) * 4
            + self.bits.capacity() * 8
    }

    /// Moves `key` to the top and returns its distance before that, or `None` at the first touch.
    #[inline]
    pub fn access(&mut self, key: u64) -> Option<u64> {
        if self.head == self.slot_at.len() {
            self.compact();
        }
        let mut index = self.home(key);
        loop {
            let slot = self.slots[index];
            if slot.position == EMPTY {
                self.insert_at(index, key);
                return None;
            }
            if slot.key == key {
                return Some(self.touch(index, slot.position as usize));
            }
            index = (index + 1) & (self.slots.len() - 1);
        }
    }

    /// Reads the table where each of `keys` will be looked for. The reads do not depend on each other, so their cache
    /// misses overlap, which those of successive accesses cannot. Worth it for keys that are about to be accessed.
    #[inline]
    pub fn warm(&self, keys: impl Iterator<Item = u64>) {
        let touched = keys.fold(0u32, |sum, key| {
            sum.wrapping_add(self.slots[self.home(key)].position)
        });
        std::hint::black_box(touched);
    }

    /// As [`LruStack::access`] where the distance does not matter: half the work.
    pub fn raise(&mut self, key: u64) {
        if let Some(index) = self.find(key) {
            if self.head == self.slot_at.len() {
                self.compact();
            }
            self.clear_position(self.slots[index].position as usize);
            self.take_position(index);
        } else {
            self.access(key);
        }
    }

    /// Whether `key` is live.
    pub fn contains(&self, key: u64) -> bool {
        self.find(key).is_some()
    }

    /// Forgets `key`; distances measured later no longer count it. Returns whether it was live.
    pub fn remove(&mut self, key: u64) -> bool {
        let Some(index) = self.find(key) else { return false };
        self.clear_position(self.slots[index].position as usize);
        self.live -= 1;
        self.erase_slot(index);
        true
    }

    /// Live keys from the least to the most recently used.
    pub fn keys_oldest_first(&self) -> impl Iterator<Item = u64> + '_ {
        self.positions_oldest_first()
            .map(|position| self.slots[self.slot_at[position] as usize].key)
    }

    fn positions_oldest_first(&self) -> impl Iterator<Item = usize> + '_ {
        self.bits.iter().enumerate().flat_map(|(word_index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(word_index * 64 + bit)
            })
        })
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        // Line numbers are dense; the multiplication by a fraction of the golden ratio spreads runs of them.
        let folded = key ^ (key >> 32);
        (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn find(&self, key: u64) -> Option<usize> {
        let mut index = self.home(key);
        loop {
            let slot = self.slots[index];
            if slot.position == EMPTY {
                return None;
            }
            if slot.key == key {
                return Some(index);
            }
            index = (index + 1) & (self.slots.len() - 1);
        }
    }

    #[inline]
    fn touch(&mut self, index: usize, position: usize) -> u64 {
        if position + 1 == self.head {
            return 0;
        }
        let distance = self.live - self.rank(position);
        self.clear_position(position);
        self.take_position(index);
        distance as u64
    }

    fn insert_at(&mut self, index: usize, key: u64) {
        self.slots[index].key = key;
        self.take_position(index);
        self.live += 1;
        if self.live * 4 > self.slots.len() * 3 {
            self.set_slots(self.slots.len() * 2);
        }
    }

    #[inline]
    fn take_position(&mut self, index: usize) {
        let position = self.head;
        self.head += 1;
        self.slots[index].position = position as u32;
        self.slot_at[position] = index as u32;
        self.bits[position / 64] |= 1u64 << (position % 64);
        let blocks = self.fenwick.len();
        let mut node = position / POSITIONS_PER_BLOCK + 1;
        while node < blocks {
            self.fenwick[node] += 1;
            node += node & node.wrapping_neg();
        }
    }

    #[inline]
    fn clear_position(&mut self, position: usize) {
        self.bits[position / 64] &= !(1u64 << (position % 64));
        let blocks = self.fenwick.len();
        let mut node = position / POSITIONS_PER_BLOCK + 1;
        while node < blocks {
            self.fenwick[node] -= 1;
            node += node & node.wrapping_neg();
        }
    }

    /// Number of live positions up to and including `position`.
    #[inline]
    fn rank(&self, position: usize) -> usize {
        let mut node = position / POSITIONS_PER_BLOCK;
        let word_index = position / 64;
        let mut count = 0u32;
        for &word in &self.bits[node * WORDS_PER_BLOCK..word_index] {
            count += word.count_ones();
        }
        count += (self.bits[word_index] & (u64::MAX >> (63 - position % 64))).count_ones();
        while node > 0 {
            count += self.fenwick[node];
            node &= node - 1;
        }
        count as usize
    }

    /// Linear probing without tombstones: later entries of the run move back over the hole.
    fn erase_slot(&mut self, index: usize) {
        let mask = self.slots.len() - 1;
        let mut hole = index;
        let mut probe = index;
        loop {
            probe = (probe + 1) & mask;
            let slot = self.slots[probe];
            if slot.position == EMPTY {
                break;
            }
            let home = self.home(slot.key);
            if (probe.wrapping_sub(home) & mask) >= (probe.wrapping_sub(hole) & mask) {
                self.slots[hole] = slot;
                self.slot_at[slot.position as usize] = hole as u32;
                hole = probe;
            }
        }
        self.slots[hole].position = EMPTY;
    }

    fn set_slots(&mut self, count: usize) {
        assert!(count < EMPTY as usize, "more distinct keys than 32-bit slots");
        let old = std::mem::replace(
            &mut self.slots,
            vec![
                Slot {
                    key: 0,
                    position: EMPTY
                };
                count
            ],
        );
        self.shift = 64 - count.trailing_zeros();
        for slot in old.into_iter().filter(|slot| slot.position != EMPTY) {
            let mut index = self.home(slot.key);
            while self.slots[index].position != EMPTY {
                index = (index + 1) & (count - 1);
            }
            self.slots[index] = slot;
            self.slot_at[slot.position as usize] = index as u32;
        }
    }

    fn set_positions(&mut self, count: usize) {
        assert!(count < EMPTY as usize, "more positions than 32 bits");
        self.slot_at = vec![0; count];
        self.bits = vec![0; count / 64];
        self.fenwick = vec![0; count / POSITIONS_PER_BLOCK + 1];
        self.head = 0;
    }

    /// Renumbers the live positions; doubles their number when more than a quarter is live, so that the cost of a
    /// renumbering is spread over at least three times as many accesses as it moves keys.
    #[cold]
    fn compact(&mut self) {
        let order: Vec<u32> = self
            .positions_oldest_first()
            .map(|position| self.slot_at[position])
            .collect();
        let mut count = self.slot_at.len();
        while self.live * 4 > count {
            count *= 2;
        }
        self.set_positions(count);
        for &slot in &order {
            let position = self.head;
            self.slots[slot as usize].position = position as u32;
            self.slot_at[position] = slot;
            self.bits[position / 64] |= 1u64 << (position % 64);
            self.head += 1;
        }
        self.rebuild_fenwick();
    }

    fn rebuild_fenwick(&mut self) {
        let blocks = self.fenwick.len();
        for node in 1..blocks {
            let start = (node - 1) * WORDS_PER_BLOCK;
            self.fenwick[node] += self.bits[start..start + WORDS_PER_BLOCK]
                .iter()
                .map(|word| word.count_ones())
                .sum::<u32>();
            let parent = node + (node & node.wrapping_neg());
            if parent < blocks {
                self.fenwick[parent] += self.fenwick[node];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
