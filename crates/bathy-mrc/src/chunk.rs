//! Stack distances within a short chunk of keys, without knowing what came before it.
//!
//! Most accesses repeat a key of the last few thousand. The distance of these needs nothing but the chunk itself, so it
//! is found in tables that fit the first cache levels, and chunks can be searched ahead of each other. What remains for
//! the stack of the whole trace are the first touches of the chunk; [`crate::stack::LruStack::resolve`] gives them their
//! distances and renews all keys of the chunk at once (as PARDA joins pieces of a trace; Niu et al., IPDPS'12).

use crate::chunk_ranks::ChunkRanks;

/// Keys of a chunk at most: their tables take about 200 KiB.
pub(crate) const CHUNK: usize = 8192;

/// In the place of a distance: the first touch of a key, in the chunk or in the trace.
pub(crate) const FIRST_TOUCH: u32 = u32::MAX;

const SLOTS: usize = 2 * CHUNK;
const SHIFT: u32 = 64 - SLOTS.trailing_zeros();
const FREE: u16 = u16::MAX;

/// Chunks of fewer keys are not searched: to clear the tables would take longer.
const SHORT: usize = 512;

/// Chunks that are not searched after one that hardly repeated a key.
const SKIPPED: u32 = 15;

/// A chunk of keys.
#[derive(Clone, Debug)]
pub(crate) enum Chunk {
    /// Searched: the distances are known but for the first touches.
    Searched(Searched),
    /// Not searched, since hardly any key is expected twice.
    Plain(Vec<u64>),
}

/// A chunk whose distances are known but for the first touches.
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

/// The tables, reused from chunk to chunk.
#[derive(Clone, Debug)]
struct Tables {
    /// Index into the keys of the chunk, or `FREE`.
    slots: Box<[u16; SLOTS]>,
    /// The keys of the chunk and the positions of their last touches.
    found: Box<[(u64, u16); CHUNK]>,
    /// Index of the key that owns a position; meaningful only where the position is live.
    owners: Box<[u16; CHUNK]>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            slots: boxed(FREE),
            found: boxed((0, 0)),
            owners: boxed(0),
        }
    }
}

/// Finds the distances within chunks, where that is worth it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkSearch {
    /// None before the first chunk that is searched: a trace may have many groups, and most of them are small.
    tables: Option<Tables>,
    /// Chunks that are still not to be searched.
    skip: u32,
}

impl ChunkSearch {
    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.tables.as_ref().map_or(0, |tables| {
            size_of_val(&*tables.slots) + size_of_val(&*tables.found) + size_of_val(&*tables.owners)
        })
    }

    /// Cuts the keys into chunks, searched where that is worth it.
    pub(crate) fn chunks(&mut self, keys: &[u64]) -> Vec<Chunk> {
        keys.chunks(CHUNK).map(|chunk| self.chunk(chunk)).collect()
    }

    fn chunk(&mut self, keys: &[u64]) -> Chunk {
        if keys.len() < SHORT {
            return Chunk::Plain(keys.to_vec());
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Chunk::Plain(keys.to_vec());
        }
        let searched = self.tables.get_or_insert_default().search(keys);
        if searched.keys.len() * 4 > keys.len() * 3 {
            self.skip = SKIPPED;
        }
        Chunk::Searched(searched)
    }
}

impl Tables {
    /// Searches at most [`CHUNK`] keys.
    fn search(&mut self, keys: &[u64]) -> Searched {
        assert!(keys.len() <= CHUNK, "a chunk is no longer than its tables");
        self.slots.fill(FREE);
        let mut ranks = ChunkRanks::new();
        let mut first_touches = Vec::with_capacity(keys.len());
        let distances = keys.iter().enumerate().map(|(access, &key)| {
            let head = ranks.head() % CHUNK;
            let mut slot = home(key);
            loop {
                let index = self.slots[slot];
                if index == FREE {
                    let index = first_touches.len() as u16;
                    self.slots[slot] = index;
                    self.owners[head] = index;
                    self.found[usize::from(index) % CHUNK] = (key, head as u16);
                    first_touches.push(access as u16);
                    ranks.take();
                    return FIRST_TOUCH;
                }
                let (found, position) = &mut self.found[usize::from(index) % CHUNK];
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
    fn a_chunk_tells_its_own_distances_first_touches_and_order() {
        let chunk = Tables::default().search(&[7, 8, 7, 7, 9, 8, 1 << 40, 7]);
        let first = FIRST_TOUCH;
        assert_eq!(chunk.distances, [first, first, 1, 0, first, 2, first, 3]);
        assert_eq!(chunk.keys, [7, 8, 9, 1 << 40]);
        assert_eq!(chunk.first_touches, [0, 1, 4, 6]);
        assert_eq!(chunk.by_last_touch, [2, 1, 3, 0]);
    }

    #[test]
    fn chunks_without_repeats_are_seldom_searched() {
        let mut search = ChunkSearch::default();
        let mut searched = |keys: Vec<u64>| {
            let chunks = search.chunks(&keys);
            chunks
                .iter()
                .filter(|chunk| matches!(chunk, Chunk::Searched(_)))
                .count()
        };
        let scan = 32 * CHUNK as u64;
        assert_eq!(searched((0..scan).collect()), 2);
        assert_eq!(searched((0..scan).map(|step| mix64(step) % 100).collect()), 32);
    }
}
