//! ARC: two LRU lists, seen once and seen more often, with ghosts that move the border between them.
//!
//! Megiddo, Modha: ARC: a self-tuning, low overhead replacement cache, FAST 2003. Names, cases and the adaptation of
//! `p` (a real number, as in the paper's figure 4) are the paper's. Where lines were removed and the cache has room,
//! nothing is replaced.
//!
//! When not to use it: loops somewhat longer than the cache defeat it as they defeat LRU; each hit moves a list entry;
//! and it remembers as many keys as it holds, the most memory per line of the policies here beside LIRS. It was
//! patented by IBM (US 6,996,676, expired 2024).

use crate::index::KeyIndex;
use crate::policy::{EvictionSink, Replacement};
use crate::slab::{NIL, Queue, Slab, checked_capacity};

const T1: u8 = 0;
const T2: u8 = 1;
const B1: u8 = 2;
const B2: u8 = 3;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Arc<I> {
    slab: Slab<I>,
    t1: Queue,
    t2: Queue,
    b1: Queue,
    b2: Queue,
    capacity: usize,
    /// The wanted length of T1.
    p: f64,
}

impl<I: KeyIndex> Arc<I> {
    /// An empty cache of `capacity` lines.
    pub fn new(capacity: usize, config: I::Config) -> Self {
        let capacity = checked_capacity(capacity);
        let (slab, [t1, t2, b1, b2]) = Slab::new(2 * capacity, config);
        Self {
            slab,
            t1,
            t2,
            b1,
            b2,
            capacity,
            p: 0.0,
        }
    }

    fn is_full(&self) -> bool {
        self.t1.len() + self.t2.len() == self.capacity
    }

    /// The paper's REPLACE: moves the oldest of T1 or T2 to its ghost list.
    fn replace<S: EvictionSink + ?Sized>(&mut self, asked_in_b2: bool, sink: &mut S) {
        let t1_len = self.t1.len() as f64;
        let from_t1 = !self.t1.is_empty() && (t1_len > self.p || (asked_in_b2 && t1_len >= self.p));
        let links = &mut self.slab.links;
        let (victim, ghost) = if from_t1 || self.t2.is_empty() {
            let victim = self.t1.pop_back(links);
            self.b1.push_front(links, victim);
            (victim, B1)
        } else {
            let victim = self.t2.pop_back(links);
            self.b2.push_front(links, victim);
            (victim, B2)
        };
        self.slab.set_tag(victim, ghost);
        sink.evicted(self.slab.key(victim));
    }

    /// Cases II and III: a ghost is asked for. Its list was too short, so the border moves its way.
    fn on_ghost<S: EvictionSink + ?Sized>(&mut self, ghost: u32, sink: &mut S) {
        let (b1_len, b2_len) = (self.b1.len() as f64, self.b2.len() as f64);
        let in_b2 = self.slab.tag(ghost) == B2;
        if in_b2 {
            self.p = (self.p - (b1_len / b2_len).max(1.0)).max(0.0);
            self.b2.unlink(&mut self.slab.links, ghost);
        } else {
            self.p = (self.p + (b2_len / b1_len).max(1.0)).min(self.capacity as f64);
            self.b1.unlink(&mut self.slab.links, ghost);
        }
        if self.is_full() {
            self.replace(in_b2, sink);
        }
        self.slab.set_tag(ghost, T2);
        self.t2.push_front(&mut self.slab.links, ghost);
    }

    /// Case IV: makes room for an unknown key, in the cache and in the directory of at most twice its size.
    fn make_room<S: EvictionSink + ?Sized>(&mut self, sink: &mut S) {
        if self.t1.len() + self.b1.len() >= self.capacity {
            if self.b1.is_empty() {
                let victim = self.t1.pop_back(&mut self.slab.links);
                sink.evicted(self.slab.release(victim));
                return;
            }
            let forgotten = self.b1.pop_back(&mut self.slab.links);
            self.slab.release(forgotten);
        } else if self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len() >= 2 * self.capacity {
            let forgotten = self.b2.pop_back(&mut self.slab.links);
            self.slab.release(forgotten);
        }
        if self.is_full() {
            self.replace(false, sink);
        }
    }
}

impl<I: KeyIndex> Replacement for Arc<I> {
    type Index = I;
    const NAME: &'static str = "arc";

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
        self.t1.len() + self.t2.len()
    }

    #[inline]
    fn is_resident(&self, slot: u32) -> bool {
        self.slab.tag(slot) <= T2
    }

    #[inline]
    fn on_hit(&mut self, slot: u32) {
        if self.slab.tag(slot) == T2 {
            self.t2.move_to_front(&mut self.slab.links, slot);
        } else {
            self.t1.unlink(&mut self.slab.links, slot);
            self.slab.set_tag(slot, T2);
            self.t2.push_front(&mut self.slab.links, slot);
        }
    }

    fn on_miss<S: EvictionSink + ?Sized>(&mut self, key: u64, ghost: u32, sink: &mut S) -> bool {
        if ghost == NIL {
            self.make_room(sink);
            let slot = self.slab.insert(key, T1);
            self.t1.push_front(&mut self.slab.links, slot);
        } else {
            self.on_ghost(ghost, sink);
        }
        true
    }

    fn on_remove(&mut self, slot: u32) {
        let queue = match self.slab.tag(slot) {
            T1 => &mut self.t1,
            T2 => &mut self.t2,
            B1 => &mut self.b1,
            _ => &mut self.b2,
        };
        queue.unlink(&mut self.slab.links, slot);
        self.slab.release(slot);
    }

    fn on_restore(&mut self, key: u64, ghost: u32) {
        if ghost != NIL {
            self.on_remove(ghost);
        }
        // The directory's bound holds: a ghost of the longer list makes room.
        if self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len() >= 2 * self.capacity {
            let longer = if self.b1.len() > self.b2.len() {
                &mut self.b1
            } else {
                &mut self.b2
            };
            let forgotten = longer.pop_back(&mut self.slab.links);
            self.slab.release(forgotten);
        }
        let slot = self.slab.insert(key, T2);
        self.t2.push_front(&mut self.slab.links, slot);
    }

    fn for_each_slot_in_restore_order(&self, visit: &mut dyn FnMut(u32)) {
        self.t1.for_each(&self.slab.links, visit);
        self.t2.for_each(&self.slab.links, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{HashIndex, HashSeed};
    use crate::walk::walk;

    #[test]
    fn ghost_hits_move_the_border_and_choose_the_victims() {
        let mut arc = Arc::<HashIndex>::new(3, HashSeed(0));
        // The second reference takes 1 to T2. p is 0, so T1 pays: 2 becomes a ghost in B1.
        assert_eq!(walk(&mut arc, &[1, 2, 1, 3, 4]), "1 2 1+ 3 4/2");
        // 2 returns from B1: p grows to 1. T1 holds 3 and 4, more than p, so 3 leaves; 2 enters T2.
        assert_eq!(walk(&mut arc, &[2]), "2/3");
        assert!((arc.p - 1.0).abs() < f64::EPSILON);
        // T1 holds only 4, no more than p, so now T2 pays, with its oldest, 1.
        assert_eq!(walk(&mut arc, &[5]), "5/1");
        // 1 returns from B2: p falls to 0, T1 is above it and pays with 4.
        assert_eq!(walk(&mut arc, &[1]), "1/4");
        assert!(arc.p.abs() < f64::EPSILON);
    }

    #[test]
    fn a_scan_leaves_no_ghosts_when_t1_alone_fills_the_cache() {
        let mut arc = Arc::<HashIndex>::new(2, HashSeed(0));
        // Case IV A with T1 full: the victim is forgotten, so its return is an ordinary miss and enters T1.
        assert_eq!(walk(&mut arc, &[1, 2, 3, 1]), "1 2 3/1 1/2");
        assert_eq!((arc.t1.len(), arc.t2.len(), arc.b1.len()), (2, 0, 0));
    }
}
