//! Processor time of the cache simulation over a trace of 32-bit little-endian 4 KiB block numbers.
//!
//!     cargo run --release -p bathy-mrc --example engine_speed -- TRACE [POLICY...]
//!
//! Every fifth request writes; runs of neighbouring blocks are one request. Processor time, because the machine may be busy
//! with other work; its clock ticks every 10 ms. The hits are the check that the work was done.
#![allow(clippy::print_stdout, reason = "the figures are its output")]

use bathy_mrc::engine::{AdmissionOptions, EngineOptions, EngineSweep, FetchSize, TimedIo, WriteMode};
use bathy_mrc::simulate::Fidelity;
use bathy_mrc::{Io, LineSize};
use bathy_policy::PolicyKind;

const SIZES: [u64; 5] = [20, 10, 5, 2, 1];

fn requests(blocks: &[u32]) -> Vec<TimedIo> {
    let mut requests: Vec<TimedIo> = Vec::new();
    let mut next = u64::MAX;
    for &block in blocks {
        let offset_bytes = u64::from(block) * 4096;
        let number = requests.len() as u64;
        match requests.last_mut() {
            Some(last) if offset_bytes == next && last.io.length_bytes < 65_536 => {
                last.io.length_bytes += 4096;
            }
            _ => requests.push(TimedIo {
                time_ns: number * 1_000_000,
                io: Io {
                    offset_bytes,
                    length_bytes: 4096,
                    write: number % 5 == 0,
                    volume: 0,
                },
            }),
        }
        next = offset_bytes + 4096;
    }
    requests
}

/// Processor seconds of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let after_name = stat.rsplit(')').next().expect("it is not empty");
    let user_ticks = after_name
        .split_whitespace()
        .nth(11)
        .expect("the fourteenth field");
    user_ticks.parse::<f64>().expect("a number") / 100.0
}

fn main() {
    let path = std::env::args()
        .nth(1)
        .expect("usage: engine_speed TRACE [POLICY...]");
    let mut kinds: Vec<PolicyKind> = std::env::args()
        .skip(2)
        .map(|name| name.parse().expect("a policy"))
        .collect();
    if kinds.is_empty() {
        kinds = vec![PolicyKind::Lru, PolicyKind::S3Fifo, PolicyKind::Clock2QPlus];
    }
    let blocks: Vec<u32> = std::fs::read(path)
        .expect("the trace can be read")
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    let requests = requests(&blocks);
    let mut distinct = blocks;
    distinct.sort_unstable();
    distinct.dedup();
    if cfg!(debug_assertions) {
        eprintln!("warning: a debug build; the speeds mean nothing");
    }
    println!(
        "policy       line  fetch  Mreq/s of {} sizes  read hits",
        SIZES.len()
    );
    for policy in kinds {
        for (line_bytes, fetch_bytes) in [(4096, 4096), (65_536, 4096)] {
            let options = EngineOptions {
                policy,
                memory: Some(bathy_mrc::engine::MemoryBudget::default()),
                line: LineSize::new(line_bytes).expect("a power of two"),
                unit_bytes: fetch_bytes,
                fetch: FetchSize::Fixed(fetch_bytes),
                write_mode: WriteMode::Allocate,
                admission: AdmissionOptions::default(),
                windows: None,
                sample_region_bytes: 0,
            };
            let lines = distinct.len() as u64 * 4096 / line_bytes;
            let mut sweep =
                EngineSweep::new(options, &SIZES.map(|part| (lines / part).max(1)), Fidelity::Full);
            let start = cpu_seconds();
            sweep.access(requests.iter().copied());
            let rate = requests.len() as f64 / (cpu_seconds() - start) / 1e6;
            let hits: f64 = sweep
                .results()
                .iter()
                .map(|result| result.counts.reads.requests_hit)
                .sum();
            println!(
                "{:10} {:>5}K {:>5}K  {rate:>6.2}  {hits}",
                policy.name(),
                line_bytes >> 10,
                fetch_bytes >> 10
            );
        }
    }
}
