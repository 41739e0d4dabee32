//! From requests to lines: the unit in which a cache holds data.

/// A read or write of a byte range of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes, more than zero.
    pub length_bytes: u32,
    /// Whether it writes.
    pub write: bool,
    /// Index of the volume, `u32::MAX` when there is only one address space.
    pub volume: u32,
}

/// Line numbers take the low bits of a key, the volume the high bits.
const VOLUME_SHIFT: u32 = 40;

/// The size of a cache line, a power of two of at least 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineSize {
    shift: u32,
}

/// The smallest line: a sector.
pub const MIN_LINE_BYTES: u64 = 512;
/// The largest line.
pub const MAX_LINE_BYTES: u64 = 1 << 30;
/// Volumes are numbered below this, so that no two of them share a line.
pub const MAX_VOLUMES: u32 = (1 << (u64::BITS - VOLUME_SHIFT)) - 1;

impl LineSize {
    /// `None` unless `bytes` is a power of two from 512 bytes to 1 GiB.
    pub fn new(bytes: u64) -> Option<Self> {
        let valid = bytes.is_power_of_two() && (MIN_LINE_BYTES..=MAX_LINE_BYTES).contains(&bytes);
        valid.then(|| Self {
            shift: bytes.trailing_zeros(),
        })
    }

    /// Bytes of a line.
    pub fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// The lines of a request with the bytes of each that the request covers.
    #[inline]
    pub fn pieces(self, io: Io) -> Pieces {
        // Volumes beyond 2^24 would meet others' lines only at offsets of 2^40 lines: no disk is that large.
        let volume = u64::from(io.volume.wrapping_add(1)).wrapping_shl(VOLUME_SHIFT);
        self.pieces_from(volume, io.offset_bytes, io.length_bytes)
    }

    /// The lines of a byte range, with keys that count from `first_key`, which is that of byte 0.
    #[inline]
    pub fn pieces_from(self, first_key: u64, offset_bytes: u64, length_bytes: u32) -> Pieces {
        let last_byte = offset_bytes.saturating_add(u64::from(length_bytes.max(1)) - 1);
        Pieces {
            first_key,
            shift: self.shift,
            next: offset_bytes >> self.shift,
            last: last_byte >> self.shift,
            offset: offset_bytes,
            last_byte,
            done: false,
        }
    }
}

/// Iterator over (key, bytes) of the lines of a request.
#[derive(Clone, Debug)]
pub struct Pieces {
    first_key: u64,
    shift: u32,
    next: u64,
    last: u64,
    offset: u64,
    last_byte: u64,
    done: bool,
}

impl Pieces {
    /// Number of lines.
    #[inline]
    pub fn lines(&self) -> u64 {
        self.last - self.next + 1
    }

    /// Whether there is no further line.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// First byte within the line and byte after the last, of the piece that comes next.
    #[inline]
    pub fn peek_range(&self) -> (u32, u32) {
        let start = (self.next << self.shift).max(self.offset);
        let line_end = (self.next << self.shift) | ((1u64 << self.shift) - 1);
        let mask = (1u64 << self.shift) - 1;
        (
            (start & mask) as u32,
            (line_end.min(self.last_byte) & mask) as u32 + 1,
        )
    }
}

impl Iterator for Pieces {
    type Item = (u64, u32);

    #[inline]
    fn next(&mut self) -> Option<(u64, u32)> {
        if self.done {
            return None;
        }
        let (start, end) = self.peek_range();
        let key = self.first_key.wrapping_add(self.next);
        self.done = self.next == self.last;
        self.next = self.next.wrapping_add(u64::from(!self.done));
        Some((key, end - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_the_request_once(offset in 0u64..1 << 50, length in 1u32..3_000_000, shift in 9u32..20) {
            let line = LineSize::new(1 << shift).unwrap();
            let pieces = line.pieces(Io { offset_bytes: offset, length_bytes: length, write: false, volume: 3 });
            let lines = pieces.lines();
            let all: Vec<_> = pieces.collect();
            prop_assert_eq!(all.len() as u64, lines);
            prop_assert_eq!(all.iter().map(|p| u64::from(p.1)).sum::<u64>(), u64::from(length));
            prop_assert!(all.windows(2).all(|w| w[0].0 + 1 == w[1].0));
            prop_assert_eq!(all[0].0, (4 << 40) + (offset >> shift));
        }
    }

    #[test]
    fn a_request_at_the_end_of_the_address_space_does_not_overflow() {
        let line = LineSize::new(4096).unwrap();
        let io = Io {
            offset_bytes: u64::MAX - 10,
            length_bytes: 4096,
            write: false,
            volume: u32::MAX,
        };
        assert_eq!(line.pieces(io).count(), 1);
        assert_eq!(LineSize::new(3000), None);
        assert_eq!(LineSize::new(256), None);
    }
}
