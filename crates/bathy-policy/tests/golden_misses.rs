//! Every policy misses exactly as often as it did when `golden/misses.csv` was reviewed.
//!
//! The counts were compared with an independent implementation; CROSSCHECK.md says with what result. After a change
//! that is meant to change decisions run with `BATHY_UPDATE_GOLDEN=1` and review the difference.

mod common;

use std::fmt::Write as _;

use bathy_policy::Policy;
use bathy_policy::{Insertion, PolicyKind, PolicyOptions, PolicyVisitor, belady_misses, visit_policy};

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
    let default = PolicyOptions::default();
    let staged = PolicyOptions {
        stage_ratio: Some(0.1),
        ..default
    };
    for (trace, keys, capacities) in common::traces() {
        let variants = PolicyKind::ALL.map(|kind| (kind.to_string(), kind, &default));
        let staged = [PolicyKind::S3Fifo, PolicyKind::Clock2QPlus]
            .map(|kind| (format!("{kind}/staged"), kind, &staged));
        for (name, kind, options) in variants.into_iter().chain(staged) {
            for capacity in capacities {
                let (misses, writes) = visit_policy(kind, capacity, None, options, Count(&keys));
                writeln!(table, "{trace},{name},{capacity},{misses},{writes}").expect("a string takes all");
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
