//! What every policy promises its driver, whatever it decides.

#[path = "common/belady.rs"]
mod belady;
mod common;
#[path = "common/shared_queues.rs"]
mod shared_queues;

use std::collections::{BTreeMap, BTreeSet};

use bathy_policy::{Policy, PolicyKind, PolicyOptions, PolicyVisitor, build, visit_policy};
use belady::{Insertion, belady_misses};
use proptest::prelude::*;
use shared_queues::SharedQueues;

fn residents(policy: &dyn Policy) -> Vec<u64> {
    let mut keys = Vec::new();
    policy.for_each_resident(&mut |key, _| keys.push(key));
    keys
}

fn make(kind: PolicyKind, capacity: usize, universe: Option<usize>) -> Box<dyn Policy + Send> {
    build(kind, capacity, universe, PolicyOptions::default())
}

fn kind() -> impl Strategy<Value = PolicyKind> {
    prop::sample::select(PolicyKind::ALL.to_vec())
}

fn options() -> impl Strategy<Value = PolicyOptions> {
    (0.0..0.5f64).prop_map(|stage_ratio| PolicyOptions { stage_ratio })
}

/// Keys with reuse: two thirds from a tenth of the range.
fn keys(range: u64, len: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![1 => 0..range, 2 => 0..range.div_ceil(10)], 1..len)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// A driver that keeps its own map of slots by what it is told always has the policy's, and no pinned line leaves or
    /// moves.
    #[test]
    fn the_driver_is_told_every_slot_and_pinned_lines_stay(
        kind in kind(), options in options(), dense: bool, capacity in 1..60usize, keys in keys(150, 600), dice: u64,
    ) {
        let mut policy = build(kind, capacity, dense.then_some(0), options);
        let mut slots: BTreeMap<u64, u32> = BTreeMap::new();
        let mut pinned: BTreeSet<u64> = BTreeSet::new();
        for (step, &key) in keys.iter().enumerate() {
            prop_assert_eq!(policy.find(key), slots.get(&key).copied());
            prop_assert_eq!(policy.reference(key), slots.get(&key).copied());
            if !slots.contains_key(&key) {
                match policy.insert(key) {
                    None => prop_assert!(!pinned.is_empty()),
                    Some(inserted) => {
                        if let Some(victim) = inserted.victim {
                            prop_assert_eq!(slots.remove(&victim.key), Some(victim.slot));
                            prop_assert!(!pinned.contains(&victim.key));
                        }
                        if let Some(promotion) = inserted.promotion {
                            prop_assert_eq!(slots.insert(promotion.key, promotion.to), Some(promotion.from));
                            prop_assert!(!pinned.contains(&promotion.key));
                            prop_assert!(policy.is_in_memory(promotion.from) && !policy.is_in_memory(promotion.to));
                        }
                        prop_assert!(!slots.values().any(|&slot| slot == inserted.slot));
                        prop_assert!((inserted.slot as usize) < policy.slots_end());
                        slots.insert(key, inserted.slot);
                    }
                }
            }
            prop_assert!(slots.len() <= capacity);
            let other = keys[step / 2];
            let die = (dice >> (step % 61)) % 16;
            if die == 0 {
                pinned.remove(&other);
                prop_assert_eq!(policy.remove(other), slots.remove(&other));
            } else if let Some(&slot) = slots.get(&other) {
                prop_assert_eq!(policy.is_pinned(slot), pinned.contains(&other));
                if die < 4 {
                    policy.pin(slot);
                    pinned.insert(other);
                } else if die < 8 {
                    policy.unpin(slot);
                    pinned.remove(&other);
                }
            }
            prop_assert_eq!(policy.len(), slots.len());
            let in_memory = slots.values().filter(|&&slot| policy.is_in_memory(slot)).count();
            prop_assert!(in_memory <= policy.memory_lines());
        }
        let mut listed = BTreeMap::new();
        policy.for_each_resident(&mut |key, slot| {
            listed.insert(key, slot);
        });
        prop_assert_eq!(listed, slots);
    }

    /// Only where every line is pinned a policy that has no stage keeps a newcomer out, and it forgets nothing by it.
    #[test]
    fn a_newcomer_needs_one_line_that_is_not_pinned(kind in kind(), capacity in 1..60usize, keys in keys(150, 600)) {
        prop_assume!(!kind.has_stage());
        let mut policy = make(kind, capacity, None);
        for &key in &keys {
            policy.access(key);
        }
        let lines = residents(policy.as_ref());
        let pin = |policy: &mut Box<dyn Policy + Send>, key| {
            let slot = policy.find(key).expect("resident");
            policy.pin(slot);
        };
        lines[1..].iter().for_each(|&key| pin(&mut policy, key));
        let is_full = lines.len() == capacity;
        let inserted = policy.insert(1000).expect("a line is not pinned");
        prop_assert_eq!(inserted.victim.map(|victim| victim.key), is_full.then_some(lines[0]));
        pin(&mut policy, 1000);
        if is_full {
            prop_assert_eq!(policy.insert(1001), None);
            prop_assert_eq!(policy.len(), capacity);
        }
    }

    #[test]
    fn both_indexes_serve_the_same_policy(
        kind in kind(), options in options(), capacity in 1..60usize, keys in keys(150, 600),
    ) {
        let (mut hash, mut dense) =
            (build(kind, capacity, None, options), build(kind, capacity, Some(150), options));
        for &key in &keys {
            prop_assert_eq!(hash.access(key), dense.access(key));
        }
        prop_assert_eq!(residents(hash.as_ref()), residents(dense.as_ref()));
    }

    #[test]
    fn a_touch_of_an_absent_key_changes_nothing(kind in kind(), capacity in 1..60usize, keys in keys(150, 600)) {
        let (mut touched, mut plain) = (make(kind, capacity, None), make(kind, capacity, None));
        for &key in &keys {
            prop_assert_eq!(touched.reference(key + 1000), None);
            prop_assert_eq!(touched.access(key), plain.access(key));
        }
    }

    /// Mattson's inclusion property: what a cache holds, every larger one holds too.
    #[test]
    fn lru_of_a_smaller_cache_is_included_in_a_larger_one(
        small in 1..40usize, more in 1..40usize, keys in keys(120, 500),
    ) {
        let (mut small, mut large) =
            (make(PolicyKind::Lru, small, None), make(PolicyKind::Lru, small + more, None));
        for &key in &keys {
            let (in_small, in_large) = (small.access(key).is_hit(), large.access(key).is_hit());
            prop_assert!(in_large || !in_small);
        }
        let larger: BTreeSet<u64> = residents(large.as_ref()).into_iter().collect();
        prop_assert!(residents(small.as_ref()).iter().all(|key| larger.contains(key)));
    }

    #[test]
    fn no_policy_beats_belady(kind in kind(), capacity in 1..40usize, keys in keys(120, 500)) {
        let mut policy = make(kind, capacity, None);
        let misses = keys.iter().filter(|&&key| !policy.access(key).is_hit()).count() as u64;
        let bound = belady_misses(&keys, capacity, Insertion::Forced);
        prop_assert!(bound <= misses);
        prop_assert!(belady_misses(&keys, capacity, Insertion::Optional) <= bound);
    }

    #[test]
    fn belady_equals_the_search_for_the_farthest_next_use(capacity in 1..12usize, keys in keys(40, 200)) {
        for insertion in [Insertion::Forced, Insertion::Optional] {
            prop_assert_eq!(belady_misses(&keys, capacity, insertion), farthest(&keys, capacity, insertion));
        }
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

/// With room of its own for each queue it misses about as often as the published form, which writes each miss to the SSD, and
/// writes less: see the crate's CROSSCHECK.md for more traces.
#[test]
fn s3_fifo_with_its_small_queue_in_memory_misses_as_the_published_one_and_writes_less() {
    /// Misses and lines written to the SSD.
    struct Count<'a>(&'a [u64]);
    impl PolicyVisitor for Count<'_> {
        type Output = (f64, f64);
        fn visit<P: Policy + Send + 'static>(self, mut policy: P) -> Self::Output {
            let (mut misses, mut writes) = (0.0, 0.0);
            for &key in self.0 {
                if policy.reference(key).is_none() {
                    let inserted = policy.insert(key).expect("nothing is pinned");
                    misses += 1.0;
                    writes += f64::from(u8::from(!policy.is_in_memory(inserted.slot)));
                    writes += f64::from(u8::from(inserted.promotion.is_some()));
                }
            }
            (misses, writes)
        }
    }
    let options = PolicyOptions::default();
    for (trace, keys, capacities) in common::traces() {
        for capacity in capacities.into_iter().filter(|&capacity| capacity >= 250) {
            for (kind, mut published) in [
                (PolicyKind::S3Fifo, SharedQueues::s3_fifo(capacity)),
                (PolicyKind::Clock2QPlus, SharedQueues::clock2q_plus(capacity)),
            ] {
                let (misses, writes) = visit_policy(kind, capacity, None, options, Count(&keys));
                let published_misses = keys.iter().filter(|&&key| !published.access(key)).count() as f64;
                let difference = misses / published_misses - 1.0;
                assert!(difference.abs() < 0.05, "{trace} {kind} {capacity}: {difference}");
                assert!(writes < published_misses, "{trace} {kind} {capacity}: {writes}");
            }
        }
    }
}

/// What a line costs in a policy that a cache runs: its part of every array, ghosts and tables included.
#[test]
fn a_line_costs_at_most_24_bytes_in_a_policy_that_a_cache_runs() {
    let lines = 1 << 22;
    for (kind, expected) in [
        (PolicyKind::S3Fifo, 23.7),
        (PolicyKind::Clock2QPlus, 19.6),
        (PolicyKind::Lru, 23.1),
    ] {
        let options = PolicyOptions {
            stage_ratio: 1.0 / 64.0,
        };
        let mut policy = build(kind, lines, None, options);
        let before = policy.memory_bytes();
        (0..3 * lines as u64 / 2).for_each(|key| {
            policy.access(key);
        });
        assert_eq!(policy.memory_bytes(), before, "{kind} allocates nothing later");
        let bytes = before as f64 / lines as f64;
        assert!((expected - 0.2..expected).contains(&bytes), "{kind}: {bytes}");
    }
}
