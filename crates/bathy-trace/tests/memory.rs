//! A reader's memory is bounded whatever a trace says: bombs, huge counts, endless lines, names without number.
//!
//! Every allocation of this test program is counted per thread; a reader works in the thread that calls it. The
//! bounds are those that the readers' documentation gives, rounded up to the next that is easy to say.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::path::Path;

use bathy_trace::{
    EventBatch, Format, OnBadRecord, OpTable, OpenOptions, OsdLogOptions, OsdLogReader, OsdOpBatch,
    open_bytes,
};
use flate2::Compression;
use flate2::write::GzEncoder;

struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that is ending has no counters any more, and nobody asks for them.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        PEAK.with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes as isize);
        // SAFETY: the caller keeps the contract of `realloc`.
        let moved = unsafe { System.realloc(pointer, layout, bytes) };
        count(-(layout.size() as isize));
        moved
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;

/// Reads a trace to its end; returns the largest number of bytes held at a time beyond the trace itself, in MiB, and
/// the I/Os and bad records that were counted.
fn peak_mib(trace: Vec<u8>, format: Format, options: &OpenOptions) -> (usize, u64, u64) {
    let before = NOW.get();
    PEAK.set(before);
    let counts = match open_bytes(Path::new("osd.1"), trace, Some(format), options) {
        Ok(mut reader) => {
            let mut batch = EventBatch::new();
            while let Ok(1..) = reader.next_batch(&mut batch) {}
            (reader.report().events, reader.report().records_bad)
        }
        Err(_) => (0, 0),
    };
    let peak = usize::try_from(PEAK.get() - before).unwrap();
    (peak.div_ceil(MIB), counts.0, counts.1)
}

/// The same for a log that is read as operations; its counts are operations and bad lines.
fn peak_mib_of_ops(log: Vec<u8>) -> (usize, u64, u64) {
    let before = NOW.get();
    PEAK.set(before);
    let options = OsdLogOptions::default();
    let counts = match OsdLogReader::open_bytes(Path::new("osd.1"), log, &options) {
        Ok(mut reader) => {
            let mut batch = OsdOpBatch::default();
            while let Ok(true) = reader.next_batch(&mut batch) {}
            (reader.report().ops, reader.report().lines_bad)
        }
        Err(_) => (0, 0),
    };
    let peak = usize::try_from(PEAK.get() - before).unwrap();
    (peak.div_ceil(MIB), counts.0, counts.1)
}

fn skipping() -> OpenOptions {
    OpenOptions {
        on_bad_record: OnBadRecord::Skip,
        batch_events: 1000,
        ..OpenOptions::default()
    }
}

/// gzip of a text that is made piece by piece and is never whole in memory.
fn gzip(pieces: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for piece in pieces {
        encoder.write_all(&piece).unwrap();
    }
    encoder.finish().unwrap()
}

/// Longest record plus window plus decoder.
const PLAIN_MIB: usize = 4;

#[test]
fn an_endless_line_is_not_kept() {
    let bombs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bombs");
    let line = std::iter::once(b"offset_bytes\n".to_vec()).chain(std::iter::repeat_n(vec![b'7'; MIB], 64));
    let read = |name: &str| std::fs::read(bombs.join(name)).unwrap();
    // The dictionary of the xz has 64 MiB and is half of that before it has grown to it. The window of the zstd has
    // 128 MiB, of which the bomb fills half.
    let gz = gzip(line);
    for (name, trace, bound_mib) in [
        ("gz", gz.clone(), PLAIN_MIB),
        ("xz", read("line.csv.xz"), 96 + 2 * PLAIN_MIB),
        ("zst", read("line.csv.zst"), 192 + PLAIN_MIB),
    ] {
        let (peak, events, bad) = peak_mib(trace, Format::Csv, &skipping());
        assert!(peak <= bound_mib, "{name}: {peak} MiB");
        assert_eq!((events, bad), (0, 1), "{name}");
    }
    // The other ways to look for the end of a record.
    for format in [
        Format::OpHistory,
        Format::OsdMessages,
        Format::Blktrace,
        Format::RawU32,
    ] {
        let (peak, ..) = peak_mib(gz.clone(), format, &skipping());
        assert!(peak <= PLAIN_MIB, "{format}: {peak} MiB");
    }
}

#[test]
fn a_compressed_stream_cannot_ask_for_any_memory_it_likes() {
    // An xz block header that names a dictionary of 4 GiB - 1, with its right checksum.
    let mut xz = vec![0xfd, b'7', b'z', b'X', b'Z', 0, 0, 1];
    xz.extend(crc32(&[0, 1]).to_le_bytes());
    let block = [2, 0, 0x21, 1, 40, 0, 0, 0];
    xz.extend(block);
    xz.extend(crc32(&block).to_le_bytes());
    xz.extend([1, 0, 0, b'x', 0]);
    // zstd frames of 3.75 TiB of window, as said by the window and by the size of the content; then blocks of 128 KiB
    // that repeat one byte, which a decoder keeps for as long as the window has not gone by.
    let blocks = [0x02_u8, 0, 0x10, b'0', 0x02, 0, 0x10, b'0'].repeat(100);
    let window = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0xff][..], &blocks].concat();
    let content = [
        &[0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 4, 0, 0][..],
        &blocks,
    ]
    .concat();
    for (name, trace, bound_mib) in [
        ("xz", xz, PLAIN_MIB),
        ("zstd by its window", window, PLAIN_MIB),
        ("zstd by its content", content, PLAIN_MIB),
    ] {
        let (peak, events, _) = peak_mib(trace, Format::Csv, &skipping());
        assert!(peak <= bound_mib, "{name}: {peak} MiB");
        assert_eq!(events, 0);
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[test]
fn names_without_number_are_not_kept() {
    let header = b"offset_bytes,volume\n".to_vec();
    let lines = (0..200_u32)
        .map(|number| [b"0,".to_vec(), vec![b'a'; MIB / 2], format!("{number}\n").into()].concat());
    let (peak, events, bad) = peak_mib(
        gzip(std::iter::once(header).chain(lines)),
        Format::Csv,
        &skipping(),
    );
    // 64 MiB of names, each held twice, and a vector that grows.
    assert!(peak <= 128 + 2 * PLAIN_MIB, "{peak} MiB");
    assert_eq!(events + bad, 200);
    assert!(bad > 0, "the test is to reach the limit");
}

#[test]
fn requests_without_reply_are_not_kept() {
    let request = |number: u32, address: &str| {
        format!(
            "2026-11-21T01:02:03.100+0000 7f1 1 -- x <== client.4 {address} 68 ==== osd_op(client.4.0:{number} 2.18 2.5a \
             (undecoded) ondisk+read e22) v8\n"
        )
        .into_bytes()
    };
    let long = "1".repeat(1000);
    for (address, count) in [("127.0.0.1:0/493084813", 200_000), (&long, 70_000)] {
        let trace = gzip((0..count).map(|number| request(number, address)));
        let (peak, ..) = peak_mib(trace.clone(), Format::OsdMessages, &skipping());
        assert!(peak <= 24, "{} bytes of address: {peak} MiB", address.len());
        let (peak, ..) = peak_mib_of_ops(trace);
        assert!(
            peak <= 24,
            "{} bytes of address, as operations: {peak} MiB",
            address.len()
        );
    }
}

#[test]
fn clients_and_addresses_without_number_are_not_kept() {
    let filler = "1".repeat(180);
    let request = |number: u32| {
        format!(
            "2026-11-21T01:02:03.100+0000 7f1 1 -- x <== client.{number} {number}{filler} 68 ==== \
             osd_op(client.{number}{filler}.0:1 2.18 2.5a (undecoded) ondisk+read e22) v8\n"
        )
        .into_bytes()
    };
    let (peak, ..) = peak_mib_of_ops(gzip((0..300_000).map(request)));
    // 65,536 clients and as many addresses of some 190 bytes, each held twice.
    assert!(peak <= 80, "{peak} MiB");
}

#[test]
fn long_names_of_objects_make_small_batches() {
    let line = format!(
        "2026-11-21T01:02:03.500+0000 7f5445fe36c0 15 osd.7 log_op_stats osd_op(client.1.0:7 2.b 2:d447dd18:::{}:head \
         [read 0~4096] e22) v8 inb 0 outb 0 lat 0.1\n",
        "\u{ff}".repeat(400_000)
    );
    let (peak, ops, bad) = peak_mib_of_ops(gzip(std::iter::repeat_n(line.into_bytes(), 200)));
    assert_eq!((ops, bad), (200, 0));
    // 16 MiB of names and one more, in a vector that grows, and its longest line.
    assert!(peak <= 40, "{peak} MiB");
    let endless = gzip(std::iter::repeat_n(vec![b'7'; MIB], 64));
    let (peak, ..) = peak_mib_of_ops(endless);
    assert!(peak <= PLAIN_MIB, "{peak} MiB");
}

/// What a line needs beyond the columns is nothing: a log ten times as long allocates no more.
#[test]
fn a_longer_log_needs_no_more() {
    let pair = |number: u32| {
        format!(
            "2026-11-21T01:02:03.100+0000 7f1 1 -- x <== client.4 127.0.0.1:0/49 68 ==== osd_op(client.4.0:{number} 2.18 \
             2.5a (undecoded) ondisk+read e22) v8\n2026-11-21T01:02:03.104+0000 7f1 1 -- x --> 127.0.0.1:0/49 -- \
             osd_op_reply({number} rbd_data.1.0000000000000001 [read 0~4096] v0'0 uv1 ondisk = 0) v8\n"
        )
        .into_bytes()
    };
    let [short, long] = [100_000, 1_000_000].map(|pairs| peak_mib_of_ops(gzip((0..pairs).map(pair))));
    assert_eq!((short.1, long.1), (100_000, 1_000_000));
    assert!(
        long.0 <= short.0 + 1 && long.0 <= 24,
        "{} and {} MiB",
        short.0,
        long.0
    );
}

#[test]
fn issues_without_completion_are_not_kept() {
    let record = |sector: u64| {
        let mut record = [0_u8; 48];
        record[..4].copy_from_slice(&0x6561_7407_u32.to_le_bytes());
        record[16..24].copy_from_slice(&sector.to_le_bytes());
        record[28..32].copy_from_slice(&0x0001_0007_u32.to_le_bytes());
        record.to_vec()
    };
    let options = OpenOptions {
        block_stage: bathy_trace::BlockStage::Complete,
        ..skipping()
    };
    let (peak, ..) = peak_mib(gzip((0..300_000).map(record)), Format::Blktrace, &options);
    assert!(peak <= 8, "{peak} MiB");
}

#[test]
fn a_json_document_is_not_kept() {
    let string =
        std::iter::once(b"{\"description\":\"".to_vec()).chain(std::iter::repeat_n(vec![b'a'; MIB], 64));
    let nested = std::iter::repeat_n(b"[{\"a\":".repeat(10_000), 200);
    let keys = std::iter::once(b"[{".to_vec())
        .chain((0..2_000_000_u32).map(|number| format!("\"{number}\":{number},").into_bytes()));
    for (name, trace) in [
        ("string", gzip(string)),
        ("nested", gzip(nested)),
        ("keys", gzip(keys)),
    ] {
        let (peak, events, _) = peak_mib(trace, Format::OpHistory, &skipping());
        assert!(peak <= PLAIN_MIB, "{name}: {peak} MiB");
        assert_eq!(events, 0);
    }
}

/// What a table of ops holds is in proportion to the answer, whatever that says.
#[test]
fn a_table_of_ops_is_in_proportion_to_the_answer() {
    let time = "2026-11-21T01:02:03.000001+0000";
    let op = |number: u32, rest: &str, events: &str| {
        format!(
            r#"{{"description":"osd_op(client.{number}.0:1 1.{number:x} {rest})","type_data":{{"events":[{events}]}},
            "initiated_at":"{time}","age":1}}"#
        )
    };
    let event = format!(r#"{{"event":"","time":"{time}"}}"#);
    let ops = (0..20_000)
        .map(|number| op(number, "", &event))
        .collect::<Vec<_>>()
        .join(",");
    let peers = [
        "reached_pg",
        &format!("waiting for subops from {}", "1,".repeat(500_000)),
        "op_commit",
    ]
    .map(|name| format!(r#"{{"event":"{name}","time":"{time}"}}"#));
    let last = r#"{"event":"sub_op_commit_rec","time":"2026-11-21T01:02:04.000001+0000"}"#;
    let peers = format!("{},{last}", peers.join(","));
    for (name, answer, most_ratio) in [
        ("ops", format!(r#"{{"ops":[{ops}]}}"#), 10),
        (
            "extents",
            format!(
                r#"{{"ops":[{}]}}"#,
                op(1, &format!(":a:head [{}", "0~1,".repeat(250_000)), &event)
            ),
            3,
        ),
        (
            "events",
            format!(
                r#"{{"ops":[{}]}}"#,
                op(1, "", &vec![event.clone(); 25_000].join(","))
            ),
            3,
        ),
        ("replicas", format!(r#"{{"ops":[{}]}}"#, op(1, "", &peers)), 16),
        ("nested", "{\"a\":[".repeat(150_000), 1),
        (
            "escapes",
            format!(r#"{{"ops":[{}]}}"#, op(1, &"\\u0041".repeat(150_000), &event)),
            3,
        ),
    ] {
        let before = NOW.get();
        PEAK.set(before);
        let mut table = OpTable::new(None);
        let result = table.add(1, answer.as_bytes(), 0, None);
        assert_eq!(result.is_ok(), name != "nested", "{name}: {result:?}");
        table.rows();
        let peak = PEAK.get() - before;
        assert!(
            peak <= most_ratio * answer.len() as isize,
            "{name}: {peak} of {}",
            answer.len()
        );
    }
}

#[test]
fn an_op_with_countless_parts_is_one_record() {
    let parts = "append 0~1,".repeat(90_000);
    let line = format!(
        "2026-11-21T01:02:03.500+0000 7f1 15 osd.7 log_op_stats osd_op(client.1.0:7 2.b \
         2:d447dd18:::rbd_data.1.0000000000000001:head [{parts}] e22) v8 inb 0 outb 0 lat 0.1\n"
    );
    let trace = gzip(std::iter::repeat_n(line.into_bytes(), 5));
    let (peak, events, _) = peak_mib(trace, Format::OsdLog, &skipping());
    assert_eq!(events, 450_000);
    assert!(peak <= 16, "{peak} MiB");
}
