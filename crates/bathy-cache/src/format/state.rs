//! A block of the state that a policy exports at a clean stop, with the valid units of each line.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | seal, which covers the shard, the number of the block and the sequence of the superblock of that stop |
//! | 4..6 | entries |
//! | 6..8 | 1 in the last block of a shard |
//! | 8..16 | reserved, zero |
//! | 16.. | entries of 16 bytes: a byte that says what it is, and its numbers |

use bathy_policy::StateRecord;

use super::layout::BLOCK_BYTES;
use super::{Kind, Uuid, get_u16, get_u32, get_u64, is_sealed, put_u16, put_u32, put_u64, seal, words};

const ENTRY_BYTES: usize = 16;
/// Entries of a block at most.
pub const ENTRIES_PER_BLOCK: usize = BLOCK_BYTES as usize / ENTRY_BYTES - 1;

const LINE: u8 = 1;
const FREE: u8 = 2;
const GHOST: u8 = 3;
const HANDS: u8 = 4;

/// A block of state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateBlock {
    /// At most [`ENTRIES_PER_BLOCK`], each with the valid units of a line.
    pub entries: Vec<(StateRecord, u64)>,
    /// Whether it is the last of its shard.
    pub is_last: bool,
}

fn seal_words(uuid: &Uuid, sequence: u64, shard: u32, block: u64) -> [u64; 6] {
    let [kind, high, low, shard] = words(Kind::State, uuid, u64::from(shard));
    [kind, high, low, shard, block, sequence]
}

impl StateBlock {
    /// The bytes of block number `block` of a shard, at the stop that the superblock `sequence` ends.
    pub fn encode(&self, uuid: &Uuid, sequence: u64, shard: u32, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        put_u16(&mut bytes, 4, self.entries.len() as u16);
        put_u16(&mut bytes, 6, u16::from(self.is_last));
        for (entry, &(record, units)) in bytes[ENTRY_BYTES..]
            .chunks_exact_mut(ENTRY_BYTES)
            .zip(&self.entries)
        {
            match record {
                StateRecord::Line {
                    slot,
                    key,
                    references,
                } => {
                    (entry[0], entry[1]) = (LINE, references);
                    put_u16(entry, 2, units as u16);
                    put_u32(entry, 4, slot);
                    put_u64(entry, 8, key);
                }
                StateRecord::Free { slot } => {
                    entry[0] = FREE;
                    put_u32(entry, 4, slot);
                }
                StateRecord::Ghost { number, known_by } => {
                    entry[0] = GHOST;
                    put_u32(entry, 4, number);
                    put_u64(entry, 8, known_by);
                }
                StateRecord::Hands { main, small, ghosts } => {
                    entry[0] = HANDS;
                    put_u32(entry, 4, main);
                    put_u32(entry, 8, small);
                    put_u32(entry, 12, ghosts);
                }
            }
        }
        seal(&mut bytes, &seal_words(uuid, sequence, shard, block));
        bytes
    }

    /// `None` if the bytes are not this block.
    pub fn decode(uuid: &Uuid, sequence: u64, shard: u32, block: u64, bytes: &[u8]) -> Option<Self> {
        let fits = bytes.len() == BLOCK_BYTES as usize
            && is_sealed(bytes, &seal_words(uuid, sequence, shard, block))
            && usize::from(get_u16(bytes, 4)) <= ENTRIES_PER_BLOCK;
        if !fits {
            return None;
        }
        let decode = |entry: &[u8]| {
            let record = match entry[0] {
                LINE => StateRecord::Line {
                    slot: get_u32(entry, 4),
                    key: get_u64(entry, 8),
                    references: entry[1],
                },
                FREE => StateRecord::Free {
                    slot: get_u32(entry, 4),
                },
                GHOST => StateRecord::Ghost {
                    number: get_u32(entry, 4),
                    known_by: get_u64(entry, 8),
                },
                HANDS => StateRecord::Hands {
                    main: get_u32(entry, 4),
                    small: get_u32(entry, 8),
                    ghosts: get_u32(entry, 12),
                },
                _ => return None,
            };
            Some((record, u64::from(get_u16(entry, 2))))
        };
        let entries = bytes[ENTRY_BYTES..].chunks_exact(ENTRY_BYTES);
        Some(Self {
            entries: entries
                .take(usize::from(get_u16(bytes, 4)))
                .map(decode)
                .collect::<Option<_>>()?,
            is_last: get_u16(bytes, 6) == 1,
        })
    }
}
