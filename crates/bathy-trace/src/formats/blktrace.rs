//! Binary traces of the Linux block layer, as `blktrace` writes them per CPU (`sda.blktrace.0`) or `blkparse -d`
//! merges them.
//!
//! Records in the byte order of the traced machine, each followed by `pdu_len` bytes of payload. They start with
//! magic u32 (0x65617400 with the version in the low byte), sequence u32, time u64 (ns), sector u64 (of 512 bytes)
//! and bytes u32. Then, in version 7 (`struct blk_io_trace`, 48 bytes): action u32, pid u32, device u32, cpu u32,
//! error u16, `pdu_len` u16. In version 8 (`struct blk_io_trace2`, 64 bytes): pid u32, action u64, device u32, cpu
//! u32, error u16, `pdu_len` u16, 12 bytes of padding. The low 16 bits of the action are what happened (1 queue, 7
//! issue, 8 complete), where 2^8 says that the payload starts with the id of a control group; above them are
//! category bits (read 1, write 2, passed-through command 2^9, notify 2^10, discard 2^13, commands of zoned devices
//! 2^16 to 2^21). Source: `include/uapi/linux/blktrace_api.h` and `kernel/trace/blktrace.c` of Linux; the device
//! number is major << 20 | minor (blktrace's `blktrace.h`).
//!
//! One stage becomes the events ([`BlockStage`]). Ignored are notes, passed-through commands, which have no place on
//! the disk (the kernel writes sector 0), and commands of zoned devices, as a zone append has no place before it is
//! done. Times count from the boot of the traced machine, or from the start of the trace after `blkparse -d`. With
//! `Complete` the latency is from the last issue of the same sector; at most 65,536 issues are remembered. Each
//! device is a volume, `major,minor`. A file per CPU holds only what that CPU saw: merge the files first to match
//! issues with completions.

use std::collections::HashMap;
use std::io::Write;

use crate::decode::{bytes_at, hex};
use crate::error::Position;
use crate::event::{IoEvent, Op, latency_ns_saturating};
use crate::input::Window;
use crate::options::BlockStage;
use crate::reader::{Decoder, Fault, Reason, Sink};

/// A record of the smaller version.
const HEADER_BYTES_MIN: usize = 48;
const MAGIC: u32 = 0x6561_7400;
const SECTOR_BYTES: u64 = 512;
const HAPPENED_MASK: u64 = 0xffff;
const FROM_CONTROL_GROUP: u64 = 1 << 8;
const CATEGORY_SHIFT: u32 = 16;
const CATEGORY_READ: u64 = 1;
const CATEGORY_WRITE: u64 = 1 << 1;
const CATEGORY_PASSED_THROUGH: u64 = 1 << 9;
const CATEGORY_NOTIFY: u64 = 1 << 10;
const CATEGORY_DISCARD: u64 = 1 << 13;
const CATEGORIES_OF_ZONES: u64 = 0x3f << 16;
const PENDING_MAX: usize = 1 << 16;

/// The stage that becomes the events, and the issues that wait for their completion, by device and sector.
pub(crate) struct Stages {
    wanted: BlockStage,
    issued_ns: HashMap<(u64, u64), u64>,
}

impl Stages {
    pub(crate) fn new(wanted: BlockStage) -> Self {
        Self {
            wanted,
            issued_ns: HashMap::new(),
        }
    }

    /// Whether records of `stage` are needed.
    pub(crate) fn uses(&self, stage: BlockStage) -> bool {
        stage == self.wanted || (self.wanted == BlockStage::Complete && stage == BlockStage::Issue)
    }

    /// Time of issue and latency of the event that a record of a used stage makes; `None` when it only starts the
    /// latency of a later one.
    pub(crate) fn event(
        &mut self,
        stage: BlockStage,
        device: u64,
        sector: u64,
        time_ns: u64,
    ) -> Option<(u64, u32)> {
        if stage != self.wanted {
            // Issues whose completion never comes fill the map, so all are forgotten when there are too many.
            if self.issued_ns.len() >= PENDING_MAX {
                self.issued_ns.clear();
            }
            self.issued_ns.insert((device, sector), time_ns);
            return None;
        }
        let issued_ns = match stage {
            BlockStage::Complete => self.issued_ns.remove(&(device, sector)),
            _ => None,
        };
        let issued_ns = issued_ns.filter(|&issued_ns| issued_ns <= time_ns);
        let latency_ns = issued_ns.map_or(0, |issued_ns| latency_ns_saturating(time_ns - issued_ns));
        Some((issued_ns.unwrap_or(time_ns), latency_ns))
    }
}

/// The fields that are used.
struct Header {
    time_ns: u64,
    sector: u64,
    bytes: u32,
    action: u64,
    device: u32,
    payload_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    /// `struct blk_io_trace`.
    Seven,
    /// `struct blk_io_trace2`, with a wider action.
    Eight,
}

/// How a record is laid out.
#[derive(Clone, Copy)]
struct Layout {
    big: bool,
    version: Version,
}

impl Layout {
    /// The layout that the magic number says, or why there is none.
    fn of(record: &[u8]) -> Result<Self, Reason> {
        let magic = record.first_chunk().ok_or("there is no magic number")?;
        let (big, number) = match (u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)) {
            (little, _) if little & !0xff == MAGIC => (false, little),
            (_, big) if big & !0xff == MAGIC => (true, big),
            _ => return Err("there is no magic number"),
        };
        let version = match number & 0xff {
            7 => Version::Seven,
            8 => Version::Eight,
            _ => return Err("the version is neither 7 nor 8"),
        };
        Ok(Self { big, version })
    }

    fn header_bytes(self) -> usize {
        match self.version {
            Version::Seven => 48,
            Version::Eight => 64,
        }
    }

    fn u16(self, record: &[u8], at: usize) -> u16 {
        let bytes = bytes_at(record, at);
        if self.big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        }
    }

    fn u32(self, record: &[u8], at: usize) -> u32 {
        let bytes = bytes_at(record, at);
        if self.big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }

    fn u64(self, record: &[u8], at: usize) -> u64 {
        let bytes = bytes_at(record, at);
        if self.big {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        }
    }

    fn header(self, record: &[u8]) -> Header {
        let (action, device_at, payload_at) = match self.version {
            Version::Seven => (u64::from(self.u32(record, 28)), 36, 46),
            Version::Eight => (self.u64(record, 32), 40, 50),
        };
        Header {
            time_ns: self.u64(record, 8),
            sector: self.u64(record, 16),
            bytes: self.u32(record, 24),
            action,
            device: self.u32(record, device_at),
            payload_bytes: usize::from(self.u16(record, payload_at)),
        }
    }
}

/// True when the head starts with a record, in either byte order.
pub(crate) fn is_blktrace(head: &[u8]) -> bool {
    Layout::of(head).is_ok()
}

/// Reads record by record; after a bad one it looks for the next magic number.
pub(crate) struct Blktrace {
    stages: Stages,
    name: Vec<u8>,
}

impl Blktrace {
    pub(crate) fn new(stage: BlockStage) -> Self {
        Self {
            stages: Stages::new(stage),
            name: Vec::new(),
        }
    }

    fn event(&mut self, header: &Header, sink: &mut Sink<'_>) -> Result<(), Reason> {
        let category = header.action >> CATEGORY_SHIFT;
        let stage = match header.action & HAPPENED_MASK & !FROM_CONTROL_GROUP {
            1 => BlockStage::Queue,
            7 => BlockStage::Issue,
            8 => BlockStage::Complete,
            _ => {
                sink.ignore();
                return Ok(());
            }
        };
        let unplaced = CATEGORY_NOTIFY | CATEGORY_PASSED_THROUGH | CATEGORIES_OF_ZONES;
        if category & unplaced != 0 || !self.stages.uses(stage) {
            sink.ignore();
            return Ok(());
        }
        let device = u64::from(header.device);
        let event = self.stages.event(stage, device, header.sector, header.time_ns);
        let Some((time_ns, latency_ns)) = event else {
            sink.ignore();
            return Ok(());
        };
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
        self.name.clear();
        let (major, minor) = (header.device >> 20, header.device & 0xf_ffff);
        write!(self.name, "{major},{minor}").expect("writing to memory does not fail");
        let volume = sink.volume(&self.name)?;
        if header.bytes == 0 {
            // A flush without data.
            sink.ignore();
            return Ok(());
        }
        let event = IoEvent {
            time_ns,
            volume,
            latency_ns,
            ..IoEvent::new(op, offset_bytes, 0)
        };
        sink.push(event, u64::from(header.bytes))
    }
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

/// The complete record at the start of the window: its header and its bytes; `Ok(None)` at the end of the trace.
#[inline]
fn next_record(window: &mut Window) -> Result<Option<(Header, usize)>, Fault> {
    window.fill_to(HEADER_BYTES_MIN)?;
    let position = Position::Byte(window.offset());
    if window.available().is_empty() {
        return Ok(None);
    }
    if window.available().len() < HEADER_BYTES_MIN {
        return Err(cut(window, position));
    }
    let layout = match Layout::of(window.available()) {
        Ok(layout) => layout,
        Err(reason) => {
            let excerpt = hex(&window.available()[..HEADER_BYTES_MIN]);
            resynchronise(window)?;
            return Err(Fault::Record {
                position,
                reason,
                excerpt,
            });
        }
    };
    window.fill_to(layout.header_bytes())?;
    if window.available().len() < layout.header_bytes() {
        return Err(cut(window, position));
    }
    let header = layout.header(window.available());
    let bytes = layout.header_bytes() + header.payload_bytes;
    window.fill_to(bytes)?;
    if window.available().len() < bytes {
        return Err(cut(window, position));
    }
    Ok(Some((header, bytes)))
}

fn cut(window: &mut Window, position: Position) -> Fault {
    let rest = window.available().len();
    window.consume(rest);
    Fault::Lost {
        position,
        reason: "the last record is truncated",
    }
}

impl Decoder for Blktrace {
    fn decode(&mut self, window: &mut Window, sink: &mut Sink<'_>, events: usize) -> Result<(), Fault> {
        while sink.batch.len() < events {
            let Some((header, bytes)) = next_record(window)? else {
                return Ok(());
            };
            let result = self.event(&header, sink).map_err(|reason| Fault::Record {
                position: Position::Byte(window.offset()),
                reason,
                excerpt: hex(&window.available()[..HEADER_BYTES_MIN]),
            });
            window.consume(bytes);
            result?;
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

    const SEVEN: Layout = Layout {
        big: false,
        version: Version::Seven,
    };
    const LAYOUTS: [Layout; 4] = [
        SEVEN,
        Layout { big: true, ..SEVEN },
        Layout {
            version: Version::Eight,
            ..SEVEN
        },
        Layout {
            big: true,
            version: Version::Eight,
        },
    ];
    const READ: u64 = CATEGORY_READ << CATEGORY_SHIFT;
    const WRITE: u64 = CATEGORY_WRITE << CATEGORY_SHIFT;

    fn record(layout: Layout, time_ns: u64, sector: u64, bytes: u32, action: u64, payload: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        let mut put = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            if layout.big {
                bytes.reverse();
            }
            record.extend(bytes);
        };
        let (pid, device, cpu) = (77_u32, (8_u32 << 20) + 17, 3_u32);
        let version = if layout.version == Version::Seven { 7 } else { 8 };
        put(&(MAGIC | version).to_le_bytes());
        put(&1_u32.to_le_bytes());
        put(&time_ns.to_le_bytes());
        put(&sector.to_le_bytes());
        put(&bytes.to_le_bytes());
        if layout.version == Version::Seven {
            put(&u32::try_from(action).unwrap().to_le_bytes());
            put(&pid.to_le_bytes());
        } else {
            put(&pid.to_le_bytes());
            put(&action.to_le_bytes());
        }
        put(&device.to_le_bytes());
        put(&cpu.to_le_bytes());
        put(&0_u16.to_le_bytes());
        put(&(payload.len() as u16).to_le_bytes());
        if layout.version == Version::Eight {
            record.extend([0xee; 12]);
        }
        record.extend(payload);
        record
    }

    fn sample(layout: Layout) -> Vec<u8> {
        let discard = CATEGORY_DISCARD << CATEGORY_SHIFT;
        let mut data = record(layout, 0, 0, 0, CATEGORY_NOTIFY << CATEGORY_SHIFT, b"fio\0");
        data.extend(record(layout, 100, 8, 4096, READ | 1, b""));
        data.extend(record(layout, 150, 8, 4096, READ | 7, b""));
        data.extend(record(layout, 200, 16, 8192, WRITE | 1, b""));
        data.extend(record(layout, 250, 8, 4096, READ | 8, b""));
        data.extend(record(layout, 300, 0, 1 << 20, WRITE | discard | 1, b"xyz"));
        data
    }

    #[test]
    fn queued_requests_of_both_byte_orders_and_versions() {
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
        for layout in LAYOUTS {
            assert_eq!(read_all(Format::Blktrace, &sample(layout)), expected);
        }
    }

    #[test]
    fn requests_of_control_groups_count_and_what_has_no_place_does_not() {
        let group = 4711_u64.to_le_bytes();
        for layout in LAYOUTS {
            let note = CATEGORY_NOTIFY << CATEGORY_SHIFT;
            let passed_through = CATEGORY_PASSED_THROUGH << CATEGORY_SHIFT;
            let mut data = record(layout, 1, 8, 512, READ | FROM_CONTROL_GROUP | 1, &group);
            data.extend(record(
                layout,
                2,
                0,
                36,
                READ | passed_through | 1,
                &[0x12, 0, 0, 0, 36, 0],
            ));
            data.extend(record(
                layout,
                3,
                0,
                0,
                note | FROM_CONTROL_GROUP | 2,
                b"01234567bfq",
            ));
            if layout.version == Version::Eight {
                let zone_append = 1 << 32;
                data.extend(record(layout, 4, 0, 4096, WRITE | zone_append | 1, b""));
                let write_zeroes = 1 << 38;
                data.extend(record(layout, 5, 16, 4096, WRITE | write_zeroes | 1, b""));
            }
            data.extend(record(layout, 6, 24, 512, WRITE | 1, b""));
            let sectors: Vec<_> = read_all(Format::Blktrace, &data)
                .iter()
                .map(|event| event.offset_bytes / SECTOR_BYTES)
                .collect();
            let expected: &[u64] = match layout.version {
                Version::Seven => &[8, 24],
                Version::Eight => &[8, 16, 24],
            };
            assert_eq!(sectors, expected);
        }
    }

    #[test]
    fn another_version_is_named_and_passed_over() {
        let mut data = record(SEVEN, 1, 8, 512, READ | 1, b"");
        data[0] = 6;
        data.extend(record(SEVEN, 2, 16, 512, READ | 1, b""));
        let (events, report) = read_skipping(Format::Blktrace, &data);
        assert_eq!((events.len(), report.records_bad), (1, 1));
        assert_eq!(report.first_errors[0].reason, "the version is neither 7 nor 8");
    }

    #[test]
    fn completions_have_the_latency_of_their_issue() {
        let options = OpenOptions {
            block_stage: BlockStage::Complete,
            ..OpenOptions::default()
        };
        let (events, names, _) = read_with(Format::Blktrace, &sample(SEVEN), &options);
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
        let mut data = sample(SEVEN);
        let at = data.len();
        data.extend([0x55; 99]);
        data.extend(record(SEVEN, 400, 8, 512, READ | 1, b""));
        data.extend([1, 2, 3]);
        let (events, report) = read_skipping(Format::Blktrace, &data);
        assert_eq!(events.len(), 4);
        assert_eq!(report.records_bad, 2);
        assert_eq!(report.first_errors[0].position, Position::Byte(at as u64));
    }
}
