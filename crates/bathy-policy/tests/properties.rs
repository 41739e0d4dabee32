//! What every policy promises its driver, whatever it decides.

mod common;

use std::collections::BTreeSet;

use bathy_policy::{
    Access, EvictionSink, Insertion, Policy, PolicyKind, PolicyOptions, S3FifoOptions, belady_misses,
    belady_misses_with, build, build_with_options,
};
use proptest::prelude::*;

fn residents(policy: &dyn Policy) -> Vec<u64> {
    let mut keys = Vec::new();
    policy.for_each_in_restore_order(&mut |key| keys.push(key));
    keys
}

fn kind() -> impl Strategy<Value = PolicyKind> {
    prop::sample::select(PolicyKind::ALL.to_vec())
}

/// Keys with reuse: two thirds from a tenth of the range.
fn keys(range: u64, len: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![1 => 0..range, 2 => 0..range.div_ceil(10)], 1..len)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// A driver that keeps its own set by what the policy tells it always has the policy's set.
    #[test]
    fn the_sink_hears_all_that_leaves_and_the_capacity_holds(
        kind in kind(), capacity in 1..60usize, keys in keys(150, 600), removals: u64,
    ) {
        let mut policy = build(kind, capacity, None);
        let mut driver = BTreeSet::new();
        for (step, &key) in keys.iter().enumerate() {
            let before = driver.contains(&key);
            prop_assert_eq!(policy.contains(key), before);
            let mut evicted = Vec::new();
            let access = policy.access_dyn(key, &mut |key| evicted.push(key));
            prop_assert_eq!(access.is_hit(), before);
            for key in evicted {
                prop_assert!(driver.remove(&key), "{} was resident before it was evicted", key);
            }
            if access == (Access::Miss { inserted: true }) {
                driver.insert(key);
            }
            prop_assert!(driver.len() <= capacity);
            if (removals >> (step % 64)).trailing_zeros() >= 5 {
                let removed = keys[step / 2];
                prop_assert_eq!(policy.remove(removed), driver.remove(&removed));
            }
            prop_assert_eq!(policy.len(), driver.len());
        }
        let mut listed = residents(policy.as_ref());
        listed.sort_unstable();
        prop_assert_eq!(listed, driver.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn both_indexes_serve_the_same_policy(kind in kind(), capacity in 1..60usize, keys in keys(150, 600)) {
        let (mut hash, mut dense) = (build(kind, capacity, None), build(kind, capacity, Some(150)));
        for &key in &keys {
            prop_assert_eq!(hash.access(key), dense.access(key));
        }
        prop_assert_eq!(residents(hash.as_ref()), residents(dense.as_ref()));
        prop_assert_eq!(hash.flash_writes(), dense.flash_writes());
    }

    #[test]
    fn what_was_restored_is_what_was_resident(kind in kind(), capacity in 1..60usize, keys in keys(150, 600)) {
        let mut policy = build(kind, capacity, None);
        for &key in &keys {
            policy.access(key);
        }
        let saved = residents(policy.as_ref());
        let mut restored = build(kind, capacity, None);
        for &key in &saved {
            prop_assert!(restored.restore(key));
            prop_assert!(!restored.restore(key), "it is resident already");
        }
        let sorted = |mut keys: Vec<u64>| { keys.sort_unstable(); keys };
        prop_assert_eq!(sorted(residents(restored.as_ref())), sorted(saved));
        // And it goes on from there without breaking a bound.
        for &key in &keys {
            restored.access(key);
            prop_assert!(restored.len() <= capacity);
        }
    }

    #[test]
    fn a_touch_of_an_absent_key_changes_nothing(kind in kind(), capacity in 1..60usize, keys in keys(150, 600)) {
        let (mut touched, mut plain) = (build(kind, capacity, None), build(kind, capacity, None));
        for &key in &keys {
            prop_assert!(!touched.touch(key + 1000));
            prop_assert_eq!(touched.access(key), plain.access(key));
        }
    }

    /// Mattson's inclusion property: what a cache holds, every larger one holds too.
    #[test]
    fn lru_of_a_smaller_cache_is_included_in_a_larger_one(
        small in 1..40usize, more in 1..40usize, keys in keys(120, 500),
    ) {
        let (mut small, mut large) =
            (build(PolicyKind::Lru, small, None), build(PolicyKind::Lru, small + more, None));
        for &key in &keys {
            let (in_small, in_large) = (small.access(key).is_hit(), large.access(key).is_hit());
            prop_assert!(in_large || !in_small);
        }
        let larger: BTreeSet<u64> = residents(large.as_ref()).into_iter().collect();
        prop_assert!(residents(small.as_ref()).iter().all(|key| larger.contains(key)));
    }

    #[test]
    fn no_policy_beats_belady(kind in kind(), capacity in 1..40usize, keys in keys(120, 500)) {
        let mut policy = build(kind, capacity, None);
        let misses = keys.iter().filter(|&&key| !policy.access(key).is_hit()).count() as u64;
        let bound = belady_misses(&keys, capacity);
        prop_assert!(bound <= misses);
        prop_assert!(belady_misses_with(&keys, capacity, Insertion::Optional) <= bound);
    }

    #[test]
    fn belady_equals_the_search_for_the_farthest_next_use(capacity in 1..12usize, keys in keys(40, 200)) {
        for insertion in [Insertion::Forced, Insertion::Optional] {
            prop_assert_eq!(belady_misses_with(&keys, capacity, insertion), farthest(&keys, capacity, insertion));
        }
    }

    /// With the small queue in memory the lines on the SSD are those promoted and not evicted since, and main's
    /// share is never exceeded.
    #[test]
    fn small_in_ram_never_holds_more_on_flash_than_main_has_lines(
        capacity in 2..60usize, keys in keys(150, 600),
    ) {
        struct Flash { lines: BTreeSet<u64>, writes: u64, limit: usize }
        impl EvictionSink for Flash {
            fn evicted(&mut self, key: u64) {
                self.lines.remove(&key);
            }
            fn promoted(&mut self, key: u64) {
                self.writes += 1;
                assert!(self.lines.insert(key), "{key} is written while it is on the SSD already");
                assert!(self.lines.len() <= self.limit, "room is made before a line is written");
            }
        }
        let s3_fifo = S3FifoOptions { small_in_ram: true, ..S3FifoOptions::default() };
        let options = PolicyOptions { s3_fifo, ..PolicyOptions::default() };
        let mut policy = build_with_options(PolicyKind::S3Fifo, capacity, None, &options);
        let limit = capacity - (capacity / 10).max(1);
        let mut flash = Flash { lines: BTreeSet::new(), writes: 0, limit };
        for &key in &keys {
            policy.access_dyn(key, &mut flash);
        }
        prop_assert_eq!(policy.flash_writes(), flash.writes);
        prop_assert!(flash.lines.iter().all(|&key| policy.contains(key)));
    }
}

/// Belady's rule by search, quadratic.
fn farthest(keys: &[u64], capacity: usize, insertion: Insertion) -> u64 {
    let next_use = |from: usize, key: u64| {
        keys[from..]
            .iter()
            .position(|&other| other == key)
            .unwrap_or(usize::MAX)
    };
    let mut cache: Vec<u64> = Vec::new();
    let mut misses = 0;
    for (position, &key) in keys.iter().enumerate() {
        if cache.contains(&key) {
            continue;
        }
        misses += 1;
        if cache.len() == capacity {
            let victim = (0..cache.len())
                .max_by_key(|&i| next_use(position + 1, cache[i]))
                .expect("full");
            let victim_use = next_use(position + 1, cache[victim]);
            if insertion == Insertion::Optional && next_use(position + 1, key) >= victim_use {
                continue;
            }
            cache.swap_remove(victim);
        }
        cache.push(key);
    }
    misses
}

/// The shares that the literature reports hold on real traces too: see the crate's CROSSCHECK.md for the table.
#[test]
fn s3_fifo_with_its_small_queue_in_memory_writes_less_and_misses_about_the_same() {
    for (trace, keys, capacities) in common::traces() {
        for capacity in capacities.into_iter().filter(|&capacity| capacity >= 250) {
            let run = |small_in_ram| {
                let s3_fifo = S3FifoOptions {
                    small_in_ram,
                    ..S3FifoOptions::default()
                };
                let options = PolicyOptions {
                    s3_fifo,
                    ..PolicyOptions::default()
                };
                let mut policy = build_with_options(PolicyKind::S3Fifo, capacity, None, &options);
                let misses = keys.iter().filter(|&&key| !policy.access(key).is_hit()).count();
                (misses as f64, policy.flash_writes() as f64)
            };
            let ((shared_misses, shared_writes), (ram_misses, ram_writes)) = (run(false), run(true));
            assert!(
                (ram_misses / shared_misses - 1.0).abs() < 0.05,
                "{trace} {capacity}"
            );
            assert!(
                ram_writes < shared_writes,
                "{trace} {capacity}: {ram_writes} of {shared_writes}"
            );
        }
    }
}
