//! Where the memory of simulated engines goes: bytes a line of the sample, and in all, for ten sizes.
//!
//!     cargo run --release -p bathy-mrc --example engine_memory [LINES]
#![allow(clippy::print_stdout, reason = "the figures are its output")]

use bathy_mrc::engine::{AdmissionOptions, EngineOptions, EngineSweep, FetchSize, TimedIo, WriteMode};
use bathy_mrc::hash::mix64;
use bathy_mrc::simulate::Fidelity;
use bathy_mrc::{Io, LineSize};
use bathy_policy::PolicyKind;

fn main() {
    let lines: u64 = std::env::args()
        .nth(1)
        .map_or(1 << 20, |text| text.parse().expect("LINES is a number"));
    let sizes: Vec<u64> = (1..=10).map(|tenth| lines * tenth / 10).collect();
    println!("{lines} lines, sizes of a tenth to all of them");
    println!("policy      line  fetch        MB  bytes/line");
    for policy in PolicyKind::ALL {
        for (line_bytes, fetch_bytes) in [(4096, 4096), (65_536, 65_536), (65_536, 4096)] {
            let options = EngineOptions {
                policy,
                memory: Some(bathy_mrc::engine::MemoryBudget::default()),
                line: LineSize::new(line_bytes).expect("a power of two"),
                unit_bytes: fetch_bytes,
                fetch: FetchSize::Fixed(fetch_bytes),
                write_mode: WriteMode::Allocate,
                admission: AdmissionOptions::default(),
                windows: None,
                sample_region_bytes: 1 << 20,
            };
            let mut sweep = EngineSweep::new(options, &sizes, Fidelity::Full);
            let requests = (0..2 * lines).map(|step| TimedIo {
                time_ns: step,
                io: Io {
                    // Every line once, then as many at random.
                    offset_bytes: if step < lines { step } else { mix64(step) % lines } * line_bytes,
                    length_bytes: 4096,
                    write: step % 8 == 0,
                    volume: 0,
                },
            });
            sweep.access(requests);
            let bytes = sweep.memory_bytes() as f64;
            println!(
                "{:10} {:>5}K {:>5}K {:>9.1} {:>11.1}",
                policy.name(),
                line_bytes >> 10,
                fetch_bytes >> 10,
                bytes / 1e6,
                bytes / lines as f64
            );
        }
    }
}
