//! Numbers of Zipf's distribution, without a table: images have millions of blocks.

use bathy_random::Random;

/// Rejection-inversion (Hörmann and Derflinger, Rejection-inversion to generate variates from monotone discrete
/// distributions, ACM TOMACS 1996): rank `k` of `1..=count` comes with a probability proportional to `k^-theta`.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    count: f64,
    theta: f64,
    integral_of_first: f64,
    integral_of_all: f64,
    accepted_at_once: f64,
}

impl Zipf {
    /// `count` ranks; `theta` must be greater than 0.
    pub(crate) fn new(count: u64, theta: f64) -> Self {
        let count = count as f64;
        let mut zipf = Self {
            count,
            theta,
            integral_of_first: 0.0,
            integral_of_all: 0.0,
            accepted_at_once: 0.0,
        };
        zipf.integral_of_first = zipf.integral(1.5) - 1.0;
        zipf.integral_of_all = zipf.integral(count + 0.5);
        zipf.accepted_at_once = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// A rank, from 0 on.
    pub(crate) fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let at = self.integral_of_all + random.unit() * (self.integral_of_first - self.integral_of_all);
            let real = self.inverse(at);
            let rank = real.round().clamp(1.0, self.count);
            if rank - real <= self.accepted_at_once || at >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn weight(&self, rank: f64) -> f64 {
        (-self.theta * rank.ln()).exp()
    }

    /// The integral of the weight: (x^(1-theta) - 1) / (1 - theta), and the logarithm for theta = 1.
    fn integral(&self, rank: f64) -> f64 {
        let log = rank.ln();
        quotient((1.0 - self.theta) * log, f64::exp_m1) * log
    }

    fn inverse(&self, integral: f64) -> f64 {
        // Rounding may lead below what the integral can be.
        let argument = (integral * (1.0 - self.theta)).max(-1.0);
        (quotient(argument, f64::ln_1p) * integral).exp()
    }
}

/// `function(x) / x`, which is 1 at 0 for both functions above.
fn quotient(x: f64, function: impl Fn(f64) -> f64) -> f64 {
    if x.abs() < 1e-12 { 1.0 } else { function(x) / x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_often_as_they_should() {
        const DRAWS: usize = 200_000;
        for (count, theta) in [(1_u64, 1.0), (7, 0.2), (100, 0.99), (100, 1.0), (1000, 1.3)] {
            let zipf = Zipf::new(count, theta);
            let mut random = Random::of_stream(5, count);
            let mut seen = vec![0_u32; count as usize];
            for _ in 0..DRAWS {
                seen[zipf.rank(&mut random) as usize] += 1;
            }
            let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-theta)).collect();
            let sum: f64 = weights.iter().sum();
            for (rank, weight) in weights.iter().enumerate() {
                let expected = weight / sum * DRAWS as f64;
                let off = (f64::from(seen[rank]) - expected).abs();
                assert!(
                    off <= 5.0 * expected.sqrt() + 1.0,
                    "rank {rank} of {count}, theta {theta}: {} and not {expected}",
                    seen[rank]
                );
            }
        }
    }
}
