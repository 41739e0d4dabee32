//! Laws that hold for every trace.
#![allow(
    clippy::float_cmp,
    reason = "weights of whole references are integers and compare exactly"
)]

use bathy_mrc::{Io, LineSize, Ops, Profile, Sampling, TrackerOptions, Unit};
use proptest::prelude::*;

const UNITS: [Unit; 3] = [Unit::Lines, Unit::Requests, Unit::Bytes];
const OPS: [Ops; 3] = [Ops::All, Ops::Reads, Ops::Writes];

fn line() -> LineSize {
    LineSize::new(4096).expect("a power of two")
}

fn requests() -> impl Strategy<Value = Vec<Io>> {
    let request =
        (0u64..400, 1u32..60_000, any::<bool>(), 0u32..3).prop_map(|(block, length, write, volume)| Io {
            offset_bytes: block * 1024,
            length_bytes: length,
            write,
            volume,
        });
    prop::collection::vec(request, 1..300)
}

/// Keys with the skew and the runs of a block trace.
fn keys() -> impl Strategy<Value = Vec<u64>> {
    let run = (0u64..3000, 1u64..40).prop_map(|(start, length)| (start..start + length).collect::<Vec<_>>());
    let hot = (0u64..20).prop_map(|key| vec![key]);
    prop::collection::vec(prop_oneof![run, hot], 1..80).prop_map(|runs| runs.concat())
}

fn profile_of_keys(keys: &[u64], sampling: Sampling) -> Profile {
    let mut profile = Profile::new(TrackerOptions::new(sampling), line());
    profile.access_keys(keys);
    profile
}

fn profile_of_requests(requests: &[Io], options: TrackerOptions) -> Profile {
    let mut profile = Profile::new(options, line());
    for &io in requests {
        profile.access_io(io);
    }
    profile
}

/// Misses of an LRU cache of each size, by the definition.
fn naive_lru_misses(keys: &[u64], size: usize) -> f64 {
    let mut cache: Vec<u64> = Vec::new();
    let mut misses = 0.0;
    for &key in keys {
        if let Some(index) = cache.iter().position(|&k| k == key) {
            cache.remove(index);
        } else {
            misses += 1.0;
            if cache.len() == size {
                cache.remove(0);
            }
        }
        cache.push(key);
    }
    misses
}

fn assert_equal_weights(left: &Profile, right: &Profile, sizes: &[u64]) -> Result<(), TestCaseError> {
    for unit in UNITS {
        for ops in OPS {
            let (l, r) = (left.weighted(sizes, unit, ops), right.weighted(sizes, unit, ops));
            prop_assert_eq!(l.total, r.total);
            for (a, b) in l.misses.iter().zip(&r.misses) {
                prop_assert!(
                    (a - b).abs() <= 1e-9 * l.total.max(1.0),
                    "{:?} {:?}: {} {}",
                    unit,
                    ops,
                    a,
                    b
                );
            }
            prop_assert!((l.cold - r.cold).abs() <= 1e-9 * l.total.max(1.0));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn exact_misses_are_those_of_an_lru_cache(keys in keys(), size in 1usize..300) {
        let profile = profile_of_keys(&keys, Sampling::Exact);
        let misses = profile.weighted(&[size as u64], Unit::Lines, Ops::All).misses[0];
        prop_assert_eq!(misses, naive_lru_misses(&keys, size));
    }

    /// A larger LRU cache holds what a smaller one holds, so no curve rises; it ends at the first touches.
    #[test]
    fn curves_never_rise_and_end_at_the_cold_misses(requests in requests(), sampled in any::<bool>()) {
        let sampling = if sampled { Sampling::Size(64) } else { Sampling::Exact };
        let profile = profile_of_requests(&requests, TrackerOptions::new(sampling));
        let sizes: Vec<u64> = (0..200).chain([100_000_000]).collect();
        for unit in UNITS {
            for ops in OPS {
                let curve = profile.curve(&sizes, unit, ops);
                prop_assert!(curve.miss_ratio.windows(2).all(|w| w[1] <= w[0] + 1e-12));
                prop_assert!(curve.miss_ratio.iter().all(|m| (0.0..=1.0).contains(m)));
                prop_assert!((curve.miss_ratio[200] - curve.cold_miss_ratio).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn sampling_everything_equals_exact(keys in keys(), room in 0usize..10) {
        let exact = profile_of_keys(&keys, Sampling::Exact);
        let sizes: Vec<u64> = (0..2000).collect();
        let distinct = exact.distinct_lines() as usize;
        for sampling in [Sampling::Rate(1.0), Sampling::Size(distinct + room)] {
            let sampled = profile_of_keys(&keys, sampling);
            assert_equal_weights(&exact, &sampled, &sizes)?;
            prop_assert_eq!(&sampled.curve(&sizes, Unit::Lines, Ops::All).miss_ratio_raw,
                &exact.curve(&sizes, Unit::Lines, Ops::All).miss_ratio);
        }
    }

    #[test]
    fn joined_pieces_equal_one_pass(
        requests in requests(),
        cuts in prop::collection::vec(0.0f64..1.0, 1..5),
        rate in prop_oneof![Just(None), Just(Some(1.0)), Just(Some(0.3))],
        right_to_left in any::<bool>(),
    ) {
        let sampling = rate.map_or(Sampling::Exact, Sampling::Rate);
        let options = TrackerOptions { joinable: true, ..TrackerOptions::new(sampling) };
        let whole = profile_of_requests(&requests, options);
        let mut bounds: Vec<usize> = cuts.iter().map(|cut| (cut * requests.len() as f64) as usize).collect();
        bounds.extend([0, requests.len()]);
        bounds.sort_unstable();
        let mut pieces: Vec<Profile> =
            bounds.windows(2).map(|w| profile_of_requests(&requests[w[0]..w[1]], options)).collect();
        while pieces.len() > 1 {
            let at = if right_to_left { pieces.len() - 2 } else { 0 };
            let later = pieces.remove(at + 1);
            pieces[at].join(later);
        }
        let joined = pieces.remove(0);
        let sizes: Vec<u64> = (0..600).collect();
        assert_equal_weights(&whole, &joined, &sizes)?;
        let (left, right) = (whole.self_check(&sizes, Ops::Reads), joined.self_check(&sizes, Ops::Reads));
        prop_assert_eq!(left.estimate, right.estimate);
        let alike = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9 || (a.is_nan() && b.is_nan());
        prop_assert!(left.stderr().iter().zip(right.stderr()).all(alike));
        prop_assert_eq!(whole.tracker().tracked(), joined.tracker().tracked());
    }

    #[test]
    fn joined_fixed_sizes_keep_their_bound_and_their_totals(keys in keys(), cut in 0.0f64..1.0) {
        let options = TrackerOptions { joinable: true, ..TrackerOptions::new(Sampling::Size(40)) };
        let middle = (cut * keys.len() as f64) as usize;
        let mut pieces = [&keys[..middle], &keys[middle..]].map(|piece| {
            let mut profile = Profile::new(options, line());
            profile.access_keys(piece);
            profile
        });
        let later = pieces[1].clone();
        pieces[0].join(later);
        prop_assert!(pieces[0].tracker().tracked() <= 40);
        prop_assert_eq!(pieces[0].lines_total(Ops::All), keys.len() as u64);
        let curve = pieces[0].curve(&(0..500).collect::<Vec<_>>(), Unit::Lines, Ops::All);
        prop_assert!(curve.miss_ratio.windows(2).all(|w| w[1] <= w[0] + 1e-12));
    }
}

/// Without the stratification of the sample this error is several times larger; the bound is the product's promise.
#[test]
fn a_fixed_size_sample_is_accurate_on_sequential_and_skewed_load() {
    let mut state = 7u64;
    let mut next = move |bound: u64| {
        state = bathy_mrc::hash::mix64(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        state % bound
    };
    let mut keys = Vec::new();
    while keys.len() < 1_500_000 {
        match next(10) {
            0 => {
                let start = next(2000) * 64;
                keys.extend(start..start + 64 + next(64));
            }
            1..5 => keys.push(200_000 + next(50)),
            _ => {
                let bound = 1 + next(200_000);
                keys.push(next(bound));
            }
        }
    }
    let exact = profile_of_keys(&keys, Sampling::Exact);
    let distinct = exact.distinct_lines();
    let sizes: Vec<u64> = (1..=100)
        .map(|percent| (distinct * f64::from(percent) / 100.0) as u64)
        .collect();
    let truth = exact.curve(&sizes, Unit::Lines, Ops::All).miss_ratio;
    for salt in 0..5 {
        let options = TrackerOptions {
            salt,
            ..TrackerOptions::new(Sampling::Size(8192))
        };
        let mut sampled = Profile::new(options, line());
        sampled.access_keys(&keys);
        let curve = sampled.curve(&sizes, Unit::Lines, Ops::All);
        let error = truth
            .iter()
            .zip(&curve.miss_ratio)
            .map(|(a, b)| (a - b).abs())
            .sum::<f64>()
            / sizes.len() as f64;
        assert!(
            error <= 0.007,
            "salt {salt}: mean absolute error {error}, estimate {:?}",
            curve.estimate
        );
    }
}
