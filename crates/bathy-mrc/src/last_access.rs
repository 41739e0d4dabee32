//! Where each key was last accessed: the lookup half of the LRU stack.

const EMPTY: u32 = u32::MAX;
const FIRST_SLOTS: usize = 16;

/// The most positions that an order may have: whole words below `EMPTY`.
pub(crate) const MAX_POSITIONS: usize = EMPTY as usize / 64 * 64;

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    /// Position of the last access, or `EMPTY`.
    position: u32,
}

/// A map from keys to positions and back. Linear probing without tombstones.
#[derive(Clone, Debug)]
pub(crate) struct LastAccesses {
    slots: Vec<Slot>,
    shift: u32,
    /// Slot of the key that owns a position; meaningful only where the position is live.
    slot_at: Vec<u32>,
    len: usize,
}

impl LastAccesses {
    /// No key and no memory; [`LastAccesses::renumber`] makes room for positions, and with it for keys.
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            shift: 0,
            slot_at: Vec::new(),
            len: 0,
        }
    }

    /// Puts `key` at `head` and returns where it was, or `None` at its first touch. The key that already is the last
    /// before `head` stays there.
    #[inline]
    pub(crate) fn touch(&mut self, key: u64, head: usize) -> Option<usize> {
        let mut index = self.home(key);
        loop {
            let slot = &mut self.slots[index];
            if slot.position == EMPTY {
                slot.key = key;
                slot.position = head as u32;
                self.slot_at[head] = index as u32;
                self.len += 1;
                if self.len * 4 > self.slots.len() * 3 {
                    self.set_slots(self.slots.len() * 2);
                }
                return None;
            }
            if slot.key == key {
                let position = slot.position as usize;
                if position + 1 != head {
                    slot.position = head as u32;
                    self.slot_at[head] = index as u32;
                }
                return Some(position);
            }
            index = (index + 1) & (self.slots.len() - 1);
        }
    }

    /// Makes room for `count` more keys, so that slots stay where they are while so many come.
    pub(crate) fn reserve(&mut self, count: usize) {
        let mut slots = self.slots.len();
        while (self.len + count) * 4 > slots * 3 {
            slots *= 2;
        }
        if slots > self.slots.len() {
            self.set_slots(slots);
        }
    }

    /// The slot of `key`, which is the caller's to [`LastAccesses::put`], and its position if it had one. Room must have been
    /// reserved.
    #[inline]
    pub(crate) fn claim(&mut self, key: u64) -> (u32, Option<usize>) {
        let mut index = self.home(key);
        loop {
            let slot = &mut self.slots[index];
            if slot.position == EMPTY {
                *slot = Slot { key, position: 0 };
                self.len += 1;
                return (index as u32, None);
            }
            if slot.key == key {
                return (index as u32, Some(slot.position as usize));
            }
            index = (index + 1) & (self.slots.len() - 1);
        }
    }

    /// Puts the key of a slot at `head`.
    #[inline]
    pub(crate) fn put(&mut self, slot: u32, head: usize) {
        self.slots[slot as usize].position = head as u32;
        self.slot_at[head] = slot;
    }

    /// Reads the table where each of `keys` will be looked for. The reads do not depend on each other, so their cache
    /// misses overlap, which those of successive touches cannot. Worth it for keys that are about to be touched.
    #[inline]
    pub(crate) fn warm(&self, keys: impl Iterator<Item = u64>) {
        if self.slots.is_empty() {
            return;
        }
        let touched = keys.fold(0u32, |sum, key| {
            sum.wrapping_add(self.slots[self.home(key)].position)
        });
        std::hint::black_box(touched);
    }

    /// The position of `key`.
    pub(crate) fn position(&self, key: u64) -> Option<usize> {
        self.find(key).map(|index| self.slots[index].position as usize)
    }

    /// The key at a live position.
    pub(crate) fn key_at(&self, position: usize) -> u64 {
        self.slots[self.slot_at[position] as usize].key
    }

    /// Forgets `key` and returns where it was. Later entries of the run move back over the hole.
    pub(crate) fn remove(&mut self, key: u64) -> Option<usize> {
        let index = self.find(key)?;
        let position = self.slots[index].position as usize;
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
        self.len -= 1;
        Some(position)
    }

    /// Renumbers the live positions from zero, in their order; from then on there are `positions` of them.
    pub(crate) fn renumber(&mut self, live: impl Iterator<Item = usize>, positions: usize) {
        if self.slots.is_empty() {
            self.set_slots(FIRST_SLOTS);
        }
        let mut order: Vec<u32> = live.map(|position| self.slot_at[position]).collect();
        for (position, &slot) in order.iter().enumerate() {
            self.slots[slot as usize].position = position as u32;
        }
        order.resize(positions, 0);
        self.slot_at = order;
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        // Line numbers are dense; the multiplication by a fraction of the golden ratio spreads runs of them.
        let folded = key ^ (key >> 32);
        (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn find(&self, key: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
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

    #[cold]
    fn set_slots(&mut self, count: usize) {
        assert!(count < EMPTY as usize, "more distinct keys than 32-bit slots");
        let empty = Slot {
            key: 0,
            position: EMPTY,
        };
        let old = std::mem::replace(&mut self.slots, vec![empty; count]);
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

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.slot_at.capacity() * size_of::<u32>()
    }
}
