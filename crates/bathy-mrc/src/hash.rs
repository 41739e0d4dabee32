//! Spatial sampling hash: which keys are sampled at a rate, nested over rates and independent over salts.
//!
//! SHARDS (Waldspurger et al., FAST'15) samples a key when a uniform hash of it lies under a threshold. Block traces
//! break the assumption behind it that keys behave independently: the blocks of one long request are reused together,
//! so a sample that happens to hold too many of them errs on the whole request. Here the hash is *stratified* (jittered
//! sampling): at a rate of 1 / n, a power of two up to the length of a run, one line of every n neighbours is sampled.
//! Which one is drawn anew for every n neighbours, so that any set of lines, a stride of 64 as well as a run, is sampled
//! without bias and with no more variance than if each line were drawn on its own. (A radical inverse that is scrambled
//! once for each run, as of Owen 1995, spreads samples as evenly, but takes one residue class of the run: all or none of
//! the lines of a stride.)
//!
//! The place of a line within its run, its bits reversed, is multiplied by an odd number and shifted by another; both are
//! those of the run. Two places that first differ in bit t (from the high end) keep a difference that is an odd multiple
//! of 2^t, every one of these equally likely: both are under 2^m with the probability of two independent draws where
//! 2^t < 2^m, and never otherwise.

/// A 64-bit finaliser: a bijection in which every input bit reaches every output bit.
#[inline]
pub const fn mix64(value: u64) -> u64 {
    let mut x = value;
    x ^= x >> 32;
    x = x.wrapping_mul(0xe9c5_2f1d_8ab3_64e7);
    x ^= x >> 29;
    x = x.wrapping_mul(0xa3b1_957c_46ed_d20b);
    x ^ (x >> 32)
}

/// Lines of a run among which samples are spread evenly, as a power of two: 256, 1 MiB of 4 KiB lines.
pub const STRATA_BITS: u32 = 8;

/// Sub-samples by whose disagreement the error of an estimate is known.
pub const REPLICATES: usize = 8;

/// The bits of a place within a run, reversed: a table, because no instruction does it.
const REVERSED: [u8; 1 << STRATA_BITS] = {
    let mut table = [0; 1 << STRATA_BITS];
    let mut place = 0;
    while place < table.len() {
        table[place] = (place as u8).reverse_bits();
        place += 1;
    }
    table
};

/// A family of sampling hashes: one per salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingHash {
    salt: u64,
    group_bits: u32,
}

impl SamplingHash {
    /// `group_bits` = 0 samples single lines; otherwise all lines of an aligned group of `2^group_bits` have one hash,
    /// so that the group is sampled whole.
    ///
    /// # Panics
    /// When a run would be longer than `2^32` lines: callers pass small constants.
    pub fn new(salt: u64, group_bits: u32) -> Self {
        assert!(STRATA_BITS + group_bits <= 32, "a run holds at most 2^32 lines");
        Self {
            salt: mix64(salt ^ 0x5851_f42d_4c95_7f2d),
            group_bits,
        }
    }

    /// A key is sampled at threshold `t` when its hash is at most `t`; the rate of `t` is `(t + 1) / 2^64`.
    #[inline]
    pub fn hash(self, key: u64) -> u64 {
        let unit = key >> self.group_bits;
        let of_run = mix64((unit >> STRATA_BITS) ^ self.salt);
        let place = REVERSED[(unit as usize) & (REVERSED.len() - 1)];
        // Only the highest bits depend on the place, and of the factor only its lowest bits matter.
        (u64::from(place) << (u64::BITS - STRATA_BITS))
            .wrapping_mul(of_run | 1)
            .wrapping_add(of_run)
    }

    /// The replicate, below [`REPLICATES`], of a key whose hash is known. Replicates share a dense run evenly at rates
    /// down to an eighth of a run's line, and lines far apart are in independent ones.
    #[inline]
    pub fn replicate(self, key: u64, hash: u64) -> usize {
        let run = key >> (self.group_bits + STRATA_BITS);
        let of_place = hash >> (u64::BITS - STRATA_BITS);
        // Of neighbouring runs each sample of a place goes to another replicate.
        let turn = run.wrapping_add(mix64((run >> 3) ^ !self.salt));
        (of_place.wrapping_add(turn) % REPLICATES as u64) as usize
    }

    /// Appends the positions of the sampled keys to `out`.
    ///
    /// The loop has no data-dependent branch: every position is written and the cursor moves when it is sampled.
    #[inline]
    pub fn filter(self, keys: &[u64], threshold: u64, out: &mut Vec<u32>) {
        out.clear();
        out.resize(keys.len(), 0);
        let mut count = 0usize;
        for (position, &key) in keys.iter().enumerate() {
            out[count] = position as u32;
            count += usize::from(self.hash(key) <= threshold);
        }
        out.truncate(count);
    }
}

/// The threshold whose rate is nearest to `rate`, which lies in (0, 1].
pub fn threshold_of_rate(rate: f64) -> u64 {
    debug_assert!(rate > 0.0 && rate <= 1.0);
    let scaled = rate * 18_446_744_073_709_551_616.0;
    // The conversion saturates, so a rate of one samples every key.
    (scaled as u64).saturating_sub(u64::from(scaled < 18_446_744_073_709_551_616.0))
}

/// The rate of a threshold.
pub fn rate_of_threshold(threshold: u64) -> f64 {
    (threshold as f64 + 1.0) / 18_446_744_073_709_551_616.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_one_samples_everything() {
        assert_eq!(threshold_of_rate(1.0), u64::MAX);
        let keys: Vec<u64> = (0..1000).map(|k| k * 7919).collect();
        let mut out = Vec::new();
        SamplingHash::new(3, 0).filter(&keys, u64::MAX, &mut out);
        assert_eq!(out.len(), keys.len());
    }

    #[test]
    fn every_key_is_sampled_at_the_wanted_rate_over_salts() {
        let threshold = threshold_of_rate(0.1);
        for key in [0u64, 1, 255, 256, 1 << 40] {
            let salts = 20_000;
            let sampled = (0..salts)
                .filter(|&s| SamplingHash::new(s, 0).hash(key) <= threshold)
                .count();
            // Five standard deviations of a binomial with p = 0.1 and n = 20,000 are 212.
            assert!((sampled as i64 - 2000).abs() < 212, "key {key}: {sampled}");
        }
    }

    #[test]
    fn neighbours_get_their_share_at_power_of_two_rates() {
        for salt in 0..50 {
            let family = SamplingHash::new(salt, 0);
            for log in 0..=STRATA_BITS {
                let threshold = threshold_of_rate(0.5f64.powi(log as i32));
                for neighbours in 0..4096u64 >> log {
                    let lines = neighbours << log..(neighbours + 1) << log;
                    let sampled = lines.filter(|&k| family.hash(k) <= threshold).count();
                    assert_eq!(sampled, 1, "salt {salt} rate 1/{}", 1 << log);
                }
            }
        }
    }

    /// The variance of how many lines of a stride are sampled is at most that of independent draws, at any rate.
    #[test]
    fn strides_of_any_length_are_sampled_without_bias_and_with_no_more_variance_than_independent_draws() {
        const LINES: u64 = 1024;
        const SALTS: u64 = 2000;
        let strides = (0..=12)
            .map(|log| 1 << log)
            .chain([3, 5, 17, 60, 100, 255, 257, 1000]);
        for stride in strides {
            for rate in [0.5, 0.25, 0.3, 0.05, 1.0 / 64.0, 1.0 / 256.0] {
                let threshold = threshold_of_rate(rate);
                let (mut sum, mut squares) = (0.0, 0.0);
                for salt in 0..SALTS {
                    let family = SamplingHash::new(salt, 0);
                    let sampled = (0..LINES).filter(|&line| family.hash(line * stride) <= threshold);
                    let error = sampled.count() as f64 - LINES as f64 * rate;
                    sum += error;
                    squares += error * error;
                }
                let independent = LINES as f64 * rate * (1.0 - rate);
                let (mean, variance) = (sum / SALTS as f64, squares / SALTS as f64);
                // Five standard errors of the mean, and of a variance of 2,000 draws.
                let bound = 5.0 * (independent / SALTS as f64).sqrt();
                assert!(mean.abs() <= bound, "stride {stride} rate {rate}: off by {mean}");
                assert!(
                    variance <= 1.2 * independent,
                    "stride {stride} rate {rate}: {variance}"
                );
            }
        }
    }

    #[test]
    fn replicates_share_a_dense_sample_evenly() {
        for (log, of_each) in [(0, 8192), (3, 1024), (5, 256), (8, 32)] {
            let family = SamplingHash::new(7, 0);
            let threshold = threshold_of_rate(0.5f64.powi(log));
            let mut counts = [0; REPLICATES];
            for key in 0..65_536 {
                let hash = family.hash(key);
                counts[family.replicate(key, hash)] += u32::from(hash <= threshold);
            }
            assert_eq!(counts, [of_each; REPLICATES], "rate 1/{}", 1 << log);
        }
    }

    #[test]
    fn a_group_is_sampled_whole() {
        let family = SamplingHash::new(5, 4);
        for group in 0..100u64 {
            assert!((0..16).all(|line| family.hash(group * 16 + line) == family.hash(group * 16)));
        }
    }
}
