//! Many I/Os, one column each, in vectors that are reused from batch to batch.

use crate::event::{IoEvent, Op, UNKNOWN};

/// I/Os as columns of equal length. The readers append to it and never leave the columns unequal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventBatch {
    time_ns: Vec<u64>,
    offset_bytes: Vec<u64>,
    length_bytes: Vec<u32>,
    op: Vec<Op>,
    volume: Vec<u32>,
    osd: Vec<u32>,
    pool: Vec<u32>,
    latency_ns: Vec<u32>,
}

/// Columns of a table that was read elsewhere, for [`EventBatch::from_columns`].
///
/// A column that is `None` gets the value that means "unknown": time 0, operation read, volume, OSD and pool
/// [`UNKNOWN`], latency 0.
#[derive(Debug, Clone, Copy, Default)]
pub struct Columns<'a> {
    /// Time of issue.
    pub time_ns: Option<&'a [u64]>,
    /// First byte; the only column that must be there.
    pub offset_bytes: &'a [u64],
    /// Bytes; 4096 when absent.
    pub length_bytes: Option<&'a [u32]>,
    /// Numbers of [`Op`].
    pub op: Option<&'a [u8]>,
    /// Index of the volume.
    pub volume: Option<&'a [u32]>,
    /// OSD number.
    pub osd: Option<&'a [u32]>,
    /// Pool number.
    pub pool: Option<&'a [u32]>,
    /// Time from issue to completion.
    pub latency_ns: Option<&'a [u32]>,
}

/// Why columns do not make a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// A column has not as many rows as `offset_bytes`.
    #[error("column {column} has {rows} rows, offset_bytes has {expected}")]
    Length {
        /// Name of the column.
        column: &'static str,
        /// Its rows.
        rows: usize,
        /// Rows of `offset_bytes`.
        expected: usize,
    },
    /// A value that no I/O can have.
    #[error("row {row}: {reason}")]
    Value {
        /// Row, from 0.
        row: usize,
        /// What is wrong.
        reason: &'static str,
    },
}

impl EventBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for `events` I/Os.
    pub fn with_capacity(events: usize) -> Self {
        let mut batch = Self::new();
        batch.reserve(events);
        batch
    }

    /// Makes room for `events` more.
    pub fn reserve(&mut self, events: usize) {
        self.time_ns.reserve(events);
        self.offset_bytes.reserve(events);
        self.length_bytes.reserve(events);
        self.op.reserve(events);
        self.volume.reserve(events);
        self.osd.reserve(events);
        self.pool.reserve(events);
        self.latency_ns.reserve(events);
    }

    /// A batch from the columns of a table.
    ///
    /// # Errors
    /// When the columns are not equally long, an operation is not 0..=3, a length is 0 or an extent ends
    /// beyond 2^64.
    pub fn from_columns(columns: Columns<'_>) -> Result<Self, ColumnError> {
        let rows = columns.offset_bytes.len();
        let length_bytes = column("length_bytes", columns.length_bytes, rows, 4096)?;
        for (row, (&offset, &length)) in columns.offset_bytes.iter().zip(&length_bytes).enumerate() {
            if length == 0 {
                return Err(ColumnError::Value {
                    row,
                    reason: "the length is 0",
                });
            }
            if offset.checked_add(u64::from(length)).is_none() {
                return Err(ColumnError::Value {
                    row,
                    reason: "the extent ends beyond 2^64",
                });
            }
        }
        let op = column("op", columns.op, rows, Op::Read as u8)?
            .into_iter()
            .enumerate()
            .map(|(row, number)| {
                Op::from_u8(number).ok_or(ColumnError::Value {
                    row,
                    reason: "the operation is none of 0, 1, 2 and 3",
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            time_ns: column("time_ns", columns.time_ns, rows, 0)?,
            offset_bytes: columns.offset_bytes.to_vec(),
            length_bytes,
            op,
            volume: column("volume", columns.volume, rows, UNKNOWN)?,
            osd: column("osd", columns.osd, rows, UNKNOWN)?,
            pool: column("pool", columns.pool, rows, UNKNOWN)?,
            latency_ns: column("latency_ns", columns.latency_ns, rows, 0)?,
        })
    }

    /// Number of I/Os.
    #[inline]
    pub fn len(&self) -> usize {
        self.latency_ns.len()
    }

    /// True when there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.latency_ns.is_empty()
    }

    /// Forgets the I/Os and keeps the memory.
    pub fn clear(&mut self) {
        self.time_ns.clear();
        self.offset_bytes.clear();
        self.length_bytes.clear();
        self.op.clear();
        self.volume.clear();
        self.osd.clear();
        self.pool.clear();
        self.latency_ns.clear();
    }

    /// Appends one I/O.
    #[inline]
    pub fn push(&mut self, event: IoEvent) {
        self.time_ns.push(event.time_ns);
        self.offset_bytes.push(event.offset_bytes);
        self.length_bytes.push(event.length_bytes);
        self.op.push(event.op);
        self.volume.push(event.volume);
        self.osd.push(event.osd);
        self.pool.push(event.pool);
        self.latency_ns.push(event.latency_ns);
    }

    /// The I/O at `index`.
    ///
    /// # Panics
    /// When `index` is not below [`EventBatch::len`].
    #[inline]
    pub fn get(&self, index: usize) -> IoEvent {
        IoEvent {
            time_ns: self.time_ns[index],
            offset_bytes: self.offset_bytes[index],
            length_bytes: self.length_bytes[index],
            op: self.op[index],
            volume: self.volume[index],
            osd: self.osd[index],
            pool: self.pool[index],
            latency_ns: self.latency_ns[index],
        }
    }

    /// The I/Os in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = IoEvent> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Times of issue.
    pub fn time_ns(&self) -> &[u64] {
        &self.time_ns
    }

    /// First bytes.
    pub fn offset_bytes(&self) -> &[u64] {
        &self.offset_bytes
    }

    /// Lengths.
    pub fn length_bytes(&self) -> &[u32] {
        &self.length_bytes
    }

    /// Operations.
    pub fn op(&self) -> &[Op] {
        &self.op
    }

    /// Indices of volumes.
    pub fn volume(&self) -> &[u32] {
        &self.volume
    }

    /// OSD numbers.
    pub fn osd(&self) -> &[u32] {
        &self.osd
    }

    /// Pool numbers.
    pub fn pool(&self) -> &[u32] {
        &self.pool
    }

    /// Times from issue to completion.
    pub fn latency_ns(&self) -> &[u32] {
        &self.latency_ns
    }
}

fn column<T: Copy>(
    name: &'static str,
    values: Option<&[T]>,
    rows: usize,
    missing: T,
) -> Result<Vec<T>, ColumnError> {
    match values {
        None => Ok(vec![missing; rows]),
        Some(values) if values.len() == rows => Ok(values.to_vec()),
        Some(values) => Err(ColumnError::Length {
            column: name,
            rows: values.len(),
            expected: rows,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_comes_back() {
        let mut batch = EventBatch::with_capacity(2);
        let first = IoEvent {
            time_ns: 7,
            volume: 3,
            ..IoEvent::new(Op::Write, 4096, 512)
        };
        let second = IoEvent {
            latency_ns: 9,
            osd: 1,
            pool: 2,
            ..IoEvent::new(Op::Trim, 0, 1)
        };
        batch.push(first);
        batch.push(second);
        assert_eq!(batch.iter().collect::<Vec<_>>(), [first, second]);
        batch.clear();
        assert!(batch.is_empty());
    }

    #[test]
    fn columns_that_are_missing_are_unknown() {
        let batch = EventBatch::from_columns(Columns {
            offset_bytes: &[0, 8192],
            ..Columns::default()
        })
        .unwrap();
        assert_eq!(batch.get(1), IoEvent::new(Op::Read, 8192, 4096));
    }

    #[test]
    fn columns_are_checked() {
        let offsets: &[u64] = &[0, u64::MAX - 1];
        let base = Columns {
            offset_bytes: offsets,
            ..Columns::default()
        };
        let error = |columns| EventBatch::from_columns(columns).unwrap_err().to_string();
        assert_eq!(
            error(Columns {
                op: Some(&[0]),
                length_bytes: Some(&[1, 1]),
                ..base
            }),
            "column op has 1 rows, offset_bytes has 2"
        );
        assert_eq!(
            error(Columns {
                op: Some(&[0, 4]),
                length_bytes: Some(&[1, 1]),
                ..base
            }),
            "row 1: the operation is none of 0, 1, 2 and 3"
        );
        assert_eq!(
            error(Columns {
                length_bytes: Some(&[0, 1]),
                ..base
            }),
            "row 0: the length is 0"
        );
        assert_eq!(error(base), "row 1: the extent ends beyond 2^64");
    }
}
