//! Prints how [`Clock2QPlus`] misses with a ghost of 0.5, as its paper has it, and of 0.9, over traces of 32-bit little-endian
//! block numbers, at 1, 5, 10, 20 and 40 % of the blocks of each; at the end in how many cases either missed less.
//!
//! `cargo run --release -p bathy-policy --example ghost_sizes -- TRACE...`

use std::collections::HashMap;
use std::io::Write;

use bathy_policy::{Clock2QPlus, Clock2QPlusOptions, DenseIndex, Policy, Universe};

const SHARES: [f64; 5] = [0.01, 0.05, 0.1, 0.2, 0.4];
const GHOSTS: [f64; 2] = [0.5, 0.9];
/// Differences below this many points count as none.
const EQUAL: f64 = 0.005;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    let mut differences = Vec::new();
    for path in std::env::args().skip(1) {
        let mut numbers: HashMap<u32, u64> = HashMap::new();
        let keys: Vec<u64> = std::fs::read(&path)?
            .chunks_exact(4)
            .map(|word| {
                let next = numbers.len() as u64;
                *numbers
                    .entry(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                    .or_insert(next)
            })
            .collect();
        for share in SHARES {
            let lines = ((numbers.len() as f64 * share) as usize).max(1);
            let [paper, larger] = GHOSTS.map(|ghost_ratio| {
                let options = Clock2QPlusOptions {
                    ghost_ratio,
                    ..Clock2QPlusOptions::default()
                };
                let mut policy =
                    Clock2QPlus::<DenseIndex>::with_options(lines, Universe(numbers.len()), options);
                keys.iter().filter(|&&key| !policy.access(key).is_hit()).count()
            });
            let points = 100.0 * (larger as f64 - paper as f64) / keys.len() as f64;
            writeln!(
                out,
                "{path} {lines} lines: {paper} and {larger} misses, {points:+.2} points"
            )?;
            differences.push(points);
        }
    }
    let less = differences.iter().filter(|&&points| points < -EQUAL).count();
    let more = differences.iter().filter(|&&points| points > EQUAL).count();
    let mean = differences.iter().sum::<f64>() / differences.len().max(1) as f64;
    let (low, high) = differences
        .iter()
        .fold((0.0, 0.0), |(low, high): (f64, f64), &points| {
            (low.min(points), high.max(points))
        });
    writeln!(
        out,
        "of {} cases a ghost of 0.9 missed less in {less} (by up to {:.1} points), more in {more} (by up to {high:.1}), \
         {mean:+.2} points on average",
        differences.len(),
        -low
    )?;
    Ok(())
}
