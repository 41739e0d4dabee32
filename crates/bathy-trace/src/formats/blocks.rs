//! Texts of block numbers without time or operation: ARC `.lis` and LIRS.
//!
//! - **ARC** (Megiddo and Modha, FAST'03): `first_block number_of_blocks ignored request_number`, of which the
//!   first two count. Source: `ArcTraceReader` of the Caffeine simulator, which takes every block of a request
//!   as a reference. The request becomes one event; a reader by blocks takes it apart again.
//! - **LIRS** (Jiang and Zhang, SIGMETRICS'02): one block number a line; a line `*` marks a place and is
//!   ignored. Source: README of the authors' traces.
//!
//! Both number the units of their caches and not disk sectors, so a block is 4096 bytes by default:
//! then a cache of `n` lines of 4 KiB is the cache of `n` blocks of the papers. Every reference is a read.

use crate::decode::LineParser;
use crate::event::{IoEvent, Op};
use crate::reader::{Reason, Sink};
use crate::text::{leading_u64, trim, u64_of, word};

/// ARC `.lis`.
pub(crate) struct Arc {
    pub(crate) block_bytes: u32,
}

impl LineParser for Arc {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        let (first, rest) = word(line);
        if first.is_empty() {
            return Ok(());
        }
        let first = u64_of(first).ok_or("the block is not a number")?;
        let (blocks, rest) = word(rest);
        let blocks = u64_of(blocks).ok_or("the number of blocks is not a number")?;
        let (_, rest) = word(rest);
        let (_, rest) = word(rest);
        if !trim(rest).is_empty() {
            return Err("there are more than four fields");
        }
        push(first, blocks, self.block_bytes, sink)
    }
}

/// LIRS text.
pub(crate) struct Lirs {
    pub(crate) block_bytes: u32,
}

impl LineParser for Lirs {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        match leading_u64(line) {
            Some((block, b"")) => push(block, 1, self.block_bytes, sink),
            _ => match trim(line) {
                b"" => Ok(()),
                b"*" => {
                    sink.ignore();
                    Ok(())
                }
                line => push(
                    u64_of(line).ok_or("the block is not a number")?,
                    1,
                    self.block_bytes,
                    sink,
                ),
            },
        }
    }
}

#[inline]
fn push(first: u64, blocks: u64, block_bytes: u32, sink: &mut Sink<'_>) -> Result<(), Reason> {
    let bytes = u64::from(block_bytes);
    let offset_bytes = first.checked_mul(bytes).ok_or("the block is too large")?;
    let length_bytes = blocks.checked_mul(bytes).ok_or("there are too many blocks")?;
    sink.push(IoEvent::new(Op::Read, offset_bytes, 0), length_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::options::OpenOptions;
    use crate::testing::{read_all, read_skipping, read_with};

    #[test]
    fn arc_requests_are_runs_of_blocks() {
        let text = b"2819 2 0 0\n85\t1 0 1\n";
        let events = read_all(Format::Arc, text);
        let expected = [
            IoEvent::new(Op::Read, 2819 * 4096, 8192),
            IoEvent::new(Op::Read, 85 * 4096, 4096),
        ];
        assert_eq!(events, expected);
        let options = OpenOptions {
            block_bytes: Some(512),
            ..OpenOptions::default()
        };
        assert_eq!(
            read_with(Format::Arc, text, &options).0[0],
            IoEvent::new(Op::Read, 2819 * 512, 1024)
        );
        let (events, report) = read_skipping(
            Format::Arc,
            b"1\nx 1 0 0\n1 1 1 1 1\n1 18446744073709551615 0 0\n560 0 0 2\n",
        );
        assert_eq!((events.len(), report.records_bad), (0, 5));
    }

    #[test]
    fn lirs_lines_are_blocks() {
        let (events, report) = read_skipping(Format::Lirs, b"7\n*\n\n 8 \n9x\n18446744073709551615\n10");
        let blocks: Vec<_> = events.iter().map(|event| event.offset_bytes / 4096).collect();
        assert_eq!(blocks, [7, 8, 10]);
        assert_eq!((report.records_ignored, report.records_bad), (1, 2));
        assert_eq!(report.time_ns_range, None);
    }
}
