//! oracleGeneral, the binary format of libCacheSim.
//!
//! Little-endian records of 24 bytes, packed: clock time u32 (s), object id u64, object size u32, virtual time
//! of the next access i64 (-1 for never). Source:
//! `libCacheSim/traceReader/customizedReader/oracle/oracleGeneralBin.h`.
//!
//! An object id is a name and no address, and may be a hash of 64 bits. Each object becomes one block at `id mod
//! 2^48` blocks; so its size is not used, and two hashed objects share a block with a chance of 2^-48. The
//! format has no operation: every request is a read. Objects of size 0 are ignored, as libCacheSim does. The
//! next access, which only an oracle knows, is not used.

use crate::decode::{RecordParser, bytes_at};
use crate::event::{IoEvent, Op};
use crate::reader::{Reason, Sink};

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 24;
const ID_BITS: u32 = 48;

/// Reads one request at a time.
pub(crate) struct OracleGeneral {
    /// Below 2^16, or the largest id would not fit.
    pub(crate) block_bytes: u32,
}

impl RecordParser<RECORD_BYTES> for OracleGeneral {
    #[inline]
    fn record(&mut self, record: &[u8; RECORD_BYTES], sink: &mut Sink<'_>) -> Result<(), Reason> {
        let seconds = u32::from_le_bytes(bytes_at(record, 0));
        let id = u64::from_le_bytes(bytes_at(record, 4));
        let size = u32::from_le_bytes(bytes_at(record, 12));
        let next = i64::from_le_bytes(bytes_at(record, 16));
        if next < -1 {
            return Err("the time of the next access is negative");
        }
        if size == 0 {
            sink.ignore();
            return Ok(());
        }
        let block = id & ((1 << ID_BITS) - 1);
        let offset_bytes = block
            .checked_mul(u64::from(self.block_bytes))
            .ok_or("the block ends beyond 2^64 bytes")?;
        let time_ns = u64::from(seconds) * 1_000_000_000;
        sink.push(
            IoEvent {
                time_ns,
                ..IoEvent::new(Op::Read, offset_bytes, 0)
            },
            u64::from(self.block_bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::testing::{read_all, read_skipping};

    fn record(seconds: u32, id: u64, size: u32, next: i64) -> Vec<u8> {
        let mut record = seconds.to_le_bytes().to_vec();
        record.extend(id.to_le_bytes());
        record.extend(size.to_le_bytes());
        record.extend(next.to_le_bytes());
        record
    }

    #[test]
    fn an_object_is_a_block() {
        let mut data = record(5, 7, 100, 3);
        data.extend(record(6, u64::MAX, 1 << 20, i64::MAX));
        data.extend(record(6, 7, 0, -1));
        let at = |seconds: u64, block: u64| IoEvent {
            time_ns: seconds * 1_000_000_000,
            ..IoEvent::new(Op::Read, block * 4096, 4096)
        };
        assert_eq!(
            read_all(Format::OracleGeneral, &data),
            [at(5, 7), at(6, (1 << 48) - 1)]
        );
    }

    #[test]
    fn a_next_access_below_minus_one_is_bad() {
        let (events, report) = read_skipping(Format::OracleGeneral, &record(5, 7, 100, -2));
        assert_eq!((events.len(), report.records_bad), (0, 1));
    }
}
