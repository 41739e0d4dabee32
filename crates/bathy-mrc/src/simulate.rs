//! Full and miniature simulation of a policy over line numbers.
//!
//! A *miniature* simulation (Waldspurger et al., ATC'17) runs the policy itself on a spatial sample with a cache
//! that is smaller by the sampling rate. It is what predicts policies that have no stack property. Measured on real
//! traces, a miniature cache of 20 to 80 lines errs by several points, so the rate of each size is raised until the
//! miniature cache has `min_lines`, and further where the trace itself has few lines.

use bathy_policy::{Policy, PolicyKind, PolicyOptions, PolicyVisitor, visit_policy};

use crate::curve::{Curve, Estimate, Weighted};
use crate::hash::{DEFAULT_STRATA_BITS, SamplingHash, rate_of_threshold, threshold_of_rate};
use crate::key_ids::KeyIds;

/// Miniature caches smaller than this are not simulated.
pub const MIN_MINIATURE_LINES: u64 = 500;

/// Where a trace has so few lines that a sample would hold less than this, more of it is simulated: as with stack
/// distances, the error is set by the number of sampled lines, and small traces are cheap.
pub const MIN_SAMPLED_LINES: f64 = 8192.0;

/// How much of the trace a simulation sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fidelity {
    /// Every reference.
    Full,
    /// A sample at `rate` or, where that would make the cache too small, at `min_lines / size`.
    Miniature {
        /// The lowest sampling rate to use, in (0, 1].
        rate: f64,
        /// Lines of the smallest miniature cache; at least [`MIN_MINIATURE_LINES`] is enforced.
        min_lines: u64,
        /// Selects the sample.
        salt: u64,
    },
}

/// The miniature of one cache size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Miniature {
    /// Hash threshold of the sample.
    pub threshold: u64,
    /// Its rate.
    pub rate: f64,
    /// Lines of the miniature cache.
    pub capacity_lines: u64,
}

impl Fidelity {
    /// The same with a rate of at least `rate`.
    fn at_least(self, floor: f64) -> Self {
        match self {
            Self::Full => Self::Full,
            Self::Miniature {
                rate,
                min_lines,
                salt,
            } => Self::Miniature {
                rate: rate.max(floor.min(1.0)),
                min_lines,
                salt,
            },
        }
    }

    /// The sampling hash.
    pub fn hash(self) -> SamplingHash {
        let salt = if let Self::Miniature { salt, .. } = self {
            salt
        } else {
            0
        };
        SamplingHash::new(salt, DEFAULT_STRATA_BITS, 0)
    }

    /// The rate and the size of the cache that stands for one of `size_lines`.
    pub fn miniature(self, size_lines: u64) -> Miniature {
        let size_lines = size_lines.max(1);
        let rate = match self {
            Self::Full => 1.0,
            Self::Miniature { rate, min_lines, .. } => rate
                .max(min_lines.max(MIN_MINIATURE_LINES) as f64 / size_lines as f64)
                .min(1.0),
        };
        let threshold = threshold_of_rate(rate);
        let rate = rate_of_threshold(threshold);
        Miniature {
            threshold,
            rate,
            capacity_lines: ((size_lines as f64 * rate).round() as u64).max(1),
        }
    }
}

/// What one size gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeResult {
    /// Lines of the cache that was asked for.
    pub size_lines: u64,
    /// Lines of the cache that was simulated.
    pub simulated_lines: u64,
    /// Share of the keys that was simulated.
    pub rate: f64,
    /// References simulated.
    pub references: u64,
    /// Misses among them.
    pub misses: u64,
    /// Lines that the policy wrote to flash, scaled to the whole trace.
    pub flash_writes: f64,
}

/// The results of a policy at several sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// One for each size, in the order asked for.
    pub sizes: Vec<SizeResult>,
    /// References of the trace.
    pub references: u64,
    /// Distinct keys of the trace: exact in full simulation, else scaled up from the largest sample.
    pub distinct_keys: f64,
}

impl Simulation {
    /// The miss-ratio curve. Miniatures are count-adjusted, as `SHARDS_adj` is.
    pub fn curve(&self) -> Curve {
        let sampled = self.sizes.iter().any(|size| size.rate < 1.0);
        let references = self.references as f64;
        let per_size = |size: &SizeResult| Weighted {
            misses: vec![size.misses as f64 / size.rate],
            cold: self.distinct_keys,
            sampled: size.references as f64 / size.rate,
            total: references,
        };
        let each: Vec<Weighted> = self.sizes.iter().map(per_size).collect();
        let raw: Vec<f64> = each.iter().map(|weighted| weighted.raw()[0]).collect();
        let adjusted: Vec<f64> = each.iter().map(|weighted| weighted.adjusted()[0]).collect();
        Curve {
            sizes_lines: self.sizes.iter().map(|size| size.size_lines).collect(),
            miss_ratio: adjusted.clone(),
            miss_ratio_raw: raw,
            miss_ratio_adjusted: adjusted,
            cold_miss_ratio: if references > 0.0 {
                (self.distinct_keys / references).min(1.0)
            } else {
                0.0
            },
            estimate: if sampled {
                Estimate::Adjusted
            } else {
                Estimate::Exact
            },
        }
    }
}

/// The references that any size needs, renumbered, with their hashes when they are a sample.
struct Sample {
    ids: Vec<u32>,
    hashes: Vec<u64>,
    universe: usize,
    rate: f64,
}

fn sample(keys: &[u64], fidelity: Fidelity, threshold: u64) -> Sample {
    let mut ids = KeyIds::new();
    if threshold == u64::MAX && fidelity == Fidelity::Full {
        let dense = keys.iter().map(|&key| ids.id(key)).collect();
        return Sample {
            ids: dense,
            hashes: Vec::new(),
            universe: ids.len(),
            rate: 1.0,
        };
    }
    let hash = fidelity.hash();
    let (mut dense, mut hashes, mut survivors) = (Vec::new(), Vec::new(), Vec::new());
    for chunk in keys.chunks(4096) {
        hash.filter(chunk, threshold, &mut survivors);
        for &position in &survivors {
            let key = chunk[position as usize];
            dense.push(ids.id(key));
            hashes.push(hash.hash(key));
        }
    }
    Sample {
        ids: dense,
        hashes,
        universe: ids.len(),
        rate: rate_of_threshold(threshold),
    }
}

struct Run<'a> {
    sample: &'a Sample,
    miniature: Miniature,
    size_lines: u64,
}

impl PolicyVisitor for Run<'_> {
    type Output = SizeResult;

    fn visit<P: Policy + Send + 'static>(self, mut policy: P) -> SizeResult {
        let (mut references, mut misses) = (self.sample.ids.len() as u64, 0u64);
        if self.sample.hashes.is_empty() {
            for &id in &self.sample.ids {
                misses += u64::from(!policy.access(u64::from(id)).is_hit());
            }
        } else {
            references = 0;
            for (&id, &hash) in self.sample.ids.iter().zip(&self.sample.hashes) {
                if hash <= self.miniature.threshold {
                    references += 1;
                    misses += u64::from(!policy.access(u64::from(id)).is_hit());
                }
            }
        }
        SizeResult {
            size_lines: self.size_lines,
            simulated_lines: self.miniature.capacity_lines,
            rate: self.miniature.rate,
            references,
            misses,
            flash_writes: policy.flash_writes() as f64 / self.miniature.rate,
        }
    }
}

fn plan(sizes_lines: &[u64], fidelity: Fidelity) -> (Vec<Miniature>, u64) {
    let miniatures: Vec<Miniature> = sizes_lines.iter().map(|&size| fidelity.miniature(size)).collect();
    let threshold = miniatures
        .iter()
        .map(|miniature| miniature.threshold)
        .max()
        .unwrap_or(0);
    (miniatures, threshold)
}

/// Simulates `kind` over `keys` at each of `sizes_lines`, the sizes spread over `threads` threads.
///
/// The keys are filtered and renumbered once for all sizes; a size of a miniature simulation then runs over its share
/// of the sample.
pub fn simulate_keys(
    keys: &[u64],
    kind: PolicyKind,
    options: &PolicyOptions,
    sizes_lines: &[u64],
    fidelity: Fidelity,
    threads: usize,
) -> Simulation {
    let (mut miniatures, mut threshold) = plan(sizes_lines, fidelity);
    let mut sampled = sample(keys, fidelity, threshold);
    let distinct_keys = sampled.universe as f64 / sampled.rate;
    let raised = fidelity.at_least(MIN_SAMPLED_LINES / distinct_keys.max(1.0));
    if raised != fidelity {
        let before = threshold;
        (miniatures, threshold) = plan(sizes_lines, raised);
        if threshold > before {
            sampled = sample(keys, raised, threshold);
        }
    }
    let sample = sampled;
    let run = |index: usize| {
        let miniature = miniatures[index];
        let work = Run {
            sample: &sample,
            miniature,
            size_lines: sizes_lines[index],
        };
        visit_policy(
            kind,
            miniature.capacity_lines as usize,
            Some(sample.universe),
            options,
            work,
        )
    };
    let sizes = map_indices(sizes_lines.len(), threads, run);
    Simulation {
        sizes,
        references: keys.len() as u64,
        distinct_keys: sample.universe as f64 / sample.rate,
    }
}

/// Maps `0..count` on `threads` threads, each taking the next index when it is done with one.
pub(crate) fn map_indices<T: Send>(count: usize, threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = threads.clamp(1, count.max(1));
    if threads == 1 {
        return (0..count).map(work).collect();
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let (work, next) = (&work, &next);
    let mut results: Vec<(usize, T)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || {
                    let mut done = Vec::new();
                    loop {
                        let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        if index >= count {
                            return done;
                        }
                        done.push((index, work(index)));
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "both sides divide the same integers")]
mod tests {
    use super::*;
    use crate::{LineSize, Ops, Profile, Sampling, TrackerOptions, Unit};

    fn trace() -> Vec<u64> {
        let mut state = 3u64;
        (0..300_000u64)
            .map(|step| {
                state = crate::hash::mix64(state.wrapping_add(step));
                let bound = 1 + (state >> 32) % 20_000;
                state % bound
            })
            .collect()
    }

    #[test]
    fn simulated_lru_equals_the_stack() {
        let keys = trace();
        let mut profile = Profile::new(
            TrackerOptions::new(Sampling::Exact),
            LineSize::new(4096).expect("valid"),
        );
        profile.access_keys(&keys);
        let sizes = [1, 10, 500, 5000, 19_000];
        let options = PolicyOptions::default();
        let simulation = simulate_keys(&keys, PolicyKind::Lru, &options, &sizes, Fidelity::Full, 2);
        let curve = simulation.curve();
        let stack = profile.curve(&sizes, Unit::Lines, Ops::All);
        assert_eq!(curve.miss_ratio, stack.miss_ratio);
        assert_eq!(curve.cold_miss_ratio, stack.cold_miss_ratio);
    }

    #[test]
    fn miniatures_have_enough_lines_and_are_close() {
        let keys = trace();
        let sizes: Vec<u64> = (1..=10).map(|step| step * 2000).collect();
        let options = PolicyOptions::default();
        let full = simulate_keys(&keys, PolicyKind::S3Fifo, &options, &sizes, Fidelity::Full, 1);
        let fidelity = Fidelity::Miniature {
            rate: 0.01,
            min_lines: 1,
            salt: 1,
        };
        let mini = simulate_keys(&keys, PolicyKind::S3Fifo, &options, &sizes, fidelity, 2);
        assert!(
            mini.sizes
                .iter()
                .all(|size| size.simulated_lines >= MIN_MINIATURE_LINES)
        );
        assert!(
            mini.sizes[9].references < full.references * 6 / 10,
            "8,192 of 20,000 lines are simulated"
        );
        let (truth, estimate) = (full.curve().miss_ratio, mini.curve().miss_ratio);
        let error = truth
            .iter()
            .zip(&estimate)
            .map(|(a, b)| (a - b).abs())
            .sum::<f64>()
            / 10.0;
        assert!(error < 0.02, "{error}");
    }
}
