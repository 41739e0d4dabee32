//! Miniatures against the full simulation.

use super::*;

#[test]
fn a_miniature_is_close_and_knows_its_error() {
    let requests: Vec<TimedIo> = (0..400_000u64)
        .map(|step| {
            let r = crate::hash::mix64(step);
            let line = (r % 60_000).min((r >> 17) % 60_000);
            io(line * 4096, 4096 << ((r >> 50) % 3), r >> 62 == 0)
        })
        .collect();
    let sizes = [5_000u64, 20_000, 40_000];
    let options = options(PolicyKind::S3Fifo, 4096, 4096);
    let run = |fidelity| {
        let mut sweep = EngineSweep::new(options, &sizes, fidelity);
        sweep.access(requests.iter().copied());
        sweep.results()
    };
    let full = run(Fidelity::Full);
    let (mut inside, mut points) = (0, 0);
    for salt in 0..8 {
        let mini = run(Fidelity::Miniature {
            rate: 0.1,
            min_lines: 500,
            salt,
        });
        for (truth, estimate) in full.iter().zip(mini) {
            // Requests of a sample count by the share of their lines, so the comparison is of bytes.
            let ratio = |r: &EngineResult| r.counts.reads.bytes_hit / r.counts.reads.bytes;
            let error = ratio(truth) - ratio(&estimate);
            assert!(error.abs() < 0.02, "{error}");
            assert!((0.0005..0.02).contains(&estimate.read_hit_stderr));
            assert!((estimate.distinct_lines / truth.distinct_lines - 1.0).abs() < 0.02);
            assert!(estimate.sampled_lines < truth.sampled_lines / 5);
            points += 1;
            inside += u32::from(error.abs() <= 2.0 * estimate.read_hit_stderr);
        }
    }
    assert!(
        inside * 10 >= points * 8,
        "{inside} of {points} within two standard errors"
    );
}

/// Requests of several lines of which the last is always cold: no request hits, most lines do.
#[test]
fn regions_tell_whether_whole_requests_hit_and_lines_do_not() {
    let run = |region_bytes| {
        let mut options = options(PolicyKind::Lru, 4096, 4096);
        options.sample_region_bytes = region_bytes;
        let fidelity = Fidelity::Miniature {
            rate: 0.25,
            min_lines: 500,
            salt: 3,
        };
        let mut sweep = EngineSweep::new(options, &[200_000], fidelity);
        for round in 0..8u64 {
            sweep.access((0..4000u64).map(|object| io((object << 20) + round * 4096, 8 * 4096, false)));
        }
        let reads = sweep.results()[0].counts.reads;
        (reads.requests_hit / reads.requests, reads.requests)
    };
    assert_eq!(run(1 << 20).0, 0.0);
    assert!(run(0).0 > 0.7);
    assert!(
        (run(1 << 20).1 / 32_000.0 - 1.0).abs() < 0.05,
        "a quarter of the requests, scaled"
    );
}

/// With LRU that admits all, every byte that is written goes to flash, and no sample may say otherwise.
#[test]
fn what_writes_put_on_flash_is_known_exactly_in_a_sample() {
    let requests: Vec<TimedIo> = (0..200_000u64)
        .map(|step| {
            let random = crate::hash::mix64(step);
            // A cubed uniform number: few lines take most of the writes.
            let uniform = (random >> 11) as f64 / (1u64 << 53) as f64;
            io((uniform.powi(3) * 100_000.0) as u64 * 4096, 4096, true)
        })
        .collect();
    let options = options(PolicyKind::Lru, 4096, 4096);
    for salt in 0..5 {
        let fidelity = Fidelity::Miniature {
            rate: 0.05,
            min_lines: 500,
            salt,
        };
        let mut sweep = EngineSweep::new(options, &[20_000, 60_000], fidelity);
        sweep.access(requests.iter().copied());
        for result in sweep.results() {
            assert!(result.rate < 0.1);
            let written = result.counts.flash_write_bytes / (200_000.0 * 4096.0);
            assert!((written - 1.0).abs() < 1e-9, "{written}");
        }
    }
}

/// As above, but half of the requests lie over the end of a region; their first parts alone would hit.
#[test]
fn requests_that_a_region_cuts_count_with_those_like_them() {
    let mut options = options(PolicyKind::Lru, 4096, 4096);
    options.sample_region_bytes = 1 << 16;
    let fidelity = Fidelity::Miniature {
        rate: 0.25,
        min_lines: 500,
        salt: 3,
    };
    let mut sweep = EngineSweep::new(options, &[200_000], fidelity);
    // Objects start one after the other, so that at any time some requests are cut and some are not.
    let requests = (8..4000u64).flat_map(|step| (0..8).map(move |round| (step - round, round)));
    sweep.access(requests.map(|(object, round)| io((object << 20) + (12 + round) * 4096, 8 * 4096, false)));
    let reads = sweep.results()[0].counts.reads;
    assert!(
        reads.requests_hit < 0.02 * reads.requests,
        "{}",
        reads.requests_hit / reads.requests
    );
    assert!(
        (reads.requests / (3992.0 * 8.0) - 1.0).abs() < 0.05,
        "{}",
        reads.requests
    );
    assert!(reads.bytes_hit > 0.5 * reads.bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Skewed random reads of a disk beside readers that run through files again and again.
    #[test]
    fn a_miniature_with_stream_bypass_agrees_with_the_full_simulation(
        seed in any::<u64>(),
        readers in 1u64..12,
        stream_share in 4u64..12,
        cutoff_pages in prop::sample::select(vec![32u64, 256]),
        policy in prop::sample::select(vec![PolicyKind::Lru, PolicyKind::S3Fifo]),
    ) {
        const FILE_PAGES: u64 = 4096;
        let mut positions = vec![0u64; readers as usize];
        let requests: Vec<TimedIo> = (0..120_000u64)
            .map(|step| {
                let random = crate::hash::mix64(step ^ seed);
                if random % 20 < stream_share {
                    let reader = (random >> 8) % readers;
                    let position = &mut positions[reader as usize];
                    let page = (1 << 20) + reader * FILE_PAGES + *position;
                    *position = (*position + 16) % FILE_PAGES;
                    return io(page * 4096, 65_536, false);
                }
                let page = ((random >> 8) % 60_000).min((random >> 30) % 60_000);
                io(page * 4096, 4096 << ((random >> 50) % 3), random >> 62 == 0)
            })
            .collect();
        let mut options = options(policy, 4096, 4096);
        options.admission.stream_cutoff = Some(StreamCutoff {
            bytes: cutoff_pages * 4096,
            is_of_writes: false,
        });
        options.sample_region_bytes = 1 << 18;
        let run = |fidelity| {
            let mut sweep = EngineSweep::new(options, &[6000, 24_000], fidelity);
            sweep.access(requests.iter().copied());
            sweep.results()
        };
        let full = run(Fidelity::Full);
        let sample = run(Fidelity::Miniature { rate: 0.25, min_lines: 500, salt: seed });
        for (truth, estimate) in full.iter().zip(&sample) {
            prop_assert!(estimate.rate < 0.26 && truth.counts.refused > 0.0);
            let error = |of: fn(&EngineCounts) -> f64| of(&estimate.counts) - of(&truth.counts);
            let hits = error(|c| c.reads.requests_hit / c.reads.requests).abs();
            prop_assert!(hits <= 4.0 * estimate.read_hit_stderr + 0.01, "{hits} {}", estimate.read_hit_stderr);
            // What is refused lies in few files, so which of them are in the sample makes the error.
            let refused = error(|c| c.refused / (c.reads.bytes + c.writes.bytes) * 4096.0).abs();
            prop_assert!(refused <= 0.1, "{refused}");
        }
    }
}
