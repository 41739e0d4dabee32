//! The engine counts what the simulator counts, exactly: both drive the same model.

use std::io;
use std::sync::Arc;

use bathy_cache::{BlockStore, Counts, FileIdentity, MissRatioCurve, Recovery, Stamp};
use bathy_cache_model::{AdmissionOptions, FetchSize, Io, LineSize, MemoryBudget, StreamCutoff, WriteMode};
use bathy_mrc::engine::{EngineCounts, EngineOptions, EngineResult, EngineSweep, TimedIo};
use bathy_mrc::simulate::Fidelity;
use bathy_policy::{CachePolicy, PolicyKind};

use crate::common::{LINE, LINE_SIZES, MemoryStore, Random, UNIT, World, create_options, identity};

const BYTES: u64 = 8 << 20;
const FILES: u32 = 3;

/// Requests like those of virtual disks: hot places, scans, a few of several lines.
fn requests(count: u64, line: u64, several_lines: bool) -> Vec<TimedIo> {
    let mut random = Random(11);
    let mut scan = 0;
    let mut make = |number: u64| {
        let hot = random.below(BYTES / UNIT) * random.below(BYTES / UNIT) / (BYTES / UNIT) * UNIT;
        let (offset, len) = match random.below(20) {
            0..12 => (hot, UNIT),
            12..16 => (hot, 3 * UNIT),
            16 => (hot + 512, 1024),
            17 if several_lines => (hot, 5 * line + 512),
            _ => {
                scan = (scan + 2 * UNIT) % BYTES;
                (scan, 2 * UNIT)
            }
        };
        let len = if several_lines {
            len
        } else {
            len.min(line - offset % line)
        };
        TimedIo {
            // Two days in all.
            time_ns: number * 8_640_000_000,
            io: Io {
                offset_bytes: offset,
                length_bytes: len.min(BYTES - offset) as u32,
                write: random.chance(0.35),
                // Files are hot at different places.
                volume: (offset >> 19) as u32 % FILES,
            },
        }
    };
    (0..count).map(&mut make).collect()
}

/// The engine's counts with the simulator's type.
fn as_simulated(counts: &Counts) -> EngineCounts {
    let mut simulated = EngineCounts::default();
    for (into, from) in [
        (&mut simulated.reads, &counts.reads),
        (&mut simulated.writes, &counts.writes),
    ] {
        into.requests = from.requests as f64;
        into.requests_hit = from.requests_hit as f64;
        into.bytes = from.bytes as f64;
        into.bytes_hit = from.bytes_hit as f64;
    }
    EngineCounts {
        backing_read_bytes: counts.backing_read_bytes as f64,
        flash_write_bytes: counts.flash_write_bytes as f64,
        flash_update_bytes: counts.flash_update_bytes as f64,
        evictions: counts.evictions as f64,
        refused: counts.refused as f64,
        ..simulated
    }
}

const ASKED_ALONE: FetchSize = FetchSize::Fixed(UNIT);

/// Runs both; the engine stops and starts again `restarts` times on the way.
fn compare(
    line: u64,
    fetch: FetchSize,
    policy: PolicyKind,
    write_mode: WriteMode,
    admission: AdmissionOptions,
    several_lines: bool,
    (shards, restarts): (u32, usize),
) -> [EngineCounts; 2] {
    let mut world = World::new(BYTES, 1, 1);
    world.ssd = MemoryStore::device(vec![0; (1 << 20) + (2080 << 10)]);
    world.options.write_mode = write_mode;
    world.options.admission = admission;
    world.options.fetch = fetch;
    let options = bathy_cache::CreateOptions {
        policy,
        ..create_options(line, shards)
    };
    bathy_cache::create(world.ssd.clone(), &*world.witness, &options).expect("there is room");
    let requests = requests(20_000, line, several_lines);
    let stores: Vec<_> = (0..FILES)
        .map(|_| MemoryStore::new(vec![0; BYTES as usize]))
        .collect();
    let mut engine = world.open().engine;
    let mut sweep = EngineSweep::new(
        EngineOptions {
            policy,
            memory: Some(MemoryBudget::default()),
            line: LineSize::new(line).expect("a power of two"),
            unit_bytes: UNIT,
            fetch,
            write_mode,
            admission,
            windows: None,
            sample_region_bytes: 0,
        },
        &[engine.capacity_lines()],
        Fidelity::Full,
    );
    sweep.access(requests.iter().copied());
    let mut total = EngineCounts::default();
    let mut ahead_bytes = 0;
    let mut out = vec![0; BYTES as usize];
    for session in requests.chunks(requests.len().div_ceil(restarts + 1)) {
        let attach = |(handle, store): (u8, &Arc<MemoryStore>)| {
            engine
                .engine
                .attach(identity(handle + 100), store.clone())
                .expect("the backing works")
        };
        let files: Vec<_> = (0..).zip(&stores).map(attach).collect();
        for request in session {
            let file = &files[request.io.volume as usize];
            let (offset, len) = (request.io.offset_bytes, request.io.length_bytes as usize);
            if request.io.write {
                file.write(&out[..len], offset, request.time_ns)
                    .expect("the backing works");
            } else {
                let read = file.read(&mut out[..len], offset, request.time_ns);
                assert_eq!(read.expect("the backing works"), len);
            }
        }
        let counts = engine.counts();
        total.add_scaled(&as_simulated(&counts), 1.0);
        ahead_bytes += counts.fetched_ahead_bytes;
        assert!(counts.ahead_used_bytes <= counts.ahead_sampled_bytes);
        // Every line of so small a cache is sampled.
        let sampled_bytes = if matches!(fetch, FetchSize::Adaptive { .. }) {
            counts.fetched_ahead_bytes
        } else {
            0
        };
        assert_eq!(counts.ahead_sampled_bytes, sampled_bytes);
        assert!(engine.stop().expect("the backing works"));
        let opened = world.open();
        assert_eq!(opened.recovery, Recovery::Clean);
        engine = opened.engine;
    }
    let mut simulated = sweep.results()[0].counts;
    assert!(
        total.reads.requests_hit > 200.0 && total.evictions > 1000.0,
        "{total:?}"
    );
    assert_eq!(ahead_bytes > 0, fetch != ASKED_ALONE);
    // Only the simulator knows first touches.
    simulated.reads.requests_cold = 0.0;
    simulated.writes.requests_cold = 0.0;
    [total, simulated]
}

fn assert_fetching_equal(
    line: u64,
    fetch: FetchSize,
    policy: PolicyKind,
    write_mode: WriteMode,
    admission: AdmissionOptions,
    restarts: usize,
) {
    let [engine, simulated] = compare(line, fetch, policy, write_mode, admission, false, (1, restarts));
    assert_eq!(
        engine, simulated,
        "lines of {line} {fetch:?} {policy} {write_mode:?} {admission:?}"
    );
}

fn assert_equal(policy: PolicyKind, write_mode: WriteMode, admission: AdmissionOptions, restarts: usize) {
    assert_fetching_equal(LINE, ASKED_ALONE, policy, write_mode, admission, restarts);
}

#[test]
fn engine_and_simulator_count_the_same() {
    let none = AdmissionOptions::default();
    for policy in CachePolicy::KINDS {
        for write_mode in [WriteMode::Allocate, WriteMode::Update, WriteMode::Invalidate] {
            assert_equal(policy, write_mode, none, 0);
        }
    }
    let fetches = [
        FetchSize::Fixed(2 * UNIT),
        FetchSize::Fixed(LINE),
        FetchSize::Adaptive {
            break_even_bytes: 50_000,
        },
        FetchSize::Adaptive {
            break_even_bytes: 1_200_000,
        },
    ];
    for fetch in fetches {
        for policy in CachePolicy::KINDS {
            for write_mode in [WriteMode::Allocate, WriteMode::Update, WriteMode::Invalidate] {
                assert_fetching_equal(LINE, fetch, policy, write_mode, none, 0);
            }
        }
    }
    let n_hit = AdmissionOptions {
        n_hit: Some(2),
        ..none
    };
    assert_equal(PolicyKind::S3Fifo, WriteMode::Allocate, n_hit, 0);
    for is_of_writes in [false, true] {
        let streams = AdmissionOptions {
            stream_cutoff: Some(StreamCutoff {
                bytes: 256 << 10,
                is_of_writes,
            }),
            ..none
        };
        assert_equal(PolicyKind::S3Fifo, WriteMode::Allocate, streams, 0);
    }
}

#[test]
fn engine_and_simulator_count_the_same_with_each_line_size() {
    for line in LINE_SIZES {
        for policy in CachePolicy::KINDS {
            for (fetch, write_mode, restarts) in [
                (ASKED_ALONE, WriteMode::Allocate, 3),
                (FetchSize::Fixed(line), WriteMode::Update, 0),
                (
                    FetchSize::Adaptive {
                        break_even_bytes: 1_200_000,
                    },
                    WriteMode::Allocate,
                    0,
                ),
            ] {
                let none = AdmissionOptions::default();
                assert_fetching_equal(line, fetch, policy, write_mode, none, restarts);
            }
        }
    }
}

/// The requests take two days: what is written to the SSD is the budget, and what hits is what was simulated.
#[test]
fn a_write_budget_is_held_and_its_hits_are_predicted() {
    const DAYS: u64 = 2;
    for policy in CachePolicy::KINDS {
        let run = |budget| {
            let admission = AdmissionOptions {
                write_budget_bytes_per_day: budget,
                ..AdmissionOptions::default()
            };
            let [engine, simulated] = compare(
                LINE,
                ASKED_ALONE,
                policy,
                WriteMode::Update,
                admission,
                false,
                (1, 0),
            );
            assert_eq!(engine, simulated, "{policy} {budget:?}");
            engine
        };
        let free = run(None);
        let half = (free.flash_write_bytes / 2.0) as u64 / DAYS;
        let held = run(Some(half));
        let share = held.flash_write_bytes / (half * DAYS) as f64;
        let ratio = |counts: &EngineCounts| counts.reads.requests_hit / counts.reads.requests;
        eprintln!(
            "{policy}: {share:.3} of a budget of half of what it would write; {:.4} of the reads hit instead of {:.4}",
            ratio(&held),
            ratio(&free)
        );
        assert!((0.95..=1.05).contains(&share), "{policy}: {share}");
        assert!(
            run(Some(1 << 40)) == free,
            "a budget that is not needed changes nothing"
        );
    }
}

#[test]
fn after_clean_stops_it_counts_as_if_it_had_never_stopped() {
    for policy in CachePolicy::KINDS {
        assert_equal(policy, WriteMode::Allocate, AdmissionOptions::default(), 9);
    }
}

/// A large file whose bytes do not matter.
struct Zeros(u64);

impl BlockStore for Zeros {
    fn read(&self, buffer: &mut [u8], _offset: u64) -> io::Result<()> {
        buffer.fill(0);
        Ok(())
    }

    fn write(&self, _data: &[u8], _offset: u64) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn stamp(&self) -> io::Result<Stamp> {
        Ok(Stamp {
            size_bytes: self.0,
            id: 1,
            modified_ns: 1,
            changed_ns: 1,
        })
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0)
    }
}

const LINES: u64 = 40_000;

/// Reads and writes of two sources: one has hot lines, of which it uses neighbouring units, the other one scans.
fn requests_of_sources() -> Vec<Io> {
    let mut random = Random(17);
    let mut make = |number: u64| {
        let below = LINES * 3 / 4;
        let mut hot = || random.below(below) * random.below(below) / below * random.below(below) / below;
        let (volume, line) = match number % 10 {
            0..6 => (0, hot()),
            6 => (1, hot()),
            _ => (1, number % 10_000 + below),
        };
        let unit = if volume == 0 { random.below(5) } else { 0 };
        Io {
            offset_bytes: line * LINE + unit * UNIT,
            length_bytes: UNIT as u32,
            write: random.chance(0.2),
            volume,
        }
    };
    (0..300_000).map(&mut make).collect()
}

/// The hit ratios of reads that a simulated LRU cache of each size has.
fn simulated_lru(fetch: FetchSize, sizes: &[u64], requests: impl Iterator<Item = Io>) -> Vec<f64> {
    let options = EngineOptions {
        policy: PolicyKind::Lru,
        memory: None,
        line: LineSize::new(LINE).expect("a power of two"),
        unit_bytes: UNIT,
        fetch,
        write_mode: WriteMode::Allocate,
        admission: AdmissionOptions::default(),
        windows: None,
        sample_region_bytes: 0,
    };
    let mut sweep = EngineSweep::new(options, sizes, Fidelity::Full);
    sweep.access((0..).zip(requests).map(|(time_ns, io)| TimedIo { time_ns, io }));
    let reads = |result: &EngineResult| result.counts.reads.requests_hit / result.counts.reads.requests;
    sweep.results().iter().map(reads).collect()
}

/// The curves of the cache and of its two sources are those of simulated LRU caches of each size: one for all, and one for each
/// source alone, whatever a miss fetches. A sample makes sizes wrong by some percent, which shows where a whole scan fits at once:
/// so the hit ratio is compared with those of sizes that are a little smaller and larger.
#[test]
fn the_curves_of_the_running_cache_are_those_of_simulated_lru_caches() {
    let adaptive = FetchSize::Adaptive {
        break_even_bytes: 100_000,
    };
    let requests = requests_of_sources();
    let present = [ASKED_ALONE, FetchSize::Fixed(4 * UNIT), adaptive].map(|fetch| {
        let mut world = World::new(4096, 1, 1);
        world.ssd = MemoryStore::device(vec![0; (8 << 20) + 2000 * LINE as usize]);
        world.options.fetch = fetch;
        bathy_cache::create(world.ssd.clone(), &*world.witness, &create_options(LINE, 4))
            .expect("there is room");
        let opened = world.open();
        let engine = opened.engine.engine.clone();
        let sources = [*b"many hot lines..", *b"a scan, and some"];
        let files = sources.map(|source| {
            let identity = FileIdentity::new(source, b"file").expect("it is short enough");
            engine
                .attach(identity, Arc::new(Zeros(LINES * LINE)))
                .expect("the backing works")
        });
        let mut out = vec![0; UNIT as usize];
        for (time_ns, io) in (0..).zip(&requests) {
            let file = &files[io.volume as usize];
            if io.write {
                file.write(&out, io.offset_bytes, time_ns)
                    .expect("the backing works");
            } else {
                file.read(&mut out, io.offset_bytes, time_ns)
                    .expect("the backing works");
            }
        }
        let check = |curve: Option<MissRatioCurve>, volume: Option<u32>, reads: u64, error: f64| {
            let curve = curve.expect("it was read");
            assert_eq!(curve.reads, reads);
            assert!(curve.sampling_rate < 0.6, "{curve:?}");
            let sizes: Vec<_> = curve.points.iter().map(|point| point.size_bytes / LINE).collect();
            let own = requests
                .iter()
                .copied()
                .filter(|io| volume.is_none_or(|it| it == io.volume));
            let around = [93, 100, 107].map(|percent| sizes.iter().map(move |size| size * percent / 100));
            let around: Vec<_> = around.into_iter().flatten().collect();
            let simulated = simulated_lru(fetch, &around, own);
            for (number, point) in curve.points.iter().enumerate() {
                let [less, same, more] = [0, 1, 2].map(|part| simulated[part * sizes.len() + number]);
                let what =
                    format!("{fetch:?} of {volume:?}: {point:.4?}, simulated {less:.4} {same:.4} {more:.4}");
                eprintln!("{what}");
                // The sample has too few lines for the smallest ones.
                assert!(point.hit_ratio.is_some() || number < 2, "{what}");
                let hit_ratio = point.hit_ratio.unwrap_or(same);
                assert!((less - error..more + error).contains(&hit_ratio), "{what}");
            }
            let present = curve.points[3];
            assert_eq!(
                (present.size_bytes, present.size_ratio),
                (engine.capacity_lines() * LINE, 1.0)
            );
            present.hit_ratio.expect("it is large enough")
        };
        let all = check(engine.curve(), None, engine.counts().reads.requests, 0.015);
        let [hot, scan] = [0, 1].map(|number| {
            let reads = files[number].counts().reads.requests;
            check(
                engine.source_curve(&sources[number]),
                Some(number as u32),
                reads,
                0.035,
            )
        });
        assert!(hot - scan > 0.05 && all < hot, "they are two different sources");
        hot
    });
    assert!(
        present[1] - present[0] > 0.05 && present[2] - present[0] > 0.05,
        "neighbours that were fetched are hits: {present:?}"
    );
}

/// A write of several lines goes to the backing once, so all its lines are pinned while room is made for one of them; the
/// simulator ends each before it begins the next. And each shard evicts for itself. This cache has two lines in memory, where
/// that shows most.
#[test]
fn writes_of_several_lines_and_shards_count_nearly_the_same() {
    let adaptive = FetchSize::Adaptive {
        break_even_bytes: 1_200_000,
    };
    let all = [
        (ASKED_ALONE, 1, 0.5),
        (ASKED_ALONE, 4, 3.0),
        (adaptive, 1, 0.5),
        (adaptive, 4, 3.0),
    ];
    for (fetch, shards, points_max) in all {
        let none = AdmissionOptions::default();
        let [engine, simulated] = compare(
            LINE,
            fetch,
            PolicyKind::S3Fifo,
            WriteMode::Allocate,
            none,
            true,
            (shards, 0),
        );
        let ratio = |counts: &EngineCounts| {
            [counts.reads, counts.writes].map(|op| op.requests_hit / op.requests * 100.0)
        };
        let (engine, simulated) = (ratio(&engine), ratio(&simulated));
        eprintln!(
            "{fetch:?}, {shards} shards: {engine:.2?} % of reads and writes hit, simulated {simulated:.2?} %"
        );
        for (one, other) in engine.iter().zip(simulated) {
            assert!(
                (one - other).abs() < points_max,
                "{shards}: {engine:?} {simulated:?}"
            );
        }
    }
}
