//! Block numbers as little-endian u32 and nothing else, as in the `CloudPhysics` `w*.trace` files of Caffeine.
//!
//! Source: `CloudPhysicsTraceReader` of the Caffeine simulator (Apache-2.0), which reads a stream of 4-byte
//! integers; that the byte order is little-endian shows in the runs of consecutive numbers in the files. There is no time, size or operation: every
//! reference is a read of one block.

use crate::decode::RecordParser;
use crate::event::{IoEvent, Op};
use crate::reader::{Reason, Sink};

/// Reads one block number at a time.
pub(crate) struct RawU32 {
    pub(crate) block_bytes: u32,
}

impl RecordParser<4> for RawU32 {
    #[inline]
    fn record(&mut self, record: &[u8; 4], sink: &mut Sink<'_>) -> Result<(), Reason> {
        let offset_bytes = u64::from(u32::from_le_bytes(*record)) * u64::from(self.block_bytes);
        sink.push(
            IoEvent::new(Op::Read, offset_bytes, 0),
            u64::from(self.block_bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::testing::{read_all, read_skipping};

    #[test]
    fn numbers_are_blocks_of_4096_bytes() {
        let events = read_all(Format::RawU32, &[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(
            events,
            [
                IoEvent::new(Op::Read, 4096, 4096),
                IoEvent::new(Op::Read, u64::from(u32::MAX) * 4096, 4096)
            ]
        );
    }

    #[test]
    fn a_cut_number_is_reported() {
        let (events, report) = read_skipping(Format::RawU32, &[1, 0, 0, 0, 2, 0]);
        assert_eq!((events.len(), report.records_bad), (1, 1));
    }
}
