//! How far an estimate can be trusted, and which of two to take: what the sub-samples of a sample say about it.

use crate::curve::{Estimate, Weighted};
use crate::hash::REPLICATES;

/// The noise of both estimates and the choice between them.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfCheck {
    /// Standard error of the raw miss ratio at each size.
    pub raw_stderr: Vec<f64>,
    /// Standard error of the adjusted miss ratio at each size.
    pub adjusted_stderr: Vec<f64>,
    /// The estimate to use.
    pub estimate: Estimate,
}

impl SelfCheck {
    /// Everything was tracked.
    pub(crate) fn exact(sizes: usize, estimate: Estimate) -> Self {
        Self {
            raw_stderr: vec![0.0; sizes],
            adjusted_stderr: vec![0.0; sizes],
            estimate,
        }
    }

    /// What each replicate alone says of the same sizes.
    pub(crate) fn of_replicates(replicates: &[Weighted]) -> Self {
        if replicates.iter().any(|replicate| replicate.sampled <= 0.0) {
            // A replicate that has seen nothing says nothing, and the others are too few.
            let unknown = vec![f64::NAN; replicates.first().map_or(0, |replicate| replicate.misses.len())];
            return Self {
                raw_stderr: unknown.clone(),
                adjusted_stderr: unknown,
                estimate: Estimate::Adjusted,
            };
        }
        let raw_stderr = standard_error(&replicates.iter().map(Weighted::raw).collect::<Vec<_>>());
        let adjusted_stderr = standard_error(&replicates.iter().map(Weighted::adjusted).collect::<Vec<_>>());
        let (raw, adjusted): (f64, f64) = (raw_stderr.iter().sum(), adjusted_stderr.iter().sum());
        Self {
            raw_stderr,
            adjusted_stderr,
            estimate: Estimate::of_stderr(raw, adjusted),
        }
    }

    /// The same where it is at least what the curve changes, from what it is `here`, within the error of the distances in
    /// the sample. A loop makes a cliff: all of its reuses hit or none, so the estimate is right or off by the whole
    /// height, while the replicates, which see the cliff at eight places, agree on the average.
    pub(crate) fn with_distance_error(mut self, here: &Weighted, shifted: &[Weighted]) -> Self {
        let widen = |stderr: &mut [f64], of: fn(&Weighted) -> Vec<f64>| {
            let here = of(here);
            for shifted in shifted.iter().map(of) {
                for ((stderr, here), shifted) in stderr.iter_mut().zip(&here).zip(shifted) {
                    *stderr = stderr.max((shifted - here).abs());
                }
            }
        };
        if self.raw_stderr.iter().all(|stderr| !stderr.is_nan()) {
            widen(&mut self.raw_stderr, Weighted::raw);
            widen(&mut self.adjusted_stderr, Weighted::adjusted);
        }
        self
    }

    /// Standard error of the chosen estimate.
    pub fn stderr(&self) -> &[f64] {
        if self.estimate == Estimate::Raw {
            &self.raw_stderr
        } else {
            &self.adjusted_stderr
        }
    }
}

/// Standard error of a sum, of which the replicates are the parts, over the sum.
pub(crate) fn relative_stderr(parts: &[f64; REPLICATES]) -> f64 {
    let (sum, count) = (parts.iter().sum::<f64>(), REPLICATES as f64);
    let squares: f64 = parts.iter().map(|part| (part - sum / count).powi(2)).sum();
    if sum > 0.0 {
        (squares * count / (count - 1.0)).sqrt() / sum
    } else {
        0.0
    }
}

/// Standard error of the mean of the replicates, per size.
fn standard_error(replicates: &[Vec<f64>]) -> Vec<f64> {
    let count = replicates.len() as f64;
    let sizes = replicates.first().map_or(0, Vec::len);
    (0..sizes)
        .map(|size| {
            let mean = replicates.iter().map(|replicate| replicate[size]).sum::<f64>() / count;
            let squares = replicates
                .iter()
                .map(|replicate| (replicate[size] - mean).powi(2))
                .sum::<f64>();
            (squares / (count - 1.0) / count).sqrt()
        })
        .collect()
}
