//! ARC: two LRU lists, blocks seen once and blocks seen more often, with ghosts that adapt the share of each.
//!
//! Megiddo, Modha: ARC: a self-tuning, low overhead replacement cache, FAST 2003. Names, cases and the adaptation of
//! `p` (a real number, as in the paper's figure 4) are the paper's. Where lines were removed and the cache has room,
//! nothing is replaced.
//!
//! Limits: loops somewhat longer than the cache defeat it as they defeat LRU; each hit moves a list entry; and it
//! remembers as many keys as it holds, which is more memory per line than any policy here except LIRS. It was patented
//! by IBM (US 6,996,676, expired 2024).

use crate::index::KeyIndex;
use crate::policy::{Replacement, SlabPolicy, Victim};
use crate::slab::Slab;
use crate::slots::NIL;

const T1: u8 = 0;
const T2: u8 = 1;
const B1: u8 = 2;
const B2: u8 = 3;

/// See the [module](self).
pub type Arc<I> = SlabPolicy<ArcRules, I>;

/// The lists T1, T2, B1 and B2 of the paper.
#[derive(Debug, Clone)]
pub struct ArcRules {
    /// The target length of T1.
    p: f64,
}

fn is_full<I: KeyIndex>(slab: &Slab<I>) -> bool {
    slab.len(T1) + slab.len(T2) == slab.capacity()
}

/// Whether T1, T2, B1 and B2 together have twice as many entries as there are lines.
fn is_directory_full<I: KeyIndex>(slab: &Slab<I>) -> bool {
    [T1, T2, B1, B2].map(|list| slab.len(list)).iter().sum::<usize>() >= 2 * slab.capacity()
}

impl ArcRules {
    /// The paper's REPLACE: moves the oldest of T1 or T2 to its ghost list.
    fn replace<I: KeyIndex>(&self, slab: &mut Slab<I>, asked_in_b2: bool) -> Victim {
        let t1_len = slab.len(T1) as f64;
        let from_t1 = slab.len(T1) > 0 && (t1_len > self.p || (asked_in_b2 && t1_len >= self.p));
        let slot = if from_t1 {
            slab.oldest_unpinned_of(T1, T2)
        } else {
            slab.oldest_unpinned_of(T2, T1)
        };
        let ghosts = if slab.queue(slot) == T1 { B1 } else { B2 };
        slab.retire(slot, ghosts, usize::MAX)
    }

    /// Cases II and III: a ghost is referenced. Its list was too short, so its target length grows.
    fn on_ghost<I: KeyIndex>(&mut self, slab: &mut Slab<I>, ghost: u32) -> Option<Victim> {
        let (b1_len, b2_len) = (slab.len(B1) as f64, slab.len(B2) as f64);
        let in_b2 = slab.queue(ghost) == B2;
        if in_b2 {
            self.p = (self.p - (b1_len / b2_len).max(1.0)).max(0.0);
        } else {
            self.p = (self.p + (b2_len / b1_len).max(1.0)).min(slab.capacity() as f64);
        }
        slab.unlink(ghost);
        let victim = is_full(slab).then(|| self.replace(slab, in_b2));
        slab.link(ghost, T2);
        victim
    }

    /// Case IV: makes room for an unknown key, in the cache and in the directory of at most twice its size.
    fn make_room<I: KeyIndex>(&self, slab: &mut Slab<I>) -> Option<Victim> {
        if slab.len(T1) + slab.len(B1) >= slab.capacity() {
            if slab.len(B1) == 0 {
                // T1 alone fills the cache.
                return Some(slab.evict(slab.oldest_unpinned(T1)));
            }
            slab.remove(slab.oldest(B1));
        } else if is_directory_full(slab) {
            slab.remove(slab.oldest(B2));
        }
        is_full(slab).then(|| self.replace(slab, false))
    }
}

impl Replacement for ArcRules {
    type Options = ();
    const RESIDENT_QUEUES: u8 = B1;

    fn ghosts_max(capacity: usize, (): &()) -> usize {
        capacity
    }

    fn new(_capacity: usize, _slots_end: usize, (): &()) -> Self {
        Self { p: 0.0 }
    }

    #[inline]
    fn on_hit<I: KeyIndex>(&mut self, slab: &mut Slab<I>, slot: u32) {
        slab.move_to(slot, T2);
    }

    fn on_miss<I: KeyIndex>(&mut self, slab: &mut Slab<I>, key: u64, ghost: u32) -> (u32, Option<Victim>) {
        if ghost == NIL {
            let victim = self.make_room(slab);
            return (slab.insert(key, T1), victim);
        }
        (ghost, self.on_ghost(slab, ghost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::HashIndex;
    use crate::slots::HashSeed;
    use crate::walk::walk;

    #[test]
    fn ghost_hits_move_the_border_and_choose_the_victims() {
        let mut arc = Arc::<HashIndex>::new(3, HashSeed(0));
        // The second reference takes 1 to T2. p is 0, so T1 pays: 2 becomes a ghost in B1.
        assert_eq!(walk(&mut arc, &[1, 2, 1, 3, 4]), "1 2 1+ 3 4/2");
        // 2 returns from B1: p grows to 1. T1 holds 3 and 4, more than p, so 3 leaves; 2 enters T2.
        assert_eq!(walk(&mut arc, &[2]), "2/3");
        assert!((arc.rules.p - 1.0).abs() < f64::EPSILON);
        // T1 holds only 4, no more than p, so now T2 pays, with its oldest, 1.
        assert_eq!(walk(&mut arc, &[5]), "5/1");
        // 1 returns from B2: p falls to 0, T1 is above it and pays with 4.
        assert_eq!(walk(&mut arc, &[1]), "1/4");
        assert!(arc.rules.p.abs() < f64::EPSILON);
    }

    #[test]
    fn a_scan_leaves_no_ghosts_when_t1_alone_fills_the_cache() {
        let mut arc = Arc::<HashIndex>::new(2, HashSeed(0));
        // Case IV A with T1 full: the victim is forgotten, so its return is an ordinary miss and enters T1.
        assert_eq!(walk(&mut arc, &[1, 2, 3, 1]), "1 2 3/1 1/2");
        assert_eq!([T1, T2, B1].map(|queue| arc.slab.len(queue)), [2, 0, 0]);
    }
}
