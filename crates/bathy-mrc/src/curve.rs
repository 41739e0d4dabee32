//! Miss-ratio curves as they leave the crate.

/// Noise that raw must undercut adjusted by before it is chosen: the noise of either is itself known from eight replicates
/// only, to about a quarter, and with stratified samples the adjusted estimate is the better one by default.
const RAW_MUST_BE_BELOW: f64 = 0.6;

/// The two estimates that one sample gives, and which one to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// Every reference was tracked.
    Exact,
    /// Sampled misses over sampled references.
    Raw,
    /// Sampled misses over the known number of references: `SHARDS_adj`, whose correction attributes the references
    /// that the sample has too few or too many of to the smallest distance.
    Adjusted,
}

impl Estimate {
    /// The estimate to use, by the standard errors of both.
    pub(crate) fn of_stderr(raw: f64, adjusted: f64) -> Self {
        if raw < RAW_MUST_BE_BELOW * adjusted {
            Self::Raw
        } else {
            Self::Adjusted
        }
    }

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Raw => "raw",
            Self::Adjusted => "adjusted",
        }
    }
}

/// One miss-ratio curve: `miss_ratio[i]` at `sizes_lines[i]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Cache sizes in lines.
    pub sizes_lines: Vec<u64>,
    /// The chosen estimate.
    pub miss_ratio: Vec<f64>,
    /// The raw estimate.
    pub miss_ratio_raw: Vec<f64>,
    /// The adjusted estimate.
    pub miss_ratio_adjusted: Vec<f64>,
    /// Share of first touches, which miss in a cache of any size. Part of every `miss_ratio`.
    pub cold_miss_ratio: f64,
    /// Which estimate `miss_ratio` is.
    pub estimate: Estimate,
}

/// References, requests or bytes by distance, as the sample weighs them, next to the known total.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weighted {
    /// Weight that misses at each size, first touches included.
    pub misses: Vec<f64>,
    /// Weight of first touches.
    pub cold: f64,
    /// Weight in the sample.
    pub sampled: f64,
    /// The true total.
    pub total: f64,
}

impl Weighted {
    /// Adds another quantity over the same sizes.
    pub fn add(&mut self, other: &Self) {
        if self.misses.is_empty() {
            self.misses = vec![0.0; other.misses.len()];
        }
        for (mine, theirs) in self.misses.iter_mut().zip(&other.misses) {
            *mine += theirs;
        }
        self.cold += other.cold;
        self.sampled += other.sampled;
        self.total += other.total;
    }

    fn over(&self, denominator: f64) -> Vec<f64> {
        // Without references there are no misses either; a ratio of 0 keeps sums over groups well defined.
        if denominator <= 0.0 {
            return vec![0.0; self.misses.len()];
        }
        self.misses
            .iter()
            .map(|misses| (misses / denominator).min(1.0))
            .collect()
    }

    /// The raw estimate at each size.
    pub fn raw(&self) -> Vec<f64> {
        self.over(self.sampled)
    }

    /// The adjusted estimate at each size.
    pub fn adjusted(&self) -> Vec<f64> {
        self.over(self.total)
    }

    /// The curve by the chosen estimate.
    pub fn curve(&self, sizes_lines: &[u64], estimate: Estimate) -> Curve {
        let (raw, adjusted) = (self.raw(), self.adjusted());
        let denominator = if estimate == Estimate::Raw {
            self.sampled
        } else {
            self.total
        };
        Curve {
            sizes_lines: sizes_lines.to_vec(),
            miss_ratio: if estimate == Estimate::Raw {
                raw.clone()
            } else {
                adjusted.clone()
            },
            miss_ratio_raw: raw,
            miss_ratio_adjusted: adjusted,
            cold_miss_ratio: if denominator > 0.0 {
                (self.cold / denominator).min(1.0)
            } else {
                0.0
            },
            estimate,
        }
    }
}
