//! A superblock: what the cache is, and how its last user left it.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | seal |
//! | 4..8 | reserved, zero |
//! | 8..16 | magic |
//! | 16..20 | version |
//! | 20..24 | 1 after a clean stop |
//! | 24..40 | uuid |
//! | 40..48 | sequence |
//! | 48..56 | generation |
//! | 56..60, 60..64, 64..68 | line bytes, shards, slots of a shard, of all extents together |
//! | 68..72 | policy: 1 S3-FIFO, 2 Clock2Q+, 3 LRU: the place in [`CachePolicy::KINDS`], counted from 1 |
//! | 72..80, 80..88 | region bytes, bits of intent |
//! | 88..92 | the number of the next new file, at least |
//! | 92..96 | slots of each shard that are in memory, the last ones; 0 of versions of the program that did not say |
//! | 96..120 | reserved, zero |
//! | 120..128 | blocks of the journal, 0 |
//! | 128..384 | 16 extents: first block (8 bytes), slots of a shard (4 bytes; 0: there is none), zero (4 bytes) |
//! | 384.. | reserved, zero |

use bathy_policy::{CachePolicy, PolicyKind};

use super::layout::{Extent, Geometry};
use super::sealed::{BLOCK_BYTES, Kind, Uuid, get_u32, get_u64, is_sealed, put_u32, put_u64, seal, words};

/// The versions of the format. Any change of bytes on the SSD is another version. Lines of up to 64 KiB have the first, as
/// they always had, and larger ones the other.
pub const VERSIONS: [u32; 2] = [3, 4];
const LINE_BYTES_OF_FIRST: u32 = 65_536;
/// Four for each session, so that none comes so far.
const SEQUENCE_MAX: u64 = 1 << 24;
const EXTENTS_AT: usize = 128;
const EXTENT_BYTES: usize = 16;
const MAGIC: u64 = u64::from_le_bytes(*b"BathyCch");

/// What the cache is, and how its last user left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Names the cache.
    pub uuid: Uuid,
    /// Of two superblocks the one with the higher number counts.
    pub sequence: u64,
    /// The generation of the content. Lines of other generations are void.
    pub generation: u64,
    /// Whether the last user stopped as it should, with all state stored.
    pub is_clean: bool,
    /// Sizes.
    pub geometry: Geometry,
    /// One of [`CachePolicy::KINDS`].
    pub policy: PolicyKind,
    /// A number that no file had and no lower one will: at a clean stop the next one.
    pub next_file: u32,
    /// Slots of each shard that its last user had in memory, the last ones; 0 if that is not known: see
    /// [`Superblock::slots_in_memory`].
    pub stage_slots: u32,
}

/// Why a block is not a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// It says so itself.
    #[error("it does not hold a cache")]
    NotACache,
    /// It was written by another version of this program.
    #[error("its format is version {0}, and this program knows versions {first} and {second}", first = VERSIONS[0], second = VERSIONS[1])]
    Version(u32),
    /// Its checksum or its sizes are wrong.
    #[error("its superblocks are damaged")]
    Damaged,
}

impl Superblock {
    /// The version of the format that the cache has.
    pub fn version(&self) -> u32 {
        VERSIONS[usize::from(self.geometry.line_bytes > LINE_BYTES_OF_FIRST)]
    }

    /// The bytes. Which of the two places it has follows from its sequence: [`Superblock::place`].
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        put_u64(&mut bytes, 8, MAGIC);
        put_u32(&mut bytes, 16, self.version());
        put_u32(&mut bytes, 20, u32::from(self.is_clean));
        bytes[24..40].copy_from_slice(&self.uuid);
        put_u64(&mut bytes, 40, self.sequence);
        put_u64(&mut bytes, 48, self.generation);
        put_u32(&mut bytes, 56, self.geometry.line_bytes);
        put_u32(&mut bytes, 60, self.geometry.shards);
        put_u32(&mut bytes, 64, self.geometry.slots);
        let policy = CachePolicy::KINDS.iter().position(|kind| *kind == self.policy);
        put_u32(&mut bytes, 68, policy.map_or(0, |place| place as u32 + 1));
        put_u64(&mut bytes, 72, self.geometry.region_bytes);
        put_u64(&mut bytes, 80, self.geometry.intent_bits);
        put_u32(&mut bytes, 88, self.next_file);
        put_u32(&mut bytes, 92, self.stage_slots);
        for (number, extent) in self.geometry.extents.iter().enumerate() {
            put_u64(&mut bytes, EXTENTS_AT + number * EXTENT_BYTES, extent.start_block);
            put_u32(&mut bytes, EXTENTS_AT + number * EXTENT_BYTES + 8, extent.slots);
        }
        seal(&mut bytes, &words(Kind::Superblock, &self.uuid, 0));
        bytes
    }

    /// Slots of each shard that its last user had in memory. What lies there on the SSD was written at a clean stop.
    pub fn slots_in_memory(&self) -> u32 {
        if !self.policy.has_stage() || self.geometry.slots < 2 {
            return 0;
        }
        match self.stage_slots {
            // As it was before the budget: a 64th, and 4 GiB in each shard at most.
            0 => {
                let most = (1 << 32) / u64::from(self.geometry.line_bytes);
                u64::from(self.geometry.slots / 64).clamp(1, most.max(1)) as u32
            }
            slots => slots.min(self.geometry.slots - 1),
        }
    }

    /// Which of the two superblocks this is.
    pub fn place(&self) -> u64 {
        self.sequence % 2
    }

    /// # Errors
    /// If the bytes are no superblock of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, SuperblockError> {
        if bytes.len() != BLOCK_BYTES as usize || get_u64(bytes, 8) != MAGIC {
            return Err(SuperblockError::NotACache);
        }
        let mut uuid = Uuid::default();
        uuid.copy_from_slice(&bytes[24..40]);
        // The version comes after the seal, which all versions share: a damaged block must not pass for a newer one.
        if !is_sealed(bytes, &words(Kind::Superblock, &uuid, 0)) {
            return Err(SuperblockError::Damaged);
        }
        let version = get_u32(bytes, 16);
        if !VERSIONS.contains(&version) {
            return Err(SuperblockError::Version(version));
        }
        let geometry = Geometry {
            line_bytes: get_u32(bytes, 56),
            shards: get_u32(bytes, 60),
            slots: get_u32(bytes, 64),
            region_bytes: get_u64(bytes, 72),
            intent_bits: get_u64(bytes, 80),
            extents: std::array::from_fn(|number| Extent {
                start_block: get_u64(bytes, EXTENTS_AT + number * EXTENT_BYTES),
                slots: get_u32(bytes, EXTENTS_AT + number * EXTENT_BYTES + 8),
            }),
        };
        let place = (get_u32(bytes, 68) as usize).wrapping_sub(1);
        let policy = *CachePolicy::KINDS.get(place).ok_or(SuperblockError::Damaged)?;
        let has_next = get_u64(bytes, 40) < SEQUENCE_MAX && get_u64(bytes, 48) < u64::MAX - 1;
        if !has_next || geometry.check().is_err() || get_u32(bytes, 20) > 1 || get_u64(bytes, 120) != 0 {
            return Err(SuperblockError::Damaged);
        }
        let superblock = Self {
            uuid,
            sequence: get_u64(bytes, 40),
            generation: get_u64(bytes, 48),
            is_clean: get_u32(bytes, 20) == 1,
            geometry,
            policy,
            next_file: get_u32(bytes, 88),
            stage_slots: get_u32(bytes, 92),
        };
        if superblock.version() != version {
            return Err(SuperblockError::Damaged);
        }
        Ok(superblock)
    }
}
