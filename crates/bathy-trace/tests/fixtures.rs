//! Every format on its checked-in samples (`tests/fixtures/traces`, sources in the NOTICE file there).

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use bathy_trace::{
    BlockStage, EventBatch, Format, IoEvent, NameTables, OnBadRecord, Op, OpenOptions, OsdLogOptions,
    OsdLogReader, OsdOpBatch, ReadReport, UNKNOWN, open, open_bytes,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/traces")
}

fn samples(format: Format) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder().join(format.name())) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn read(
    path: &Path,
    format: Option<Format>,
    options: &OpenOptions,
) -> (Vec<IoEvent>, NameTables, ReadReport, Format) {
    let mut reader = open(path, format, options).unwrap();
    let mut batch = EventBatch::new();
    let mut events = Vec::new();
    while reader.next_batch(&mut batch).unwrap() > 0 {
        events.extend(batch.iter());
    }
    (
        events,
        reader.names().clone(),
        reader.report().clone(),
        reader.format(),
    )
}

fn sample(path: &str) -> (Vec<IoEvent>, NameTables, ReadReport, Format) {
    read(&folder().join(path), None, &OpenOptions::default())
}

#[test]
fn every_format_has_a_sample_that_is_recognised_and_whole() {
    for &format in Format::ALL {
        let paths = samples(format);
        assert!(
            !paths.is_empty(),
            "{format} has no sample in {}/{format}",
            folder().display()
        );
        for path in paths {
            let (events, _, report, detected) = read(&path, None, &OpenOptions::default());
            assert_eq!(detected, format, "{}", path.display());
            assert!(!events.is_empty(), "{}", path.display());
            assert_eq!(report.records_bad, 0, "{}", path.display());
            assert_eq!(report.events, events.len() as u64);
            assert_eq!(
                report.time_ns_range.is_some(),
                format.has_time(),
                "{}",
                path.display()
            );
            assert_eq!(report.file_bytes, Some(path.metadata().unwrap().len()));
            assert_eq!(
                report.file_bytes_read,
                path.metadata().unwrap().len(),
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn batches_of_any_size_give_the_same_events() {
    for &format in Format::ALL {
        for path in samples(format) {
            let (whole, ..) = read(&path, None, &OpenOptions::default());
            for batch_events in [1, 2, 7] {
                let options = OpenOptions {
                    batch_events,
                    ..OpenOptions::default()
                };
                assert_eq!(read(&path, None, &options).0, whole, "{}", path.display());
            }
        }
    }
}

fn sums(events: &[IoEvent]) -> [(usize, u64); 3] {
    [Op::Read, Op::Write, Op::Trim].map(|op| {
        let matching = events.iter().filter(|event| event.op == op);
        (
            matching.clone().count(),
            matching.map(|event| u64::from(event.length_bytes)).sum(),
        )
    })
}

/// Counts and bytes of reads, writes and trims, taken from the samples by other programs (Python's struct and re).
#[test]
fn counts_and_bytes_agree_with_other_programs() {
    for (path, expected) in [
        (
            "vscsi1/cloudPhysicsIO-400.vscsi",
            [(0, 0), (400, 2_319_872), (0, 0)],
        ),
        ("raw-u32/w106-1000.u32.xz", [(1000, 4_096_000), (0, 0), (0, 0)]),
        (
            "oracle-general/cloudPhysicsIO-100.oracleGeneral.zst",
            [(100, 409_600), (0, 0), (0, 0)],
        ),
        ("lirs/cs-500.trace.gz", [(498, 2_039_808), (0, 0), (0, 0)]),
        ("arc/made.lis", [(60, 507_904), (0, 0), (0, 0)]),
        (
            "alibaba/made_io_traces.csv",
            [(28, 311_296), (22, 212_992), (0, 0)],
        ),
        ("tencent/made.csv", [(20, 450_560), (30, 1_105_920), (0, 0)]),
        ("msr/made_hm.csv", [(17, 413_696), (33, 679_936), (0, 0)]),
        ("spc/made.spc", [(22, 95_744), (28, 114_176), (0, 0)]),
        ("csv/made.csv", [(15, 737_280), (25, 655_360), (10, 409_600)]),
        ("op-history/osd.0.json", [(1, 19), (15, 53_275), (0, 0)]),
        ("op-history/osd.0.jsonl", [(3, 24_576), (7, 77_824), (0, 0)]),
        ("osd-log/ceph-osd.0.log", [(0, 0), (8, 32_768), (0, 0)]),
        ("osd-messages/ceph-osd.0.log", [(8, 32_768), (0, 0), (0, 0)]),
    ] {
        assert_eq!(sums(&sample(path).0), expected, "{path}");
    }
}

#[test]
fn the_op_history_is_that_of_a_16_2_osd() {
    let (events, names, ..) = sample("op-history/osd.0.json");
    assert!(events.iter().all(|event| event.osd == 0 && event.pool != UNKNOWN));
    // No op took a second; an underflowed duration would give more.
    assert!(
        events
            .iter()
            .all(|event| (1_000..1_000_000_000).contains(&event.latency_ns))
    );
    assert!(
        names.volumes.iter().any(|name| name == "105c472b048d"),
        "{names:?}"
    );
    let image = names.volumes.number("105c472b048d").unwrap();
    let of_image: Vec<_> = events.iter().filter(|event| event.volume == image).collect();
    assert!(
        of_image.iter().all(|event| event.offset_bytes < 64 << 20),
        "the image has 64 MiB"
    );
}

/// Counts taken from the logs by grep: `log_op_stats osd_op(`, and ` = -2 (` for what failed.
#[test]
fn logs_of_a_16_2_osd_are_read_as_operations() {
    let folder = folder().join("../osd_log/16.2.15");
    for (name, ops, of_stats, failed) in [
        ("debug_osd/ceph-osd.2.log", 53, 53, 0),
        ("debug_osd/ceph-osd.2.log.1.gz", 9, 9, 0),
        ("debug_ms/ceph-osd.2.log", 75, 0, 15),
        ("both/ceph-osd.2.log", 130, 117, 13),
    ] {
        let mut reader = OsdLogReader::open(&[folder.join(name)], &OsdLogOptions::default()).unwrap();
        let mut batch = OsdOpBatch::default();
        assert!(reader.next_batch(&mut batch).unwrap());
        let results = batch.result.iter().filter(|&&result| result == -2).count();
        assert_eq!((batch.len(), results), (ops, failed), "{name}");
        assert!(batch.osd.iter().all(|&osd| osd == 2), "{name}");
        assert!(
            batch
                .duration_ns
                .iter()
                .all(|&ns| (0..1_000_000_000).contains(&ns)),
            "{name}"
        );
        assert!(!reader.next_batch(&mut batch).unwrap());
        let report = reader.report();
        assert_eq!((report.ops_of_stats, report.lines_bad), (of_stats, 0), "{name}");
    }
}

#[test]
fn both_byte_orders_and_the_text_of_blkparse_agree() {
    for block_stage in [BlockStage::Queue, BlockStage::Issue, BlockStage::Complete] {
        let options = OpenOptions {
            block_stage,
            ..OpenOptions::default()
        };
        let of = |path| read(&folder().join(path), None, &options).0;
        let (little, big) = (
            of("blktrace/made-le.blktrace.0"),
            of("blktrace/made-be.blktrace.0"),
        );
        let mut text = of("blkparse/blkparse-1.2.0.txt");
        assert_eq!(little.len(), 30);
        assert_eq!(little, big);
        // blkparse counts from the first event that it prints.
        let shift_ns = little[0].time_ns - text[0].time_ns;
        for event in &mut text {
            event.time_ns += shift_ns;
        }
        assert_eq!(little, text, "{block_stage:?}");
        assert_eq!(
            little.iter().all(|event| event.latency_ns > 0),
            block_stage == BlockStage::Complete
        );
    }
}

#[test]
fn the_two_versions_of_vscsi_agree() {
    let (first, second) = (
        sample("vscsi1/cloudPhysicsIO-400.vscsi").0,
        sample("vscsi2/cloudPhysicsIO-100.vscsi2").0,
    );
    assert_eq!(first.len(), 400);
    assert_eq!(first[..100], second);
}

#[test]
fn the_two_versions_of_fio_logs_agree() {
    let (second, names, ..) = sample("fio-v2/made.iolog");
    let (third, ..) = sample("fio-v3/fio-3.33.iolog");
    assert_eq!(third.len(), 16, "fio was told to go through 64 KiB by 4 KiB");
    assert_eq!(names.volumes.get(0), Some("/data/job1.0.0"));
    assert_eq!(second, third);
}

/// Writing the events as our own CSV and reading that gives the same events: the CSV can hold all that any
/// format says.
#[test]
fn every_sample_survives_a_round_trip_through_csv() {
    for &format in Format::ALL {
        for path in samples(format) {
            let (events, names, ..) = read(&path, None, &OpenOptions::default());
            let mut text = String::from("time_ns,op,offset_bytes,length_bytes,volume,osd,pool,latency_ns\n");
            for event in &events {
                let id = |id: u32| {
                    if id == UNKNOWN {
                        String::new()
                    } else {
                        id.to_string()
                    }
                };
                let volume = names.volumes.get(event.volume).unwrap_or_default();
                writeln!(
                    text,
                    "{},{},{},{},\"{}\",{},{},{}",
                    event.time_ns,
                    event.op,
                    event.offset_bytes,
                    event.length_bytes,
                    volume.replace('"', "\"\""),
                    id(event.osd),
                    id(event.pool),
                    event.latency_ns
                )
                .unwrap();
            }
            let mut reader =
                open_bytes(Path::new("x"), text.into_bytes(), None, &OpenOptions::default()).unwrap();
            assert_eq!(reader.format(), Format::Csv);
            let mut batch = EventBatch::new();
            reader.next_batch(&mut batch).unwrap();
            assert_eq!(batch.iter().collect::<Vec<_>>(), events, "{}", path.display());
            let names: BTreeSet<_> = names.volumes.iter().collect();
            assert_eq!(reader.names().volumes.iter().collect::<BTreeSet<_>>(), names);
        }
    }
}

#[test]
fn a_bad_record_stops_after_the_events_before_it() {
    let text = b"time_ns,offset_bytes\n1,0\n2,4096\nx,0\n3,0\n".to_vec();
    let mut batch = EventBatch::new();
    let mut reader = open_bytes(Path::new("bad.csv"), text.clone(), None, &OpenOptions::default()).unwrap();
    assert_eq!(reader.next_batch(&mut batch).unwrap(), 2);
    let error = reader.next_batch(&mut batch).unwrap_err().to_string();
    assert_eq!(error, "bad.csv: line 4: the time is not a number: x,0");
    assert_eq!(reader.next_batch(&mut batch).unwrap(), 0, "the end stays the end");
    assert_eq!(reader.report().records_bad, 1);

    let options = OpenOptions {
        on_bad_record: OnBadRecord::Skip,
        ..OpenOptions::default()
    };
    let mut reader = open_bytes(Path::new("bad.csv"), text, None, &options).unwrap();
    assert_eq!(reader.next_batch(&mut batch).unwrap(), 3);
    assert_eq!(reader.report().records_bad, 1);
}

#[test]
fn a_cut_compressed_file_gives_what_is_there() {
    let raw = std::fs::read(samples(Format::Lirs)[0].clone()).unwrap();
    let cut = raw[..raw.len() - 12].to_vec();
    let mut batch = EventBatch::new();
    let options = OpenOptions {
        on_bad_record: OnBadRecord::Skip,
        ..OpenOptions::default()
    };
    let mut reader = open_bytes(Path::new("cut.gz"), cut.clone(), Some(Format::Lirs), &options).unwrap();
    let mut events = 0;
    while reader.next_batch(&mut batch).unwrap() > 0 {
        events += batch.len();
    }
    assert_eq!(reader.report().records_bad, 1);
    assert!(events > 0 && events <= 500);

    let mut reader = open_bytes(
        Path::new("cut.gz"),
        cut,
        Some(Format::Lirs),
        &OpenOptions::default(),
    )
    .unwrap();
    let error = loop {
        match reader.next_batch(&mut batch) {
            Ok(0) => panic!("the damage must be reported"),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.starts_with("cut.gz: "), "{error}");
}
