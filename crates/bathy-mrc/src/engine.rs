//! The cache without its devices: `bathy-cache-model` at several sizes, its plans counted.
//!
//! It counts what a cache engine would do with each request: what is read from the backing, what is written to flash,
//! which requests are served from the cache alone. Writes go to the backing and then to the cache (write-through).

mod cache;
mod counts;
mod crossing;
mod split;

use bathy_cache_model::CacheConfig;
pub use bathy_cache_model::{
    AdmissionOptions, FetchSize, MAX_UNITS as MAX_FETCH_UNITS, MemoryBudget, StreamCutoff, WriteMode,
};
use bathy_policy::{PolicyKind, PolicyOptions, visit_policy};

use self::cache::{Consume, Make};
use self::counts::Totals;
pub use self::counts::{EngineCounts, MAX_WINDOWS, OpCounts, Windows};
use self::split::{Piece, Splitter};
use crate::curve::Estimate;
use crate::hash::STRATA_BITS;
use crate::pipeline::{Pipeline, Stage};
use crate::self_check::relative_stderr;
use crate::simulate::{Fidelity, MAX_CACHE_LINES};
use crate::{Io, LineSize};

/// The engine that is simulated.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Eviction.
    pub policy: PolicyKind,
    /// The memory of the cache, which bounds the stage of policies that have one; `None`: their small queue has the share of
    /// the papers.
    pub memory: Option<MemoryBudget>,
    /// Line size.
    pub line: LineSize,
    /// Bytes that are valid or not together: a power of two, at most the line, at least a 64th of it.
    pub unit_bytes: u64,
    /// What a miss fetches.
    pub fetch: FetchSize,
    /// Writes to what is not cached.
    pub write_mode: WriteMode,
    /// Filters.
    pub admission: AdmissionOptions,
    /// Windows of time that are counted apart, if any.
    pub windows: Option<Windows>,
    /// In a miniature, aligned regions of this many bytes are sampled whole; less than a line means single lines.
    ///
    /// A request hits when all of its lines do, which single lines do not show: a sample of lines overestimates the
    /// hits of requests of several lines by up to 25 points (a virtual disk of 4 KiB to 64 KiB requests). Regions must
    /// be more than twice as long as almost all requests, and then there must be many of them in the sample: about
    /// five hundred for an error of a point.
    pub sample_region_bytes: u64,
}

impl EngineOptions {
    /// Lines of a region that is sampled whole, as a power of two.
    fn region_bits(&self) -> u32 {
        let lines = self.sample_region_bytes / self.line.bytes();
        lines.checked_ilog2().unwrap_or(0).min(32 - STRATA_BITS)
    }

    /// Whether units and fetch size fit the line.
    pub fn is_valid(&self) -> bool {
        self.config(1.0).is_valid()
    }

    /// The cache of a sample of this rate.
    fn config(&self, rate: f64) -> CacheConfig {
        let budget = self.admission.write_budget_bytes_per_day;
        CacheConfig {
            line: self.line,
            unit_bytes: self.unit_bytes,
            fetch: self.fetch,
            write_mode: self.write_mode,
            admission: AdmissionOptions {
                write_budget_bytes_per_day: budget.map(|bytes| (bytes as f64 * rate) as u64),
                ..self.admission
            },
        }
    }
}

/// A request and its time.
#[derive(Clone, Copy, Debug)]
pub struct TimedIo {
    /// Time of issue, for the write budget and the windows.
    pub time_ns: u64,
    /// The request.
    pub io: Io,
}

/// What one size gave, scaled to the whole trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineResult {
    /// Lines of the cache that was asked for.
    pub size_lines: u64,
    /// Lines of the cache that was simulated.
    pub simulated_lines: u64,
    /// Share of the lines that was simulated.
    pub rate: f64,
    /// The counts.
    pub counts: EngineCounts,
    /// Distinct lines that were simulated.
    pub sampled_lines: u64,
    /// Distinct lines of the trace; of a sample, an estimate.
    pub distinct_lines: f64,
    /// Standard error of the share of read requests that hit, by the disagreement of eight parts of the sample; 0
    /// when everything was simulated, NaN when nothing was read.
    pub read_hit_stderr: f64,
}

/// Simulates one engine at several sizes over a stream of requests.
pub struct EngineSweep {
    splitter: Splitter,
    /// Those that were asked for, and then those beside them that show how steep the curve is.
    engines: Vec<Box<dyn Consume + Send>>,
    asked: usize,
}

/// Requests that are split once for every size.
#[derive(Debug)]
pub struct Pieces(Vec<Vec<Piece>>);

impl EngineSweep {
    /// # Panics
    /// When the options are not valid or a size is outside what the policy takes.
    pub fn new(options: EngineOptions, sizes_lines: &[u64], fidelity: Fidelity) -> Self {
        Self::of_shares(options, sizes_lines, None, fidelity)
    }

    /// The same for sizes that are shares of a cache of `cache_lines`, which share its stage.
    ///
    /// # Panics
    /// As [`EngineSweep::new`].
    pub fn of_shares(
        options: EngineOptions,
        sizes_lines: &[u64],
        cache_lines: Option<u64>,
        fidelity: Fidelity,
    ) -> Self {
        assert!(options.is_valid(), "units and fetch size fit the line");
        let (asked, sizes_lines) = (
            sizes_lines.len(),
            with_neighbours(sizes_lines, fidelity, options.policy),
        );
        let miniatures: Vec<_> = sizes_lines.iter().map(|&size| fidelity.miniature(size)).collect();
        let thresholds = miniatures.iter().map(|miniature| miniature.threshold).collect();
        let splitter = Splitter::new(options, fidelity, thresholds);
        let largest = miniatures
            .iter()
            .map(|miniature| miniature.capacity_lines)
            .max()
            .unwrap_or(0);
        let engines = sizes_lines
            .iter()
            .zip(&miniatures)
            .map(|(&size_lines, &miniature)| {
                let capacity = miniature.capacity_lines;
                let make = Make {
                    options,
                    size_lines,
                    miniature,
                    sample: splitter.sample_of(miniature.threshold),
                };
                // The largest size holds about all lines. A table of the cached lines alone, 29 bytes and more each,
                // is smaller than 9 bytes for each line in caches of less than a fifth of them.
                let universe = (capacity * 5 >= largest).then_some(0);
                let of_memory = |memory: MemoryBudget| {
                    memory.policy_options(size_lines, cache_lines.unwrap_or(size_lines), options.line)
                };
                let policy_options = options.memory.map_or_else(PolicyOptions::default, of_memory);
                visit_policy(options.policy, capacity as usize, universe, policy_options, make)
            })
            .collect();
        Self {
            splitter,
            engines,
            asked,
        }
    }

    /// Runs requests through every size.
    pub fn access(&mut self, mut requests: impl Iterator<Item = TimedIo>) {
        let mut pieces = Vec::new();
        let mut more = true;
        while more {
            more = self.splitter.fill(&mut requests, &mut pieces);
            self.engines.iter_mut().for_each(|engine| engine.consume(&pieces));
        }
    }

    /// Adds stages to `pipeline`: one that splits the requests which `requests` finds in the batches of `parent`, and
    /// `stages` among which the sizes are dealt out. `pack` and `unpack` make a batch of pieces and find them in one.
    pub fn add_to<'a, T: Send + Sync>(
        &'a mut self,
        pipeline: &mut Pipeline<'a, T>,
        parent: Stage,
        requests: impl Fn(&T) -> &[TimedIo] + Send + 'a,
        stages: usize,
        pack: impl Fn(Pieces) -> T + Send + 'a,
        unpack: impl Fn(&T) -> &Pieces + Copy + Send + 'a,
    ) {
        let splitter = &mut self.splitter;
        let split = pipeline.add(Some(parent), move |batch| {
            let mut requests = requests(batch).iter().copied();
            let mut all = Vec::new();
            let mut more = true;
            while more {
                let mut pieces = Vec::new();
                more = splitter.fill(&mut requests, &mut pieces);
                all.push(pieces);
            }
            Some(pack(Pieces(all)))
        });
        let stages = stages.clamp(1, self.engines.len().max(1));
        let mut shares: Vec<Vec<_>> = (0..stages).map(|_| Vec::new()).collect();
        for (index, engine) in self.engines.iter_mut().enumerate() {
            shares[index % stages].push(engine);
        }
        for mut share in shares {
            pipeline.add(Some(split), move |batch| {
                for pieces in &unpack(batch).0 {
                    for engine in &mut share {
                        engine.consume(pieces);
                    }
                }
                None
            });
        }
    }

    /// Whether the trace has more distinct lines than the 2^32 that there are numbers for. The results are of what came
    /// before.
    pub fn overflowed(&self) -> bool {
        self.splitter.overflowed()
    }

    /// Bytes held by all sizes together.
    pub fn memory_bytes(&self) -> usize {
        let engines: usize = self.engines.iter().map(|engine| engine.memory_bytes()).sum();
        self.splitter.memory_bytes() + engines
    }

    /// The results, of the whole trace, in the order of the sizes.
    pub fn results(&self) -> Vec<EngineResult> {
        let totals = whole(self.splitter.totals());
        let estimates = self.estimates(&totals);
        let results = self.engines.iter().map(|engine| {
            let mut result = engine.result();
            if engine.sampled().is_some() {
                result.counts = result.counts.toward(&totals, estimates);
            }
            result
        });
        let mut results: Vec<_> = results.collect();
        for (number, engine) in self.engines.iter().enumerate() {
            if let Some((rate, parts)) = engine.sampled() {
                // A sample with more lines than its rate says is of a cache that is smaller by as much. All parts share
                // that one cache, so it does not show in what they disagree about.
                let of_size = relative_stderr(&engine.residents(self.splitter.parts()));
                let of_size = steepness(&results, number) * of_size;
                results[number].read_hit_stderr = if estimates[0] == Estimate::Raw {
                    parts[0].raw_stderr().hypot(of_size)
                } else {
                    // More lines are more misses as well: both errors have one cause and one sign.
                    parts[0].adjusted_stderr(totals[0].requests as f64 * rate) + of_size
                };
            }
        }
        results.truncate(self.asked);
        results
    }

    /// The counts of each window up to the last that was seen, for each size. One window without windows.
    pub fn windows(&self) -> Vec<Vec<EngineCounts>> {
        let totals = self.splitter.totals();
        let estimates = self.estimates(&whole(totals));
        let sizes = self.engines.iter().take(self.asked).map(|engine| {
            let mut windows = engine.windows();
            if engine.sampled().is_some() {
                for (window, totals) in windows.iter_mut().zip(totals) {
                    *window = window.toward(totals, estimates);
                }
            }
            windows
        });
        sizes.collect()
    }

    /// The estimates whose parts agree better, for reads and for writes, the same for all sizes.
    fn estimates(&self, totals: &Totals) -> [Estimate; 2] {
        [0, 1].map(|op| {
            let (mut raw, mut adjusted) = (0.0, 0.0);
            for engine in &self.engines {
                if let Some((rate, parts)) = engine.sampled() {
                    raw += parts[op].raw_stderr();
                    adjusted += parts[op].adjusted_stderr(totals[op].requests as f64 * rate);
                }
            }
            Estimate::of_stderr(raw, adjusted)
        })
    }
}

/// The sizes, and of a sample others beside them: the band of a size needs to know how steep the curve is there.
///
/// The curves of LRU and its relatives have cliffs, where a loop fits as a whole, and only sizes as near as the error of the
/// size in the smallest samples show one. Those of the other policies bend; one size within a factor of two is enough.
fn with_neighbours(sizes_lines: &[u64], fidelity: Fidelity, policy: PolicyKind) -> Vec<u64> {
    let mut sizes = sizes_lines.to_vec();
    if fidelity == Fidelity::Full {
        return sizes;
    }
    let has_cliffs = matches!(
        policy,
        PolicyKind::Lru | PolicyKind::Fifo | PolicyKind::Clock | PolicyKind::Sieve | PolicyKind::Arc
    );
    for &size in sizes_lines {
        if has_cliffs {
            let step = size.div_ceil(32);
            sizes.push((size + step).min(MAX_CACHE_LINES));
            sizes.push((size - step).max(1));
            continue;
        }
        let near = |other: u64| other != size && other / 2 <= size && size / 2 <= other;
        if !sizes.iter().any(|&other| near(other)) {
            sizes.push((size + size.div_ceil(4)).min(MAX_CACHE_LINES));
        }
    }
    sizes
}

/// How much the share of read requests that hit changes with the logarithm of the size: the steeper of both sides.
fn steepness(results: &[EngineResult], number: usize) -> f64 {
    let of = |result: &EngineResult| {
        let reads = result.counts.reads;
        let hit = if reads.requests > 0.0 {
            reads.requests_hit / reads.requests
        } else {
            0.0
        };
        ((result.size_lines as f64).ln(), hit)
    };
    let (at, hit) = of(&results[number]);
    let toward = |side: fn(f64) -> bool| {
        let others = results.iter().map(of).filter(|other| side(other.0 - at));
        let nearest = others.min_by(|one, other| (one.0 - at).abs().total_cmp(&(other.0 - at).abs()));
        nearest.map_or(0.0, |(place, other)| ((other - hit) / (place - at)).abs())
    };
    toward(|distance| distance < 0.0).max(toward(|distance| distance > 0.0))
}

fn whole(windows: &[Totals]) -> Totals {
    let mut whole = Totals::default();
    for window in windows {
        for (sum, totals) in whole.iter_mut().zip(window) {
            sum.requests += totals.requests;
            sum.bytes += totals.bytes;
        }
    }
    whole
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "counts of whole requests and bytes are exact")]
mod tests;
