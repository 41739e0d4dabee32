//! `VMware` `vSCSI` command traces, versions 1 and 2, as collected by `CloudPhysics`.
//!
//! Little-endian records, packed without gaps. Version 1, 32 bytes: serial number u32, length in bytes u32,
//! scatter-gather elements u32, SCSI command u16, version u16, logical block u64 (of 512 bytes), time u64 (µs).
//! Version 2, 40 bytes and another order: command u16, version u16, serial number u32, length u32, scatter-gather
//! elements u32, logical block u64, time u64, response time u64. The high byte of the version field is the version.
//!
//! Sources: `libCacheSim/traceReader/customizedReader/vscsi.h` of libCacheSim (record layouts, test of the
//! version); "Efficient MRC Construction with SHARDS" (Waldspurger et al., FAST'15) for the traces themselves; SCSI
//! operation codes from SBC-4 and SPC-4. No source gives the unit of the response time, so it is not used.

use crate::decode::{RecordParser, bytes_at};
use crate::event::{IoEvent, Op};
use crate::reader::{Reason, Sink};

const SECTOR_BYTES: u64 = 512;

/// Bytes of a record of version 1.
pub(crate) const V1_BYTES: usize = 32;
/// Bytes of a record of version 2.
pub(crate) const V2_BYTES: usize = 40;

/// Version 1.
pub(crate) struct V1;

/// Version 2.
pub(crate) struct V2;

impl RecordParser<V1_BYTES> for V1 {
    #[inline]
    fn record(&mut self, record: &[u8; V1_BYTES], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if record[15] != 1 {
            return Err("the version of the record is not 1");
        }
        push(
            u16::from_le_bytes(bytes_at(record, 12)),
            u64::from_le_bytes(bytes_at(record, 16)),
            u64::from_le_bytes(bytes_at(record, 24)),
            u32::from_le_bytes(bytes_at(record, 4)),
            sink,
        )
    }
}

impl RecordParser<V2_BYTES> for V2 {
    #[inline]
    fn record(&mut self, record: &[u8; V2_BYTES], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if record[3] != 2 {
            return Err("the version of the record is not 2");
        }
        push(
            u16::from_le_bytes(bytes_at(record, 0)),
            u64::from_le_bytes(bytes_at(record, 16)),
            u64::from_le_bytes(bytes_at(record, 24)),
            u32::from_le_bytes(bytes_at(record, 8)),
            sink,
        )
    }
}

/// The version of the first records, if they agree; version 2 is tried first as its records are longer.
pub(crate) fn version(head: &[u8]) -> Option<u8> {
    let matches = |bytes: usize, at: usize, version: u8| {
        // The low byte of the version and the high byte of the command are 0 in all traces seen.
        let mut records = head.chunks_exact(bytes).take(4).peekable();
        records.peek().is_some()
            && records.all(|record| {
                record[at] == 0 && record[at + 1] == version && record[command_high(version)] == 0
            })
    };
    if matches(V2_BYTES, 2, 2) {
        Some(2)
    } else if matches(V1_BYTES, 14, 1) {
        Some(1)
    } else {
        None
    }
}

fn command_high(version: u8) -> usize {
    if version == 2 { 1 } else { 13 }
}

#[inline]
fn push(command: u16, block: u64, time_us: u64, bytes: u32, sink: &mut Sink<'_>) -> Result<(), Reason> {
    let op = match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a => Op::Write,
        0x42 | 0x41 | 0x93 => Op::Trim,
        _ => {
            sink.ignore();
            return Ok(());
        }
    };
    let offset_bytes = block
        .checked_mul(SECTOR_BYTES)
        .ok_or("the block number is too large")?;
    let time_ns = time_us.checked_mul(1000).ok_or("the time is too large")?;
    sink.push(
        IoEvent {
            time_ns,
            ..IoEvent::new(op, offset_bytes, 0)
        },
        u64::from(bytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{read_all, read_skipping};
    use crate::{Format, IoEvent};

    fn v1(command: u16, version: u16, bytes: u32, block: u64, time_us: u64) -> Vec<u8> {
        let mut record = Vec::new();
        for value in [9_u32, bytes, 1] {
            record.extend(value.to_le_bytes());
        }
        record.extend(command.to_le_bytes());
        record.extend(version.to_le_bytes());
        record.extend(block.to_le_bytes());
        record.extend(time_us.to_le_bytes());
        record
    }

    fn v2(command: u16, bytes: u32, block: u64, time_us: u64) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(command.to_le_bytes());
        record.extend(0x0200_u16.to_le_bytes());
        for value in [9_u32, bytes, 1] {
            record.extend(value.to_le_bytes());
        }
        for value in [block, time_us, 77] {
            record.extend(value.to_le_bytes());
        }
        record
    }

    fn expected(op: Op, offset_bytes: u64, length_bytes: u32, time_ns: u64) -> IoEvent {
        IoEvent {
            time_ns,
            ..IoEvent::new(op, offset_bytes, length_bytes)
        }
    }

    #[test]
    fn commands_become_operations_in_both_versions() {
        let events = [
            expected(Op::Read, 4096, 8192, 5000),
            expected(Op::Write, 512, 512, 6000),
            expected(Op::Trim, 0, 1024, 7000),
        ];
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for (command, bytes, block, time_us) in [
            (0x28, 8192, 8, 5),
            (0x2a, 512, 1, 6),
            (0x00, 0, 0, 6),
            (0x42, 1024, 0, 7),
        ] {
            first.extend(v1(command, 0x0100, bytes, block, time_us));
            second.extend(v2(command, bytes, block, time_us));
        }
        assert_eq!(version(&first), Some(1));
        assert_eq!(version(&second), Some(2));
        assert_eq!(read_all(Format::Vscsi1, &first), events);
        assert_eq!(read_all(Format::Vscsi2, &second), events);
    }

    #[test]
    fn bad_and_cut_records_are_counted_with_their_byte() {
        let mut data = v1(0x28, 0x0100, 512, 0, 0);
        data.extend(v1(0x28, 0x0300, 512, 0, 0));
        data.extend(v1(0x28, 0x0100, 512, u64::MAX, 0));
        data.extend(v1(0x28, 0x0100, 512, 1, 0));
        data.extend([0; 5]);
        let (events, report) = read_skipping(Format::Vscsi1, &data);
        assert_eq!(events.len(), 2);
        assert_eq!(report.records_bad, 3);
        let errors: Vec<_> = report
            .first_errors
            .iter()
            .map(|bad| format!("{}: {}", bad.position, bad.reason))
            .collect();
        assert_eq!(
            errors,
            [
                "byte 32: the version of the record is not 1",
                "byte 64: the block number is too large",
                "byte 128: the last record is truncated"
            ]
        );
    }
}
