//! How far an estimate can be trusted, and which of two to take: what the sub-samples of a sample say about it.

use crate::curve::{Estimate, Weighted};

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

    /// What each lane alone says of the same sizes.
    pub(crate) fn of_lanes(lanes: &[Weighted]) -> Self {
        if lanes.iter().any(|lane| lane.sampled <= 0.0) {
            // A lane that has seen nothing says nothing, and the others are too few.
            let unknown = vec![f64::NAN; lanes.first().map_or(0, |lane| lane.misses.len())];
            return Self {
                raw_stderr: unknown.clone(),
                adjusted_stderr: unknown,
                estimate: Estimate::Adjusted,
            };
        }
        let raw_stderr = standard_error(&lanes.iter().map(Weighted::raw).collect::<Vec<_>>());
        let adjusted_stderr = standard_error(&lanes.iter().map(Weighted::adjusted).collect::<Vec<_>>());
        let (raw, adjusted): (f64, f64) = (raw_stderr.iter().sum(), adjusted_stderr.iter().sum());
        Self {
            raw_stderr,
            adjusted_stderr,
            estimate: Estimate::of_stderr(raw, adjusted),
        }
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

/// Standard error of the mean of the lanes, per size.
fn standard_error(lanes: &[Vec<f64>]) -> Vec<f64> {
    let count = lanes.len() as f64;
    let sizes = lanes.first().map_or(0, Vec::len);
    (0..sizes)
        .map(|size| {
            let mean = lanes.iter().map(|lane| lane[size]).sum::<f64>() / count;
            let squares = lanes.iter().map(|lane| (lane[size] - mean).powi(2)).sum::<f64>();
            (squares / (count - 1.0) / count).sqrt()
        })
        .collect()
}
