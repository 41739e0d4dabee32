//! A record of the line table: what a slot holds.
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

use super::{
    Kind, Uuid, crc_of, get_u16, get_u32, get_u64, is_sealed, put_u16, put_u32, put_u64, seal, words,
};

/// Bytes of a record: a quarter of a sector, so that a torn write has each record old or new.
pub const RECORD_BYTES: usize = 128;
/// Records of a block.
pub const RECORDS_PER_BLOCK: usize = 4096 / RECORD_BYTES;
/// Bytes of a unit.
pub const UNIT_BYTES: u64 = 4096;
/// Units of a line at most.
pub const UNITS_MAX: usize = 16;

/// What a slot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The line; `None` if there is none.
    pub key: Option<u64>,
    /// Its valid units.
    pub valid: u16,
    /// The generation of the content that it belongs to.
    pub generation: u64,
    /// Of two records with one key the one with the higher number is newer.
    pub sequence: u64,
    /// The checksum of each valid unit.
    pub crcs: [u32; UNITS_MAX],
}

impl Record {
    /// The bytes of the record with this number ([`Layout::record_number`](super::Layout::record_number)).
    pub fn encode(&self, uuid: &Uuid, number: u64) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        put_u16(&mut bytes, 4, u16::from(self.key.is_some()));
        put_u16(&mut bytes, 6, self.valid);
        put_u64(&mut bytes, 8, self.key.unwrap_or(0));
        put_u64(&mut bytes, 16, self.generation);
        put_u64(&mut bytes, 24, self.sequence);
        for (unit, &crc) in self.crcs.iter().enumerate() {
            put_u32(&mut bytes, 64 + unit * 4, crc);
        }
        seal(&mut bytes, &words(Kind::Record, uuid, number));
        bytes
    }

    /// `None` if the bytes are not a record with this number.
    pub fn decode(uuid: &Uuid, number: u64, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != RECORD_BYTES || !is_sealed(bytes, &words(Kind::Record, uuid, number)) {
            return None;
        }
        let key = match get_u16(bytes, 4) {
            0 => None,
            1 => Some(get_u64(bytes, 8)),
            _ => return None,
        };
        Some(Self {
            key,
            valid: get_u16(bytes, 6),
            generation: get_u64(bytes, 16),
            sequence: get_u64(bytes, 24),
            crcs: std::array::from_fn(|unit| get_u32(bytes, 64 + unit * 4)),
        })
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
