//! A record of the line table: what a slot holds. Lines of up to 64 KiB have this one:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | seal |
//! | 4..6 | 0 nothing, 1 a line |
//! | 6..8 | valid units, one bit each |
//! | 8..16 | key |
//! | 16..24 | generation of the cache's content |
//! | 24..32 | sequence: of two records with one key the higher is newer |
//! | 32..64 | reserved, zero (write-back: dirty units, order) |
//! | 64..128 | crc32c of each unit |
//!
//! Larger ones, which have more units, have a whole sector:
//!
//! | bytes | what |
//! |---|---|
//! | 0..32 | as above, but the valid units are zero |
//! | 32..40 | valid units, one bit each |
//! | 40..64 | reserved, zero (write-back) |
//! | 64..320 | crc32c of each unit |
//! | 320..512 | reserved, zero |

use super::sealed::{
    Kind, Uuid, crc_of, get_u16, get_u32, get_u64, is_sealed, put_u16, put_u32, put_u64, seal, words,
};

/// Bytes of a unit.
pub const UNIT_BYTES: u64 = 4096;
/// Units of a line at most.
pub const UNITS_MAX: usize = 64;
/// Units of a line at most that has the smaller record.
const UNITS_OF_SMALL: usize = 16;
const SMALL_BYTES: usize = 128;
const LARGE_BYTES: usize = 512;
const CRCS_AT: usize = 64;

/// Bytes of the record of a line of so many units: a sector or a quarter of one, so that a torn write has each record old or
/// new.
pub const fn record_bytes(units: usize) -> usize {
    if units <= UNITS_OF_SMALL {
        SMALL_BYTES
    } else {
        LARGE_BYTES
    }
}

/// The first key of the lines of a file.
pub(crate) fn first_key(number: u32) -> u64 {
    u64::from(number) << 32
}

/// The number of the file that a line belongs to.
pub(crate) fn number_of(key: u64) -> u32 {
    (key >> 32) as u32
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The line; `None` if there is none.
    pub key: Option<u64>,
    /// Its valid units.
    pub valid: u64,
    /// The generation of the content that it belongs to.
    pub generation: u64,
    /// Of two records with one key the one with the higher number is newer.
    pub sequence: u64,
    /// The checksum of each valid unit.
    pub crcs: [u32; UNITS_MAX],
}

impl Default for Record {
    fn default() -> Self {
        Self {
            key: None,
            valid: 0,
            generation: 0,
            sequence: 0,
            crcs: [0; UNITS_MAX],
        }
    }
}

impl Record {
    /// Makes `bytes`, of which there are as many as the record of such a line has, the record with this number
    /// ([`Layout::record_number`](super::Layout::record_number)).
    pub fn encode(&self, uuid: &Uuid, number: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        put_u16(bytes, 4, u16::from(self.key.is_some()));
        put_u64(bytes, 8, self.key.unwrap_or(0));
        put_u64(bytes, 16, self.generation);
        put_u64(bytes, 24, self.sequence);
        if bytes.len() == SMALL_BYTES {
            put_u16(bytes, 6, self.valid as u16);
        } else {
            put_u64(bytes, 32, self.valid);
        }
        for (unit, crc) in bytes[CRCS_AT..].chunks_exact_mut(4).zip(&self.crcs) {
            put_u32(unit, 0, *crc);
        }
        seal(bytes, &words(Kind::Record, uuid, number));
    }

    /// `None` if the bytes are not a record with this number.
    pub fn decode(uuid: &Uuid, number: u64, bytes: &[u8]) -> Option<Self> {
        let is_small = bytes.len() == SMALL_BYTES;
        let has_size = is_small || bytes.len() == LARGE_BYTES;
        if !has_size || !is_sealed(bytes, &words(Kind::Record, uuid, number)) {
            return None;
        }
        let mut record = Self {
            key: match get_u16(bytes, 4) {
                0 => None,
                1 => Some(get_u64(bytes, 8)),
                _ => return None,
            },
            valid: if is_small {
                u64::from(get_u16(bytes, 6))
            } else {
                get_u64(bytes, 32)
            },
            generation: get_u64(bytes, 16),
            sequence: get_u64(bytes, 24),
            ..Self::default()
        };
        for (crc, unit) in record.crcs.iter_mut().zip(bytes[CRCS_AT..].chunks_exact(4)) {
            *crc = get_u32(unit, 0);
        }
        Some(record)
    }
}

/// What the checksums of a line's units begin with: whose data they are.
#[derive(Clone, Copy, Debug)]
pub struct UnitSeed([u64; 4]);

impl UnitSeed {
    /// Of the line `key` of a cache.
    pub fn new(uuid: &Uuid, key: u64) -> Self {
        Self(words(Kind::Unit, uuid, key))
    }

    /// The checksum of the data of unit number `unit`.
    pub fn crc(&self, unit: usize, data: &[u8]) -> u32 {
        let [kind, high, low, key] = self.0;
        crc_of(&[kind, high, low, key, unit as u64], data)
    }
}
