//! Storage Performance Council traces (`.spc`), as the `UMass` Financial and `WebSearch` traces.
//!
//! One I/O a line: `ASU,LBA,Size,Opcode,Timestamp`, further fields are optional; application storage unit number,
//! block of 512 bytes, bytes, `R` or `W` in either case, seconds with a fraction. Blanks around fields are allowed.
//! Source: "SPC Trace File Format Specification", revision 1.0.1 (2002). The specification leaves the block size
//! to the ASU; 512 bytes is that of the published traces. Each ASU is a volume.

use crate::decode::LineParser;
use crate::event::{IoEvent, Op};
use crate::reader::{Reason, Sink};
use crate::text::{scaled_of, split_once, trim, u32_of, u64_of};

const BLOCK_BYTES: u64 = 512;

/// Reads one line at a time.
pub(crate) struct Spc;

impl LineParser for Spc {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if trim(line).is_empty() {
            return Ok(());
        }
        let (unit, rest) = split_once(line, b',').ok_or("there are no fields")?;
        let (block, rest) = split_once(rest, b',').ok_or("there is no size")?;
        let (size, rest) = split_once(rest, b',').ok_or("there is no operation")?;
        let (op, rest) = split_once(rest, b',').ok_or("there is no time")?;
        let time = split_once(rest, b',').map_or(rest, |(time, _)| time);
        let unit = trim(unit);
        u32_of(unit).ok_or("the storage unit is not a number")?;
        let block = u64_of(trim(block)).ok_or("the block is not a number")?;
        let length_bytes = u64_of(trim(size)).ok_or("the size is not a number")?;
        let op = match trim(op) {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            _ => return Err("the operation is neither R nor W"),
        };
        let time_ns = scaled_of(trim(time), 9).ok_or("the time is not a number")?;
        let offset_bytes = block.checked_mul(BLOCK_BYTES).ok_or("the block is too large")?;
        let volume = sink.volume(unit)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::testing::{read_all, read_skipping};

    #[test]
    fn lines_of_the_specification() {
        let events = read_all(
            Format::Spc,
            b"0,20941264,8192,W,0.551706\n 1 , 8 ,512, r ,0.554041,4,5\n",
        );
        assert_eq!(
            events,
            [
                IoEvent {
                    time_ns: 551_706_000,
                    volume: 0,
                    ..IoEvent::new(Op::Write, 20_941_264 * 512, 8192)
                },
                IoEvent {
                    time_ns: 554_041_000,
                    volume: 1,
                    ..IoEvent::new(Op::Read, 4096, 512)
                },
            ]
        );
    }

    #[test]
    fn bad_lines() {
        let (events, report) = read_skipping(Format::Spc, b"0,1,2,X,0.5\n0,1\n-1,1,2,R,0.5\n0,1,2,R,\n");
        assert!(events.is_empty());
        assert_eq!(report.records_bad, 4);
    }
}
