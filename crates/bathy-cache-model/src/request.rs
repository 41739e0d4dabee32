//! From requests to their parts in lines.

use bathy_policy::StreamBypass;
use bathy_policy::admission::StreamBypassOptions;

use crate::config::StreamCutoff;
use crate::lines::{Io, LineSize, Pieces};

/// What a request touches of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The line.
    pub key: u64,
    /// First byte within the line.
    pub start: u32,
    /// Byte after the last.
    pub end: u32,
    /// Part of a stream that goes past the cache: not admitted at a miss.
    pub bypasses: bool,
}

impl Part {
    /// Bytes.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.end - self.start
    }

    /// Units touched.
    #[inline]
    pub(crate) fn touched(&self, unit_shift: u32) -> u64 {
        bits(self.start >> unit_shift, (self.end - 1) >> unit_shift)
    }

    /// Units covered whole.
    #[inline]
    pub(crate) fn covered(&self, unit_shift: u32) -> u64 {
        let first = self.start.div_ceil(1 << unit_shift);
        let after = self.end >> unit_shift;
        if after > first { bits(first, after - 1) } else { 0 }
    }

    /// Bytes that lie in `units`, which are some of those touched.
    #[inline]
    pub(crate) fn bytes_in(&self, units: u64, unit_shift: u32) -> u32 {
        let (first, last) = (self.start >> unit_shift, (self.end - 1) >> unit_shift);
        let before = if units >> first & 1 == 1 {
            self.start - (first << unit_shift)
        } else {
            0
        };
        let after = if units >> last & 1 == 1 {
            ((last + 1) << unit_shift) - self.end
        } else {
            0
        };
        (units.count_ones() << unit_shift) - before - after
    }
}

/// The bits `first..=last`.
fn bits(first: u32, last: u32) -> u64 {
    (u64::MAX >> (63 - (last - first))) << first
}

/// Splits requests into parts. It must see every request, because it follows streams.
#[derive(Clone, Debug)]
pub struct RequestSplitter {
    line: LineSize,
    streams: Option<StreamBypass>,
    /// Reads are no part of them.
    is_of_writes: bool,
}

impl RequestSplitter {
    /// With `cutoff` runs that are longer go past the cache.
    pub fn new(line: LineSize, cutoff: Option<StreamCutoff>) -> Self {
        let streams = cutoff.map(|cutoff| {
            StreamBypass::new(StreamBypassOptions {
                cutoff_bytes: cutoff.bytes,
                line_bytes: line.bytes(),
                ..StreamBypassOptions::default()
            })
        });
        Self {
            line,
            streams,
            is_of_writes: cutoff.is_some_and(|cutoff| cutoff.is_of_writes),
        }
    }

    /// The parts of a request, in order; the streams see those that are taken.
    #[inline]
    pub fn split(&mut self, io: Io) -> Parts<'_> {
        Parts {
            lines: self.line.pieces(io),
            streams: self.streams.as_mut().filter(|_| io.write || !self.is_of_writes),
        }
    }

    /// The parts of a byte range of a file whose first line has the key `first_key`, for a request that the streams see; else as
    /// [`Self::split`].
    #[inline]
    pub fn split_from(&mut self, first_key: u64, offset_bytes: u64, length_bytes: u32) -> Parts<'_> {
        Parts {
            lines: self.line.pieces_from(first_key, offset_bytes, length_bytes),
            streams: self.streams.as_mut(),
        }
    }

    /// As [`Self::split_from`], for a request that the streams do not see.
    #[inline]
    pub fn look_from(&self, first_key: u64, offset_bytes: u64, length_bytes: u32) -> Parts<'static> {
        Parts {
            lines: self.line.pieces_from(first_key, offset_bytes, length_bytes),
            streams: None,
        }
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.streams.as_ref().map_or(0, StreamBypass::memory_bytes)
    }
}

/// Iterator over the parts of a request.
#[derive(Debug)]
pub struct Parts<'a> {
    lines: Pieces,
    streams: Option<&'a mut StreamBypass>,
}

impl Parts<'_> {
    /// Number of parts, counted before the first is taken.
    #[inline]
    pub fn lines(&self) -> u64 {
        self.lines.lines()
    }

    /// Whether there is no further part.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.lines.is_done()
    }
}

impl Iterator for Parts<'_> {
    type Item = Part;

    #[inline]
    fn next(&mut self) -> Option<Part> {
        let (start, end) = self.lines.peek_range();
        let (key, bytes) = self.lines.next()?;
        let streams = self.streams.as_mut();
        let bypasses = streams.is_some_and(|streams| streams.passes_by(key, u64::from(bytes)));
        Some(Part {
            key,
            start,
            end,
            bypasses,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u32, end: u32) -> Part {
        Part {
            key: 0,
            start,
            end,
            bypasses: false,
        }
    }

    #[test]
    fn masks_of_units() {
        assert_eq!(bits(0, 63), u64::MAX);
        assert_eq!(bits(2, 3), 0b1100);
        assert_eq!(part(0, 65_536).covered(12), 0xffff);
        assert_eq!(part(1, 8192).covered(12), 0b10);
        assert_eq!(part(100, 200).covered(12), 0);
        assert_eq!(part(4095, 4097).touched(12), 0b11);
        let bytes = |units| part(4095, 12_289).bytes_in(units, 12);
        assert_eq!(
            [0b0110, 0b1111, 0b1001, 0b0100, 0].map(bytes),
            [8192, 8194, 2, 4096, 0]
        );
    }

    #[test]
    fn parts_cover_the_request_and_a_long_run_bypasses() {
        let line = LineSize::new(65_536).expect("a power of two");
        let splitter = |is_of_writes| {
            RequestSplitter::new(
                line,
                Some(StreamCutoff {
                    bytes: 1 << 20,
                    is_of_writes,
                }),
            )
        };
        let io = |write| Io {
            offset_bytes: 4096,
            length_bytes: 2 << 20,
            write,
            volume: 0,
        };
        for (is_of_writes, write, first_past) in [
            (false, false, Some(16)),
            (false, true, Some(16)),
            (true, true, Some(16)),
            (true, false, None),
        ] {
            let mut splitter = splitter(is_of_writes);
            let parts: Vec<Part> = splitter.split(io(write)).collect();
            assert_eq!(parts.iter().map(Part::bytes).sum::<u32>(), 2 << 20);
            assert_eq!(parts.iter().position(|part| part.bypasses), first_past);
            assert!(splitter.memory_bytes() > 0);
        }
        // A read amid a run of writes is no part of it.
        let mut splitter = splitter(true);
        let mut last = |offset_bytes, write| {
            let io = Io {
                offset_bytes,
                length_bytes: 1 << 20,
                ..io(write)
            };
            splitter.split(io).last().map(|part| part.bypasses)
        };
        let asked = [(0, true), (1 << 20, false), (1 << 20, true), (2 << 20, false)];
        let past = asked.map(|(offset_bytes, write)| last(offset_bytes, write));
        assert_eq!(past, [false, false, true, false].map(Some));
    }
}
