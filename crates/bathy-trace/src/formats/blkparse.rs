//! Text of `blkparse` in its default format.
//!
//! `major,minor cpu sequence seconds.nanoseconds pid action rwbs sector + sectors [process]`, as `8,0 1 42
//! 0.000123456 697 Q R 223490 + 8 [kjournald]`. Source: blkparse(1), "DEFAULT OUTPUT" and "DEFAULT OUTPUT PER
//! ACTION" (header `%D %2c %8s %5T.%9t %5p %2a %3d`); RWBS is `R`, `W`, `D` (discard) or `N` (none), possibly
//! after `F` (flush) and with `A S M F` behind.
//!
//! Lines of other actions, messages and the summary at the end are ignored: only a line whose action is the
//! wanted stage is checked. Stages and latencies are those of the binary format.

use crate::decode::LineParser;
use crate::event::{IoEvent, Op};
use crate::formats::blktrace::Stages;
use crate::options::BlockStage;
use crate::reader::{Reason, Sink};
use crate::text::{scaled_of, u32_of, u64_of, word};

const SECTOR_BYTES: u64 = 512;

/// Reads one line at a time.
pub(crate) struct Blkparse {
    stages: Stages,
}

/// Device, time, action and the text after the action.
struct Line<'a> {
    device: &'a [u8],
    time_ns: u64,
    action: &'a [u8],
    rest: &'a [u8],
}

fn header(line: &[u8]) -> Option<Line<'_>> {
    let (device, rest) = word(line);
    let comma = memchr::memchr(b',', device)?;
    u32_of(&device[..comma])?;
    u32_of(&device[comma + 1..])?;
    let (cpu, rest) = word(rest);
    u32_of(cpu)?;
    let (sequence, rest) = word(rest);
    u64_of(sequence)?;
    let (time, rest) = word(rest);
    let time_ns = scaled_of(time, 9)?;
    let (pid, rest) = word(rest);
    u64_of(pid)?;
    let (action, rest) = word(rest);
    (!action.is_empty()).then_some(Line {
        device,
        time_ns,
        action,
        rest,
    })
}

/// True when the line has the shape of an event.
pub(crate) fn is_event(line: &[u8]) -> bool {
    header(line).is_some_and(|line| line.action.len() <= 2 && line.action[0].is_ascii_alphabetic())
}

fn device_number(device: &[u8]) -> u64 {
    let mut parts = device
        .split(|&byte| byte == b',')
        .map(|part| u32_of(part).unwrap_or(0));
    (u64::from(parts.next().unwrap_or(0)) << 32) | u64::from(parts.next().unwrap_or(0))
}

fn op_of(rwbs: &[u8]) -> Op {
    // A leading F is a flush before the data.
    let kind = rwbs.strip_prefix(b"F").unwrap_or(rwbs).first();
    match kind {
        Some(b'R') => Op::Read,
        Some(b'W') => Op::Write,
        Some(b'D') => Op::Trim,
        _ => Op::Other,
    }
}

impl Blkparse {
    pub(crate) fn new(stage: BlockStage) -> Self {
        Self {
            stages: Stages::new(stage),
        }
    }
}

impl LineParser for Blkparse {
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        let Some(line) = header(line) else {
            sink.ignore();
            return Ok(());
        };
        let stage = match line.action {
            b"Q" => BlockStage::Queue,
            b"D" => BlockStage::Issue,
            b"C" => BlockStage::Complete,
            _ => {
                sink.ignore();
                return Ok(());
            }
        };
        if !self.stages.uses(stage) {
            sink.ignore();
            return Ok(());
        }
        let (rwbs, rest) = word(line.rest);
        let (sector, rest) = word(rest);
        if sector.is_empty() || sector.starts_with(b"[") || sector.starts_with(b"(") {
            // A flush without data has neither sector nor length; a payload is a command of another kind.
            sink.ignore();
            return Ok(());
        }
        let sector = u64_of(sector).ok_or("the sector is not a number")?;
        let (plus, rest) = word(rest);
        if plus != b"+" {
            sink.ignore();
            return Ok(());
        }
        let sectors = u64_of(word(rest).0).ok_or("the number of sectors is not a number")?;
        if sectors == 0 {
            // A flush without data.
            sink.ignore();
            return Ok(());
        }
        let device = device_number(line.device);
        let Some((time_ns, latency_ns)) = self.stages.event(stage, device, sector, line.time_ns) else {
            sink.ignore();
            return Ok(());
        };
        let offset_bytes = sector
            .checked_mul(SECTOR_BYTES)
            .ok_or("the sector is too large")?;
        let length_bytes = sectors
            .checked_mul(SECTOR_BYTES)
            .ok_or("the number of sectors is too large")?;
        let event = IoEvent {
            time_ns,
            volume: sink.volume(line.device)?,
            latency_ns,
            ..IoEvent::new(op_of(rwbs), offset_bytes, 0)
        };
        sink.push(event, length_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::options::OpenOptions;
    use crate::testing::{read_skipping, read_with};

    const TEXT: &[u8] = b"  8,0    3        1     0.000000000   697  Q   R 223490 + 8 [kjournald]\n\
        \x20 8,0    3        2     0.000001829   697  G   R 223490 + 8 [kjournald]\n\
        \x20 8,0    3        3     0.000003000   697  D   R 223490 + 8 [kjournald]\n\
        \x20 8,0    3        4     0.500000000     0  C   R 223490 + 8 [0]\n\
        \x20 8,16   1        5     1.250000000   697  Q FWFS 16 + 8 [x]\n\
        \x20 8,16   1        6     1.250000001   697  Q  FN [x]\n\
        \x20 8,16   1        7     1.260000000   697  Q   D 0 + 2048 [fstrim]\n\
        \x20 8,16   1        8     1.270000000   697  Q   R x + 8 [x]\n\
        CPU3 (8,0):\n Reads Queued:  1, 4KiB\t Writes Queued: 0, 0KiB\n";

    #[test]
    fn queued_requests() {
        let (events, report) = read_skipping(Format::Blkparse, TEXT);
        let expected = [
            IoEvent {
                volume: 0,
                ..IoEvent::new(Op::Read, 223_490 * 512, 4096)
            },
            IoEvent {
                volume: 1,
                time_ns: 1_250_000_000,
                ..IoEvent::new(Op::Write, 8192, 4096)
            },
            IoEvent {
                volume: 1,
                time_ns: 1_260_000_000,
                ..IoEvent::new(Op::Trim, 0, 1 << 20)
            },
        ];
        assert_eq!(events, expected);
        assert_eq!(report.records_bad, 1);
        assert_eq!(
            report.first_errors[0].to_string().split(':').next(),
            Some("line 8")
        );
    }

    #[test]
    fn completions_have_the_latency_of_their_issue() {
        let options = OpenOptions {
            block_stage: BlockStage::Complete,
            ..OpenOptions::default()
        };
        let (events, names, _) = read_with(Format::Blkparse, TEXT, &options);
        let expected = IoEvent {
            volume: 0,
            time_ns: 3000,
            latency_ns: 499_997_000,
            ..IoEvent::new(Op::Read, 223_490 * 512, 4096)
        };
        assert_eq!(events, [expected]);
        assert_eq!(names.volumes.get(0), Some("8,0"));
    }
}
