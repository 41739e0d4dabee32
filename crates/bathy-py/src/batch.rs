//! Requests on their way to profiles and engines, a few thousand at a time.

use bathy_mrc::Io;
use bathy_mrc::groups::GroupedIo;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::options::{column, slice};

/// Requests of a batch at most.
const MOST_REQUESTS: usize = 16_384;

/// Bytes that the requests of a batch read and write at most, but for a single one of more: what is made of a batch
/// grows with its lines.
const MOST_BYTES: u64 = 256 << 20;

/// Batches that are held for the slowest worker.
pub(crate) const WINDOW: usize = 4;

/// Requests with their groups, and when they were issued.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) requests: Vec<GroupedIo>,
    /// As long as `requests`.
    pub(crate) times_ns: Vec<u64>,
    bytes: u64,
}

impl Batch {
    pub(crate) fn push(&mut self, request: GroupedIo, time_ns: u64) {
        self.bytes += u64::from(request.io.length_bytes);
        self.requests.push(request);
        self.times_ns.push(time_ns);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.requests.len() >= MOST_REQUESTS || self.bytes >= MOST_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// Requests that are in memory, as columns of equal length.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    time_ns: &'a [u64],
    offset_bytes: &'a [u64],
    length_bytes: &'a [u32],
    op: &'a [u8],
    volume: &'a [u32],
    group: &'a [u32],
}

impl<'a> Rows<'a> {
    pub(crate) fn new(
        time_ns: &'a PyReadonlyArray1<'_, u64>,
        offset_bytes: &'a PyReadonlyArray1<'_, u64>,
        length_bytes: &'a PyReadonlyArray1<'_, u32>,
        op: &'a PyReadonlyArray1<'_, u8>,
        volume: &'a PyReadonlyArray1<'_, u32>,
        group: &'a PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Self> {
        let offset_bytes = slice("offset_bytes", offset_bytes)?;
        let rows = offset_bytes.len();
        Ok(Self {
            time_ns: column("time_ns", Some(time_ns), rows)?.unwrap_or_default(),
            offset_bytes,
            length_bytes: column("length_bytes", Some(length_bytes), rows)?.unwrap_or_default(),
            op: column("op", Some(op), rows)?.unwrap_or_default(),
            volume: column("volume", Some(volume), rows)?.unwrap_or_default(),
            group: column("group", Some(group), rows)?.unwrap_or_default(),
        })
    }

    /// The requests and their times; rows that are neither reads nor writes, or empty, are left out.
    pub(crate) fn requests(self) -> impl Iterator<Item = (GroupedIo, u64)> + Send + 'a {
        (0..self.offset_bytes.len()).filter_map(move |row| {
            let (op, length_bytes) = (self.op[row], self.length_bytes[row]);
            let io = Io {
                offset_bytes: self.offset_bytes[row],
                length_bytes,
                write: op == 1,
                volume: self.volume[row],
            };
            let group = self.group[row];
            (op <= 1 && length_bytes > 0).then(|| (GroupedIo { group, io }, self.time_ns[row]))
        })
    }

    /// The same in batches.
    pub(crate) fn batches(self) -> impl Iterator<Item = Batch> + Send + 'a {
        let mut requests = self.requests();
        std::iter::from_fn(move || {
            let mut batch = Batch::default();
            while !batch.is_full() {
                let Some((request, time_ns)) = requests.next() else {
                    break;
                };
                batch.push(request, time_ns);
            }
            (!batch.is_empty()).then_some(batch)
        })
    }
}
