//! Block I/Os and tables of operations are made of the same reading: what one says of an operation, the other says too.

mod mutate;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bathy_trace::{
    EventBatch, Format, IoEvent, OnBadRecord, Op, OpTable, OpenOptions, OsdLogOptions, OsdLogReader,
    OsdOpBatch, UNKNOWN, open_bytes,
};
use mutate::{Random, mutate};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

/// What is said of an operation both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Operation {
    started_ns: u64,
    latency_ns: u32,
    osd: u32,
    pool: u32,
    is_write: bool,
}

/// The bytes that operations move, by what is said of them.
type Bytes = BTreeMap<Operation, u64>;

fn events(bytes: &[u8], format: Format) -> (Vec<IoEvent>, u64) {
    let options = OpenOptions {
        on_bad_record: OnBadRecord::Skip,
        ..OpenOptions::default()
    };
    let mut reader = open_bytes(Path::new("osd.1"), bytes.to_vec(), Some(format), &options).unwrap();
    let (mut batch, mut events) = (EventBatch::new(), Vec::new());
    while reader.next_batch(&mut batch).unwrap() > 0 {
        events.extend(batch.iter());
    }
    (events, reader.report().records_bad)
}

/// By operation, and which of them are trims, whose length does not stand in the list of operations as a rule.
///
/// An operation that writes is, in `rows`, the one write of all that it writes; what it reads or compares is an I/O all the same.
fn bytes_of_events(events: &[IoEvent], rows: &Bytes) -> (Bytes, Vec<Operation>) {
    let (mut bytes, mut trims) = (Bytes::new(), Vec::new());
    for event in events {
        let mut operation = Operation {
            started_ns: event.time_ns,
            latency_ns: event.latency_ns,
            osd: event.osd,
            pool: event.pool,
            is_write: true,
        };
        if event.op == Op::Read {
            if rows.contains_key(&operation) {
                continue;
            }
            operation.is_write = false;
        }
        *bytes.entry(operation).or_default() += u64::from(event.length_bytes);
        if event.op == Op::Trim {
            trims.push(operation);
        }
    }
    (bytes, trims)
}

fn number(value: i64) -> Option<u64> {
    u64::try_from(value).ok()
}

fn operation(started_ns: i64, duration_ns: i64, osd: i64, pool: i64, is_write: bool) -> Operation {
    let narrow = |value: i64| number(value).map_or(UNKNOWN, |value| u32::try_from(value).unwrap_or(u32::MAX));
    Operation {
        started_ns: number(started_ns).unwrap(),
        latency_ns: narrow(duration_ns),
        osd: narrow(osd),
        pool: narrow(pool),
        is_write,
    }
}

fn bytes_of_history(json: &[u8]) -> Bytes {
    let mut table = OpTable::new(None);
    table.add(1, json, 0, None).unwrap();
    let mut bytes = Bytes::new();
    for row in table.rows() {
        let is_write = row.op == Op::Write;
        let operation = operation(row.started_ns, row.duration_ns, row.osd, row.pool_id, is_write);
        *bytes.entry(operation).or_default() += row.length_bytes.and_then(number).unwrap_or(0);
    }
    bytes
}

fn bytes_of_log(log: &[u8]) -> (Bytes, u64) {
    let options = OsdLogOptions::default();
    let mut reader = OsdLogReader::open_bytes(Path::new("osd.1"), log.to_vec(), &options).unwrap();
    let (mut batch, mut bytes) = (OsdOpBatch::default(), Bytes::new());
    while reader.next_batch(&mut batch).unwrap() {
        for index in 0..batch.len() {
            if batch.result[index] != i64::MIN && batch.result[index] < 0 {
                continue;
            }
            let operation = operation(
                batch.started_ns[index],
                batch.duration_ns[index],
                batch.osd[index],
                batch.pool_id[index],
                batch.op[index] == 1,
            );
            *bytes.entry(operation).or_default() += number(batch.length_bytes[index]).unwrap_or(0);
        }
    }
    (bytes, reader.report().lines_bad)
}

/// Both say the same; returns of how many operations that move bytes.
fn agree(events: &[IoEvent], rows: &Bytes) -> usize {
    let (mut found, trims) = bytes_of_events(events, rows);
    for operation in &trims {
        assert!(rows.contains_key(operation), "{operation:?}");
        found.remove(operation);
    }
    let mut rows = rows.clone();
    rows.retain(|operation, bytes| *bytes > 0 && !trims.contains(operation));
    // The first difference is enough to read.
    let unlike = found.iter().zip(&rows).find(|(event, row)| event != row);
    assert_eq!(unlike, None);
    assert_eq!(found.len(), rows.len());
    rows.len()
}

#[test]
fn recorded_histories_are_read_alike() {
    let mut count = 0;
    for version in files(&fixtures().join("op_history")) {
        for path in files(&version.join("three-replicas")) {
            if path.extension().is_some_and(|extension| extension == "stdout") {
                let json = std::fs::read(&path).unwrap();
                let (events, bad) = events(&json, Format::OpHistory);
                assert_eq!(bad, 0, "{}", path.display());
                count += agree(&events, &bytes_of_history(&json));
            }
        }
    }
    assert!(count > 500, "{count}");
}

#[test]
fn recorded_logs_are_read_alike() {
    let folder = fixtures().join("osd_log/16.2.15");
    for (name, format, least) in [
        ("debug_osd/ceph-osd.2.log", Format::OsdLog, 10),
        ("debug_ms/ceph-osd.2.log", Format::OsdMessages, 10),
    ] {
        let log = std::fs::read(folder.join(name)).unwrap();
        let (mut events, bad) = events(&log, format);
        // Replies to requests from before the log.
        events.retain(|event| event.pool != UNKNOWN);
        let (rows, lines_bad) = bytes_of_log(&log);
        assert_eq!((bad, lines_bad), (0, 0), "{name}");
        let count = agree(&events, &rows);
        assert!(count >= least, "{name}: {count}");
    }
}

/// Names that look like what stands around them, and lists with brackets inside.
fn description(random: &mut Random) -> String {
    const NAMES: [&str; 7] = [
        "rbd_data.1037b7d03b94.0000000000000001",
        "a b",
        "x:head [read 0~1] y",
        "x:3f [y",
        "brackets [in] a [name",
        "10000000000.00000001",
        "",
    ];
    const SNAPSHOTS: [&str; 3] = ["head", "3f", "snapdir"];
    const FLAGS: [&str; 4] = ["", " [fadvise_random]", " [1@4194304]", " in=4096b"];
    const OTHERS: [&str; 5] = [
        "stat",
        "call lock.get_info in=24b",
        "set-alloc-hint object_size 4194304 write_size 4194304",
        "getxattr name [x] (3)",
        "create",
    ];
    const MOVING: [&str; 7] = [
        "read",
        "sparse-read",
        "cmpext",
        "checksum",
        "write",
        "writefull",
        "append",
    ];
    let mut list = Vec::new();
    for _ in 0..random.below(4) {
        list.push(if random.below(3) == 0 {
            OTHERS[random.below(OTHERS.len())].to_owned()
        } else {
            let name = MOVING[random.below(MOVING.len())];
            let (offset, length) = (random.below(1 << 22), random.below(1 << 20));
            format!("{name} {offset}~{length}{}", FLAGS[random.below(FLAGS.len())])
        });
    }
    format!(
        "osd_op(client.{}.0:{} {}.{:x}{} {}:4{:07x}:::{}:{} [{}] snapc 0=[] ondisk+write e22)",
        random.below(100),
        random.below(1 << 30),
        1 + random.below(9),
        random.below(64),
        ["", "s1"][random.below(2)],
        random.below(9),
        random.below(1 << 28),
        NAMES[random.below(NAMES.len())],
        SNAPSHOTS[random.below(SNAPSHOTS.len())],
        list.join(",")
    )
}

/// A history with its members and events in any order.
fn history(random: &mut Random) -> String {
    let mut ops = Vec::new();
    for second in 0..=random.below(8) {
        let time = |random: &mut Random| {
            format!(
                "2026-11-21T01:02:{:02}.{:06}+0000",
                10 + second,
                random.below(900_000)
            )
        };
        let mut events = String::new();
        for name in ["initiated", "reached_pg", "started", "done"] {
            let comma = if events.is_empty() { "" } else { "," };
            let time = time(random);
            let _ = write!(
                events,
                r#"{comma}{{"event":"{name}","time":"{time}","duration":4294967295.99}}"#
            );
        }
        let mut members = [
            format!(r#""description":"{}""#, description(random)),
            format!(r#""initiated_at":"{}""#, time(random)),
            r#""age":1.5"#.to_owned(),
            r#""duration":0.25"#.to_owned(),
            format!(
                "\"type_data\": {{\"client_info\":{{\"client_addr\":\"10.0.0.1:0/7\"}}, \"events\":[{events}]}}"
            ),
        ];
        for at in (1..members.len()).rev() {
            members.swap(at, random.below(at + 1));
        }
        // The object is an op from the first of these two on.
        let first = members
            .iter()
            .position(|member| member.starts_with("\"description"));
        members.swap(0, first.unwrap());
        ops.push(format!("{{{}}}", members.join(", ")));
    }
    format!(
        r#"{{"osd":1,"size":20,"duration":600,"ops":[{}]}}"#,
        ops.join(",\n")
    )
}

#[test]
fn made_histories_are_read_alike() {
    let mut count = 0;
    for seed in 0..2000 {
        let json = history(&mut Random(seed));
        let (events, bad) = events(json.as_bytes(), Format::OpHistory);
        assert_eq!(bad, 0, "{json}");
        count += agree(&events, &bytes_of_history(json.as_bytes()));
    }
    assert!(count > 3000, "{count}");
}

/// The lines of a recorded log that have one of the words, so that both readers look for what is there.
fn lines_with(name: &str, words: &[&str]) -> Vec<u8> {
    let log = std::fs::read_to_string(fixtures().join("osd_log/16.2.15").join(name)).unwrap();
    let lines = log
        .lines()
        .filter(|line| words.iter().any(|word| line.contains(word)));
    lines
        .fold(String::new(), |all, line| all + line + "\n")
        .into_bytes()
}

#[test]
fn mutated_logs_are_read_alike() {
    let logs = [
        (
            Format::OsdLog,
            lines_with("debug_osd/ceph-osd.2.log", &[" log_op_stats osd_op("]),
        ),
        (
            Format::OsdMessages,
            lines_with("debug_ms/ceph-osd.2.log", &["==== osd_op(", " -- osd_op_reply("]),
        ),
    ];
    let (mut same, mut unlike, mut damaged) = (0, 0, 0);
    for (format, log) in &logs {
        for seed in 0..1000 {
            let mut bytes = log.clone();
            mutate(&mut bytes, log, &mut Random(seed));
            let (mut events, bad) = events(&bytes, *format);
            events.retain(|event| event.pool != UNKNOWN);
            let (rows, lines_bad) = bytes_of_log(&bytes);
            let (found, _) = bytes_of_events(&events, &rows);
            let without_row = found.keys().filter(|&key| !rows.contains_key(key)).count() as u64;
            // A row holds less than an I/O: numbers below 2^63. And a mutation may give a line the word of another form.
            unlike += without_row.saturating_sub(lines_bad);
            same += found.len() as u64 - without_row;
            damaged += u64::from(bad + lines_bad > 0);
        }
    }
    assert!(same > 10_000 && damaged > 200, "{same} {damaged}");
    assert!(unlike < same / 200, "{unlike} of {same}");
}
