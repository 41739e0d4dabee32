//! Binary traces of the Linux block layer, as `blktrace` writes them per CPU (`sda.blktrace.0`) or `blkparse -d`
//! merges them.
//!
//! Records `struct blk_io_trace` of 48 bytes, in the byte order of the traced machine, each followed by
//! `pdu_len` bytes of payload: magic u32 (0x65617400 with version 7 in the low byte), sequence u32, time u64
//! (ns), sector u64 (of 512 bytes), bytes u32, action u32, pid u32, device u32, cpu u32, error u16, `pdu_len`
//! u16. The low half of the action is what happened (1 queue, 7 issue, 8 complete), the high half are category
//! bits (read 1, write 2, notify 2^10, discard 2^13). Source: `include/uapi/linux/blktrace_api.h`; the device
//! number is major << 20 | minor (blktrace's `blktrace.h`).
//!
//! One stage becomes the events ([`BlockStage`]). Times count from the start of the trace. With `Complete` the
//! latency is from the last issue of the same sector; at most 65,536 issues are remembered. Each device is a
//! volume, `major,minor`. A file per CPU holds only what that CPU saw: merge the files first to match issues
//! with completions.

use std::collections::HashMap;

use crate::decode::hex;
use crate::error::Position;
use crate::event::{IoEvent, Op, latency_ns_saturating};
use crate::input::Window;
use crate::options::BlockStage;
use crate::reader::{Decoder, Fault, Reason, Sink};

const HEADER_BYTES: usize = 48;
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const SECTOR_BYTES: u64 = 512;
const CATEGORY_READ: u32 = 1;
const CATEGORY_WRITE: u32 = 1 << 1;
const CATEGORY_NOTIFY: u32 = 1 << 10;
const CATEGORY_DISCARD: u32 = 1 << 13;
const PENDING_MAX: usize = 1 << 16;

/// Issues that wait for their completion, by device and sector.
#[derive(Default)]
pub(crate) struct Pending(HashMap<(u64, u64), u64>);

impl Pending {
    /// Remembers an issue. When there are too many, all are forgotten: completions that never came are among them.
    pub(crate) fn issued(&mut self, device: u64, sector: u64, time_ns: u64) {
        if self.0.len() >= PENDING_MAX {
            self.0.clear();
        }
        self.0.insert((device, sector), time_ns);
    }

    /// The time of the issue, if it is remembered.
    pub(crate) fn completed(&mut self, device: u64, sector: u64) -> Option<u64> {
        self.0.remove(&(device, sector))
    }
}

/// The fields that are used.
struct Header {
    time_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    device: u32,
    payload_bytes: usize,
}

#[derive(Clone, Copy)]
struct ByteOrder {
    big: bool,
}

impl ByteOrder {
    fn of(record: &[u8]) -> Option<Self> {
        let magic: [u8; 4] = record.get(..4)?.try_into().ok()?;
        if u32::from_le_bytes(magic) == MAGIC | VERSION {
            Some(Self { big: false })
        } else if u32::from_be_bytes(magic) == MAGIC | VERSION {
            Some(Self { big: true })
        } else {
            None
        }
    }

    fn u16(self, record: &[u8], at: usize) -> u16 {
        let bytes = record[at..at + 2].try_into().expect("two bytes");
        if self.big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        }
    }

    fn u32(self, record: &[u8], at: usize) -> u32 {
        let bytes = record[at..at + 4].try_into().expect("four bytes");
        if self.big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }

    fn u64(self, record: &[u8], at: usize) -> u64 {
        let bytes = record[at..at + 8].try_into().expect("eight bytes");
        if self.big {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        }
    }

    fn header(self, record: &[u8]) -> Header {
        Header {
            time_ns: self.u64(record, 8),
            sector: self.u64(record, 16),
            bytes: self.u32(record, 24),
            action: self.u32(record, 28),
            device: self.u32(record, 36),
            payload_bytes: usize::from(self.u16(record, 46)),
        }
    }
}

/// True when the head starts with a record, in either byte order.
pub(crate) fn is_blktrace(head: &[u8]) -> bool {
    ByteOrder::of(head).is_some()
}

/// Reads record by record; after a bad one it looks for the next magic number.
pub(crate) struct Blktrace {
    stage: BlockStage,
    pending: Pending,
    name: Vec<u8>,
}

impl Blktrace {
    pub(crate) fn new(stage: BlockStage) -> Self {
        Self {
            stage,
            pending: Pending::default(),
            name: Vec::new(),
        }
    }

    fn event(&mut self, header: &Header, sink: &mut Sink<'_>) -> Result<(), Reason> {
        let category = header.action >> 16;
        let stage = match header.action & 0xffff {
            1 => BlockStage::Queue,
            7 => BlockStage::Issue,
            8 => BlockStage::Complete,
            _ => {
                sink.ignore();
                return Ok(());
            }
        };
        if category & CATEGORY_NOTIFY != 0 {
            sink.ignore();
            return Ok(());
        }
        let device = u64::from(header.device);
        if self.stage == BlockStage::Complete && stage == BlockStage::Issue {
            self.pending.issued(device, header.sector, header.time_ns);
        }
        if stage != self.stage {
            sink.ignore();
            return Ok(());
        }
        let op = if category & CATEGORY_DISCARD != 0 {
            Op::Trim
        } else if category & CATEGORY_WRITE != 0 {
            Op::Write
        } else if category & CATEGORY_READ != 0 {
            Op::Read
        } else {
            Op::Other
        };
        let offset_bytes = header
            .sector
            .checked_mul(SECTOR_BYTES)
            .ok_or("the sector is too large")?;
        let issued_ns = match stage {
            BlockStage::Complete => self.pending.completed(device, header.sector),
            _ => None,
        };
        let issued_ns = issued_ns.filter(|&issued_ns| issued_ns <= header.time_ns);
        self.name.clear();
        write_decimal(&mut self.name, header.device >> 20);
        self.name.push(b',');
        write_decimal(&mut self.name, header.device & 0xf_ffff);
        let volume = sink.volume(&self.name)?;
        let event = IoEvent {
            time_ns: issued_ns.unwrap_or(header.time_ns),
            volume,
            latency_ns: issued_ns.map_or(0, |issued_ns| latency_ns_saturating(header.time_ns - issued_ns)),
            ..IoEvent::new(op, offset_bytes, 0)
        };
        sink.push(event, u64::from(header.bytes))
    }
}

fn write_decimal(text: &mut Vec<u8>, number: u32) {
    use std::io::Write;
    write!(text, "{number}").expect("writing to memory does not fail");
}

/// Consumes bytes up to the next magic number in either order, or all that are surely before it.
fn resynchronise(window: &mut Window) -> Result<(), Fault> {
    window.consume(1);
    loop {
        let available = window.available();
        if let Some(at) = available.windows(4).position(is_blktrace) {
            window.consume(at);
            return Ok(());
        }
        let sure = available.len().saturating_sub(3);
        window.consume(sure);
        if !window.fill()? {
            let rest = window.available().len();
            window.consume(rest);
            return Ok(());
        }
    }
}

impl Decoder for Blktrace {
    fn decode(&mut self, window: &mut Window, sink: &mut Sink<'_>, events: usize) -> Result<(), Fault> {
        while sink.batch.len() < events {
            if window.available().len() < HEADER_BYTES {
                window.fill_to(HEADER_BYTES)?;
            }
            let position = Position::Byte(window.offset());
            let available = window.available();
            if available.is_empty() {
                return Ok(());
            }
            let lost = Fault::Lost {
                position,
                reason: "the last record is cut",
            };
            if available.len() < HEADER_BYTES {
                let rest = available.len();
                window.consume(rest);
                return Err(lost);
            }
            let Some(order) = ByteOrder::of(available) else {
                let excerpt = hex(&available[..HEADER_BYTES]);
                resynchronise(window)?;
                return Err(Fault::Record {
                    position,
                    reason: "there is no magic number",
                    excerpt,
                });
            };
            let header = order.header(available);
            let bytes = HEADER_BYTES + header.payload_bytes;
            if available.len() < bytes {
                window.fill_to(bytes)?;
                if window.available().len() < bytes {
                    let rest = window.available().len();
                    window.consume(rest);
                    return Err(lost);
                }
            }
            let result = self.event(&header, sink);
            if let Err(reason) = result {
                let excerpt = hex(&window.available()[..HEADER_BYTES]);
                window.consume(bytes);
                return Err(Fault::Record {
                    position,
                    reason,
                    excerpt,
                });
            }
            window.consume(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::options::OpenOptions;
    use crate::testing::{read_all, read_skipping, read_with};

    fn record(big: bool, time_ns: u64, sector: u64, bytes: u32, action: u32, payload: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        let mut put = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            if big {
                bytes.reverse();
            }
            record.extend(bytes);
        };
        put(&(MAGIC | VERSION).to_le_bytes());
        put(&1_u32.to_le_bytes());
        put(&time_ns.to_le_bytes());
        put(&sector.to_le_bytes());
        for value in [bytes, action, 77, (8 << 20) + 17, 0] {
            put(&value.to_le_bytes());
        }
        put(&0_u16.to_le_bytes());
        put(&(payload.len() as u16).to_le_bytes());
        record.extend(payload);
        record
    }

    fn sample(big: bool) -> Vec<u8> {
        let (read, write, discard) = (CATEGORY_READ << 16, CATEGORY_WRITE << 16, CATEGORY_DISCARD << 16);
        let mut data = record(big, 0, 0, 0, CATEGORY_NOTIFY << 16, b"fio\0");
        data.extend(record(big, 100, 8, 4096, read | 1, b""));
        data.extend(record(big, 150, 8, 4096, read | 7, b""));
        data.extend(record(big, 200, 16, 8192, write | 1, b""));
        data.extend(record(big, 250, 8, 4096, read | 8, b""));
        data.extend(record(big, 300, 0, 1 << 20, write | discard | 1, b"xyz"));
        data
    }

    #[test]
    fn queued_requests_of_both_byte_orders() {
        let expected = [
            IoEvent {
                time_ns: 100,
                volume: 0,
                ..IoEvent::new(Op::Read, 4096, 4096)
            },
            IoEvent {
                time_ns: 200,
                volume: 0,
                ..IoEvent::new(Op::Write, 8192, 8192)
            },
            IoEvent {
                time_ns: 300,
                volume: 0,
                ..IoEvent::new(Op::Trim, 0, 1 << 20)
            },
        ];
        assert_eq!(read_all(Format::Blktrace, &sample(false)), expected);
        assert_eq!(read_all(Format::Blktrace, &sample(true)), expected);
    }

    #[test]
    fn completions_have_the_latency_of_their_issue() {
        let options = OpenOptions {
            block_stage: BlockStage::Complete,
            ..OpenOptions::default()
        };
        let (events, names, _) = read_with(Format::Blktrace, &sample(false), &options);
        let expected = IoEvent {
            time_ns: 150,
            volume: 0,
            latency_ns: 100,
            ..IoEvent::new(Op::Read, 4096, 4096)
        };
        assert_eq!(events, [expected]);
        assert_eq!(names.volumes.get(0), Some("8,17"));
    }

    #[test]
    fn reading_goes_on_at_the_next_magic_number() {
        let mut data = sample(false);
        let at = data.len();
        data.extend([0x55; 99]);
        data.extend(record(false, 400, 8, 512, (CATEGORY_READ << 16) | 1, b""));
        data.extend([1, 2, 3]);
        let (events, report) = read_skipping(Format::Blktrace, &data);
        assert_eq!(events.len(), 4);
        assert_eq!(report.records_bad, 2);
        assert_eq!(report.first_errors[0].position, Position::Byte(at as u64));
    }
}
