//! One block I/O as every reader reports it.

use std::fmt;

/// The value of [`IoEvent::volume`], [`IoEvent::osd`] and [`IoEvent::pool`] when the trace does not contain it.
pub const UNKNOWN: u32 = u32::MAX;

/// The longest read or write that a record can mean. A command to a drive moves 65,536 blocks at most (`NVMe`, and `READ(10)`
/// of SCSI), 256 MiB of 4 KiB each, and an object of Ceph has 128 MiB at most (`osd_max_object_size`). What is made of an I/O
/// grows with its length, so without a limit a file of a few kilobytes could stand for hours of work.
pub const MOST_REQUEST_BYTES: u64 = 256 << 20;

/// The operation of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Op {
    /// Data is returned to the client.
    Read = 0,
    /// Data is replaced.
    Write = 1,
    /// Data is discarded: trim, unmap, truncate, zero, delete.
    Trim = 2,
    /// Unknown, or none of the others.
    Other = 3,
}

impl Op {
    /// The name that the CSV format uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One block I/O.
///
/// `time_ns` is when the I/O was issued: nanoseconds since the Unix epoch, since the start of the trace, or 0
/// throughout, see [`crate::Format::has_time`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct IoEvent {
    /// Time of issue.
    pub time_ns: u64,
    /// First byte, counted from the start of the volume.
    pub offset_bytes: u64,
    /// Bytes; never 0, and of a read or write at most [`MOST_REQUEST_BYTES`]. `offset_bytes + length_bytes` never
    /// overflows.
    pub length_bytes: u32,
    /// The operation.
    pub op: Op,
    /// Index into [`crate::NameTables::volumes`], or [`UNKNOWN`].
    pub volume: u32,
    /// OSD number, or [`UNKNOWN`].
    pub osd: u32,
    /// Pool number of the cluster or, if the trace gives pool names, index into [`crate::NameTables::pools`];
    /// [`UNKNOWN`] if it has neither.
    pub pool: u32,
    /// Time from issue to completion; 0 if unknown, `u32::MAX` (4.29 s) if it was that or more.
    pub latency_ns: u32,
}

impl IoEvent {
    /// An I/O of which only operation and extent are known.
    pub fn new(op: Op, offset_bytes: u64, length_bytes: u32) -> Self {
        Self {
            time_ns: 0,
            offset_bytes,
            length_bytes,
            op,
            volume: UNKNOWN,
            osd: UNKNOWN,
            pool: UNKNOWN,
            latency_ns: 0,
        }
    }
}

/// A latency in nanoseconds as [`IoEvent::latency_ns`] holds it.
pub(crate) fn latency_ns_saturating(latency_ns: u64) -> u32 {
    u32::try_from(latency_ns).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_latency_saturates() {
        assert_eq!(latency_ns_saturating(5_000_000_000), u32::MAX);
        assert_eq!(latency_ns_saturating(17), 17);
    }
}
