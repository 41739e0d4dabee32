//! The memory of a policy: slots for keys, doubly linked queues through the slots, one index over the keys.
//!
//! The parts are separate arrays, not an array of nodes: a hit in a FIFO-like policy reads one index word and one tag
//! byte and leaves keys and links out of the processor's cache. With [`HashIndex`](crate::HashIndex) a slot costs
//! 6 + 8 + 8 + 1 = 23 bytes. Ghosts have slots too, so with default options a line costs 23 bytes under LRU, FIFO,
//! CLOCK and SIEVE, 31 under W-TinyLFU, 35 under 2Q, 41 under `Clock2Q`+, 44 under S3-FIFO, 46 under ARC and 62 under
//! LIRS. With [`DenseIndex`](crate::DenseIndex) every possible key costs 8 + 1 bytes and a bit.
//!
//! Limits: at most four queues and 2^32 - 5 slots.

use crate::index::{HashIndex, KeyIndex};
use crate::policy::Victim;
use crate::slots::cover;
use crate::slots::{FIRST_SLOT, NIL, QUEUES};

/// Doubly linked circular queues over slots, numbered from 0. The front is where newcomers enter, the back is where
/// victims leave. The anchors of the queues come before the slots in the same array, so no operation has a special
/// case for an end.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    links: Vec<Link>,
    lens: [u32; QUEUES],
}

#[derive(Debug, Clone, Copy, Default)]
struct Link {
    /// Towards the back.
    older: u32,
    /// Towards the front.
    newer: u32,
}

impl Links {
    /// Empty queues and links for slots below `slots_end`.
    pub(crate) fn new(slots_end: usize) -> Self {
        assert!(slots_end < NIL as usize, "a policy holds less than 2^32 keys");
        let mut links = vec![Link::default(); slots_end];
        for (anchor, link) in (0..).zip(&mut links[..QUEUES]) {
            *link = Link {
                older: anchor,
                newer: anchor,
            };
        }
        Self {
            links,
            lens: [0; QUEUES],
        }
    }

    /// Makes room for slots below `slots_end`.
    #[inline]
    pub(crate) fn cover(&mut self, slots_end: usize) {
        cover(&mut self.links, slots_end);
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
    }

    /// Slots in `queue`.
    #[inline]
    pub(crate) fn len(&self, queue: u8) -> usize {
        self.lens[usize::from(queue) % QUEUES] as usize
    }

    /// Adds `slot` as the newest of `queue`.
    #[inline]
    pub(crate) fn push_front(&mut self, queue: u8, slot: u32) {
        self.link_newest(queue, slot);
        self.lens[usize::from(queue) % QUEUES] += 1;
    }

    /// Takes `slot` out of `queue`, in which it must be.
    #[inline]
    pub(crate) fn unlink(&mut self, queue: u8, slot: u32) {
        self.unlink_slot(slot);
        self.lens[usize::from(queue) % QUEUES] -= 1;
    }

    /// Makes `slot`, which must be in `queue`, the newest of it.
    #[inline]
    pub(crate) fn move_to_front(&mut self, queue: u8, slot: u32) {
        self.unlink_slot(slot);
        self.link_newest(queue, slot);
    }

    /// The oldest slot of `queue`, or [`NIL`].
    #[inline]
    pub(crate) fn back(&self, queue: u8) -> u32 {
        self.newer(queue, u32::from(queue))
    }

    /// The slot of `queue` that was pushed just after `slot`, or [`NIL`].
    #[inline]
    pub(crate) fn newer(&self, queue: u8, slot: u32) -> u32 {
        let newer = self.links[slot as usize].newer;
        if newer == u32::from(queue) { NIL } else { newer }
    }

    /// Calls `visit` with each slot of `queue`, oldest first.
    pub(crate) fn for_each(&self, queue: u8, visit: &mut dyn FnMut(u32)) {
        let mut slot = self.back(queue);
        while slot != NIL {
            visit(slot);
            slot = self.newer(queue, slot);
        }
    }

    #[inline]
    fn unlink_slot(&mut self, slot: u32) {
        let Link { older, newer } = self.links[slot as usize];
        self.links[older as usize].newer = newer;
        self.links[newer as usize].older = older;
    }

    #[inline]
    fn link_newest(&mut self, queue: u8, slot: u32) {
        let anchor = u32::from(queue);
        let newest = self.links[anchor as usize].older;
        self.links[slot as usize] = Link {
            older: newest,
            newer: anchor,
        };
        self.links[newest as usize].newer = slot;
        self.links[anchor as usize].older = slot;
    }
}

/// The lower bits of a tag are the policy's flags, the bit above them says that the slot is pinned, and the bits above it
/// are the number of the slot's queue.
const PINNED: u8 = 1 << 5;
const FLAGS: u8 = PINNED - 1;
const QUEUE_SHIFT: u32 = 6;

/// Keys in slots. Each slot is in one of four queues and has five bits of flags that the policy gives their meaning.
#[derive(Debug, Clone)]
pub struct Slab<I> {
    index: I,
    tags: Vec<u8>,
    links: Links,
    capacity: usize,
    pinned: usize,
}

impl<I: KeyIndex> Slab<I> {
    /// Room for `slots` keys, of which `capacity` can be resident.
    pub fn new(capacity: usize, slots: usize, config: I::Config) -> Self {
        let index = I::new(slots, config);
        Self {
            tags: vec![0; index.slots_end()],
            links: Links::new(index.slots_end()),
            index,
            capacity,
            pinned: 0,
        }
    }

    /// The most resident keys.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// All slots are below this number; an insertion may raise it.
    #[inline]
    pub fn slots_end(&self) -> usize {
        self.tags.len()
    }

    /// The slot of `key`, or [`NIL`].
    #[inline]
    pub fn find(&self, key: u64) -> u32 {
        self.index.find(key)
    }

    /// The key in an occupied slot.
    #[inline]
    pub fn key(&self, slot: u32) -> u64 {
        self.index.key(slot)
    }

    /// The queue of an occupied slot.
    #[inline]
    pub fn queue(&self, slot: u32) -> u8 {
        self.tags[slot as usize] >> QUEUE_SHIFT
    }

    /// The flags of an occupied slot: 0 when it enters a queue.
    #[inline]
    pub fn flags(&self, slot: u32) -> u8 {
        self.tags[slot as usize] & FLAGS
    }

    /// Sets the flags of an occupied slot, 0 to 31.
    #[inline]
    pub fn set_flags(&mut self, slot: u32, flags: u8) {
        let tag = &mut self.tags[slot as usize];
        *tag = *tag & !FLAGS | flags;
    }

    /// Sets bits of the flags of an occupied slot.
    #[inline]
    pub fn add_flags(&mut self, slot: u32, flags: u8) {
        self.tags[slot as usize] |= flags;
    }

    /// Slots in `queue`.
    #[inline]
    pub fn len(&self, queue: u8) -> usize {
        self.links.len(queue)
    }

    /// The oldest slot of `queue`, or [`NIL`].
    #[inline]
    pub fn oldest(&self, queue: u8) -> u32 {
        self.links.back(queue)
    }

    /// The slot of `queue` that entered it just after `slot`, or [`NIL`].
    #[inline]
    pub fn newer(&self, queue: u8, slot: u32) -> u32 {
        self.links.newer(queue, slot)
    }

    /// Calls `visit` with each slot of `queue`, oldest first.
    pub fn for_each(&self, queue: u8, visit: &mut dyn FnMut(u32)) {
        self.links.for_each(queue, visit);
    }

    /// Takes a slot for `key`, which must be absent, and puts it into `queue`.
    #[inline]
    pub fn insert(&mut self, key: u64, queue: u8) -> u32 {
        let slot = self.index.insert(key);
        if slot as usize >= self.tags.len() {
            self.cover(self.index.slots_end());
        }
        self.tags[slot as usize] = 0;
        self.link(slot, queue);
        slot
    }

    #[cold]
    fn cover(&mut self, slots_end: usize) {
        cover(&mut self.tags, slots_end);
        self.links.cover(slots_end);
    }

    /// Puts `slot`, which must be in no queue, into `queue` as its newest, with flags 0. A pinned one stays pinned.
    #[inline]
    pub fn link(&mut self, slot: u32, queue: u8) {
        let tag = &mut self.tags[slot as usize];
        *tag = queue << QUEUE_SHIFT | *tag & PINNED;
        self.links.push_front(queue, slot);
    }

    /// Takes `slot` out of its queue. The caller links it again.
    #[inline]
    pub fn unlink(&mut self, slot: u32) {
        self.links.unlink(self.queue(slot), slot);
    }

    /// Makes `slot` the newest of `queue`, with flags 0.
    #[inline]
    pub fn move_to(&mut self, slot: u32, queue: u8) {
        self.unlink(slot);
        self.link(slot, queue);
    }

    /// Makes `slot` the newest of `queue`, in which it is; its flags stay.
    #[inline]
    pub fn move_to_front(&mut self, slot: u32, queue: u8) {
        self.links.move_to_front(queue, slot);
    }

    /// Makes the oldest slot of `queue`, which must not be empty, the newest of `to`, with flags 0.
    #[inline]
    pub fn move_oldest(&mut self, queue: u8, to: u8) {
        let slot = self.oldest(queue);
        self.links.unlink(queue, slot);
        self.link(slot, to);
    }

    /// Makes the line in `slot` a ghost, the newest of `ghosts`, of which there are `max` at most.
    #[inline]
    pub fn retire(&mut self, slot: u32, ghosts: u8, max: usize) -> Victim {
        let victim = self.victim(slot);
        self.move_to(slot, ghosts);
        self.bound(ghosts, max);
        victim
    }

    /// Frees `slot`, whose line leaves.
    #[inline]
    pub fn evict(&mut self, slot: u32) -> Victim {
        let victim = self.victim(slot);
        self.remove(slot);
        victim
    }

    #[inline]
    fn victim(&self, slot: u32) -> Victim {
        debug_assert!(!self.is_pinned(slot), "a pinned line is no victim");
        Victim {
            key: self.key(slot),
            slot: slot - FIRST_SLOT,
        }
    }

    /// The oldest slot of `queue` that is not pinned, or [`NIL`].
    #[inline]
    pub fn oldest_unpinned(&self, queue: u8) -> u32 {
        let mut slot = self.oldest(queue);
        while self.pinned > 0 && slot != NIL && self.is_pinned(slot) {
            slot = self.newer(queue, slot);
        }
        slot
    }

    /// The oldest slot of `queue` that is not pinned; where all are pinned, that of `other`.
    #[inline]
    pub fn oldest_unpinned_of(&self, queue: u8, other: u8) -> u32 {
        let slot = self.oldest_unpinned(queue);
        if slot == NIL {
            self.oldest_unpinned(other)
        } else {
            slot
        }
    }

    /// Slots that are pinned.
    #[inline]
    pub fn pinned(&self) -> usize {
        self.pinned
    }

    /// Whether an occupied slot is pinned.
    #[inline]
    pub fn is_pinned(&self, slot: u32) -> bool {
        self.tags[slot as usize] & PINNED != 0
    }

    /// Pins the line in `slot`, or no longer.
    #[inline]
    pub fn set_pinned(&mut self, slot: u32, pinned: bool) {
        self.pinned -= usize::from(self.is_pinned(slot));
        self.pinned += usize::from(pinned);
        let tag = &mut self.tags[slot as usize];
        *tag = *tag & !PINNED | if pinned { PINNED } else { 0 };
    }

    /// Frees `slot` and returns its key.
    #[inline]
    pub fn remove(&mut self, slot: u32) -> u64 {
        self.unlink(slot);
        self.index.remove(slot)
    }

    /// Removes the oldest slots of `queue` beyond `max`.
    #[inline]
    pub fn bound(&mut self, queue: u8, max: usize) {
        while self.len(queue) > max {
            self.remove(self.oldest(queue));
        }
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.tags.capacity() + self.links.memory_bytes()
    }
}

impl Slab<HashIndex> {
    /// The index, for what only it can do.
    pub(crate) fn index(&self) -> &HashIndex {
        &self.index
    }

    /// Puts `key` into a slot of a new slab, both of them free, as the newest of `queue`. [`Slab::free_others`] ends it.
    pub(crate) fn insert_at(&mut self, key: u64, slot: u32, queue: u8) {
        self.index.insert_at(key, slot);
        self.link(slot, queue);
    }

    /// See [`HashIndex::free_others`].
    pub(crate) fn free_others(&mut self, freed: &[u32], is_known: impl Fn(u32) -> bool) {
        self.index.free_others(freed, is_known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::HashSeed;

    #[test]
    fn queues_keep_their_order_and_slots_are_reused() {
        let mut slab = Slab::<HashIndex>::new(3, 3, HashSeed(0));
        let slots: Vec<u32> = (10..13).map(|key| slab.insert(key, 0)).collect();
        slab.move_to_front(slots[0], 0);
        let mut order = Vec::new();
        slab.for_each(0, &mut |slot| order.push(slab.key(slot)));
        assert_eq!(order, [11, 12, 10], "oldest first");
        let oldest = slab.oldest(0);
        slab.set_flags(oldest, 31);
        assert_eq!((slab.queue(oldest), slab.flags(oldest)), (0, 31));
        slab.move_to(oldest, 3);
        assert_eq!((slab.queue(oldest), slab.flags(oldest)), (3, 0));
        assert_eq!((slab.len(0), slab.len(3), slab.oldest(3)), (2, 1, oldest));
        assert_eq!(slab.remove(oldest), 11);
        assert_eq!((slab.find(11), slab.oldest(3)), (NIL, NIL));
        assert_eq!(slab.insert(99, 1), oldest, "the freed slot is the next one used");
    }

    #[test]
    fn flags_do_not_touch_the_queue() {
        let mut slab = Slab::<HashIndex>::new(1, 1, HashSeed(0));
        let slot = slab.insert(10, 3);
        slab.set_flags(slot, 2);
        slab.add_flags(slot, 4);
        assert_eq!((slab.queue(slot), slab.flags(slot)), (3, 6));
    }

    #[test]
    fn a_bounded_queue_forgets_its_oldest() {
        let mut slab = Slab::<HashIndex>::new(3, 3, HashSeed(0));
        (10..13).for_each(|key| {
            slab.insert(key, 0);
        });
        let victims = [0, 1].map(|_| slab.retire(slab.oldest(0), 2, 1).key);
        assert_eq!(victims, [10, 11]);
        assert_eq!((slab.find(10), slab.len(0), slab.len(2)), (NIL, 1, 1));
        assert_eq!(slab.key(slab.oldest(2)), 11);
    }

    #[test]
    fn a_pinned_slot_is_passed_over_and_stays_pinned_when_it_moves() {
        let mut slab = Slab::<HashIndex>::new(3, 3, HashSeed(0));
        let slots: Vec<u32> = (10..13).map(|key| slab.insert(key, 0)).collect();
        slab.set_pinned(slots[0], true);
        slab.set_pinned(slots[0], true);
        assert_eq!((slab.pinned(), slab.oldest_unpinned(0)), (1, slots[1]));
        slab.move_to(slots[0], 1);
        assert_eq!((slab.queue(slots[0]), slab.flags(slots[0])), (1, 0));
        assert_eq!(
            (slab.oldest_unpinned(1), slab.oldest_unpinned_of(1, 0)),
            (NIL, slots[1])
        );
        slab.set_pinned(slots[0], false);
        assert_eq!((slab.pinned(), slab.oldest_unpinned(1)), (0, slots[0]));
    }
}
