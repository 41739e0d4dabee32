//! The memory that a queue shares with the kernel.

use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::protocol::{IN_HEADER_BYTES, OUT_HEADER_BYTES, RING_PART_BYTES, u32_at, u64_at};

/// Headers are alone on a page, as the kernel may pin it.
const HEADER_BYTES: usize = 4096;
const PAGE_BYTES: usize = 4096;
/// In the header: `struct fuse_uring_ent_in_out` stands behind two parts of a fixed length.
const COMMIT_ID: usize = 2 * RING_PART_BYTES + 8;
const PAYLOAD_LENGTH: usize = 2 * RING_PART_BYTES + 16;
/// The bytes of `struct fuse_uring_req_header`.
const RING_HEADER_BYTES: usize = 2 * RING_PART_BYTES + 32;

/// The buffers of the entries of a queue. Pages that are not used take no memory.
pub(super) struct Buffers {
    start: NonNull<u8>,
    entries: usize,
    payload_bytes: usize,
    /// What the kernel reads when an entry is registered.
    vectors: Vec<[libc::iovec; 2]>,
}

/// An entry that the kernel has handed over.
pub(super) struct Entry<'a> {
    header: &'a mut [u8],
    /// The payload of the request, and then of the reply.
    pub(super) payload: &'a mut [u8],
}

impl Buffers {
    /// Buffers for `entries` requests with payloads of up to `payload_bytes`.
    pub(super) fn new(entries: usize, payload_bytes: usize) -> io::Result<Self> {
        let payload_bytes = payload_bytes.next_multiple_of(PAGE_BYTES);
        let bytes = NonZeroUsize::new(entries * (HEADER_BYTES + payload_bytes));
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new private mapping at an address that the kernel chooses touches no memory that is in use.
        let start = unsafe {
            mmap_anonymous(
                None,
                bytes,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE,
            )
        }?;
        let mut buffers = Self {
            start: start.cast(),
            entries,
            payload_bytes,
            vectors: Vec::with_capacity(entries),
        };
        for index in 0..entries {
            let (header, payload) = buffers.addresses(index);
            let vector = |start: NonNull<u8>, bytes| libc::iovec {
                iov_base: start.as_ptr().cast(),
                iov_len: bytes,
            };
            buffers
                .vectors
                .push([vector(header, HEADER_BYTES), vector(payload, payload_bytes)]);
        }
        Ok(buffers)
    }

    fn addresses(&self, index: usize) -> (NonNull<u8>, NonNull<u8>) {
        assert!(index < self.entries);
        // SAFETY: both are within the mapping, which has `entries` pairs of a header and a payload.
        unsafe {
            let header = self.start.add(index * (HEADER_BYTES + self.payload_bytes));
            (header, header.add(HEADER_BYTES))
        }
    }

    /// Where the kernel finds the two buffers of an entry: an array of two `struct iovec`.
    pub(super) fn vectors_address(&self, index: usize) -> u64 {
        self.vectors[index].as_ptr() as u64
    }

    /// The entry `index`.
    ///
    /// # Safety
    /// The kernel has completed the last command of this entry, no other was submitted, and nobody else has the entry.
    pub(super) unsafe fn entry(&self, index: usize) -> Entry<'_> {
        let (header, payload) = self.addresses(index);
        // SAFETY: the ranges are mapped, initialised (by zeroes or by the kernel), disjoint from those of other entries, and
        // mapped as long as the buffers are borrowed. By the contract nobody else, and until the next command not the kernel,
        // touches them.
        unsafe {
            Entry {
                header: std::slice::from_raw_parts_mut(header.as_ptr(), RING_HEADER_BYTES),
                payload: std::slice::from_raw_parts_mut(payload.as_ptr(), self.payload_bytes),
            }
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let bytes = self.entries * (HEADER_BYTES + self.payload_bytes);
        // SAFETY: the mapping is our own and whole. Who has an entry has a share of the buffers, and `Queue` drops its ring, by
        // which the kernel knows the addresses, before its own.
        let _unmapped = unsafe { munmap(self.start.cast(), bytes) };
    }
}

// SAFETY: the mapping belongs to the value and to no thread. What is in it is reached through `entry` only, by whose contract
// one has an entry at a time.
unsafe impl Send for Buffers {}
// SAFETY: as above; all else does not change.
unsafe impl Sync for Buffers {}

impl Entry<'_> {
    /// The header of the request.
    pub(super) fn in_header(&mut self) -> &mut [u8] {
        &mut self.header[..IN_HEADER_BYTES]
    }

    /// The fixed arguments of the request, and what may stand behind them.
    pub(super) fn arguments(&self) -> &[u8] {
        &self.header[RING_PART_BYTES..2 * RING_PART_BYTES]
    }

    /// By what the kernel knows the request again.
    pub(super) fn commit_id(&self) -> u64 {
        u64_at(self.header, COMMIT_ID)
    }

    /// The bytes of the payload of the request.
    pub(super) fn payload_length(&self) -> usize {
        u32_at(self.header, PAYLOAD_LENGTH) as usize
    }

    /// Writes what the kernel reads of a reply, beside the first `payload_length` bytes of the payload.
    pub(super) fn set_reply(&mut self, out_header: [u8; OUT_HEADER_BYTES], payload_length: usize) {
        self.header[..OUT_HEADER_BYTES].copy_from_slice(&out_header);
        self.header[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4]
            .copy_from_slice(&(payload_length as u32).to_ne_bytes());
    }
}
