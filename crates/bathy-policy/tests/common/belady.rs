//! Belady's MIN: the misses of the best possible policy, which knows all future references.
//!
//! Belady: A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5(2), 1966; that
//! evicting the block whose next use is farthest is optimal: Mattson and others, IBM Systems Journal 9(2), 1970.
//!
//! A lower bound of misses and not a policy: nothing offers it, and tests hold policies against it. With
//! [`Insertion::Forced`] every missed block enters the cache, as under every policy of this crate; with [`Insertion::Optional`] a missed block may stay out, which bounds any policy with
//! any admission in front of it.
//!
//! Limits: the whole trace is in memory; O(n log n) time and about 16 bytes a reference.

use std::collections::{BinaryHeap, HashMap};

/// Whether a missed block must enter the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Insertion {
    /// Each missed block enters, in place of another one when the cache is full.
    Forced,
    /// A missed block enters only if that helps.
    Optional,
}

/// No further reference.
const NEVER: u32 = u32::MAX;

/// The fewest misses of any cache of `capacity` lines.
///
/// # Panics
/// If `capacity` is 0 or there are 2^32 - 1 or more references.
pub(crate) fn belady_misses(keys: &[u64], capacity: usize, insertion: Insertion) -> u64 {
    misses_of_future(&next_uses(keys), capacity, insertion)
}

/// For each reference the position of the next one to the same key, or [`NEVER`].
fn next_uses(keys: &[u64]) -> Vec<u32> {
    assert!(
        keys.len() < NEVER as usize,
        "there must be fewer than 2^32 - 1 references"
    );
    let mut later: HashMap<u64, u32> = HashMap::new();
    let mut next_uses = vec![NEVER; keys.len()];
    for (position, &key) in keys.iter().enumerate().rev() {
        if let Some(next) = later.insert(key, position as u32) {
            next_uses[position] = next;
        }
    }
    next_uses
}

/// A resident block is known by the position of its next use alone: `awaited` there says that the reference will be
/// a hit. Blocks that are never used again are all alike, so only their number is kept.
fn misses_of_future(next_uses: &[u32], capacity: usize, insertion: Insertion) -> u64 {
    assert!(capacity > 0, "capacity must be at least 1 line");
    let mut awaited = vec![false; next_uses.len()];
    let mut misses = 0;
    let mut useless = 0usize;
    let mut useful = 0usize;
    // The next uses of residents, farthest first. An entry whose position has passed is that of a block that was hit;
    // it lies below every entry that is still awaited, so the top is never stale while a useful block is resident.
    let mut farthest: BinaryHeap<u32> = BinaryHeap::new();
    for (position, &next) in next_uses.iter().enumerate() {
        if awaited[position] {
            useful -= 1;
        } else {
            misses += 1;
            if useless + useful == capacity {
                if insertion == Insertion::Optional && next == NEVER {
                    continue;
                }
                if useless > 0 {
                    useless -= 1;
                } else {
                    let victim = *farthest.peek().expect("a full cache has a resident");
                    if insertion == Insertion::Optional && next > victim {
                        continue;
                    }
                    farthest.pop();
                    awaited[victim as usize] = false;
                    useful -= 1;
                }
            }
        }
        if next == NEVER {
            useless += 1;
        } else {
            useful += 1;
            awaited[next as usize] = true;
            farthest.push(next);
        }
    }
    misses
}
