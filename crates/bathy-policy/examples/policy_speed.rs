//! Prints references per second and misses of each policy over a trace of 32-bit little-endian block numbers.
//!
//! `cargo run --release -p bathy-policy --example policy_speed -- TRACE [CAPACITY] [POLICY...]`; the capacity
//! defaults to a tenth of the different blocks. The misses are the check that the work was done.

use std::collections::HashMap;
use std::io::Write;
use std::time::Instant;

use bathy_policy::{Policy, PolicyKind, PolicyOptions, PolicyVisitor, visit_policy};

struct CountMisses<'a> {
    keys: &'a [u32],
}

impl PolicyVisitor for CountMisses<'_> {
    type Output = u64;
    fn visit<P: Policy + Send + 'static>(self, mut policy: P) -> u64 {
        self.keys
            .iter()
            .map(|&key| u64::from(!policy.access(u64::from(key)).is_hit()))
            .sum()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: policy_speed TRACE [CAPACITY] [POLICY...]")?;
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    let keys: Vec<u32> = std::fs::read(path)?
        .chunks_exact(4)
        .map(|word| {
            let next = numbers.len() as u32;
            *numbers
                .entry(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                .or_insert(next)
        })
        .collect();
    let universe = numbers.len();
    let capacity = arguments.next().map_or(Ok(universe / 10), |text| text.parse())?;
    let mut kinds = arguments
        .map(|name| name.parse())
        .collect::<Result<Vec<PolicyKind>, _>>()?;
    if kinds.is_empty() {
        kinds.extend(PolicyKind::ALL);
    }
    if cfg!(debug_assertions) {
        eprintln!("warning: a debug build; the speeds mean nothing");
    }
    eprintln!("{} references, {universe} blocks, {capacity} lines", keys.len());
    let mut out = std::io::stdout().lock();
    writeln!(out, "policy      index  Mrefs/s  misses")?;
    for kind in kinds {
        for (index, universe) in [("dense", Some(universe)), ("hash", None)] {
            let start = Instant::now();
            let misses = visit_policy(
                kind,
                capacity,
                universe,
                PolicyOptions::default(),
                CountMisses { keys: &keys },
            );
            let rate = keys.len() as f64 / start.elapsed().as_secs_f64() / 1e6;
            writeln!(out, "{kind:<11} {index:<6} {rate:>7.1}  {misses}")?;
        }
    }
    Ok(())
}
