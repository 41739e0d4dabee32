//! Full and miniature simulation of a policy over line numbers.
//!
//! This is [`crate::engine`] for requests that read one whole line each, without what follows from sub-blocks, writes
//! and admission: measured, four to five times as fast. A test holds the two together.
//!
//! A *miniature* simulation (Waldspurger et al., ATC'17) runs the policy itself on a spatial sample with a cache
//! that is smaller by the sampling rate. It is what predicts policies that have no stack property. Measured on real
//! traces, a miniature cache of 20 to 80 lines errs by several points, so the rate of each size is raised until the
//! miniature cache has `min_lines`, and further where the trace itself has few lines.

use bathy_cache_model::{LineSize, MemoryBudget};
use bathy_policy::{Policy, PolicyKind, PolicyOptions, PolicyVisitor, visit_policy};

use crate::curve::{Curve, Estimate, Weighted};
use crate::hash::{SamplingHash, rate_of_threshold, threshold_of_rate};
use crate::key_ids::KeyIds;
use crate::pipeline::Pipeline;

/// Miniature caches smaller than this are not simulated.
pub const MIN_MINIATURE_LINES: u64 = 500;

/// Where a trace has so few lines that a sample would hold less than this, more of it is simulated: as with stack
/// distances, the error is set by the number of sampled lines, and small traces are cheap.
pub const MIN_SAMPLED_LINES: f64 = 8192.0;

/// The largest cache that a policy takes, in lines.
pub const MAX_CACHE_LINES: u64 = 1 << 30;

/// Keys that are renumbered at a time, and batches of them that wait for the slowest size.
const BATCH: usize = 16_384;
const WINDOW: usize = 16;

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
        SamplingHash::new(salt, 0)
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

/// References that any size needs, renumbered, with their hashes when they are a sample.
#[derive(Default)]
struct References {
    ids: Vec<u32>,
    hashes: Vec<u64>,
}

/// Renumbers the references of the sample of a threshold.
struct Renumber {
    ids: KeyIds,
    /// `None` takes every key.
    sample: Option<(SamplingHash, u64)>,
    survivors: Vec<u32>,
}

impl Renumber {
    fn new(fidelity: Fidelity, threshold: u64) -> Self {
        Self {
            ids: KeyIds::new(),
            sample: (fidelity != Fidelity::Full).then(|| (fidelity.hash(), threshold)),
            survivors: Vec::new(),
        }
    }

    fn append(&mut self, keys: &[u64], references: &mut References) {
        let Some((hash, threshold)) = self.sample else {
            references.ids.extend(keys.iter().map(|&key| self.ids.id(key)));
            return;
        };
        for chunk in keys.chunks(4096) {
            hash.filter(chunk, threshold, &mut self.survivors);
            for &position in &self.survivors {
                let key = chunk[position as usize];
                references.ids.push(self.ids.id(key));
                references.hashes.push(hash.hash(key));
            }
        }
    }

    fn distinct_keys(&self) -> f64 {
        let rate = self
            .sample
            .map_or(1.0, |(_, threshold)| rate_of_threshold(threshold));
        self.ids.len() as f64 / rate
    }
}

/// One size under way.
trait Simulated: Send {
    fn consume(&mut self, references: &References);
    fn result(&self) -> SizeResult;
}

struct Make {
    miniature: Miniature,
    size_lines: u64,
}

impl PolicyVisitor for Make {
    type Output = Box<dyn Simulated>;

    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Box<dyn Simulated> {
        Box::new(OneSize {
            policy,
            miniature: self.miniature,
            size_lines: self.size_lines,
            references: 0,
            misses: 0,
        })
    }
}

struct OneSize<P> {
    policy: P,
    miniature: Miniature,
    size_lines: u64,
    references: u64,
    misses: u64,
}

impl<P: Policy + Send> Simulated for OneSize<P> {
    fn consume(&mut self, references: &References) {
        if references.hashes.is_empty() {
            for &id in &references.ids {
                self.misses += u64::from(!self.policy.access(u64::from(id)).is_hit());
            }
            self.references += references.ids.len() as u64;
            return;
        }
        for (&id, &hash) in references.ids.iter().zip(&references.hashes) {
            if hash <= self.miniature.threshold {
                self.references += 1;
                self.misses += u64::from(!self.policy.access(u64::from(id)).is_hit());
            }
        }
    }

    fn result(&self) -> SizeResult {
        SizeResult {
            size_lines: self.size_lines,
            simulated_lines: self.miniature.capacity_lines,
            rate: self.miniature.rate,
            references: self.references,
            misses: self.misses,
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

/// What passes between the stages.
enum Step<'a> {
    Keys(&'a [u64]),
    References(References),
}

/// Simulates `kind` over `keys` at each of `sizes_lines`, in `threads` threads.
///
/// With `line` the policy has the stage in memory of a cache with lines of that size and the default budget, otherwise the
/// small queue of the papers. The keys are filtered and renumbered once for all sizes; a size of a miniature simulation then runs over its share of the sample.
pub fn simulate_keys(
    keys: &[u64],
    kind: PolicyKind,
    line: Option<LineSize>,
    sizes_lines: &[u64],
    fidelity: Fidelity,
    threads: usize,
) -> Simulation {
    let (fidelity, threshold) = raised(keys, sizes_lines, fidelity);
    let mut renumber = Renumber::new(fidelity, threshold);
    let mut runs: Vec<Box<dyn Simulated>> = plan(sizes_lines, fidelity)
        .0
        .into_iter()
        .zip(sizes_lines)
        .map(|(miniature, &size_lines)| {
            let make = Make {
                miniature,
                size_lines,
            };
            let memory = MemoryBudget::default();
            let options = line.map_or_else(PolicyOptions::default, |line| {
                memory.policy_options(size_lines, size_lines, line)
            });
            visit_policy(kind, miniature.capacity_lines as usize, Some(0), options, make)
        })
        .collect();
    let mut pipeline = Pipeline::new(WINDOW);
    let renumbered = pipeline.add(None, |step: &Step<'_>| {
        let Step::Keys(keys) = step else { return None };
        let mut references = References::default();
        renumber.append(keys, &mut references);
        Some(Step::References(references))
    });
    for run in &mut runs {
        pipeline.add(Some(renumbered), |step| {
            if let Step::References(references) = step {
                run.consume(references);
            }
            None
        });
    }
    pipeline.run(keys.chunks(BATCH).map(Step::Keys), threads);
    Simulation {
        sizes: runs.iter().map(|run| run.result()).collect(),
        references: keys.len() as u64,
        distinct_keys: renumber.distinct_keys(),
    }
}

/// The fidelity at which a trace of few lines is simulated, and the threshold of its largest sample.
fn raised(keys: &[u64], sizes_lines: &[u64], fidelity: Fidelity) -> (Fidelity, u64) {
    let (_, threshold) = plan(sizes_lines, fidelity);
    if fidelity == Fidelity::Full {
        return (fidelity, threshold);
    }
    let mut renumber = Renumber::new(fidelity, threshold);
    for keys in keys.chunks(BATCH) {
        renumber.append(keys, &mut References::default());
    }
    let raised = fidelity.at_least(MIN_SAMPLED_LINES / renumber.distinct_keys().max(1.0));
    (raised, plan(sizes_lines, raised).1)
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "both sides divide the same integers")]
mod tests {
    use super::*;
    use crate::{Ops, Profile, Sampling, TrackerOptions, Unit};

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
        let simulation = simulate_keys(&keys, PolicyKind::Lru, None, &sizes, Fidelity::Full, 2);
        let curve = simulation.curve();
        let stack = profile.curve(&sizes, Unit::Lines, Ops::All);
        assert_eq!(curve.miss_ratio, stack.miss_ratio);
        assert_eq!(curve.cold_miss_ratio, stack.cold_miss_ratio);
    }

    #[test]
    fn the_engine_has_the_same_hits_of_whole_lines() {
        use crate::engine::{AdmissionOptions, EngineOptions, EngineSweep, FetchSize, TimedIo, WriteMode};
        let keys = &trace()[..60_000];
        let sizes = [1, 10, 500, 5000];
        let line = LineSize::new(4096).expect("valid");
        for policy in PolicyKind::ALL {
            let misses = simulate_keys(keys, policy, Some(line), &sizes, Fidelity::Full, 1).sizes;
            let engine = EngineOptions {
                policy,
                memory: Some(MemoryBudget::default()),
                line,
                unit_bytes: 4096,
                fetch: FetchSize::Fixed(4096),
                write_mode: WriteMode::Allocate,
                admission: AdmissionOptions::default(),
                windows: None,
                sample_region_bytes: 0,
            };
            let mut sweep = EngineSweep::new(engine, &sizes, Fidelity::Full);
            sweep.access(keys.iter().map(|&key| TimedIo {
                time_ns: 0,
                io: crate::Io {
                    offset_bytes: key * 4096,
                    length_bytes: 4096,
                    write: false,
                    volume: 0,
                },
            }));
            for (fast, whole) in misses.iter().zip(sweep.results()) {
                let reads = whole.counts.reads;
                assert_eq!(
                    fast.misses as f64,
                    reads.requests - reads.requests_hit,
                    "{policy:?}"
                );
            }
        }
    }

    #[test]
    fn miniatures_have_enough_lines_and_are_close() {
        let keys = trace();
        let sizes: Vec<u64> = (1..=10).map(|step| step * 2000).collect();
        let full = simulate_keys(&keys, PolicyKind::S3Fifo, None, &sizes, Fidelity::Full, 1);
        let fidelity = Fidelity::Miniature {
            rate: 0.01,
            min_lines: 1,
            salt: 1,
        };
        let mini = simulate_keys(&keys, PolicyKind::S3Fifo, None, &sizes, fidelity, 2);
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

    #[test]
    fn a_small_trace_is_simulated_at_a_high_rate_at_every_size() {
        let keys = trace();
        let fidelity = Fidelity::Miniature {
            rate: 0.01,
            min_lines: 500,
            salt: 1,
        };
        // The first needs all of the trace for 500 lines, which says nothing of what the others need.
        for sizes in [vec![400, 5000, 19_000], vec![5000, 19_000]] {
            let simulation = simulate_keys(&keys, PolicyKind::Lru, None, &sizes, fidelity, 2);
            let distinct = simulation.distinct_keys;
            assert!(
                simulation
                    .sizes
                    .iter()
                    .all(|size| size.rate * distinct > 0.9 * MIN_SAMPLED_LINES)
            );
        }
    }
}
