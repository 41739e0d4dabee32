//! Stack distances within a short run of keys, without knowing what came before it.
//!
//! Most accesses repeat a key of the last few thousand. The distance of these needs nothing but the run itself, so it
//! is found in tables that fit the first cache levels, and runs can be searched ahead of each other. What remains for
//! the stack of the whole trace are the first touches of the run; [`crate::stack::LruStack::resolve`] gives them their
//! distances and renews all keys of the run at once (as PARDA joins pieces of a trace; Niu et al., IPDPS'12).

use crate::run_ranks::RunRanks;

/// Keys of a run at most: their tables take about 200 KiB.
pub(crate) const RUN: usize = 8192;

/// In the place of a distance: the first touch of a key, in the run or in the trace.
pub(crate) const FIRST_TOUCH: u32 = u32::MAX;

const SLOTS: usize = 2 * RUN;
const SHIFT: u32 = 64 - SLOTS.trailing_zeros();
const FREE: u16 = u16::MAX;

/// Runs that are not searched after one that hardly repeated a key.
const SKIPPED: u32 = 15;

/// A run of keys.
#[derive(Clone, Debug)]
pub(crate) enum Run {
    /// Searched: the distances are known but for the first touches.
    Searched(Searched),
    /// Not searched, since hardly any key is expected twice.
    Plain(Vec<u64>),
}

/// A run whose distances are known but for the first touches.
#[derive(Clone, Debug)]
pub(crate) struct Searched {
    /// Of each access.
    pub(crate) distances: Vec<u32>,
    /// The distinct keys in the order of their first touches.
    pub(crate) keys: Vec<u64>,
    /// The access that is the first touch of each of `keys`.
    pub(crate) first_touches: Vec<u16>,
    /// Indexes into `keys`, in the order of their last touches.
    pub(crate) by_last_touch: Vec<u16>,
}

/// The tables, reused from run to run.
#[derive(Clone, Debug)]
pub(crate) struct RunSearch {
    /// Index into the keys of the run, or `FREE`.
    slots: Box<[u16; SLOTS]>,
    /// The keys of the run and the positions of their last touches.
    found: Box<[(u64, u16); RUN]>,
    /// Index of the key that owns a position; meaningful only where the position is live.
    owners: Box<[u16; RUN]>,
    /// Runs that are still not to be searched.
    skip: u32,
}

impl Default for RunSearch {
    fn default() -> Self {
        Self {
            slots: boxed(FREE),
            found: boxed((0, 0)),
            owners: boxed(0),
            skip: 0,
        }
    }
}

impl RunSearch {
    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of_val(&*self.found) + size_of_val(&*self.owners)
    }

    /// Searches the keys, in runs, where that is worth it.
    pub(crate) fn runs(&mut self, keys: &[u64]) -> Vec<Run> {
        keys.chunks(RUN).map(|run| self.run(run)).collect()
    }

    fn run(&mut self, keys: &[u64]) -> Run {
        if self.skip > 0 {
            self.skip -= 1;
            return Run::Plain(keys.to_vec());
        }
        let searched = self.search(keys);
        if searched.keys.len() * 4 > keys.len() * 3 {
            self.skip = SKIPPED;
        }
        Run::Searched(searched)
    }

    /// Searches at most [`RUN`] keys.
    fn search(&mut self, keys: &[u64]) -> Searched {
        assert!(keys.len() <= RUN, "a run is no longer than its tables");
        self.slots.fill(FREE);
        let mut ranks = RunRanks::new();
        let mut first_touches = Vec::with_capacity(keys.len());
        let distances = keys.iter().enumerate().map(|(access, &key)| {
            let head = ranks.head() % RUN;
            let mut slot = home(key);
            loop {
                let index = self.slots[slot];
                if index == FREE {
                    let index = first_touches.len() as u16;
                    self.slots[slot] = index;
                    self.owners[head] = index;
                    self.found[usize::from(index) % RUN] = (key, head as u16);
                    first_touches.push(access as u16);
                    ranks.take();
                    return FIRST_TOUCH;
                }
                let (found, position) = &mut self.found[usize::from(index) % RUN];
                if *found == key {
                    let before = usize::from(*position);
                    if before + 1 == head {
                        return 0;
                    }
                    *position = head as u16;
                    self.owners[head] = index;
                    return ranks.renew(before, first_touches.len()) as u32;
                }
                slot = (slot + 1) % SLOTS;
            }
        });
        let distances = distances.collect();
        Searched {
            distances,
            keys: self.found[..first_touches.len()]
                .iter()
                .map(|(key, _)| *key)
                .collect(),
            first_touches,
            by_last_touch: ranks.iter().map(|position| self.owners[position]).collect(),
        }
    }
}

/// An array that is too large for the stack.
fn boxed<T: Copy, const N: usize>(value: T) -> Box<[T; N]> {
    let slice = vec![value; N].into_boxed_slice();
    slice
        .try_into()
        .unwrap_or_else(|_| unreachable!("N values are N"))
}

#[inline]
fn home(key: u64) -> usize {
    let folded = key ^ (key >> 32);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> SHIFT) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix64;

    #[test]
    fn a_run_tells_its_own_distances_first_touches_and_order() {
        let run = RunSearch::default().search(&[7, 8, 7, 7, 9, 8, 1 << 40, 7]);
        let first = FIRST_TOUCH;
        assert_eq!(run.distances, [first, first, 1, 0, first, 2, first, 3]);
        assert_eq!(run.keys, [7, 8, 9, 1 << 40]);
        assert_eq!(run.first_touches, [0, 1, 4, 6]);
        assert_eq!(run.by_last_touch, [2, 1, 3, 0]);
    }

    #[test]
    fn runs_without_repeats_are_seldom_searched() {
        let mut search = RunSearch::default();
        let mut searched = |keys: Vec<u64>| {
            let runs = search.runs(&keys);
            runs.iter().filter(|run| matches!(run, Run::Searched(_))).count()
        };
        let scan = 32 * RUN as u64;
        assert_eq!(searched((0..scan).collect()), 2);
        assert_eq!(searched((0..scan).map(|step| mix64(step) % 100).collect()), 32);
    }
}
