//! Every policy misses exactly as often as it did when `golden/misses.csv` was reviewed.
//!
//! The counts were compared with an independent implementation; CROSSCHECK.md says with what result. After a change
//! that is meant to change decisions run with `BATHY_UPDATE_GOLDEN=1` and review the difference.

#[path = "common/belady.rs"]
mod belady;
mod common;
#[path = "common/shared_queues.rs"]
mod shared_queues;

use std::fmt::Write as _;

use bathy_policy::{Policy, PolicyKind, PolicyOptions, PolicyVisitor, visit_policy};
use belady::{Insertion, belady_misses};
use shared_queues::SharedQueues;

struct Count<'a>(&'a [u64]);

impl PolicyVisitor for Count<'_> {
    /// Misses and flash writes.
    type Output = (u64, u64);
    fn visit<P: Policy + Send + 'static>(self, mut policy: P) -> Self::Output {
        let (mut misses, mut writes) = (0, 0);
        for &key in self.0 {
            if policy.reference(key).is_some() {
                continue;
            }
            misses += 1;
            let inserted = policy.insert(key).expect("nothing is pinned");
            writes +=
                u64::from(!policy.is_in_memory(inserted.slot)) + u64::from(inserted.promotion.is_some());
        }
        (misses, writes)
    }
}

fn count() -> String {
    let mut table = String::from("trace,policy,capacity_lines,misses,flash_writes\n");
    let options = PolicyOptions::default();
    for (trace, keys, capacities) in common::traces() {
        for kind in PolicyKind::ALL {
            for capacity in capacities {
                let (misses, writes) = visit_policy(kind, capacity, None, options, Count(&keys));
                writeln!(table, "{trace},{kind},{capacity},{misses},{writes}").expect("a string takes all");
            }
        }
        for capacity in capacities {
            for (name, mut queues) in [
                ("s3-fifo/published", SharedQueues::s3_fifo(capacity)),
                ("clock2q+/published", SharedQueues::clock2q_plus(capacity)),
            ] {
                let misses = keys.iter().filter(|&&key| !queues.access(key)).count();
                writeln!(table, "{trace},{name},{capacity},{misses},").expect("a string takes all");
            }
        }
        for (name, insertion) in [
            ("belady", Insertion::Forced),
            ("belady/bypass", Insertion::Optional),
        ] {
            for capacity in capacities {
                let misses = belady_misses(&keys, capacity, insertion);
                writeln!(table, "{trace},{name},{capacity},{misses},").expect("a string takes all");
            }
        }
    }
    table
}

#[test]
fn miss_counts_are_the_reviewed_ones() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/misses.csv");
    let counted = count();
    if std::env::var_os("BATHY_UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &counted).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(path).expect("the golden file is checked in");
    for (golden, counted) in golden.lines().zip(counted.lines()) {
        assert_eq!(golden, counted, "BATHY_UPDATE_GOLDEN=1 accepts the new counts");
    }
    assert_eq!(golden.lines().count(), counted.lines().count());
}
