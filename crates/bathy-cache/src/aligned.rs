//! Buffers for direct I/O.

use std::ops::{Deref, DerefMut};

/// The alignment of offsets, lengths and memory that every device takes.
pub(crate) const ALIGNMENT: usize = 4096;

/// Bytes, zero at first, whose address is a multiple of 4096, as every device takes it: the aligned part of a longer vector, which needs no `unsafe`.
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// So many of them.
    pub fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start, len }
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
    fn it_is_aligned_and_zero() {
        for len in [4096, 8192, 65_536] {
            let buffer = Aligned::new(len);
            assert!(is_aligned(&buffer, 4096) && !is_aligned(&buffer, 512));
            assert!(!is_aligned(&buffer[512..], 0));
            assert_eq!((buffer.len(), buffer.iter().any(|&byte| byte != 0)), (len, false));
        }
    }
}
