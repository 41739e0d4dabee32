//! The memory of a policy: slots for keys, doubly linked queues through them, one index over them.
//!
//! Arrays of parts, not an array of nodes: a hit in a FIFO-like policy reads one index word and one tag byte and
//! leaves keys and links out of the processor's cache. With [`HashIndex`](crate::HashIndex) a slot costs
//! 12 + 8 + 8 + 1 = 29 bytes. Remembered keys have slots too, so with default options a line costs 29 bytes under
//! LRU, FIFO, CLOCK and SIEVE, 37 under W-TinyLFU, 44 under 2Q, 50 under `Clock2Q`+, 55 under S3-FIFO, 58 under ARC
//! and 74 under LIRS. With [`DenseIndex`](crate::DenseIndex) every possible key costs 8 + 1 bytes and a bit.

pub use crate::index::NIL;
use crate::index::{FIRST_SLOT, KeyIndex};

/// Doubly linked circular queues over slots. The anchors of the queues come before the slots in the same array, so no
/// operation has a special case for an end.
#[derive(Debug, Clone)]
pub struct Links {
    links: Vec<Link>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Link {
    /// Towards the back: the one that was pushed before.
    older: u32,
    /// Towards the front.
    newer: u32,
}

/// A queue of a [`Links`]. The front is where newcomers go, the back is where victims leave.
#[derive(Debug, Clone)]
pub struct Queue {
    anchor: u32,
    len: u32,
}

impl Links {
    /// Links for slots below `slots_end` and as many queues as the result has elements, all of them empty.
    pub fn new<const QUEUES: usize>(slots_end: usize) -> (Self, [Queue; QUEUES]) {
        const { assert!(QUEUES <= FIRST_SLOT as usize) }
        assert!(slots_end < NIL as usize, "a policy holds less than 2^32 keys");
        let mut links = vec![Link::default(); slots_end];
        let queues = std::array::from_fn(|queue| {
            let anchor = queue as u32;
            links[queue] = Link {
                older: anchor,
                newer: anchor,
            };
            Queue { anchor, len: 0 }
        });
        (Self { links }, queues)
    }

    /// Makes room for slots below `slots_end`.
    #[inline]
    pub fn cover(&mut self, slots_end: usize) {
        if self.links.len() < slots_end {
            self.links.reserve_exact(slots_end - self.links.len());
            self.links.resize(slots_end, Link::default());
        }
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
    }

    #[inline]
    fn unlink(&mut self, slot: u32) {
        let Link { older, newer } = self.links[slot as usize];
        self.links[older as usize].newer = newer;
        self.links[newer as usize].older = older;
    }

    #[inline]
    fn link_between(&mut self, older: u32, slot: u32, newer: u32) {
        self.links[slot as usize] = Link { older, newer };
        self.links[older as usize].newer = slot;
        self.links[newer as usize].older = slot;
    }
}

impl Queue {
    /// Slots in the queue.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the queue has no slot.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `slot` as the newest.
    #[inline]
    pub fn push_front(&mut self, links: &mut Links, slot: u32) {
        let newest = links.links[self.anchor as usize].older;
        links.link_between(newest, slot, self.anchor);
        self.len += 1;
    }

    /// Adds `slot` as the oldest.
    #[inline]
    pub fn push_back(&mut self, links: &mut Links, slot: u32) {
        let oldest = links.links[self.anchor as usize].newer;
        links.link_between(self.anchor, slot, oldest);
        self.len += 1;
    }

    /// Takes `slot`, which must be in this queue, out of it.
    #[inline]
    pub fn unlink(&mut self, links: &mut Links, slot: u32) {
        links.unlink(slot);
        self.len -= 1;
    }

    /// Makes `slot`, which must be in this queue, the newest.
    #[inline]
    pub fn move_to_front(&mut self, links: &mut Links, slot: u32) {
        links.unlink(slot);
        let newest = links.links[self.anchor as usize].older;
        links.link_between(newest, slot, self.anchor);
    }

    /// The oldest slot, or [`NIL`].
    #[inline]
    pub fn back(&self, links: &Links) -> u32 {
        self.newer(links, self.anchor)
    }

    /// The newest slot, or [`NIL`].
    #[inline]
    pub fn front(&self, links: &Links) -> u32 {
        let newest = links.links[self.anchor as usize].older;
        if newest == self.anchor { NIL } else { newest }
    }

    /// The slot that was pushed just after `slot`, or [`NIL`].
    #[inline]
    pub fn newer(&self, links: &Links, slot: u32) -> u32 {
        let newer = links.links[slot as usize].newer;
        if newer == self.anchor { NIL } else { newer }
    }

    /// Takes out the oldest slot, or [`NIL`].
    #[inline]
    pub fn pop_back(&mut self, links: &mut Links) -> u32 {
        let slot = self.back(links);
        if slot != NIL {
            self.unlink(links, slot);
        }
        slot
    }

    /// Calls `visit` with each slot, oldest first.
    pub fn for_each(&self, links: &Links, visit: &mut dyn FnMut(u32)) {
        let mut slot = self.back(links);
        while slot != NIL {
            visit(slot);
            slot = self.newer(links, slot);
        }
    }
}

/// Keys in slots, each with a tag byte that the policy gives its meaning, linked into the policy's queues.
#[derive(Debug, Clone)]
pub struct Slab<I> {
    index: I,
    tags: Vec<u8>,
    /// The queues' links. Public so that a queue and its links can be borrowed apart from the rest.
    pub links: Links,
    insertions: u64,
}

impl<I: KeyIndex> Slab<I> {
    /// Room for `slots` keys and `QUEUES` queues.
    pub fn new<const QUEUES: usize>(slots: usize, config: I::Config) -> (Self, [Queue; QUEUES]) {
        let index = I::new(slots, config);
        let (links, queues) = Links::new(index.slots_end());
        let slab = Self {
            tags: vec![0; index.slots_end()],
            index,
            links,
            insertions: 0,
        };
        (slab, queues)
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

    /// The tag of an occupied slot.
    #[inline]
    pub fn tag(&self, slot: u32) -> u8 {
        self.tags[slot as usize]
    }

    /// Sets the tag of an occupied slot.
    #[inline]
    pub fn set_tag(&mut self, slot: u32, tag: u8) {
        self.tags[slot as usize] = tag;
    }

    /// Takes a slot for `key`, which must be absent. The slot is in no queue yet.
    #[inline]
    pub fn insert(&mut self, key: u64, tag: u8) -> u32 {
        let slot = self.index.insert(key);
        if slot as usize >= self.tags.len() {
            self.cover(self.index.slots_end());
        }
        self.tags[slot as usize] = tag;
        slot
    }

    #[cold]
    fn cover(&mut self, slots_end: usize) {
        self.tags.reserve_exact(slots_end - self.tags.len());
        self.tags.resize(slots_end, 0);
        self.links.cover(slots_end);
    }

    /// Frees `slot`, which must be in no queue, and returns its key.
    #[inline]
    pub fn release(&mut self, slot: u32) -> u64 {
        self.index.remove(slot)
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.tags.capacity() + self.links.memory_bytes()
    }

    /// Misses after which the key was resident.
    pub fn insertions(&self) -> u64 {
        self.insertions
    }

    #[inline]
    pub(crate) fn count_insertion(&mut self, inserted: bool) {
        self.insertions += u64::from(inserted);
    }
}

/// Checks a capacity that a policy was made with.
///
/// # Panics
/// If `capacity` is 0 or more than 2^30 lines, which at 4 KiB is 4 TiB. Callers check what users type.
pub(crate) fn checked_capacity(capacity: usize) -> usize {
    assert!(
        (1..=1 << 30).contains(&capacity),
        "a capacity is 1 to 2^30 lines, not {capacity}"
    );
    capacity
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{HashIndex, HashSeed};

    #[test]
    fn queues_keep_their_order_and_slots_are_reused() {
        let (mut slab, [mut a, mut b]) = Slab::<HashIndex>::new::<2>(3, HashSeed(0));
        let slots: Vec<u32> = (10..13).map(|key| slab.insert(key, 0)).collect();
        for &slot in &slots {
            a.push_front(&mut slab.links, slot);
        }
        a.move_to_front(&mut slab.links, slots[0]);
        let mut order = Vec::new();
        a.for_each(&slab.links, &mut |slot| order.push(slab.key(slot)));
        assert_eq!(order, [11, 12, 10], "oldest first");
        let oldest = a.pop_back(&mut slab.links);
        b.push_back(&mut slab.links, oldest);
        assert_eq!((a.len(), b.len(), b.front(&slab.links)), (2, 1, oldest));
        b.unlink(&mut slab.links, oldest);
        assert_eq!(slab.release(oldest), 11);
        assert_eq!(slab.find(11), NIL);
        assert_eq!(slab.insert(99, 1), oldest, "the freed slot is the next one used");
        assert_eq!(b.pop_back(&mut slab.links), NIL);
    }
}
