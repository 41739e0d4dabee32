//! The part of the kernel's FUSE protocol that the transport itself reads and writes: headers, INIT, READ and WRITE.
//!
//! Numbers are in the byte order of the machine. The layouts are those of `linux/fuse.h`, protocol 7.42 and later.

use std::io;

/// The bytes of `struct fuse_in_header`.
pub(super) const IN_HEADER_BYTES: usize = 40;
/// The bytes of `struct fuse_out_header`.
pub(super) const OUT_HEADER_BYTES: usize = 16;
/// The greatest bytes of a header, or of the fixed arguments of a request, in a ring entry.
pub(super) const RING_PART_BYTES: usize = 128;

pub(super) const FORGET: u32 = 2;
pub(super) const READ: u32 = 15;
pub(super) const WRITE: u32 = 16;
pub(super) const INIT: u32 = 26;
const DESTROY: u32 = 38;
pub(super) const BATCH_FORGET: u32 = 42;

const INIT_EXT: u32 = 1 << 30;
/// `FUSE_OVER_IO_URING` is bit 41 of the flags, of which the upper half is a field of its own.
const OVER_IO_URING: u32 = 1 << (41 - 32);
/// The kernel takes no smaller buffer (`FUSE_MIN_READ_BUFFER`).
const BUFFER_BYTES_MIN: usize = 8192;
const PAGE_BYTES: usize = 4096;

/// What stands at `at` in `bytes`, which must be as long.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(field(bytes, at))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(field(bytes, at))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(field(bytes, at))
}

/// The fields of `struct fuse_in_header` that the transport looks at.
#[derive(Clone, Copy)]
pub(super) struct InHeader {
    pub(super) length: usize,
    pub(super) opcode: u32,
    pub(super) unique: u64,
}

impl InHeader {
    /// `bytes` begins with a header.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            length: u32_at(bytes, 0) as usize,
            opcode: u32_at(bytes, 4),
            unique: u64_at(bytes, 8),
        }
    }

    /// Writes another number into a request: replies carry it.
    pub(super) fn renumber(bytes: &mut [u8], unique: u64) {
        bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
    }
}

/// `struct fuse_out_header`.
#[derive(Clone, Copy)]
pub(super) struct OutHeader {
    /// 0, or a negative error number.
    pub(super) error: i32,
    pub(super) unique: u64,
}

impl OutHeader {
    /// `bytes` begins with a header.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            error: i32::from_ne_bytes(field(bytes, 4)),
            unique: u64_at(bytes, 8),
        }
    }

    /// The header before `payload_bytes` more.
    pub(super) fn bytes(self, payload_bytes: usize) -> [u8; OUT_HEADER_BYTES] {
        let mut bytes = [0; OUT_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&((OUT_HEADER_BYTES + payload_bytes) as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.unique.to_ne_bytes());
        bytes
    }
}

/// The common fields of `struct fuse_read_in` and `struct fuse_write_in`.
#[derive(Clone, Copy)]
pub(super) struct Transfer {
    pub(super) handle: u64,
    pub(super) offset: u64,
    pub(super) length: usize,
    /// `FUSE_WRITE_…` of a write.
    pub(super) flags: u32,
}

impl Transfer {
    pub(super) fn of(arguments: &[u8]) -> Self {
        Self {
            handle: u64_at(arguments, 0),
            offset: u64_at(arguments, 8),
            length: u32_at(arguments, 16) as usize,
            flags: u32_at(arguments, 20),
        }
    }
}

/// Whether an INIT request offers the ring.
pub(super) fn offers_ring(init: &[u8]) -> bool {
    const FLAGS: usize = IN_HEADER_BYTES + 12;
    const FLAGS_2: usize = IN_HEADER_BYTES + 16;
    init.len() >= FLAGS_2 + 4
        && InHeader::of(init).opcode == INIT
        && u32_at(init, FLAGS) & INIT_EXT != 0
        && u32_at(init, FLAGS_2) & OVER_IO_URING != 0
}

/// Accepts the ring in the reply to INIT, and returns the bytes that the buffer of an entry must have at least.
pub(super) fn accept_ring(reply: &mut [u8]) -> io::Result<usize> {
    const FLAGS: usize = OUT_HEADER_BYTES + 12;
    const MAX_WRITE: usize = OUT_HEADER_BYTES + 20;
    const MAX_PAGES: usize = OUT_HEADER_BYTES + 28;
    const FLAGS_2: usize = OUT_HEADER_BYTES + 32;
    if reply.len() < FLAGS_2 + 4 || OutHeader::of(reply).error != 0 {
        return Err(io::Error::other("the file system refused to begin"));
    }
    for (at, flag) in [(FLAGS, INIT_EXT), (FLAGS_2, OVER_IO_URING)] {
        let flags = u32_at(reply, at) | flag;
        reply[at..at + 4].copy_from_slice(&flags.to_ne_bytes());
    }
    let pages_bytes = usize::from(u16_at(reply, MAX_PAGES)) * PAGE_BYTES;
    Ok(pages_bytes
        .max(u32_at(reply, MAX_WRITE) as usize)
        .max(BUFFER_BYTES_MIN))
}

/// A request that ends one thread of a session.
pub(super) fn destroy() -> [u8; IN_HEADER_BYTES] {
    let mut bytes = [0; IN_HEADER_BYTES];
    bytes[0..4].copy_from_slice(&(IN_HEADER_BYTES as u32).to_ne_bytes());
    bytes[4..8].copy_from_slice(&DESTROY.to_ne_bytes());
    bytes
}
