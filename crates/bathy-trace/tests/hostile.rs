//! No input makes a reader panic, run forever or deliver what cannot be.
//!
//! Bounded fuzzing that is part of the ordinary tests: mutations of the samples and of the seeds of the fuzzer, and
//! random bytes, through every format and through detection. The same cases every time: `BATHY_FUZZ_SEED` sets
//! others and `BATHY_FUZZ_CASES` the cases per sample. The coverage-guided fuzzer is in `fuzz/`, the bounds of
//! memory are in `memory.rs`.

mod mutate;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use bathy_trace::{
    BlockStage, EventBatch, FIRST_ERRORS_MAX, Format, OnBadRecord, OpTable, OpenOptions, OsdLogOptions,
    OsdLogReader, OsdOpBatch, OtherObjects, open_bytes,
};
use mutate::{Random, mutate};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// What reading some inputs came to.
#[derive(Default)]
struct Tally {
    cases: u64,
    opened: u64,
    with_events: u64,
    with_bad_records: u64,
    events: u64,
}

/// Reads everything there is and checks what holds for any input.
fn exhaust(bytes: &[u8], format: Option<Format>, options: &OpenOptions, tally: &mut Tally) {
    tally.cases += 1;
    let Ok(mut reader) = open_bytes(Path::new("osd.1.fuzz"), bytes.to_vec(), format, options) else {
        return;
    };
    let mut batch = EventBatch::new();
    let mut events = 0;
    loop {
        match reader.next_batch(&mut batch) {
            Ok(0) => break,
            Ok(count) => {
                assert_eq!(count, batch.len());
                events += count as u64;
                for event in batch.iter() {
                    assert!(event.length_bytes > 0);
                    assert!(
                        event
                            .offset_bytes
                            .checked_add(u64::from(event.length_bytes))
                            .is_some()
                    );
                    let volumes = reader.names().volumes.len() as u64;
                    assert!(event.volume == u32::MAX || u64::from(event.volume) < volumes);
                }
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_eq!(
                    reader.next_batch(&mut batch).unwrap(),
                    0,
                    "after an error comes the end"
                );
                break;
            }
        }
    }
    let report = reader.report();
    assert_eq!(report.events, events);
    assert!(report.first_errors.len() <= FIRST_ERRORS_MAX);
    assert!(reader.names().volumes.len() <= options.names_max);
    assert!(
        report
            .first_errors
            .iter()
            .all(|bad| bad.excerpt.chars().count() <= 120)
    );
    tally.opened += 1;
    tally.events += events;
    tally.with_events += u64::from(events > 0);
    tally.with_bad_records += u64::from(report.records_bad > 0);
}

fn options(random: &mut Random) -> OpenOptions {
    OpenOptions {
        on_bad_record: if random.below(4) == 0 {
            OnBadRecord::Stop
        } else {
            OnBadRecord::Skip
        },
        batch_events: 1 + random.below(50),
        block_stage: [BlockStage::Queue, BlockStage::Issue, BlockStage::Complete][random.below(3)],
        record_bytes_max: 256 << random.below(6),
        names_max: 1 + random.below(20),
        other_objects: if random.below(4) == 0 {
            OtherObjects::Ignore
        } else {
            OtherObjects::Hash
        },
        object_size_bytes: 4096 << random.below(21),
        block_bytes: [None, Some(1), Some(512), Some(u32::MAX)][random.below(4)],
        ..OpenOptions::default()
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The checked-in samples and the fuzzer's seeds; those that are there for their compression hold CSV.
fn samples() -> Vec<(Format, Vec<u8>)> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut samples = Vec::new();
    for &format in Format::ALL {
        let mut paths = files(
            &crate_folder
                .join("../../tests/fixtures/traces")
                .join(format.name()),
        );
        paths.extend(files(&crate_folder.join("fuzz/seeds").join(format.name())));
        if format == Format::Csv {
            paths.extend(files(&crate_folder.join("fuzz/seeds/compressed")));
        }
        samples.extend(paths.iter().map(|path| (format, std::fs::read(path).unwrap())));
    }
    samples
}

/// Says what was tried also when all is well, which `eprintln!` does not under the test harness.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn mutated_samples_do_no_harm() {
    let seed = environment("BATHY_FUZZ_SEED", 20_261_121);
    let cases = environment("BATHY_FUZZ_CASES", 1000);
    let samples = samples();
    let mut tallies = BTreeMap::<Format, Tally>::new();
    for (index, (format, sample)) in samples.iter().enumerate() {
        for case in 0..cases {
            let mut random = Random(seed ^ ((index as u64) << 32) ^ case);
            // Whole samples are slow to read; damage near the start is as instructive.
            let mut bytes = sample[..sample.len().min(8 << 10)].to_vec();
            let other = &samples[random.below(samples.len())].1;
            mutate(&mut bytes, other, &mut random);
            let options = options(&mut random);
            let asked = if random.below(4) == 0 { None } else { Some(*format) };
            exhaust(&bytes, asked, &options, tallies.entry(*format).or_default());
        }
    }
    tell(&format!(
        "mutated traces: seed {seed}, {} samples, {cases} cases each",
        samples.len()
    ));
    assert_eq!(tallies.len(), Format::ALL.len());
    for (format, tally) in tallies {
        tell(&format!(
            "  {format}: {} cases, {} opened, {} with I/Os, {} with bad records, {} I/Os",
            tally.cases, tally.opened, tally.with_events, tally.with_bad_records, tally.events
        ));
        // Mutations that no reader takes for its format would test nothing.
        assert!(tally.opened > tally.cases / 3, "{format}");
        assert!(tally.with_events > tally.cases / 10, "{format}");
        assert!(tally.with_bad_records > tally.cases / 10, "{format}");
    }
}

/// The first ops of the histories that the sources are tested with: whole ones, as a mutation of a long one mostly cuts it.
fn histories() -> Vec<Vec<u8>> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/op_history");
    let mut found: Vec<_> = files(&fixtures)
        .iter()
        .flat_map(|version| files(&version.join("three-replicas")))
        .filter(|path| path.extension().is_some_and(|extension| extension == "stdout"))
        .map(|path| {
            let whole = std::fs::read_to_string(path).unwrap();
            let end = whole[..8 << 10].rfind(",{\"description\"").unwrap();
            format!("{}]}}", &whole[..end]).into_bytes()
        })
        .collect();
    found.extend(
        samples()
            .into_iter()
            .filter(|sample| sample.0 == Format::OpHistory)
            .map(|sample| sample.1),
    );
    found
}

#[test]
fn mutated_op_histories_do_no_harm() {
    let seed = environment("BATHY_FUZZ_SEED", 20_261_121);
    let cases = environment("BATHY_FUZZ_CASES", 1000);
    let samples = histories();
    let (mut read, mut refused, mut rows) = (0_u64, 0_u64, 0);
    for (index, sample) in samples.iter().enumerate() {
        for case in 0..cases {
            let mut random = Random(seed ^ ((index as u64) << 32) ^ case);
            let mut bytes = sample.clone();
            let other = &samples[random.below(samples.len())];
            // Most of what is mutated is no JSON any more; a single byte mostly leaves it one.
            if random.below(2) == 0 {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            } else {
                mutate(&mut bytes, other, &mut random);
            }
            let pools = [None, Some(vec![2, 7])][random.below(2)].clone();
            let mut table = OpTable::new(pools);
            for osd in 0..2 {
                match table.add(osd, &bytes, 1 << 60, Some(random.below(30) as i64)) {
                    Ok(()) => read += 1,
                    Err(problem) => {
                        assert!(!problem.reason.is_empty() && problem.excerpt.len() <= 80);
                        refused += 1;
                    }
                }
                let _ = table.add(7, sample, 1 << 60, None);
            }
            let found = table.rows().to_vec();
            rows += found.len();
            for row in found {
                assert!(row.duration_ns >= 0);
                assert!(table.clients().get(row.client).is_some() && table.pgs().get(row.pg).is_some());
                assert!(
                    row.object
                        .is_none_or(|object| table.objects().get(object).is_some())
                );
                assert!(
                    row.address
                        .is_none_or(|address| table.addresses().get(address).is_some())
                );
                let stages = row.stages;
                let parts = [
                    stages.queue_ns,
                    stages.prepare_ns,
                    stages.store_ns,
                    stages.replica_wait_ns,
                    stages.reply_ns,
                ];
                let sum = parts.into_iter().flatten().sum::<i64>();
                assert!(sum <= row.duration_ns && parts[0].is_none_or(|queue_ns| queue_ns >= 0));
            }
        }
    }
    tell(&format!(
        "mutated op histories: seed {seed}, {} samples, {read} read, {refused} refused, {rows} ops",
        samples.len()
    ));
    assert!(read > refused / 10 && refused > read / 10);
}

#[test]
fn samples_read_as_another_format_do_no_harm() {
    let mut tally = Tally::default();
    let options = OpenOptions {
        on_bad_record: OnBadRecord::Skip,
        ..OpenOptions::default()
    };
    for (_, sample) in samples() {
        for &format in Format::ALL {
            exhaust(&sample, Some(format), &options, &mut tally);
        }
    }
    assert!(tally.with_bad_records > tally.cases / 3);
}

#[test]
fn random_bytes_do_no_harm() {
    let config = Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let strategy = (
        prop::collection::vec(any::<u8>(), 0..2000),
        0..Format::ALL.len(),
        any::<u64>(),
    );
    runner
        .run(&strategy, |(mut bytes, format, seed)| {
            let mut random = Random(seed);
            let mut tally = Tally::default();
            exhaust(&bytes, None, &options(&mut random), &mut tally);
            exhaust(
                &bytes,
                Some(Format::ALL[format]),
                &options(&mut random),
                &mut tally,
            );
            // The magic numbers alone open doors that random bytes do not.
            let magic: &[u8] = match random.below(5) {
                0 => &[0x1f, 0x8b, 8],
                1 => &[0xfd, b'7', b'z', b'X', b'Z', 0],
                2 => &[0x28, 0xb5, 0x2f, 0xfd],
                3 => &[7, 0x74, 0x61, 0x65],
                _ => b"fio version 2 iolog\n",
            };
            bytes.splice(0..0, magic.iter().copied());
            exhaust(
                &bytes,
                Some(Format::ALL[format]),
                &options(&mut random),
                &mut tally,
            );
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_line_without_end_needs_no_memory() {
    let mut bytes = b"time_ns,offset_bytes\n".to_vec();
    bytes.resize(4 << 20, b'7');
    bytes.extend_from_slice(b"\n5,4096\n");
    let options = OpenOptions {
        on_bad_record: OnBadRecord::Skip,
        record_bytes_max: 1000,
        ..OpenOptions::default()
    };
    let mut reader = open_bytes(Path::new("x"), bytes, Some(Format::Csv), &options).unwrap();
    let mut batch = EventBatch::new();
    assert_eq!(
        reader.next_batch(&mut batch).unwrap(),
        1,
        "the line behind the long one is read"
    );
    assert_eq!(reader.report().records_bad, 1);
    assert_eq!(reader.report().first_errors[0].reason, "the line is too long");
}

/// Reads a log as operations and checks what holds for any input.
fn exhaust_ops(bytes: &[u8], options: &OsdLogOptions, tally: &mut Tally) {
    tally.cases += 1;
    let Ok(mut reader) = OsdLogReader::open_bytes(Path::new("osd.1.fuzz"), bytes.to_vec(), options) else {
        return;
    };
    let mut batch = OsdOpBatch::default();
    let mut ops = 0;
    while let Ok(true) = reader.next_batch(&mut batch) {
        assert!(batch.len() <= options.batch_ops);
        ops += batch.len() as u64;
        for column in [
            &batch.started_ns,
            &batch.duration_ns,
            &batch.offset_bytes,
            &batch.length_bytes,
        ] {
            assert_eq!(column.len(), batch.len());
            assert!(column.iter().all(|&value| value >= 0 || value == i64::MIN));
        }
        for texts in [
            &batch.client,
            &batch.client_address,
            &batch.pg,
            &batch.object_name,
        ] {
            assert_eq!(texts.iter().count(), batch.len());
        }
    }
    let report = reader.report();
    assert_eq!(report.ops, ops);
    assert!(report.first_errors.len() <= FIRST_ERRORS_MAX);
    tally.opened += 1;
    tally.events += ops;
    tally.with_events += u64::from(ops > 0);
    tally.with_bad_records += u64::from(report.lines_bad > 0);
}

#[test]
fn mutated_logs_read_as_operations_do_no_harm() {
    let seed = environment("BATHY_FUZZ_SEED", 20_261_121);
    let cases = environment("BATHY_FUZZ_CASES", 1000);
    let mut logs = samples();
    logs.retain(|(format, _)| matches!(format, Format::OsdLog | Format::OsdMessages));
    let mut tally = Tally::default();
    for index in 0..logs.len() {
        for case in 0..cases {
            let mut random = Random(seed ^ ((index as u64) << 32) ^ case);
            let mut bytes = logs[index].1[..logs[index].1.len().min(8 << 10)].to_vec();
            let other = &logs[random.below(logs.len())].1;
            mutate(&mut bytes, other, &mut random);
            let options = OsdLogOptions {
                batch_ops: 1 + random.below(50),
                line_bytes_max: 256 << random.below(6),
                ..OsdLogOptions::default()
            };
            exhaust_ops(&bytes, &options, &mut tally);
        }
    }
    tell(&format!(
        "mutated logs as operations: {} cases, {} opened, {} with operations, {} with bad lines, {} operations",
        tally.cases, tally.opened, tally.with_events, tally.with_bad_records, tally.events
    ));
    assert!(tally.with_events > tally.cases / 10);
    assert!(tally.with_bad_records > tally.cases / 10);
}

/// A line of a megabyte is an ordinary length here, and a log may be one after another of them.
#[test]
fn brackets_without_end_are_looked_at_once() {
    let brackets = b" [".repeat(500_000);
    let request = b"2026-11-21T01:02:03.5+0000 osd.7 log_op_stats osd_op(client.1.0:7 2.b 2:d447dd18:::";
    let reply = b"2026-11-21T01:02:03.5+0000 7f1 1 -- x --> 127.0.0.1:0/4 -- osd_op_reply(175 ";
    for (format, start) in [(Format::OsdLog, &request[..]), (Format::OsdMessages, &reply[..])] {
        let bytes = [start, &brackets, b"\n"].concat();
        let options = OpenOptions {
            on_bad_record: OnBadRecord::Skip,
            ..OpenOptions::default()
        };
        let mut reader = open_bytes(Path::new("x"), bytes, Some(format), &options).unwrap();
        assert_eq!(reader.next_batch(&mut EventBatch::new()).unwrap(), 0);
        assert_eq!(reader.report().records_bad, 1, "{format}");

        let mut ops = Tally::default();
        let line = [start, &b"] [".repeat(300_000), b"\n"].concat();
        exhaust_ops(&line, &OsdLogOptions::default(), &mut ops);
        assert_eq!(
            (ops.opened, ops.with_events, ops.with_bad_records),
            (1, 0, 1),
            "{format}"
        );
    }
}

/// Each line is looked at once, however often it has the words of an operation.
#[test]
fn words_without_end_are_looked_at_once() {
    for word in ["==== osd_op(", " -- osd_op_reply(", " log_op_stats osd_op("] {
        let bytes = format!("{}\n", word.repeat(40_000)).repeat(4);
        let mut tally = Tally::default();
        exhaust_ops(bytes.as_bytes(), &OsdLogOptions::default(), &mut tally);
        assert_eq!(tally.with_events, 0);
    }
}
