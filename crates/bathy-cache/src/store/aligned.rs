//! Buffers for direct I/O.

use std::cell::RefCell;
use std::mem::take;
use std::ops::{Deref, DerefMut};

/// The alignment of offsets, lengths and memory that every device takes.
pub(crate) const ALIGNMENT: usize = 4096;

/// A line of a cache as bathyd makes it has room in one that is used again, and takes little more than it has: requests hold many.
const REUSED_BYTES: [usize; 3] = [
    (16 << 10) + ALIGNMENT,
    (64 << 10) + ALIGNMENT,
    (256 << 10) + ALIGNMENT,
];
/// A thread needs so many of one size at once.
const SPARE_MAX: usize = 2;

thread_local! {
    static SPARE: RefCell<[Vec<Vec<u8>>; REUSED_BYTES.len()]> = const { RefCell::new([Vec::new(), Vec::new(), Vec::new()]) };
}

/// Bytes whose address is a multiple of 4096, as every device takes it: the aligned part of a longer vector, which needs no `unsafe`.
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// So many of them, zero at first.
    pub fn new(len: usize) -> Self {
        Self::of(vec![0; len + ALIGNMENT], len)
    }

    /// So many of them, for who fills them all: they are what an earlier user left. Neither allocated nor zeroed where that can
    /// be spared, which a hit of a few microseconds would notice.
    pub(crate) fn to_fill(len: usize) -> Self {
        let has_room = |bytes: &usize| len + ALIGNMENT <= *bytes;
        let Some(size) = REUSED_BYTES.iter().position(has_room) else {
            return Self::new(len);
        };
        let spare = SPARE.with_borrow_mut(|spare| spare[size].pop());
        Self::of(spare.unwrap_or_else(|| vec![0; REUSED_BYTES[size]]), len)
    }

    fn of(bytes: Vec<u8>, len: usize) -> Self {
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start, len }
    }
}

impl From<&[u8]> for Aligned {
    fn from(bytes: &[u8]) -> Self {
        let mut own = Self::to_fill(bytes.len());
        own.copy_from_slice(bytes);
        own
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        if let Some(size) = REUSED_BYTES.iter().position(|&bytes| bytes == self.bytes.len()) {
            let bytes = take(&mut self.bytes);
            // Not where the thread is about to end.
            let _kept = SPARE.try_with(|spare| {
                let spare = &mut spare.borrow_mut()[size];
                if spare.len() < SPARE_MAX {
                    spare.push(bytes);
                }
            });
        }
    }
}

pub(crate) fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    bytes.as_ptr().align_offset(ALIGNMENT) == 0
        && bytes.len() % ALIGNMENT == 0
        && offset % ALIGNMENT as u64 == 0
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_filled_is_used_again_and_the_rest_is_zero() {
        let mut first = Aligned::to_fill(4096);
        first.fill(7);
        let place = first.as_ptr();
        drop(first);
        let again = Aligned::to_fill(16_384);
        assert_eq!(again.as_ptr(), place);
        assert!(is_aligned(&again, 0) && again.len() == 16_384 && again[0] == 7);
        let other = Aligned::to_fill(128);
        assert_ne!(other.as_ptr(), place);
        drop((again, other));
        assert!(Aligned::new(65_536).iter().all(|&byte| byte == 0));
        assert_eq!(Aligned::to_fill(1 << 20).len(), 1 << 20);
        let kept = SPARE.with_borrow(|spare| spare[0].len());
        assert!(kept <= SPARE_MAX, "{kept}");
        let large = Aligned::to_fill(262_144);
        let place = large.as_ptr();
        drop(large);
        assert_eq!(Aligned::to_fill(131_072).as_ptr(), place);
    }

    #[test]
    fn it_is_aligned_and_zero() {
        for len in [4096, 8192, 65_536] {
            let buffer = Aligned::new(len);
            assert!(is_aligned(&buffer, 4096) && !is_aligned(&buffer, 512));
            assert!(!is_aligned(&buffer[512..], 0));
            assert_eq!((buffer.len(), buffer.iter().any(|&byte| byte != 0)), (len, false));
        }
    }
}
