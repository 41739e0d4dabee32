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
//! Limits: a hundredth of the cache is little for newcomers, so a workload whose working set moves pays for each move;
//! a hit may prune many stack entries at once; and it costs the most memory per line of the policies here.

use crate::index::KeyIndex;
use crate::policy::{Replacement, SlabPolicy, Victim};
use crate::slab::{Links, Slab};
use crate::slots::NIL;

/// LIR blocks, in no particular order.
const LIR: u8 = 0;
/// Resident HIR blocks: the list Q.
const HIR: u8 = 1;
/// Non-resident HIR blocks of the stack, the one that left first at the back.
const NON_RESIDENT: u8 = 2;

/// The flag of a slot that is in the stack. LIR and non-resident blocks always are.
const IN_STACK: u8 = 1;
/// The queue of `stack` that is used.
const STACK: u8 = 0;

/// See the [module](self).
pub type Lirs<I> = SlabPolicy<LirsRules, I>;

/// The stack S; the slab has the sets of blocks, Q among them.
#[derive(Debug, Clone)]
pub struct LirsRules {
    stack: Links,
    lir_capacity: usize,
}

/// A hundredth of the lines, but at least one, is for resident HIR blocks.
fn hir_capacity(capacity: usize) -> usize {
    (capacity / 100).max(1)
}

fn is_in_stack<I: KeyIndex>(slab: &Slab<I>, slot: u32) -> bool {
    slab.flags(slot) & IN_STACK != 0
}

impl LirsRules {
    /// Puts `slot` on top of the stack, whether or not it is in it.
    fn stack_on_top<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        if is_in_stack(slab, slot) {
            self.stack.move_to_front(STACK, slot);
        } else {
            slab.add_flags(slot, IN_STACK);
            self.stack.push_front(STACK, slot);
        }
    }

    fn leave_stack<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        self.stack.unlink(STACK, slot);
        slab.set_flags(slot, 0);
    }

    /// Stack pruning: removes HIR blocks from the bottom, so that the bottom is a LIR block or the stack is empty.
    fn prune<I: KeyIndex>(&mut self, slab: &mut Slab<I>) {
        loop {
            let bottom = self.stack.back(STACK);
            if bottom == NIL || slab.queue(bottom) == LIR {
                return;
            }
            self.leave_stack(slab, bottom);
            if slab.queue(bottom) == NON_RESIDENT {
                slab.remove(bottom);
            }
        }
    }

    /// Makes the block in `slot`, which is on top of the stack and in no other queue, a LIR block; if that is one too
    /// many, the LIR block at the bottom becomes the newest in Q.
    fn promote<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        slab.link(slot, LIR);
        slab.set_flags(slot, IN_STACK);
        if slab.len(LIR) > self.lir_capacity {
            self.prune(slab);
            let bottom = self.stack.back(STACK);
            self.leave_stack(slab, bottom);
            slab.move_to(bottom, HIR);
        }
        self.prune(slab);
    }

    /// Evicts the oldest resident HIR block. There is one whenever the cache is full, as LIR blocks never fill it; only
    /// where all of them are pinned a LIR block leaves.
    fn make_room<I: KeyIndex>(&mut self, slab: &mut Slab<I>) -> Victim {
        let slot = slab.oldest_unpinned_of(HIR, LIR);
        if slab.queue(slot) == LIR {
            // The newcomer becomes a LIR block in its stead, and then the stack is pruned.
            self.leave_stack(slab, slot);
            return slab.evict(slot);
        }
        if !is_in_stack(slab, slot) {
            return slab.evict(slot);
        }
        let victim = slab.retire(slot, NON_RESIDENT, usize::MAX);
        slab.set_flags(slot, IN_STACK);
        victim
    }

    fn bound_stack<I: KeyIndex>(&mut self, slab: &mut Slab<I>) {
        while self.stack.len(STACK) > 2 * slab.capacity() {
            let forgotten = slab.oldest(NON_RESIDENT);
            if forgotten == NIL {
                return;
            }
            self.stack.unlink(STACK, forgotten);
            slab.remove(forgotten);
        }
    }
}

impl Replacement for LirsRules {
    type Options = ();
    const RESIDENT_QUEUES: u8 = NON_RESIDENT;

    /// The stack's bound, one entry above it before it is enforced, and Q, whose blocks can all be outside the stack:
    /// a block enters Q only while all LIR lines are taken.
    fn ghosts_max(capacity: usize, (): &()) -> usize {
        capacity + 1 + hir_capacity(capacity)
    }

    fn new(capacity: usize, slots_end: usize, (): &()) -> Self {
        Self {
            stack: Links::new(slots_end),
            lir_capacity: capacity - hir_capacity(capacity),
        }
    }

    fn on_hit<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        let was_in_stack = is_in_stack(slab, slot);
        self.stack_on_top(slab, slot);
        if slab.queue(slot) == LIR {
            self.prune(slab);
        } else if was_in_stack {
            slab.unlink(slot);
            self.promote(slab, slot);
        } else {
            slab.move_to_front(slot, HIR);
            self.bound_stack(slab);
        }
    }

    fn on_miss<I: KeyIndex>(&mut self, slab: &mut Slab<I>, key: u64, ghost: u32) -> (u32, Option<Victim>) {
        if ghost != NIL {
            slab.unlink(ghost);
            self.stack.move_to_front(STACK, ghost);
        }
        let victim = (slab.len(LIR) + slab.len(HIR) == slab.capacity()).then(|| self.make_room(slab));
        if ghost != NIL {
            self.promote(slab, ghost);
            return (ghost, victim);
        }
        let is_lir = slab.len(LIR) < self.lir_capacity;
        let slot = slab.insert(key, if is_lir { LIR } else { HIR });
        self.stack.cover(slab.slots_end());
        self.stack_on_top(slab, slot);
        if is_lir {
            self.prune(slab);
        }
        self.bound_stack(slab);
        (slot, victim)
    }

    fn on_remove<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        if is_in_stack(slab, slot) {
            self.stack.unlink(STACK, slot);
        }
        slab.remove(slot);
        self.prune(slab);
    }

    fn memory_bytes(&self) -> usize {
        self.stack.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::HashIndex;
    use crate::slots::HashSeed;
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
            (lirs.rules.stack.len(STACK), lirs.slab.len(NON_RESIDENT)),
            (6, 3),
            "1 2 LIR; 3 4 5 gone; 6 in Q"
        );
        walk(&mut lirs, &[7]);
        assert_eq!(lirs.rules.stack.len(STACK), 6);
        assert_eq!(lirs.slab.find(3), NIL);
        assert_ne!(lirs.slab.find(4), NIL);
    }
}
