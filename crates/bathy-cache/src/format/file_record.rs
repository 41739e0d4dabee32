//! A record of the file table: which file the lines with a number belong to.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | seal |
//! | 4..6 | 0 nothing, 1 a file |
//! | 6..8 | bytes of the handle |
//! | 8..16 | generation of the cache's content |
//! | 16..20 | number |
//! | 20..24 | 1 if the stamp is known, else the file is in use; and 2 if others may have changed it and its lines were not compared |
//! | 24..40 | uuid of the source |
//! | 40..72 | stamp: size, id, time of the last modification and of the last change |
//! | 72..128 | reserved, zero |
//! | 128..256 | handle |

use super::sealed::{
    Kind, Uuid, get_u16, get_u32, get_u64, is_sealed, put_u16, put_u32, put_u64, seal, words,
};
use crate::store::Stamp;

/// Bytes of a record: half a sector, so that a torn write has each record old or new.
pub const FILE_RECORD_BYTES: usize = 256;
/// Records of a block.
pub const FILES_PER_BLOCK: usize = 4096 / FILE_RECORD_BYTES;
/// Bytes of a handle at most, as with `name_to_handle_at`.
pub const HANDLE_BYTES_MAX: usize = 128;

const HANDLE_START: usize = 128;

/// By what a file is known for as long as it lives: its source and a handle there, such as `name_to_handle_at` gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    source: Uuid,
    handle: Box<[u8]>,
}

impl FileIdentity {
    /// `None` if the handle has more than [`HANDLE_BYTES_MAX`] bytes.
    pub fn new(source: Uuid, handle: &[u8]) -> Option<Self> {
        (handle.len() <= HANDLE_BYTES_MAX).then(|| Self {
            source,
            handle: handle.into(),
        })
    }

    /// One that no file has, for a file of the source that has none any more. It cannot be stored.
    pub(crate) fn unnamed(source: Uuid, number: u64) -> Self {
        let mut handle = vec![0; HANDLE_BYTES_MAX + 1];
        handle[..8].copy_from_slice(&number.to_le_bytes());
        Self {
            source,
            handle: handle.into(),
        }
    }

    /// Names the source.
    pub fn source(&self) -> &Uuid {
        &self.source
    }

    /// Names the file in the source.
    pub fn handle(&self) -> &[u8] {
        &self.handle
    }

    pub(crate) fn hash(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.source), &self.handle)
    }
}

/// A file that may have lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// The file.
    pub identity: FileIdentity,
    /// The upper half of the keys of its lines; not 0.
    pub number: u32,
    /// The generation of the content that it belongs to.
    pub generation: u64,
    /// What the file was when it was last known to be at rest; `None` while it is written to.
    pub stamp: Option<Stamp>,
    /// Nobody changed it without the cache, or its lines were compared with it since.
    pub is_compared: bool,
}

const HAS_STAMP: u32 = 1;
const IS_UNCOMPARED: u32 = 2;

impl FileRecord {
    /// The bytes of the record in slot `slot` of the file table; `None` makes an empty one.
    pub fn encode(record: Option<&Self>, uuid: &Uuid, slot: u32) -> [u8; FILE_RECORD_BYTES] {
        let mut bytes = [0; FILE_RECORD_BYTES];
        if let Some(record) = record {
            let handle = record.identity.handle();
            put_u16(&mut bytes, 4, 1);
            put_u16(&mut bytes, 6, handle.len() as u16);
            put_u64(&mut bytes, 8, record.generation);
            put_u32(&mut bytes, 16, record.number);
            let has_stamp = if record.stamp.is_some() { HAS_STAMP } else { 0 };
            let is_uncompared = if record.is_compared { 0 } else { IS_UNCOMPARED };
            put_u32(&mut bytes, 20, has_stamp | is_uncompared);
            bytes[24..40].copy_from_slice(record.identity.source());
            let stamp = record.stamp.unwrap_or_default();
            put_u64(&mut bytes, 40, stamp.size_bytes);
            put_u64(&mut bytes, 48, stamp.id);
            put_u64(&mut bytes, 56, stamp.modified_ns);
            put_u64(&mut bytes, 64, stamp.changed_ns);
            bytes[HANDLE_START..HANDLE_START + handle.len()].copy_from_slice(handle);
        }
        seal(&mut bytes, &words(Kind::File, uuid, u64::from(slot)));
        bytes
    }

    /// `None` if the bytes are no record of this slot, or an empty one.
    pub fn decode(uuid: &Uuid, slot: u32, bytes: &[u8]) -> Option<Self> {
        let seal = words(Kind::File, uuid, u64::from(slot));
        if bytes.len() != FILE_RECORD_BYTES || !is_sealed(bytes, &seal) || get_u16(bytes, 4) != 1 {
            return None;
        }
        let handle = bytes[HANDLE_START..].get(..usize::from(get_u16(bytes, 6)))?;
        let mut source = Uuid::default();
        source.copy_from_slice(&bytes[24..40]);
        let stamp = Stamp {
            size_bytes: get_u64(bytes, 40),
            id: get_u64(bytes, 48),
            modified_ns: get_u64(bytes, 56),
            changed_ns: get_u64(bytes, 64),
        };
        Some(Self {
            identity: FileIdentity::new(source, handle)?,
            number: Some(get_u32(bytes, 16)).filter(|&number| number != 0)?,
            generation: get_u64(bytes, 8),
            stamp: (get_u32(bytes, 20) & HAS_STAMP != 0).then_some(stamp),
            is_compared: get_u32(bytes, 20) & IS_UNCOMPARED == 0,
        })
    }
}
