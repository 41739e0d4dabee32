//! Spatial sampling hash: which keys are sampled at a rate, nested over rates and independent over salts.
//!
//! SHARDS (Waldspurger et al., FAST'15) samples a key when a uniform hash of it lies under a threshold. Block traces
//! break the assumption behind it that keys behave independently: the blocks of one long request are reused together,
//! so a sample that happens to hold too many of them errs on the whole request. Here the hash of a line is
//! *stratified*: within an aligned run of `2^strata_bits` neighbouring lines the hashes are a randomly scrambled
//! radical inverse (Owen 1995), so every run gives its fair share of samples at every rate, while each single line is
//! still sampled with exactly the wanted probability. Alternatively `group_bits` gives all lines of an aligned group
//! one hash, so that the group is sampled whole.

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

/// Strata of 256 lines (1 MiB of 4 KiB lines).
pub const DEFAULT_STRATA_BITS: u32 = 8;

/// A family of sampling hashes: one per salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingHash {
    salt: u64,
    strata_bits: u32,
    group_bits: u32,
}

impl SamplingHash {
    /// `strata_bits` = 0 is the plain hash of SHARDS. `group_bits` = 0 samples single lines.
    ///
    /// # Panics
    /// When a run would be longer than `2^32` lines: callers pass small constants.
    pub fn new(salt: u64, strata_bits: u32, group_bits: u32) -> Self {
        assert!(
            strata_bits + group_bits <= 32,
            "a stratum holds at most 2^32 lines"
        );
        Self {
            salt: mix64(salt ^ 0x5851_f42d_4c95_7f2d),
            strata_bits,
            group_bits,
        }
    }

    /// The bits of the hash, least significant first in order of significance: `hash` is their reversal.
    #[inline]
    fn reversed(self, key: u64) -> u64 {
        let unit = key >> self.group_bits;
        let seed = mix64((unit >> self.strata_bits) ^ self.salt);
        let within = unit & ((1u64 << self.strata_bits) - 1);
        // Each step carries information from low bits to high bits only, which is what keeps the low bits of
        // neighbouring units a permutation of each other: the nested scrambling.
        let mut v = within ^ within.wrapping_mul(0x3d20_adea_9d4c_0b66);
        v = v.wrapping_add(seed);
        v = v.wrapping_mul((seed >> 32) | 1);
        v ^ v.wrapping_mul(0x0552_6c56_77c1_30d8)
    }

    /// A key is sampled at threshold `t` when its hash is at most `t`; the rate of `t` is `(t + 1) / 2^64`.
    #[inline]
    pub fn hash(self, key: u64) -> u64 {
        self.reversed(key).reverse_bits()
    }

    /// Appends the positions of the sampled keys to `out` and returns how many there are.
    ///
    /// The loop has no data-dependent branch: every position is written and the cursor moves when it is sampled.
    /// The leading zero bits of the threshold must be the low bits of the reversed hash, so the bit reversal itself
    /// is paid only for the few keys that pass this first test.
    #[inline]
    pub fn filter(self, keys: &[u64], threshold: u64, out: &mut Vec<u32>) {
        out.clear();
        out.resize(keys.len(), 0);
        let prefix = threshold.leading_zeros();
        let mask = if prefix >= 64 {
            u64::MAX
        } else {
            (1u64 << prefix) - 1
        };
        let mut count = 0usize;
        for (position, &key) in keys.iter().enumerate() {
            out[count] = position as u32;
            count += usize::from(self.reversed(key) & mask == 0);
        }
        out.truncate(count);
        out.retain(|&position| self.hash(keys[position as usize]) <= threshold);
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
        SamplingHash::new(3, 8, 0).filter(&keys, u64::MAX, &mut out);
        assert_eq!(out.len(), keys.len());
    }

    #[test]
    fn filter_agrees_with_hash() {
        for strata in [0, 4, 8] {
            let family = SamplingHash::new(11, strata, 0);
            let keys: Vec<u64> = (0..20_000).collect();
            for rate in [0.5, 0.3, 0.01, 0.0007] {
                let threshold = threshold_of_rate(rate);
                let mut out = Vec::new();
                family.filter(&keys, threshold, &mut out);
                let expected: Vec<u32> = keys
                    .iter()
                    .filter(|&&k| family.hash(k) <= threshold)
                    .map(|&k| k as u32)
                    .collect();
                assert_eq!(out, expected);
            }
        }
    }

    #[test]
    fn every_key_is_sampled_at_the_wanted_rate_over_salts() {
        let threshold = threshold_of_rate(0.1);
        for strata in [0, 8] {
            for key in [0u64, 1, 255, 256, 1 << 40] {
                let salts = 20_000;
                let sampled = (0..salts)
                    .filter(|&s| SamplingHash::new(s, strata, 0).hash(key) <= threshold)
                    .count();
                // Five standard deviations of a binomial with p = 0.1 and n = 20,000 are 212.
                assert!(
                    (sampled as i64 - 2000).abs() < 212,
                    "strata {strata} key {key}: {sampled}"
                );
            }
        }
    }

    #[test]
    fn a_stratum_gets_its_share_at_power_of_two_rates() {
        for salt in 0..50 {
            let family = SamplingHash::new(salt, 8, 0);
            for (rate, share) in [(0.5, 128), (0.25, 64), (1.0 / 32.0, 8)] {
                let threshold = threshold_of_rate(rate);
                let sampled = (512..768).filter(|&k| family.hash(k) <= threshold).count();
                assert_eq!(sampled, share, "salt {salt} rate {rate}");
            }
        }
    }

    #[test]
    fn a_group_is_sampled_whole() {
        let family = SamplingHash::new(5, 0, 4);
        for group in 0..100u64 {
            assert!((0..16).all(|line| family.hash(group * 16 + line) == family.hash(group * 16)));
        }
    }
}
