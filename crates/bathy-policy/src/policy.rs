//! The seam between a policy and whoever drives it: the simulator or the cache engine.

use crate::index::KeyIndex;
use crate::slab::{NIL, Slab};

/// What an access did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// The key was resident.
    Hit,
    /// The key was not resident.
    Miss {
        /// Whether it is resident now. A policy may decline a newcomer.
        inserted: bool,
    },
}

impl Access {
    /// True for [`Access::Hit`].
    #[inline]
    pub fn is_hit(self) -> bool {
        matches!(self, Self::Hit)
    }
}

/// Told about every resident key that leaves, and about every key that moves from memory to the SSD.
///
/// A closure `FnMut(u64)` is a sink that hears evictions only.
pub trait EvictionSink {
    /// `key` was resident and no longer is; its line can be reused. Not called for [`Policy::remove`].
    fn evicted(&mut self, key: u64);

    /// `key` now belongs on the SSD. Only a policy with a stage in memory calls this (see
    /// [`S3FifoOptions::small_in_ram`](crate::S3FifoOptions::small_in_ram)); with any other, insertion is the write.
    fn promoted(&mut self, key: u64) {
        let _ = key;
    }
}

impl<F: FnMut(u64)> EvictionSink for F {
    #[inline]
    fn evicted(&mut self, key: u64) {
        self(key);
    }
}

/// The sink of a caller that only counts hits.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSink;

impl EvictionSink for NoSink {
    #[inline]
    fn evicted(&mut self, _key: u64) {}
}

/// A replacement policy over a fixed number of equally large lines.
///
/// Object safe: `Box<dyn Policy + Send>` works, and [`Policy::access_with`] is there when the type is known.
pub trait Policy {
    /// References `key`, inserting it on a miss and evicting as needed.
    fn access(&mut self, key: u64) -> Access;

    /// As [`Policy::access`]; `sink` hears what leaves. When it is called the key is already gone from the policy.
    fn access_with<S: EvictionSink + ?Sized>(&mut self, key: u64, sink: &mut S) -> Access
    where
        Self: Sized;

    /// As [`Policy::access_with`] for a sink whose type is not known, so that it works on `dyn Policy`.
    fn access_dyn(&mut self, key: u64, sink: &mut dyn EvictionSink) -> Access;

    /// References `key` if it is resident and says whether it was; on a miss nothing changes. This is what a caller
    /// does before it asks its admission policy, and for I/O that must not enter the cache.
    fn touch(&mut self, key: u64) -> bool;

    /// Inserts `key` as a proven resident, without evicting; false if it is resident already or the cache is full.
    /// Restoring keys in the order of [`Policy::for_each_in_restore_order`] approximates the state they came from.
    fn restore(&mut self, key: u64) -> bool;

    /// Forgets `key`, resident or remembered, after a trim or a failed line. True if it was resident.
    fn remove(&mut self, key: u64) -> bool;

    /// Whether `key` is resident. Does not count as a reference.
    fn contains(&self, key: u64) -> bool;

    /// Resident keys.
    fn len(&self) -> usize;

    /// Whether nothing is resident.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most keys that are ever resident.
    fn capacity(&self) -> usize;

    /// The name that [`PolicyKind`](crate::PolicyKind) parses.
    fn name(&self) -> &'static str;

    /// Whether newcomers are in memory until the sink hears that they are promoted.
    fn stages_in_memory(&self) -> bool;

    /// Lines written to the SSD so far, if the driver writes each line when the policy says so.
    fn flash_writes(&self) -> u64;

    /// Bytes held.
    fn memory_bytes(&self) -> usize;

    /// Calls `visit` once for each resident key, queue by queue, and within a queue those first that leave it first.
    /// [`Policy::restore`] in this order approximates the state. O(len).
    fn for_each_in_restore_order(&self, visit: &mut dyn FnMut(u64));
}

/// What one policy's file supplies: its reaction to a hit, a miss and a removal. [`Policy`] follows from it.
///
/// Implementations keep every key, resident or ghost, in one [`Slab`], so one index look-up per access finds both.
pub trait Replacement {
    /// The index under the slab.
    type Index: KeyIndex;
    /// The name that [`PolicyKind`](crate::PolicyKind) parses.
    const NAME: &'static str;

    /// The slab that holds the policy's keys.
    fn slab(&self) -> &Slab<Self::Index>;
    /// The slab that holds the policy's keys.
    fn slab_mut(&mut self) -> &mut Slab<Self::Index>;
    /// The most resident keys.
    fn capacity_lines(&self) -> usize;
    /// Resident keys.
    fn resident_len(&self) -> usize;
    /// Whether the occupied `slot` holds a resident key and not a ghost.
    fn is_resident(&self, slot: u32) -> bool;
    /// The resident key in `slot` was referenced.
    fn on_hit(&mut self, slot: u32);
    /// `key` was referenced and is not resident; `slot` is its ghost or [`NIL`]. Returns whether it is resident now.
    fn on_miss<S: EvictionSink + ?Sized>(&mut self, key: u64, slot: u32, sink: &mut S) -> bool;
    /// Forgets the key in `slot`, resident or ghost, and frees the slot.
    fn on_remove(&mut self, slot: u32);
    /// Calls `visit` for each resident slot in the order that [`Policy::for_each_in_restore_order`] describes.
    fn for_each_slot_in_restore_order(&self, visit: &mut dyn FnMut(u32));

    /// Inserts a key that is known to be worth keeping while there is room; `slot` is its ghost or [`NIL`].
    fn on_restore(&mut self, key: u64, slot: u32) {
        self.on_miss(key, slot, &mut NoSink);
    }

    /// Bytes held, the slab's included.
    fn bytes_held(&self) -> usize {
        self.slab().memory_bytes()
    }

    /// See [`Policy::stages_in_memory`].
    fn has_memory_stage(&self) -> bool {
        false
    }

    /// Lines written to the SSD.
    fn lines_written(&self) -> u64 {
        self.slab().insertions()
    }
}

impl<R: Replacement> Policy for R {
    #[inline]
    fn access(&mut self, key: u64) -> Access {
        self.access_with(key, &mut NoSink)
    }

    #[inline]
    fn access_with<S: EvictionSink + ?Sized>(&mut self, key: u64, sink: &mut S) -> Access {
        let slot = self.slab().find(key);
        if slot != NIL && self.is_resident(slot) {
            self.on_hit(slot);
            return Access::Hit;
        }
        let inserted = self.on_miss(key, slot, sink);
        self.slab_mut().count_insertion(inserted);
        debug_assert!(self.resident_len() <= self.capacity_lines());
        Access::Miss { inserted }
    }

    fn access_dyn(&mut self, key: u64, sink: &mut dyn EvictionSink) -> Access {
        self.access_with(key, sink)
    }

    #[inline]
    fn touch(&mut self, key: u64) -> bool {
        let slot = self.slab().find(key);
        let resident = slot != NIL && self.is_resident(slot);
        if resident {
            self.on_hit(slot);
        }
        resident
    }

    fn restore(&mut self, key: u64) -> bool {
        let slot = self.slab().find(key);
        if self.resident_len() >= self.capacity_lines() || (slot != NIL && self.is_resident(slot)) {
            return false;
        }
        self.on_restore(key, slot);
        self.contains(key)
    }

    fn remove(&mut self, key: u64) -> bool {
        let slot = self.slab().find(key);
        if slot == NIL {
            return false;
        }
        let resident = self.is_resident(slot);
        self.on_remove(slot);
        resident
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        let slot = self.slab().find(key);
        slot != NIL && self.is_resident(slot)
    }

    fn len(&self) -> usize {
        self.resident_len()
    }

    fn capacity(&self) -> usize {
        self.capacity_lines()
    }

    fn name(&self) -> &'static str {
        R::NAME
    }

    fn stages_in_memory(&self) -> bool {
        self.has_memory_stage()
    }

    fn flash_writes(&self) -> u64 {
        self.lines_written()
    }

    fn memory_bytes(&self) -> usize {
        self.bytes_held()
    }

    fn for_each_in_restore_order(&self, visit: &mut dyn FnMut(u64)) {
        self.for_each_slot_in_restore_order(&mut |slot| visit(self.slab().key(slot)));
    }
}
