//! A block of the state that a policy exports at a clean stop, with the valid units of each line.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | seal, which covers the shard, the number of the block and the sequence of the superblock of that stop |
//! | 4..6 | entries |
//! | 6..8 | 1 in the last block of a shard |
//! | 8..16 | reserved, zero |
//! | 16.. | entries of 16 bytes: a byte that says what it is, and its numbers; of a cache whose lines have more than 16 units 24 bytes, with the valid units behind |

use bathy_policy::StateRecord;

use super::sealed::{
    BLOCK_BYTES, Kind, Uuid, get_u16, get_u32, get_u64, is_sealed, put_u16, put_u32, put_u64, seal, words,
};

const HEADER_BYTES: usize = 16;
const SMALL_BYTES: usize = 16;
const LARGE_BYTES: usize = 24;
/// Units of a line at most that has the smaller entry.
const UNITS_OF_SMALL: usize = 16;

const fn entry_bytes(line_units: usize) -> usize {
    if line_units <= UNITS_OF_SMALL {
        SMALL_BYTES
    } else {
        LARGE_BYTES
    }
}

/// Entries of a block at most, of a cache whose lines have so many units.
pub const fn entries_per_block(line_units: usize) -> usize {
    (BLOCK_BYTES as usize - HEADER_BYTES) / entry_bytes(line_units)
}

const LINE: u8 = 1;
const FREE: u8 = 2;
const GHOST: u8 = 3;
const HANDS: u8 = 4;

/// A block of state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateBlock {
    /// At most [`entries_per_block`], each with the valid units of a line.
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
    pub fn encode(&self, line_units: usize, uuid: &Uuid, sequence: u64, shard: u32, block: u64) -> Vec<u8> {
        let entry_bytes = entry_bytes(line_units);
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        put_u16(&mut bytes, 4, self.entries.len() as u16);
        put_u16(&mut bytes, 6, u16::from(self.is_last));
        for (entry, &(record, units)) in bytes[HEADER_BYTES..]
            .chunks_exact_mut(entry_bytes)
            .zip(&self.entries)
        {
            match record {
                StateRecord::Line {
                    slot,
                    key,
                    references,
                } => {
                    (entry[0], entry[1]) = (LINE, references);
                    put_u32(entry, 4, slot);
                    put_u64(entry, 8, key);
                    if entry_bytes == SMALL_BYTES {
                        put_u16(entry, 2, units as u16);
                    } else {
                        put_u64(entry, SMALL_BYTES, units);
                    }
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
    pub fn decode(
        line_units: usize,
        uuid: &Uuid,
        sequence: u64,
        shard: u32,
        block: u64,
        bytes: &[u8],
    ) -> Option<Self> {
        let entry_bytes = entry_bytes(line_units);
        let fits = bytes.len() == BLOCK_BYTES as usize
            && is_sealed(bytes, &seal_words(uuid, sequence, shard, block))
            && usize::from(get_u16(bytes, 4)) <= entries_per_block(line_units);
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
            let units = if entry_bytes == SMALL_BYTES {
                u64::from(get_u16(entry, 2))
            } else {
                get_u64(entry, SMALL_BYTES)
            };
            Some((record, units))
        };
        let entries = bytes[HEADER_BYTES..].chunks_exact(entry_bytes);
        Some(Self {
            entries: entries
                .take(usize::from(get_u16(bytes, 4)))
                .map(decode)
                .collect::<Option<_>>()?,
            is_last: get_u16(bytes, 6) == 1,
        })
    }
}
