//! The engine counts what the simulator counts, exactly: both drive the same model.

use std::sync::Arc;

use bathy_cache::{Counts, Recovery};
use bathy_cache_model::{AdmissionOptions, Io, LineSize, WriteMode};
use bathy_mrc::engine::{EngineCounts, EngineOptions, EngineSweep, TimedIo};
use bathy_mrc::simulate::Fidelity;
use bathy_policy::{PolicyKind, PolicyOptions};

use crate::common::{LINE, MemoryStore, Random, UNIT, World, create_options, identity};

const BYTES: u64 = 8 << 20;
const FILES: u32 = 3;

/// Requests like those of virtual disks: hot places, scans, a few of several lines.
fn requests(count: u64, several_lines: bool) -> Vec<TimedIo> {
    let mut random = Random(11);
    let mut scan = 0;
    let mut make = |number: u64| {
        let hot = random.below(BYTES / UNIT) * random.below(BYTES / UNIT) / (BYTES / UNIT) * UNIT;
        let (offset, len) = match random.below(20) {
            0..12 => (hot, UNIT),
            12..16 => (hot, 3 * UNIT),
            16 => (hot + 512, 1024),
            17 if several_lines => (hot, 5 * LINE + 512),
            _ => {
                scan = (scan + 2 * UNIT) % BYTES;
                (scan, 2 * UNIT)
            }
        };
        let len = if several_lines {
            len
        } else {
            len.min(LINE - offset % LINE)
        };
        TimedIo {
            time_ns: number * 1_000_000,
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

/// Runs both; the engine stops and starts again `restarts` times on the way.
fn compare(
    policy: PolicyKind,
    write_mode: WriteMode,
    admission: AdmissionOptions,
    several_lines: bool,
    shards: u32,
    restarts: usize,
) -> [EngineCounts; 2] {
    let mut world = World::new(BYTES, 1, 1);
    world.ssd = MemoryStore::device(vec![0; (1 << 20) + 130 * LINE as usize]);
    world.options.write_mode = write_mode;
    world.options.admission = admission;
    let options = bathy_cache::CreateOptions {
        policy,
        ..create_options(shards)
    };
    bathy_cache::create(world.ssd.clone(), &*world.witness, &options).expect("there is room");
    let requests = requests(20_000, several_lines);
    let stores: Vec<_> = (0..FILES)
        .map(|_| MemoryStore::new(vec![0; BYTES as usize]))
        .collect();
    let mut engine = world.open().engine;
    let mut sweep = EngineSweep::new(
        EngineOptions {
            policy,
            policy_options: PolicyOptions::default(),
            staged: true,
            line: LineSize::new(LINE).expect("a power of two"),
            fetch_bytes: UNIT,
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
        total.add_scaled(&as_simulated(&engine.counts()), 1.0);
        assert!(engine.stop().expect("the backing works"));
        let opened = world.open();
        assert_eq!(opened.recovery, Recovery::Clean);
        engine = opened.engine;
    }
    let mut simulated = sweep.results()[0].counts;
    assert!(
        total.reads.requests_hit > 1000.0 && total.evictions > 1000.0,
        "{total:?}"
    );
    // Only the simulator knows first touches.
    simulated.reads.requests_cold = 0.0;
    simulated.writes.requests_cold = 0.0;
    [total, simulated]
}

fn assert_equal(policy: PolicyKind, write_mode: WriteMode, admission: AdmissionOptions, restarts: usize) {
    let [engine, simulated] = compare(policy, write_mode, admission, false, 1, restarts);
    assert_eq!(engine, simulated, "{policy} {write_mode:?} {admission:?}");
}

#[test]
fn engine_and_simulator_count_the_same() {
    let none = AdmissionOptions::default();
    for policy in [PolicyKind::S3Fifo, PolicyKind::Clock2QPlus] {
        for write_mode in [WriteMode::Allocate, WriteMode::Update, WriteMode::Invalidate] {
            assert_equal(policy, write_mode, none, 0);
        }
    }
    let n_hit = AdmissionOptions {
        n_hit: Some(2),
        ..none
    };
    assert_equal(PolicyKind::S3Fifo, WriteMode::Allocate, n_hit, 0);
    let streams = AdmissionOptions {
        stream_cutoff_bytes: Some(256 << 10),
        ..none
    };
    assert_equal(PolicyKind::S3Fifo, WriteMode::Allocate, streams, 0);
}

#[test]
fn after_clean_stops_it_counts_as_if_it_had_never_stopped() {
    for policy in [PolicyKind::S3Fifo, PolicyKind::Clock2QPlus] {
        assert_equal(policy, WriteMode::Allocate, AdmissionOptions::default(), 9);
    }
}

/// A write of several lines goes to the backing once, so all its lines are pinned while room is made for one of them; the
/// simulator ends each before it begins the next. And each shard evicts for itself. This cache has two lines in memory, where
/// that shows most.
#[test]
fn writes_of_several_lines_and_shards_count_nearly_the_same() {
    for (shards, points_max) in [(1, 0.5), (4, 3.0)] {
        let none = AdmissionOptions::default();
        let [engine, simulated] = compare(PolicyKind::S3Fifo, WriteMode::Allocate, none, true, shards, 0);
        let ratio = |counts: &EngineCounts| {
            [counts.reads, counts.writes].map(|op| op.requests_hit / op.requests * 100.0)
        };
        let (engine, simulated) = (ratio(&engine), ratio(&simulated));
        eprintln!("{shards} shards: {engine:.2?} % of reads and writes hit, simulated {simulated:.2?} %");
        for (one, other) in engine.iter().zip(simulated) {
            assert!(
                (one - other).abs() < points_max,
                "{shards}: {engine:?} {simulated:?}"
            );
        }
    }
}
