//! A trace in memory: line numbers, or columns of requests.

use std::borrow::Cow;
use std::ops::Range;

use bathy_cache_model::{Io, LineSize};

/// Columns of requests, one row for each. Operations other than reads (0) and writes (1) are left out, and so are
/// requests of no bytes.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// First byte of each.
    pub offset_bytes: &'a [u64],
    /// Bytes of each, as many rows as offsets.
    pub length_bytes: &'a [u32],
    /// 0 reads, 1 writes; all are reads without it.
    pub op: Option<&'a [u8]>,
    /// The volume of each; without it there is one address space.
    pub volume: Option<&'a [u32]>,
}

impl Columns<'_> {
    /// The requests of some rows.
    pub fn ios(&self, rows: Range<usize>) -> impl Iterator<Item = Io> + '_ {
        rows.filter_map(|row| {
            let op = self.op.map_or(0, |op| op[row]);
            let length_bytes = self.length_bytes[row];
            (op <= 1 && length_bytes > 0).then(|| Io {
                offset_bytes: self.offset_bytes[row],
                length_bytes,
                write: op == 1,
                volume: self.volume.map_or(u32::MAX, |volume| volume[row]),
            })
        })
    }
}

/// What is profiled.
#[derive(Clone, Copy, Debug)]
pub enum Items<'a> {
    /// Line numbers without request, size or direction.
    Keys(&'a [u64]),
    /// Requests.
    Requests(Columns<'a>),
}

impl Items<'_> {
    /// Line numbers or rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Keys(keys) => keys.len(),
            Self::Requests(columns) => columns.offset_bytes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts a range into batches of about `lines` lines: no more, but for a single request of more.
    pub(crate) fn batches(
        &self,
        range: Range<usize>,
        line: LineSize,
        lines: usize,
    ) -> impl Iterator<Item = Range<usize>> + Send + '_ {
        let mut start = range.start;
        std::iter::from_fn(move || {
            let end = self.batch_end(start..range.end, line, lines as u64);
            let batch = start..end;
            start = end;
            (!batch.is_empty()).then_some(batch)
        })
    }

    fn batch_end(&self, range: Range<usize>, line: LineSize, lines: u64) -> usize {
        let Self::Requests(columns) = self else {
            return range.end.min(range.start.saturating_add(lines as usize));
        };
        let mut seen = 0;
        let full = range.clone().position(|row| {
            // A request of n bytes touches at most so many lines, wherever it begins.
            seen += u64::from(columns.length_bytes[row]) / line.bytes() + 2;
            seen > lines
        });
        full.map_or(range.end, |rows| range.start + rows.max(1))
    }

    /// The line numbers of some items, each as often as it is referenced.
    pub(crate) fn keys(&self, range: Range<usize>, line: LineSize) -> Cow<'_, [u64]> {
        match self {
            Self::Keys(keys) => Cow::Borrowed(&keys[range]),
            Self::Requests(columns) => columns
                .ios(range)
                .flat_map(|io| line.pieces(io))
                .map(|(key, _)| key)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_cover_all_rows_and_hold_few_lines() {
        let line = LineSize::new(4096).expect("valid");
        let length_bytes: Vec<u32> = (0..1000u64)
            .map(|row| {
                if row % 100 == 7 {
                    u32::MAX
                } else {
                    (crate::hash::mix64(row) >> 46) as u32
                }
            })
            .collect();
        let offset_bytes = vec![4095; length_bytes.len()];
        let items = Items::Requests(Columns {
            offset_bytes: &offset_bytes,
            length_bytes: &length_bytes,
            op: None,
            volume: None,
        });
        let batches: Vec<_> = items.batches(3..900, line, 500).collect();
        assert_eq!((batches[0].start, batches[batches.len() - 1].end), (3, 900));
        assert!(batches.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert!(batches.iter().any(|batch| batch.len() > 1));
        for batch in batches {
            assert!(batch.len() == 1 || items.keys(batch.clone(), line).len() <= 500);
        }
        let keys: Vec<u64> = (0..1000).collect();
        let lengths: Vec<usize> = Items::Keys(&keys)
            .batches(0..1000, line, 400)
            .map(|batch| batch.len())
            .collect();
        assert_eq!(lengths, [400, 400, 200]);
    }
}
