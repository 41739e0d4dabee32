//! What all structures on the SSD have in common: numbers in bytes, and a seal that says what they are and where they belong.

/// What is read and written at once of everything but data.
pub const BLOCK_BYTES: u64 = 4096;

/// 16 random bytes that name a cache.
pub type Uuid = [u8; 16];

/// What a sealed structure is; the first word of what its seal covers.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum Kind {
    Superblock = 1,
    Intent = 2,
    Record = 3,
    State = 4,
    Unit = 5,
    File = 6,
}

/// The words before the bytes of a structure of `kind` with number `index`.
pub(super) fn words(kind: Kind, uuid: &Uuid, index: u64) -> [u64; 4] {
    [kind as u64, get_u64(uuid, 0), get_u64(uuid, 8), index]
}

/// The most words before the bytes of a structure.
const WORDS_MAX: usize = 6;

pub(super) fn crc_of(words: &[u64], bytes: &[u8]) -> u32 {
    // In one piece, because a line table has millions of seals.
    let mut seed = [0; WORDS_MAX * 8];
    let seed = &mut seed[..words.len() * 8];
    for (bytes, word) in seed.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    crc32c::crc32c_append(crc32c::crc32c(seed), bytes)
}

/// Stores in the first four bytes the checksum of `words` and the other bytes.
pub(crate) fn seal(bytes: &mut [u8], words: &[u64]) {
    let crc = crc_of(words, &bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Whether [`seal`] was the last to change them.
pub(crate) fn is_sealed(bytes: &[u8], words: &[u64]) -> bool {
    bytes.len() >= 4 && get_u32(bytes, 0) == crc_of(words, &bytes[4..])
}

pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from(get_u16(bytes, at)) | u32::from(get_u16(bytes, at + 2)) << 16
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from(get_u32(bytes, at)) | u64::from(get_u32(bytes, at + 4)) << 32
}

pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
