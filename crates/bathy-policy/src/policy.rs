//! The interface between a policy and its driver, and what the policies of one slab share.

use crate::index::KeyIndex;
use crate::slab::Slab;
use crate::slots::{FIRST_SLOT, NIL, QUEUES};

/// What an access did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// The key was resident.
    Hit,
    /// The key was not resident; it is now, unless every line in its way was pinned.
    Miss,
}

impl Access {
    /// True for [`Access::Hit`].
    #[inline]
    pub fn is_hit(self) -> bool {
        self == Self::Hit
    }
}

/// A line that left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Victim {
    /// Its key.
    pub key: u64,
    /// The slot that it had.
    pub slot: u32,
}

/// A line that moved from memory to the SSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promotion {
    /// Its key.
    pub key: u64,
    /// The slot that it had, in memory.
    pub from: u32,
    /// The slot that it has, on the SSD: that of the victim, if there is one.
    pub to: u32,
}

/// What an insertion did, in this order: the victim left, a line was promoted, the newcomer took its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// The slot of the newcomer.
    pub slot: u32,
    /// Who left for it.
    pub victim: Option<Victim>,
    /// Who moved for it.
    pub promotion: Option<Promotion>,
}

/// A replacement policy over a fixed number of equally large lines.
///
/// Every resident line has a slot: a place on the SSD or, with a stage, in memory. What a driver keeps of a line it keeps
/// by slot. Between an insertion and the moment at which the line has its data a driver pins it: [`Policy::unpin`] commits
/// the insertion, [`Policy::remove`] drops it.
pub trait Policy {
    /// Looks `key` up: its slot, if it is resident, which counts as a reference. On a miss nothing changes.
    fn reference(&mut self, key: u64) -> Option<u32>;

    /// The slot of `key`, if it is resident. Does not count as a reference.
    fn find(&self, key: u64) -> Option<u32>;

    /// Makes room and inserts `key`, which must not be resident. `None` if it would need the place of a pinned line.
    fn insert(&mut self, key: u64) -> Option<Inserted>;

    /// [`Policy::insert`] without a write to the SSD: the newcomer enters the memory, and who leaves it is not promoted. `None`
    /// where that cannot be.
    fn insert_in_memory(&mut self, key: u64) -> Option<Inserted> {
        let _ = key;
        None
    }

    /// References `key`, inserting it on a miss.
    fn access(&mut self, key: u64) -> Access {
        if self.reference(key).is_some() {
            return Access::Hit;
        }
        self.insert(key);
        Access::Miss
    }

    /// The line in an occupied slot neither leaves nor moves until it is unpinned. There is one pin, not a count.
    fn pin(&mut self, slot: u32);

    /// Ends [`Policy::pin`].
    fn unpin(&mut self, slot: u32);

    /// Whether the line in an occupied slot is pinned.
    fn is_pinned(&self, slot: u32) -> bool;

    /// Forgets `key`, resident or ghost, pinned or not, after a trim or a failed line. The slot that it had, if it was
    /// resident.
    fn remove(&mut self, key: u64) -> Option<u32>;

    /// Resident keys.
    fn len(&self) -> usize;

    /// Whether nothing is resident.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most keys that are ever resident.
    fn capacity(&self) -> usize;

    /// All slots are below this number. Only an insertion raises it, and only with a [`DenseIndex`](crate::DenseIndex).
    ///
    /// It is the capacity in the policies that a cache can run: LRU with a [`HashIndex`](crate::HashIndex), S3-FIFO and
    /// `Clock2Q+`. Elsewhere ghosts have slots too.
    fn slots_end(&self) -> usize;

    /// The most lines that are in memory.
    fn memory_lines(&self) -> usize {
        0
    }

    /// Lines that are in memory now.
    fn lines_in_memory(&self) -> usize {
        0
    }

    /// Whether a line in this slot is in memory, not on the SSD.
    fn is_in_memory(&self, slot: u32) -> bool {
        let _ = slot;
        false
    }

    /// Bytes held.
    fn memory_bytes(&self) -> usize;

    /// The key of the line in a slot, if there is one.
    fn key_at(&self, slot: u32) -> Option<u64>;

    /// Calls `visit` with the key and the slot of each resident line.
    fn for_each_resident(&self, visit: &mut dyn FnMut(u64, u32));
}

/// What is particular to one policy: its queues and its reaction to a hit and a miss. [`SlabPolicy`] adds what all
/// policies of one slab share.
///
/// Every key, resident or ghost, has a slot in one [`Slab`], so one index look-up per access finds both. The default
/// methods are those of a policy with a single queue of residents.
pub trait Replacement: Sized {
    /// The policy's parameters; the defaults are those of its paper.
    type Options: Default;
    /// Queues below this number hold residents; the others hold ghosts.
    const RESIDENT_QUEUES: u8 = QUEUES as u8;

    /// The most ghosts of a cache of `capacity` lines.
    fn ghosts_max(_capacity: usize, _options: &Self::Options) -> usize {
        0
    }

    /// The policy of an empty cache of `capacity` lines, whose slots are below `slots_end` for now.
    fn new(capacity: usize, slots_end: usize, options: &Self::Options) -> Self;

    /// The resident key in `slot` was referenced.
    fn on_hit<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32);

    /// Removes the victim from a full cache. There is a line that is not pinned, and no pinned line leaves.
    #[inline]
    fn evict<I: KeyIndex>(&mut self, slab: &mut Slab<I>) -> Victim {
        slab.evict(slab.oldest_unpinned(0))
    }

    /// `key` was referenced and is not resident; `ghost` is its slot or [`NIL`]. Makes it resident; the slot and who left.
    /// If the cache is full there is a line that is not pinned.
    #[inline]
    fn on_miss<I: KeyIndex>(&mut self, slab: &mut Slab<I>, key: u64, _ghost: u32) -> (u32, Option<Victim>) {
        let victim = (slab.len(0) == slab.capacity()).then(|| self.evict(slab));
        (slab.insert(key, 0), victim)
    }

    /// Forgets the key in `slot`, resident or ghost, and frees the slot.
    fn on_remove<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        slab.remove(slot);
    }

    /// Bytes held besides the slab and the value itself.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// A policy: the slab of its keys and its [`Replacement`].
#[derive(Debug, Clone)]
pub struct SlabPolicy<R, I> {
    pub(crate) slab: Slab<I>,
    pub(crate) rules: R,
}

pub(crate) fn check_capacity(capacity: usize) {
    assert!(
        (1..=1 << 30).contains(&capacity),
        "capacity must be 1 to 2^30 lines (got {capacity})"
    );
}

impl<R: Replacement, I: KeyIndex> SlabPolicy<R, I> {
    /// An empty cache of `capacity` lines with the default options.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than 2^30 lines.
    pub fn new(capacity: usize, config: I::Config) -> Self {
        Self::with_options(capacity, config, R::Options::default())
    }

    /// An empty cache of `capacity` lines.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than 2^30 lines, or an option is outside its range.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "options are small and written in place"
    )]
    pub fn with_options(capacity: usize, config: I::Config, options: R::Options) -> Self {
        check_capacity(capacity);
        let slab = Slab::new(capacity, capacity + R::ghosts_max(capacity, &options), config);
        Self {
            rules: R::new(capacity, slab.slots_end(), &options),
            slab,
        }
    }

    #[inline]
    fn is_resident(&self, slot: u32) -> bool {
        slot != NIL && (R::RESIDENT_QUEUES == QUEUES as u8 || self.slab.queue(slot) < R::RESIDENT_QUEUES)
    }

    /// The slot of a resident key.
    #[inline]
    fn resident(&self, key: u64) -> Option<u32> {
        let slot = self.slab.find(key);
        self.is_resident(slot).then_some(slot)
    }

    #[inline]
    fn insert_absent(&mut self, key: u64, ghost: u32) -> Option<Inserted> {
        if self.slab.pinned() == self.slab.capacity() {
            return None;
        }
        let (slot, victim) = self.rules.on_miss(&mut self.slab, key, ghost);
        debug_assert!(self.len() <= self.capacity());
        Some(Inserted {
            slot: slot - FIRST_SLOT,
            victim,
            promotion: None,
        })
    }
}

impl<R: Replacement, I: KeyIndex> Policy for SlabPolicy<R, I> {
    #[inline]
    fn reference(&mut self, key: u64) -> Option<u32> {
        let slot = self.resident(key)?;
        self.rules.on_hit(&mut self.slab, slot);
        Some(slot - FIRST_SLOT)
    }

    #[inline]
    fn find(&self, key: u64) -> Option<u32> {
        self.resident(key).map(|slot| slot - FIRST_SLOT)
    }

    #[inline]
    fn insert(&mut self, key: u64) -> Option<Inserted> {
        let slot = self.slab.find(key);
        debug_assert!(!self.is_resident(slot), "{key} is resident");
        self.insert_absent(key, slot)
    }

    #[inline]
    fn access(&mut self, key: u64) -> Access {
        let slot = self.slab.find(key);
        if self.is_resident(slot) {
            self.rules.on_hit(&mut self.slab, slot);
            return Access::Hit;
        }
        self.insert_absent(key, slot);
        Access::Miss
    }

    #[inline]
    fn pin(&mut self, slot: u32) {
        self.slab.set_pinned(slot + FIRST_SLOT, true);
    }

    #[inline]
    fn unpin(&mut self, slot: u32) {
        self.slab.set_pinned(slot + FIRST_SLOT, false);
    }

    #[inline]
    fn is_pinned(&self, slot: u32) -> bool {
        self.slab.is_pinned(slot + FIRST_SLOT)
    }

    fn remove(&mut self, key: u64) -> Option<u32> {
        let slot = self.slab.find(key);
        let resident = self.is_resident(slot);
        if slot != NIL {
            self.slab.set_pinned(slot, false);
            self.rules.on_remove(&mut self.slab, slot);
        }
        resident.then(|| slot - FIRST_SLOT)
    }

    fn len(&self) -> usize {
        (0..R::RESIDENT_QUEUES).map(|queue| self.slab.len(queue)).sum()
    }

    fn capacity(&self) -> usize {
        self.slab.capacity()
    }

    fn slots_end(&self) -> usize {
        self.slab.slots_end() - FIRST_SLOT as usize
    }

    fn memory_bytes(&self) -> usize {
        self.slab.memory_bytes() + self.rules.memory_bytes()
    }

    fn key_at(&self, slot: u32) -> Option<u64> {
        if slot as usize >= self.slots_end() {
            return None;
        }
        // What a free slot had last is found elsewhere, or not at all.
        let key = self.slab.key(slot + FIRST_SLOT);
        (self.find(key) == Some(slot)).then_some(key)
    }

    fn for_each_resident(&self, visit: &mut dyn FnMut(u64, u32)) {
        for queue in 0..R::RESIDENT_QUEUES {
            self.slab.for_each(queue, &mut |slot| {
                visit(self.slab.key(slot), slot - FIRST_SLOT);
            });
        }
    }
}
