//! Block traces of Alibaba Cloud, Tencent Cloud and Microsoft Research Cambridge: CSV without a header.
//!
//! - **Alibaba** (`alibaba/block-traces` README, "Schema", `io_traces.csv`):
//!   `device_id,opcode,offset,length,timestamp`; opcode `R` or `W`, bytes, microseconds since the Unix epoch.
//! - **Tencent** (README of SNIA IOTTA "Tencent Block Storage"): `Timestamp,Offset,Size,IOType,VolumeID`; Unix
//!   seconds, sectors of 512 bytes, 0 read and 1 write.
//! - **MSR Cambridge** (README of SNIA IOTTA trace set 388, "Write Off-Loading", Narayanan et al., FAST'08):
//!   `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`; Windows file times (100 ns since 1601-01-01
//!   UTC), `Read` or `Write`, bytes; the response time is in file time units too. A volume is called `host.disk`.
//!
//! A first line with the column names is ignored.

use crate::decode::LineParser;
use crate::event::{IoEvent, Op, latency_ns_saturating};
use crate::reader::{Reason, Sink};
use crate::text::{leading_u64, split_once, trim, u32_of, u64_of};

const SECTOR_BYTES: u64 = 512;
/// 1970-01-01 as a Windows file time.
const UNIX_EPOCH_FILETIME: u64 = 116_444_736_000_000_000;

/// The number up to the next comma, and what follows.
#[inline]
fn number(line: &[u8], reason: Reason) -> Result<(u64, &[u8]), Reason> {
    match leading_u64(line) {
        Some((value, [b',', rest @ ..])) => Ok((value, rest)),
        _ => Err(reason),
    }
}

/// The number at the end of a line.
#[inline]
fn last_number(field: &[u8], reason: Reason) -> Result<u64, Reason> {
    u64_of(field).or_else(|| u64_of(trim(field))).ok_or(reason)
}

fn starts_with(line: &[u8], name: &[u8]) -> bool {
    line.get(..name.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(name))
}

/// Alibaba Cloud.
pub(crate) struct Alibaba;

impl LineParser for Alibaba {
    fn is_header(first: &[u8]) -> bool {
        starts_with(first, b"device_id")
    }

    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if line.is_empty() {
            return Ok(());
        }
        let (device, rest) = split_once(line, b',').ok_or("the line has no fields")?;
        if u32_of(device).is_none() {
            return Err("the device is not a number");
        }
        let (op, rest) = match rest {
            [b'R', b',', rest @ ..] => (Op::Read, rest),
            [b'W', b',', rest @ ..] => (Op::Write, rest),
            _ => return Err("the operation is neither R nor W"),
        };
        let (offset_bytes, rest) = number(rest, "the offset is not a number")?;
        let (length_bytes, rest) = number(rest, "the length is not a number")?;
        let time_us = last_number(rest, "the time is not a number")?;
        let time_ns = time_us.checked_mul(1000).ok_or("the time is too large")?;
        let volume = sink.volume(device)?;
        sink.push(
            IoEvent {
                time_ns,
                volume,
                ..IoEvent::new(op, offset_bytes, 0)
            },
            length_bytes,
        )
    }
}

/// Tencent Cloud.
pub(crate) struct Tencent;

impl LineParser for Tencent {
    fn is_header(first: &[u8]) -> bool {
        starts_with(first, b"timestamp")
    }

    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if line.is_empty() {
            return Ok(());
        }
        let (seconds, rest) = number(line, "the time is not a number")?;
        let (sector, rest) = number(rest, "the offset is not a number")?;
        let (sectors, rest) = number(rest, "the size is not a number")?;
        let (op, rest) = match rest {
            [b'0', b',', rest @ ..] => (Op::Read, rest),
            [b'1', b',', rest @ ..] => (Op::Write, rest),
            _ => return Err("the operation is neither 0 nor 1"),
        };
        let name = trim(rest);
        if u64_of(name).is_none() {
            return Err("the volume is not a number");
        }
        let time_ns = seconds
            .checked_mul(1_000_000_000)
            .ok_or("the time is too large")?;
        let offset_bytes = sector
            .checked_mul(SECTOR_BYTES)
            .ok_or("the offset is too large")?;
        let length_bytes = sectors.checked_mul(SECTOR_BYTES).ok_or("the size is too large")?;
        let volume = sink.volume(name)?;
        sink.push(
            IoEvent {
                time_ns,
                volume,
                ..IoEvent::new(op, offset_bytes, 0)
            },
            length_bytes,
        )
    }
}

/// Microsoft Research Cambridge.
pub(crate) struct Msr {
    name: Vec<u8>,
}

impl Msr {
    pub(crate) fn new() -> Self {
        Self { name: Vec::new() }
    }
}

impl LineParser for Msr {
    fn is_header(first: &[u8]) -> bool {
        starts_with(first, b"timestamp")
    }

    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if line.is_empty() {
            return Ok(());
        }
        let (filetime, rest) = number(line, "the time is not a number")?;
        let (host, rest) = split_once(rest, b',').ok_or("there is no disk")?;
        let (disk, rest) = split_once(rest, b',').ok_or("there is no operation")?;
        if u32_of(disk).is_none() {
            return Err("the disk is not a number");
        }
        let (op, rest) = split_once(rest, b',').ok_or("there is no offset")?;
        let op = if op.eq_ignore_ascii_case(b"read") {
            Op::Read
        } else if op.eq_ignore_ascii_case(b"write") {
            Op::Write
        } else {
            return Err("the operation is neither Read nor Write");
        };
        let (offset_bytes, rest) = number(rest, "the offset is not a number")?;
        let (length_bytes, rest) = number(rest, "the size is not a number")?;
        let response = last_number(rest, "the response time is not a number")?;
        let time_ns = filetime
            .checked_sub(UNIX_EPOCH_FILETIME)
            .and_then(|ticks| ticks.checked_mul(100))
            .ok_or("the time is before 1970 or after 2554")?;
        self.name.clear();
        self.name.extend_from_slice(host);
        self.name.push(b'.');
        self.name.extend_from_slice(disk);
        let volume = sink.volume(&self.name)?;
        let latency_ns = latency_ns_saturating(response.saturating_mul(100));
        sink.push(
            IoEvent {
                time_ns,
                volume,
                latency_ns,
                ..IoEvent::new(op, offset_bytes, 0)
            },
            length_bytes,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::testing::{names_of, read_skipping};

    fn errors(format: Format, text: &[u8]) -> Vec<String> {
        let (_, report) = read_skipping(format, text);
        report
            .first_errors
            .iter()
            .map(|bad| format!("{}: {}", bad.position, bad.reason))
            .collect()
    }

    #[test]
    fn alibaba() {
        let text = b"device_id,opcode,offset,length,timestamp\n419,W,8792731648,16384,1577808144360767\n\
            725,R,59110326272,360448,1577808144360813\n";
        let (events, names) = names_of(Format::Alibaba, text);
        assert_eq!(names.volumes.iter().collect::<Vec<_>>(), ["419", "725"]);
        assert_eq!(
            events[1],
            IoEvent {
                time_ns: 1_577_808_144_360_813_000,
                volume: 1,
                ..IoEvent::new(Op::Read, 59_110_326_272, 360_448)
            }
        );
        assert_eq!(
            errors(
                Format::Alibaba,
                b"1,R,0,512,5\nx,R,0,1,5\n1,D,0,1,5\n1,R,-1,1,5\n1,R,0,1\n1,R,0,1,5,\n"
            ),
            [
                "line 2: the device is not a number",
                "line 3: the operation is neither R nor W",
                "line 4: the offset is not a number",
                "line 5: the length is not a number",
                "line 6: the time is not a number",
            ]
        );
    }

    #[test]
    fn tencent() {
        let (events, names) = names_of(Format::Tencent, b"1538323200,12910952,128,0,1063\n");
        assert_eq!(names.volumes.get(0), Some("1063"));
        assert_eq!(
            events,
            [IoEvent {
                time_ns: 1_538_323_200_000_000_000,
                volume: 0,
                ..IoEvent::new(Op::Read, 12_910_952 * 512, 65_536)
            }]
        );
        assert_eq!(
            errors(
                Format::Tencent,
                b"1,2,3,2,4\n1,2,3,0,x\n1,36028797018963968,1,0,1\n1,2\n"
            ),
            [
                "line 1: the operation is neither 0 nor 1",
                "line 2: the volume is not a number",
                "line 3: the offset is too large",
                "line 4: the offset is not a number",
            ]
        );
    }

    #[test]
    fn msr() {
        let text = b"128166372003061629,hm,1,Read,383496192,32768,113736\r\n128166372016382155,hm,0,Write,2822144,4096,23736\n";
        let (events, names) = names_of(Format::Msr, text);
        assert_eq!(names.volumes.iter().collect::<Vec<_>>(), ["hm.1", "hm.0"]);
        // 128166372003061629 is 2007-02-22T17:00:00.306Z.
        assert_eq!(
            events[0],
            IoEvent {
                time_ns: 1_172_163_600_306_162_900,
                volume: 0,
                latency_ns: 11_373_600,
                ..IoEvent::new(Op::Read, 383_496_192, 32_768)
            }
        );
        assert_eq!(
            errors(
                Format::Msr,
                b"1,hm,1,Read,0,1,1\n128166372003061629,hm,1,Flush,0,1,1\n128166372003061629,hm\n"
            ),
            [
                "line 1: the time is before 1970 or after 2554",
                "line 2: the operation is neither Read nor Write",
                "line 3: there is no disk",
            ]
        );
    }
}
