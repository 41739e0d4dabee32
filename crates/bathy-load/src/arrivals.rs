//! When requests should start: a schedule that does not know how the cluster is doing.

use bathy_random::Random;

use crate::plan::{Bursts, Process, Schedule};

const SECOND_NS: f64 = 1e9;

/// The intended starts of an open loop, in nanoseconds from its beginning, in order, without end.
pub struct Arrivals {
    process: Process,
    /// Between two arrivals on average, while there are any.
    gap_ns: f64,
    bursts: Option<Bursts>,
    random: Random,
    count: u64,
    sum_of_gaps: f64,
}

impl Arrivals {
    /// The arrivals of a schedule at `rate_iops`, which is what the whole load has on average, bursts and pauses together.
    pub fn new(schedule: &Schedule, rate_iops: f64, random: Random) -> Self {
        let bursts = schedule.bursts;
        let share = bursts.map_or(1.0, |it| it.on_s / (it.on_s + it.off_s));
        Self {
            process: schedule.process,
            gap_ns: SECOND_NS / rate_iops * share,
            bursts,
            random,
            count: 0,
            sum_of_gaps: 0.0,
        }
    }

    /// Time as it passes in bursts, with the pauses between them put in.
    fn with_pauses(&self, busy_ns: f64) -> f64 {
        self.bursts.map_or(busy_ns, |bursts| {
            let (on_ns, off_ns) = (bursts.on_s * SECOND_NS, bursts.off_s * SECOND_NS);
            busy_ns + (busy_ns / on_ns).floor() * off_ns
        })
    }
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let busy_ns = match self.process {
            // From the count, so that no error adds up.
            Process::Constant => self.count as f64 * self.gap_ns,
            Process::Poisson => {
                self.sum_of_gaps += self.random.exponential();
                self.sum_of_gaps * self.gap_ns
            }
        };
        self.count += 1;
        Some(self.with_pauses(busy_ns).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(process: Process, bursts: Option<Bursts>, rate_iops: f64, seed: u64) -> Arrivals {
        let schedule = Schedule {
            process,
            bursts,
            rate_iops: Some(rate_iops),
            rate_iops_per_image: None,
        };
        Arrivals::new(&schedule, rate_iops, Random::of_stream(seed, 0))
    }

    fn within(arrivals: Arrivals, seconds: u64) -> Vec<u64> {
        arrivals.take_while(|&at| at < seconds * 1_000_000_000).collect()
    }

    #[test]
    fn a_constant_rate_counts_exactly() {
        for rate in [1_u32, 3, 7, 997, 10_000] {
            let starts = within(arrivals(Process::Constant, None, f64::from(rate), 1), 60);
            assert_eq!(starts.len(), 60 * rate as usize, "at {rate}/s");
            let last = (60 * u64::from(rate) - 1) as f64 * 1e9 / f64::from(rate);
            assert!(
                (starts[starts.len() - 1] as f64 - last).abs() <= 0.5,
                "at {rate}/s"
            );
        }
    }

    /// Kolmogorov and Smirnov's statistic against a distribution: the greatest distance, times the root of the count.
    fn distance(mut values: Vec<f64>, distribution: impl Fn(f64) -> f64) -> f64 {
        values.sort_by(f64::total_cmp);
        let count = values.len() as f64;
        let distances = values.iter().enumerate().map(|(index, &value)| {
            let expected = distribution(value);
            f64::max(
                expected - index as f64 / count,
                (index + 1) as f64 / count - expected,
            )
        });
        distances.fold(0.0, f64::max) * count.sqrt()
    }

    #[test]
    fn poisson_gaps_are_exponential_and_independent() {
        let rate = 5000.0;
        let starts = within(arrivals(Process::Poisson, None, rate, 41), 60);
        let count = starts.len() as f64;
        assert!(
            (count - 60.0 * rate).abs() <= 3.0 * (60.0 * rate).sqrt(),
            "{count}"
        );
        let gaps: Vec<f64> = starts
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64 * rate / 1e9)
            .collect();
        // 1.628 is the statistic's 99th percentile.
        let far = distance(gaps.clone(), |gap| 1.0 - (-gap).exp());
        assert!(far < 1.628, "{far}");
        assert!(
            distance(gaps.clone(), |gap| 1.0 - (-gap * 1.02).exp()) > 1.628,
            "a rate 2 % off would be seen"
        );
        let products = gaps.windows(2).map(|pair| (pair[0] - 1.0) * (pair[1] - 1.0));
        let correlation = products.sum::<f64>() / gaps.len() as f64;
        assert!(
            correlation.abs() < 3.0 / (gaps.len() as f64).sqrt(),
            "{correlation}"
        );
    }

    #[test]
    fn bursts_leave_the_mean_and_fill_only_their_time() {
        let bursts = Bursts {
            on_s: 0.2,
            off_s: 0.8,
        };
        let constant = within(arrivals(Process::Constant, Some(bursts), 1000.0, 1), 10);
        assert_eq!(constant.len(), 10_000);
        let poisson = within(arrivals(Process::Poisson, Some(bursts), 1000.0, 7), 10);
        assert!(
            (poisson.len() as f64 - 10_000.0).abs() <= 300.0,
            "{}",
            poisson.len()
        );
        for at in constant.iter().chain(&poisson) {
            assert!(at % 1_000_000_000 <= 200_000_000, "{at}");
        }
    }

    #[test]
    fn a_seed_repeats_a_load() {
        let first = |seed| -> Vec<u64> { arrivals(Process::Poisson, None, 100.0, seed).take(100).collect() };
        assert_eq!(first(3), first(3));
        assert_ne!(first(3), first(4));
    }
}
