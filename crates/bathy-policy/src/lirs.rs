//! LIRS: what counts is the distance between the last two references to a block, not the time since the last one.
//!
//! Jiang, Zhang: LIRS: an efficient low inter-reference recency set replacement policy, SIGMETRICS 2002. LIR blocks
//! (low inter-reference recency) fill all but a hundredth of the lines. The rest holds resident HIR blocks in the
//! list Q, whose oldest is always the victim. The stack S orders LIR blocks and those HIR blocks, resident or not,
//! that were referenced more recently than the oldest LIR block; a HIR block that is referenced while in S takes the
//! place of that LIR block.
//!
//! The paper leaves the number of non-resident blocks in S unbounded. Here S has at most twice as many entries as
//! there are lines; beyond that the non-resident block that left first is forgotten.
//!
//! When not to use it: a hundredth of the cache is little for newcomers, so a workload whose working set moves pays
//! for each move; a hit may prune many stack entries at once; and it costs the most memory per line of all here.

use crate::index::KeyIndex;
use crate::policy::{EvictionSink, Replacement};
use crate::slab::{Links, NIL, Queue, Slab, checked_capacity};

/// The tag: a state, plus whether the slot is in the stack. LIR and non-resident blocks always are.
const LIR: u8 = 0;
const HIR: u8 = 1;
const NON_RESIDENT: u8 = 2;
const STATE: u8 = 3;
const IN_STACK: u8 = 4;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Lirs<I> {
    /// Its links are those of the stack.
    slab: Slab<I>,
    stack: Queue,
    /// A slot is in one of these two queues or in neither.
    hir_links: Links,
    q: Queue,
    non_resident: Queue,
    lir_len: usize,
    lir_capacity: usize,
    capacity: usize,
}

impl<I: KeyIndex> Lirs<I> {
    /// An empty cache of `capacity` lines, a hundredth of them, but at least one, for resident HIR blocks.
    pub fn new(capacity: usize, config: I::Config) -> Self {
        let capacity = checked_capacity(capacity);
        let hir_capacity = (capacity / 100).max(1);
        let lir_capacity = capacity - hir_capacity;
        // The stack's bound, one entry above it before it is enforced, and Q, whose blocks can all be outside the
        // stack: a block enters Q only while all LIR places are taken.
        let slots = 2 * capacity + 1 + hir_capacity;
        let (slab, [stack]) = Slab::new(slots, config);
        let (hir_links, [q, non_resident]) = Links::new(slab.slots_end());
        Self {
            slab,
            stack,
            hir_links,
            q,
            non_resident,
            lir_len: 0,
            lir_capacity,
            capacity,
        }
    }

    fn set_state(&mut self, slot: u32, state: u8) {
        self.slab.set_tag(slot, state | self.slab.tag(slot) & IN_STACK);
    }

    fn state(&self, slot: u32) -> u8 {
        self.slab.tag(slot) & STATE
    }

    fn is_in_stack(&self, slot: u32) -> bool {
        self.slab.tag(slot) & IN_STACK != 0
    }

    /// Puts `slot` on top of the stack, whether or not it is in it.
    fn stack_on_top(&mut self, slot: u32) {
        if self.is_in_stack(slot) {
            self.stack.move_to_front(&mut self.slab.links, slot);
        } else {
            self.slab.set_tag(slot, self.slab.tag(slot) | IN_STACK);
            self.stack.push_front(&mut self.slab.links, slot);
        }
    }

    fn leave_stack(&mut self, slot: u32) {
        self.stack.unlink(&mut self.slab.links, slot);
        self.slab.set_tag(slot, self.slab.tag(slot) & !IN_STACK);
    }

    /// Stack pruning: removes HIR blocks from the bottom, so that the bottom is a LIR block or the stack is empty.
    fn prune(&mut self) {
        loop {
            let bottom = self.stack.back(&self.slab.links);
            if bottom == NIL || self.state(bottom) == LIR {
                return;
            }
            self.leave_stack(bottom);
            if self.state(bottom) == NON_RESIDENT {
                self.non_resident.unlink(&mut self.hir_links, bottom);
                self.slab.release(bottom);
            }
        }
    }

    /// Makes the block in `slot`, which is on top of the stack and in no HIR queue, a LIR block; if that is one too
    /// many, the LIR block at the bottom becomes the newest in Q.
    fn promote(&mut self, slot: u32) {
        self.set_state(slot, LIR);
        self.lir_len += 1;
        if self.lir_len > self.lir_capacity {
            self.prune();
            let bottom = self.stack.back(&self.slab.links);
            self.leave_stack(bottom);
            self.set_state(bottom, HIR);
            self.q.push_front(&mut self.hir_links, bottom);
            self.lir_len -= 1;
        }
        self.prune();
    }

    /// Evicts the oldest resident HIR block. There is one whenever the cache is full, as LIR blocks never fill it.
    fn evict<S: EvictionSink + ?Sized>(&mut self, sink: &mut S) {
        let victim = self.q.pop_back(&mut self.hir_links);
        sink.evicted(self.slab.key(victim));
        if self.is_in_stack(victim) {
            self.set_state(victim, NON_RESIDENT);
            self.non_resident.push_front(&mut self.hir_links, victim);
        } else {
            self.slab.release(victim);
        }
    }

    fn bound_stack(&mut self) {
        while self.stack.len() > 2 * self.capacity {
            let forgotten = self.non_resident.pop_back(&mut self.hir_links);
            if forgotten == NIL {
                return;
            }
            self.stack.unlink(&mut self.slab.links, forgotten);
            self.slab.release(forgotten);
        }
    }
}

impl<I: KeyIndex> Replacement for Lirs<I> {
    type Index = I;
    const NAME: &'static str = "lirs";

    #[inline]
    fn slab(&self) -> &Slab<I> {
        &self.slab
    }

    #[inline]
    fn slab_mut(&mut self) -> &mut Slab<I> {
        &mut self.slab
    }

    fn capacity_lines(&self) -> usize {
        self.capacity
    }

    #[inline]
    fn resident_len(&self) -> usize {
        self.lir_len + self.q.len()
    }

    #[inline]
    fn is_resident(&self, slot: u32) -> bool {
        self.state(slot) != NON_RESIDENT
    }

    fn on_hit(&mut self, slot: u32) {
        let was_in_stack = self.is_in_stack(slot);
        self.stack_on_top(slot);
        if self.state(slot) == LIR {
            self.prune();
        } else if was_in_stack {
            self.q.unlink(&mut self.hir_links, slot);
            self.promote(slot);
        } else {
            self.q.move_to_front(&mut self.hir_links, slot);
            self.bound_stack();
        }
    }

    fn on_miss<S: EvictionSink + ?Sized>(&mut self, key: u64, remembered: u32, sink: &mut S) -> bool {
        if remembered != NIL {
            self.non_resident.unlink(&mut self.hir_links, remembered);
        }
        if self.resident_len() == self.capacity {
            self.evict(sink);
        }
        if remembered != NIL {
            self.stack_on_top(remembered);
            self.promote(remembered);
            return true;
        }
        let slot = self.slab.insert(key, HIR);
        self.hir_links.cover(self.slab.slots_end());
        self.stack_on_top(slot);
        if self.lir_len < self.lir_capacity {
            self.promote(slot);
        } else {
            self.q.push_front(&mut self.hir_links, slot);
        }
        self.bound_stack();
        true
    }

    fn bytes_held(&self) -> usize {
        self.slab.memory_bytes() + self.hir_links.memory_bytes()
    }

    fn on_remove(&mut self, slot: u32) {
        match self.state(slot) {
            LIR => self.lir_len -= 1,
            HIR => self.q.unlink(&mut self.hir_links, slot),
            _ => self.non_resident.unlink(&mut self.hir_links, slot),
        }
        if self.is_in_stack(slot) {
            self.leave_stack(slot);
        }
        self.slab.release(slot);
        self.prune();
    }

    /// LIR blocks from the bottom of the stack, then Q: restored in this order the first ones become LIR again.
    fn for_each_slot_in_restore_order(&self, visit: &mut dyn FnMut(u32)) {
        self.stack.for_each(&self.slab.links, &mut |slot| {
            if self.state(slot) == LIR {
                visit(slot);
            }
        });
        self.q.for_each(&self.hir_links, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{HashIndex, HashSeed};
    use crate::walk::walk;

    #[test]
    fn a_block_seen_again_while_in_the_stack_takes_the_place_of_the_oldest_lir_block() {
        // Three lines: two for LIR blocks, which 1 and 2 take at once, and one for Q.
        let mut lirs = Lirs::<HashIndex>::new(3, HashSeed(0));
        // Q holds one block, so 4 replaces 3, which stays in the stack as non-resident.
        assert_eq!(walk(&mut lirs, &[1, 2, 3, 4]), "1 2 3 4/3");
        // 3 returns: Q pays with 4, 3 becomes LIR, and 1, the oldest LIR block, is now what Q holds.
        assert_eq!(walk(&mut lirs, &[3]), "3/4");
        // So 1 is the next victim, and as it is not in the stack it is forgotten.
        assert_eq!(walk(&mut lirs, &[5]), "5/1");
        // The hit takes 2 from the bottom of the stack to its top. The pruning that follows forgets 4, so 4 is a
        // newcomer for Q, from which 5 leaves.
        assert_eq!(walk(&mut lirs, &[2, 4]), "2+ 4/5");
        // 4 is hit in Q while in the stack: it becomes LIR, and 3 takes its place in Q and is the next to go.
        assert_eq!(walk(&mut lirs, &[4, 6]), "4+ 6/3");
    }

    #[test]
    fn the_stack_is_bounded_by_forgetting_who_left_first() {
        let mut lirs = Lirs::<HashIndex>::new(3, HashSeed(0));
        walk(&mut lirs, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(
            (lirs.stack.len(), lirs.non_resident.len()),
            (6, 3),
            "1 2 LIR; 3 4 5 gone; 6 in Q"
        );
        walk(&mut lirs, &[7]);
        assert_eq!(lirs.stack.len(), 6);
        assert_eq!(lirs.slab.find(3), NIL);
        assert_ne!(lirs.slab.find(4), NIL);
    }
}
