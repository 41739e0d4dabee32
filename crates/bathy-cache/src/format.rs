//! What lies on the SSD. All numbers are little-endian; all areas begin at blocks of 4 KiB.
//!
//! | area | what |
//! |---|---|
//! | blocks 0 and 1 | the two superblocks; the one with the higher sequence number counts |
//! | blocks 2 to 15 | reserved |
//! | intent bitmap | sectors of 512 bytes, bits that the regions of files share by a hash |
//! | file table | records of 256 bytes: which file has which number |
//! | state | what the policy knows, written at a clean stop |
//! | line table | records of 128 bytes, or of 512 for lines of more than 64 KiB, one for each slot |
//! | journal | reserved for write-back; no blocks in this version |
//! | data | one line for each slot |
//!
//! Every structure begins with its seal: a crc32c over what it is, where it belongs, the uuid of the cache, and its bytes. So
//! a structure that was written to another place, or left by another cache, is as bad as a damaged one. Each sealed
//! structure lies within one sector or is read as a whole, because a power cut tears writes at sectors of 512 bytes.

mod file_record;
pub(crate) mod generation_store;
mod intent_sector;
mod layout;
mod record;
mod sealed;
mod state;
mod superblock;
#[cfg(test)]
mod tests;

pub use file_record::{FILE_RECORD_BYTES, FILES_PER_BLOCK, FileIdentity, FileRecord, HANDLE_BYTES_MAX};
pub use intent_sector::{REGIONS_PER_SECTOR, SECTOR_BYTES, decode_intent, encode_intent};
pub use layout::{EXTENTS_MAX, Extent, Geometry, GeometryError, Layout};
pub use record::{Record, UNIT_BYTES, UNITS_MAX, UnitSeed, record_bytes};
pub(crate) use record::{first_key, number_of};
pub use sealed::{BLOCK_BYTES, Uuid};
pub use state::{StateBlock, entries_per_block};
pub use superblock::{Superblock, SuperblockError, VERSIONS};
