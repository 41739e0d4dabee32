//! A hash table of slots in four bytes a bucket: what it holds is compared by its owner.
//!
//! Open addressing with linear probing. A bucket holds a slot and, in the
//! bits that slot numbers leave free, the distance from the entry's home and then up to eight bits of its hash. An entry is
//! compared only where both agree, and deletion closes the gap by shifting entries back, mostly without reading a key:
//! only the home of an entry that lies farther off than its bits can say is asked for. There are no tombstones, which
//! would slow down a cache that has run for a year.
//!
//! Not hashbrown's `HashTable<u32>` (measured with version 0.17 against eight-byte buckets): it is 1.3 to 2.3 times as
//! fast in a cache of 20,000 lines, but at 1 million lines LRU runs at 0.73 of the speed because the control bytes are one
//! more miss of the processor's cache per look-up, and deletions leave tombstones, for which the table doubles.
//!
//! Limits: the table does not grow. With more than 2^28 slots the distance has less than four bits, so that more homes must
//! be asked for.

use crate::slots::NIL;

/// Bits of a bucket for the distance, where slot numbers leave as many.
const DISTANCE_BITS: u32 = 4;

/// The bits of the lower half of a hash that a bucket may hold. Ghosts are known by these and the upper half.
const HASH_BITS: u32 = 0xff << 24;

/// A free bucket. No entry looks like it, because no slot has all bits set.
const FREE: u32 = u32::MAX;

/// See the [module](self).
#[derive(Debug, Clone)]
pub(crate) struct SlotTable {
    /// From the top: bits of the hash, distance, slot.
    buckets: Vec<u32>,
    slot_mask: u32,
    /// A distance of 1 in its place, or 0 if there is no room for distances.
    step: u32,
    /// The bits of the distance in their place. Distances that are longer are stored as the longest.
    distance_mask: u32,
    /// The bits of the hash that a bucket has room for, in their place.
    hash_mask: u32,
}

impl SlotTable {
    /// A table of so many buckets, which must be more than the entries that it will have, for slots below `slots_end`. With
    /// two thirds of the buckets in use a look-up that finds its key looks at two on average, with three quarters at 2.5,
    /// and LRU over a real trace then runs at 0.8 of the speed.
    pub(crate) fn new(buckets: usize, slots_end: usize) -> Self {
        assert!(slots_end < NIL as usize, "a table holds slots below 2^32 - 1");
        let slot_bits = usize::BITS - slots_end.leading_zeros();
        let distance_bits = (u32::BITS - slot_bits).min(DISTANCE_BITS);
        let mask = |bits: u32| ((1u64 << bits) - 1) as u32;
        Self {
            buckets: vec![FREE; buckets],
            slot_mask: mask(slot_bits),
            step: (1u64 << slot_bits) as u32,
            distance_mask: mask(slot_bits + distance_bits) & !mask(slot_bits),
            hash_mask: HASH_BITS & !mask(slot_bits + distance_bits),
        }
    }

    /// Maps the range of the upper hash halves onto the buckets in order, without a division (Lemire 2019).
    #[inline]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() {
            0
        } else {
            bucket + 1
        }
    }

    /// The distance bits of the bucket after one with `distance`.
    #[inline]
    fn farther(&self, distance: u32) -> u32 {
        if distance == self.distance_mask {
            distance
        } else {
            distance + self.step
        }
    }

    /// The slot of the entry with this hash that `is_it` recognises, or [`NIL`].
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> u32 {
        let known = hash as u32 & self.hash_mask;
        let mut bucket = self.home(hash);
        let mut distance = 0;
        loop {
            let entry = self.buckets[bucket];
            if entry == FREE {
                return NIL;
            }
            let slot = entry & self.slot_mask;
            if entry ^ slot == known | distance && is_it(slot) {
                return slot;
            }
            bucket = self.next(bucket);
            distance = self.farther(distance);
        }
    }

    /// Adds an entry.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, slot: u32) {
        let mut bucket = self.home(hash);
        let mut distance = 0;
        while self.buckets[bucket] != FREE {
            bucket = self.next(bucket);
            distance = self.farther(distance);
        }
        self.buckets[bucket] = (hash as u32 & self.hash_mask) | distance | slot;
    }

    /// The bucket of an entry that is there.
    #[inline]
    fn bucket_of(&self, hash: u64, slot: u32) -> usize {
        let mut bucket = self.home(hash);
        while self.buckets[bucket] & self.slot_mask != slot {
            debug_assert_ne!(self.buckets[bucket], FREE, "the entry is present");
            bucket = self.next(bucket);
        }
        bucket
    }

    /// Gives an entry another slot.
    #[inline]
    pub(crate) fn replace(&mut self, hash: u64, slot: u32, by: u32) {
        let bucket = self.bucket_of(hash, slot);
        self.buckets[bucket] ^= slot ^ by;
    }

    /// Removes an entry; `hash_of` knows the upper half of the hash of every other slot.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        let mut gap = self.bucket_of(hash, slot);
        let mut gap_to_bucket = 0;
        let mut bucket = gap;
        loop {
            bucket = self.next(bucket);
            gap_to_bucket += 1;
            let entry = self.buckets[bucket];
            if entry == FREE {
                break;
            }
            let slot = entry & self.slot_mask;
            let stored = entry & self.distance_mask;
            let distance = if stored == self.distance_mask {
                let home = self.home(hash_of(slot));
                let wraps = if home > bucket { self.buckets.len() } else { 0 };
                bucket + wraps - home
            } else {
                (stored / self.step) as usize
            };
            // The entry may move into the gap unless its home lies after the gap.
            if distance >= gap_to_bucket {
                let longest = (self.distance_mask / self.step.max(1)) as usize;
                let distance = (distance - gap_to_bucket).min(longest) as u32;
                self.buckets[gap] = (entry & self.hash_mask) | (distance * self.step) | slot;
                gap = bucket;
                gap_to_bucket = 0;
            }
        }
        self.buckets[gap] = FREE;
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::mix;

    /// Keys return often and probes run into each other and around the end; with any number of bits left for distances.
    #[test]
    fn it_equals_a_list_through_collisions_and_deletions_whatever_bits_are_free() {
        for slots_end in [48, 1 << 20, 1 << 27, 1 << 29, (1 << 30) + 5, (1 << 31) + 5] {
            let mut table = SlotTable::new(64, slots_end);
            // Few different homes, so that distances are long. The slot of an entry is its index in `keys`, at the far end.
            let hash = |key: u64| mix(key) & !(0xf << 60) | (key % 3) << 60;
            let first = (slots_end - 48) as u32;
            let mut keys = [None; 48];
            let mut state = 1u64;
            for _ in 0..100_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let key = (state >> 33) % 97;
                let held = keys.iter().position(|&held| held == Some(key));
                let found = table.find(hash(key), |slot| keys[(slot - first) as usize] == Some(key));
                assert_eq!(found, held.map_or(NIL, |index| first + index as u32));
                if let Some(index) = held {
                    let hash_of = |slot: u32| hash(keys[(slot - first) as usize].expect("held"));
                    table.remove(hash(key), first + index as u32, hash_of);
                    keys[index] = None;
                } else if let Some(index) = keys.iter().position(Option::is_none) {
                    table.insert(hash(key), first + index as u32);
                    keys[index] = Some(key);
                }
            }
            let used = table.buckets.iter().filter(|&&entry| entry != FREE).count();
            assert_eq!(used, keys.iter().flatten().count());
        }
    }

    #[test]
    fn a_slot_is_replaced_in_place() {
        let mut table = SlotTable::new(12, 100);
        (0..8).for_each(|slot| table.insert(7, slot));
        table.replace(7, 3, 99);
        assert_eq!(table.find(7, |slot| slot == 99), 99);
        assert_eq!(table.find(7, |slot| slot == 3), NIL);
        (0..8)
            .filter(|&slot| slot != 3)
            .for_each(|slot| table.remove(7, slot, |_| 7));
        assert_eq!(table.find(7, |_| true), 99);
    }
}
