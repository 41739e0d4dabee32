//! No input makes a reader panic, run forever or keep more than it may.
//!
//! Bounded fuzzing that is part of the ordinary tests: mutations of the samples and random bytes, through every
//! format and through detection. The seed is printed and can be set with `BATHY_FUZZ_SEED`; `BATHY_FUZZ_CASES`
//! sets the cases per sample. The coverage-guided fuzzer is in `fuzz/`.

use std::path::Path;

use bathy_trace::{BlockStage, EventBatch, FIRST_ERRORS_MAX, Format, OnBadRecord, OpenOptions, open_bytes};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// A generator of pseudo-random numbers (splitmix64): the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// Reads everything there is and checks what holds for any input.
fn exhaust(bytes: &[u8], format: Option<Format>, options: &OpenOptions) {
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
        ..OpenOptions::default()
    }
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const WORDS: &[&[u8]] = &[
        b"\n",
        b"\r\n",
        b",",
        b"\"",
        b"[",
        b"]",
        b"{",
        b"}",
        b"\\",
        b" ",
        b"~",
        b":",
        b"-1",
        b"\0",
        b"\xff\xff\xff\xff",
        b"18446744073709551615",
        b"99999999999999999999",
        b"0.0000000000000000001",
        b"osd_op(",
        b" log_op_stats ",
        b"\"description\":\"",
        b"2026-11-21T01:02:03.0+0000",
    ];
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(7) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 if at < bytes.len() => bytes[at] = random.next() as u8,
            3 => {
                let word = WORDS[random.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            4 => {
                let end = (at + random.below(40)).min(bytes.len());
                bytes.drain(at..end);
            }
            5 => {
                let end = (at + random.below(200)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            _ => bytes.extend_from_slice(&random.next().to_le_bytes()[..random.below(9)]),
        }
    }
}

fn samples() -> Vec<(Format, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/traces");
    let mut samples = Vec::new();
    for &format in Format::ALL {
        for entry in std::fs::read_dir(folder.join(format.name())).unwrap() {
            samples.push((format, std::fs::read(entry.unwrap().path()).unwrap()));
        }
    }
    samples.sort();
    samples
}

#[test]
fn mutated_samples_do_no_harm() {
    let seed = environment("BATHY_FUZZ_SEED", 20_261_121);
    let cases = environment("BATHY_FUZZ_CASES", 1000);
    eprintln!("seed {seed}, {cases} cases per sample");
    for (index, (format, sample)) in samples().into_iter().enumerate() {
        for case in 0..cases {
            let mut random = Random(seed ^ (index as u64) << 32 ^ case);
            // Whole samples are slow to read; damage near the start is as instructive.
            let mut bytes = sample[..sample.len().min(8 << 10)].to_vec();
            mutate(&mut bytes, &mut random);
            let options = options(&mut random);
            let asked = if random.below(4) == 0 { None } else { Some(format) };
            exhaust(&bytes, asked, &options);
        }
    }
}

#[test]
fn samples_read_as_another_format_do_no_harm() {
    for (_, sample) in samples() {
        for &format in Format::ALL {
            let options = OpenOptions {
                on_bad_record: OnBadRecord::Skip,
                ..OpenOptions::default()
            };
            exhaust(&sample, Some(format), &options);
        }
    }
}

#[test]
fn random_bytes_do_no_harm() {
    let mut runner = TestRunner::new(Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    });
    let strategy = (
        prop::collection::vec(any::<u8>(), 0..2000),
        0..Format::ALL.len(),
        any::<u64>(),
    );
    runner
        .run(&strategy, |(mut bytes, format, seed)| {
            let mut random = Random(seed);
            exhaust(&bytes, None, &options(&mut random));
            exhaust(&bytes, Some(Format::ALL[format]), &options(&mut random));
            // The magic numbers alone open doors that random bytes do not.
            let magic: &[u8] = match random.below(5) {
                0 => &[0x1f, 0x8b, 8],
                1 => &[0xfd, b'7', b'z', b'X', b'Z', 0],
                2 => &[0x28, 0xb5, 0x2f, 0xfd],
                3 => &[7, 0x74, 0x61, 0x65],
                _ => b"fio version 2 iolog\n",
            };
            bytes.splice(0..0, magic.iter().copied());
            exhaust(&bytes, Some(Format::ALL[format]), &options(&mut random));
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
    }
}
