//! Whether bursts, patterns and images have the shares that they state: Pearson's test, by which a load that is right fails
//! with a probability of 1 in 10,000, for seeds that stay the same.

use bathy_load::requests::Request;

use crate::world::{SECOND_NS, Simulated, load, plan};

/// Pearson's statistic, and what it exceeds with a probability of 1 in 10,000 (Wilson and Hilferty, The distribution of
/// chi-square, PNAS 1931).
fn chi_square(seen: &[u64], expected: &[f64]) -> (f64, f64) {
    assert_eq!(seen.len(), expected.len());
    assert!(expected.iter().all(|&it| it >= 5.0), "too few for the test");
    let terms = seen
        .iter()
        .zip(expected)
        .map(|(&seen, expected)| (seen as f64 - expected).powi(2) / expected);
    let part = 2.0 / (9.0 * (seen.len() - 1) as f64);
    let most = (seen.len() - 1) as f64 * (1.0 - part + 3.719 * part.sqrt()).powi(3);
    (terms.sum(), most)
}

/// Which requests are sent, and when: they do not depend on the target.
fn submitted(arrival: &str, more: &str, images: usize) -> Vec<(u64, Request)> {
    let mut world = Simulated::new(|_, now_ns| Some((now_ns + 1, Ok(()))));
    load(&plan(arrival, more), images, &mut world);
    world.submitted
}

const POISSON: &str = r#"{"open": {"process": "poisson", "rate_iops": 10000}}"#;

fn of_a_thousand_blocks(pattern: &str) -> Vec<u64> {
    let more = format!(r#""duration_s": 20, "working_set_bytes": 4096000, "pattern": {pattern}"#);
    let mut seen = vec![0; 1000];
    for (_, request) in submitted(POISSON, &more, 1) {
        seen[(request.offset / 4096) as usize] += 1;
    }
    seen
}

fn holds(seen: &[u64], shares: &[f64]) -> bool {
    let total = seen.iter().sum::<u64>() as f64;
    let sum: f64 = shares.iter().sum();
    let expected: Vec<f64> = shares.iter().map(|share| share / sum * total).collect();
    let (statistic, most) = chi_square(seen, &expected);
    statistic <= most
}

#[test]
fn a_hot_set_has_its_share_and_blocks_in_and_beside_it_are_alike() {
    let seen = of_a_thousand_blocks(r#"{"hot-set": {"space": 0.1, "requests": 0.9}}"#);
    let shares = |hot: f64| -> Vec<f64> {
        let share = |block| {
            if block < 100 {
                hot / 100.0
            } else {
                (1.0 - hot) / 900.0
            }
        };
        (0..1000).map(share).collect()
    };
    assert!(holds(&seen, &shares(0.9)));
    assert!(!holds(&seen, &shares(0.88)), "a share 2 % off would be seen");
    assert!(!holds(&seen, &vec![1.0; 1000]));
    assert!(holds(&of_a_thousand_blocks("\"random\""), &vec![1.0; 1000]));
}

#[test]
fn zipf_has_the_share_of_each_rank() {
    let by_block = of_a_thousand_blocks(r#"{"zipf": {"theta": 0.99}}"#);
    // Ranks lie a step apart, the first at 0, so that the second most frequent block shows the step.
    let step = (1..1000).max_by_key(|&block| by_block[block]).expect("a block");
    let seen: Vec<u64> = (0..1000).map(|rank| by_block[rank * step % 1000]).collect();
    let shares = |theta: f64| -> Vec<f64> { (1..=1000).map(|rank| f64::from(rank).powf(-theta)).collect() };
    assert!(holds(&seen, &shares(0.99)));
    assert!(!holds(&seen, &shares(0.95)), "an exponent 4 % off would be seen");
}

#[test]
fn bursts_have_their_rate_throughout_and_pauses_nothing() {
    let arrival =
        r#"{"open": {"process": "poisson", "rate_iops": 1000, "bursts": {"on_s": 0.2, "off_s": 0.8}}}"#;
    let starts: Vec<u64> = submitted(arrival, r#""duration_s": 100"#, 1)
        .into_iter()
        .map(|(at_ns, _)| at_ns)
        .collect();
    let (mut by_burst, mut by_part) = (vec![0; 100], vec![0; 20]);
    for at_ns in starts {
        let in_second_ns = at_ns % SECOND_NS;
        // What comes at the very end may be rounded to it.
        assert!(in_second_ns <= SECOND_NS / 5, "{at_ns}");
        by_burst[(at_ns / SECOND_NS) as usize] += 1;
        by_part[(in_second_ns / 10_000_000).min(19) as usize] += 1;
    }
    // The number in each is Poisson's: its mean is what is asked for, and not only the same for all.
    let (statistic, most) = chi_square(&by_burst, &[1000.0; 100]);
    assert!(statistic <= most, "{statistic}");
    let (statistic, most) = chi_square(&by_part, &[5000.0; 20]);
    assert!(statistic <= most, "{statistic}");
}

#[test]
fn images_of_a_poisson_process_are_alike() {
    let mut seen = vec![0; 8];
    for (_, request) in submitted(POISSON, r#""duration_s": 20"#, 8) {
        seen[request.image as usize] += 1;
    }
    assert!(holds(&seen, &[1.0; 8]));
}
