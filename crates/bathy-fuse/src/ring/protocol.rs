//! The part of the kernel's FUSE protocol that the transport itself reads and writes: headers, INIT, READ and WRITE.
//!
//! Numbers are in the byte order of the machine. The layouts are those of `linux/fuse.h`, protocol 7.42 and later.

use std::io;

use crate::caller::Caller;

/// The bytes of `struct fuse_in_header`.
pub(super) const IN_HEADER_BYTES: usize = 40;
/// The bytes of `struct fuse_out_header`.
pub(super) const OUT_HEADER_BYTES: usize = 16;
/// The greatest bytes of a header, or of the fixed arguments of a request, in a ring entry.
pub(super) const RING_PART_BYTES: usize = 128;

pub(super) const FORGET: u32 = 2;
pub(super) const READ: u32 = 15;
pub(super) const WRITE: u32 = 16;
const INIT: u32 = 26;
const READDIR: u32 = 28;
const DESTROY: u32 = 38;
pub(super) const BATCH_FORGET: u32 = 42;
const READDIRPLUS: u32 = 44;

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
    pub(super) caller: Caller,
}

impl InHeader {
    /// `bytes` begins with a header.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            length: u32_at(bytes, 0) as usize,
            opcode: u32_at(bytes, 4),
            unique: u64_at(bytes, 8),
            caller: Caller {
                user: u32_at(bytes, 24),
                group: u32_at(bytes, 28),
                thread: u32_at(bytes, 32),
            },
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
    /// Those of the open file and of this request: a write may ask for more than the file was opened for.
    pub(super) open_flags: u32,
}

impl Transfer {
    pub(super) fn of(arguments: &[u8]) -> Self {
        Self {
            handle: u64_at(arguments, 0),
            offset: u64_at(arguments, 8),
            length: u32_at(arguments, 16) as usize,
            flags: u32_at(arguments, 20),
            open_flags: u32_at(arguments, 32),
        }
    }

    /// Whether a write is to be durable when it is answered.
    pub(super) fn is_durable(&self) -> bool {
        self.open_flags & libc::O_DSYNC as u32 != 0
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

/// The greatest part of a directory that a session is asked for at a time. The kernel takes less than it asked for.
const DIRECTORY_BYTES_MAX: u32 = 64 << 10;

/// Bounds the reply to a request for a part of a directory.
pub(super) fn bound_reply(opcode: u32, arguments: &mut [u8]) {
    const SIZE: std::ops::Range<usize> = 16..20;
    if [READDIR, READDIRPLUS].contains(&opcode) && arguments.len() >= SIZE.end {
        let bytes = u32_at(arguments, SIZE.start).min(DIRECTORY_BYTES_MAX);
        arguments[SIZE].copy_from_slice(&bytes.to_ne_bytes());
    }
}

/// A `BATCH_FORGET` as requests of at most `bytes_max`: the kernel puts as many inodes into one as fit into its reader's
/// buffer. Another request stays as it is.
pub(super) fn split(request: &[u8], bytes_max: usize) -> Vec<Vec<u8>> {
    /// `struct fuse_batch_forget_in`: a count, and a field that is not used.
    const COUNT: usize = IN_HEADER_BYTES;
    const INODES: usize = COUNT + 8;
    /// The bytes of `struct fuse_forget_one`.
    const INODE_BYTES: usize = 16;
    if request.len() <= bytes_max || InHeader::of(request).opcode != BATCH_FORGET {
        return vec![request.to_vec()];
    }
    let inodes_max = (bytes_max - INODES) / INODE_BYTES;
    let parts = request[INODES..].chunks(inodes_max * INODE_BYTES).map(|inodes| {
        let mut part = [&request[..INODES], inodes].concat();
        let length = part.len() as u32;
        part[..4].copy_from_slice(&length.to_ne_bytes());
        part[COUNT..COUNT + 4].copy_from_slice(&((inodes.len() / INODE_BYTES) as u32).to_ne_bytes());
        part
    });
    parts.collect()
}

/// A request that ends one thread of a session.
pub(super) fn destroy() -> [u8; IN_HEADER_BYTES] {
    let mut bytes = [0; IN_HEADER_BYTES];
    bytes[0..4].copy_from_slice(&(IN_HEADER_BYTES as u32).to_ne_bytes());
    bytes[4..8].copy_from_slice(&DESTROY.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
        bytes[0..4].copy_from_slice(&(length as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
        bytes
    }

    #[test]
    fn inodes_to_forget_come_in_parts_that_name_all_of_them() {
        let inodes = 1000;
        let mut whole = request(BATCH_FORGET, IN_HEADER_BYTES + 8 + 16 * inodes);
        whole[IN_HEADER_BYTES..IN_HEADER_BYTES + 4].copy_from_slice(&(inodes as u32).to_ne_bytes());
        let mut found = Vec::new();
        for part in split(&whole, 4096) {
            assert!(part.len() <= 4096);
            let header = InHeader::of(&part);
            assert_eq!((header.length, header.opcode), (part.len(), BATCH_FORGET));
            let count = u32_at(&part, IN_HEADER_BYTES) as usize;
            assert_eq!(part.len(), IN_HEADER_BYTES + 8 + 16 * count);
            found.extend_from_slice(&part[IN_HEADER_BYTES + 8..]);
        }
        assert_eq!(found, whole[IN_HEADER_BYTES + 8..]);
        assert_eq!(split(&whole, 1 << 20), [whole]);
        let other = request(FORGET, 8192);
        assert_eq!(split(&other, 4096), [other]);
    }

    #[test]
    fn parts_of_directories_are_bounded_and_nothing_else_is() {
        for (opcode, asked, bound) in [
            (READDIR, 1 << 20, DIRECTORY_BYTES_MAX),
            (READDIRPLUS, 4096, 4096),
            (READ, 1 << 20, 1 << 20),
        ] {
            let mut arguments = [0; RING_PART_BYTES];
            arguments[16..20].copy_from_slice(&u32::to_ne_bytes(asked));
            bound_reply(opcode, &mut arguments);
            assert_eq!(u32_at(&arguments, 16), bound);
        }
    }
}
