//! The cache engine without its devices: the policy that ships, lines of sub-blocks, fetch size, admission.
//!
//! It counts what the engine would do with each request: what is read from the backing, what is written to flash,
//! which requests are served from flash alone. Writes go to the backing and then to the cache (write-through).

mod cache;
mod counts;
mod cut;
mod masks;
mod split;

use bathy_policy::{PolicyKind, PolicyOptions, visit_policy};

use self::cache::{Consume, Make};
use self::counts::Totals;
pub use self::counts::{EngineCounts, MAX_WINDOWS, OpCounts, Windows};
use self::split::{Piece, Splitter};
use crate::curve::Estimate;
use crate::flow::{Flow, Worker};
use crate::hash::DEFAULT_STRATA_BITS;
use crate::lines::{Io, LineSize};
use crate::simulate::Fidelity;

/// What a write does to lines that are not cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The written blocks enter the cache, if admitted.
    Allocate,
    /// Only blocks whose line is cached are updated.
    Update,
    /// The line leaves the cache.
    Invalidate,
}

/// Which filters stand before the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdmissionOptions {
    /// Enter at the n-th miss, once the cache is 80 % full.
    pub n_hit: Option<u8>,
    /// Runs longer than this many bytes go past.
    pub stream_cutoff_bytes: Option<u64>,
    /// Bytes a day that may be written to flash, new lines and changes together; a day's worth can be saved up.
    pub write_budget_bytes_per_day: Option<u64>,
}

/// The engine that is simulated.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Eviction.
    pub policy: PolicyKind,
    /// Its parameters.
    pub policy_options: PolicyOptions,
    /// Line size.
    pub line: LineSize,
    /// Bytes fetched together on a miss: a power of two, at most the line, at least a 64th of it.
    pub fetch_bytes: u64,
    /// Writes to what is not cached.
    pub write_mode: WriteMode,
    /// Filters.
    pub admission: AdmissionOptions,
    /// Windows of time that are counted apart, if any.
    pub windows: Option<Windows>,
    /// In a miniature, aligned regions of this many bytes are sampled whole; less than a line means single lines.
    ///
    /// A request hits when all of its lines do, which single lines cannot tell: a sample of lines overestimates the
    /// hits of requests of several lines by up to 25 points (a virtual disk of 4 KiB to 64 KiB requests). Regions must
    /// be more than twice as long as almost all requests, and then there must be many of them in the sample: about
    /// five hundred for an error of a point.
    pub sample_region_bytes: u64,
}

impl EngineOptions {
    /// Lines of a region that is sampled whole, as a power of two.
    fn region_bits(&self) -> u32 {
        let lines = self.sample_region_bytes / self.line.bytes();
        lines.checked_ilog2().unwrap_or(0).min(32 - DEFAULT_STRATA_BITS)
    }

    /// Whether the fetch size fits the line.
    pub fn is_valid(&self) -> bool {
        let (line, fetch) = (self.line.bytes(), self.fetch_bytes);
        fetch.is_power_of_two() && fetch <= line && line / fetch <= 64
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
    engines: Vec<Box<dyn Consume + Send>>,
}

/// Requests that are split once for every size.
#[derive(Debug)]
pub struct Pieces(Vec<Vec<Piece>>);

impl EngineSweep {
    /// # Panics
    /// When the options are not valid or a size is outside what the policy takes.
    pub fn new(options: EngineOptions, sizes_lines: &[u64], fidelity: Fidelity) -> Self {
        assert!(options.is_valid(), "the fetch size fits the line");
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
                visit_policy(
                    options.policy,
                    capacity as usize,
                    universe,
                    &options.policy_options,
                    make,
                )
            })
            .collect();
        Self { splitter, engines }
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

    /// Adds workers to `flow`: one that splits the requests which `requests` finds in the batches of `parent`, and
    /// `workers` among which the sizes are dealt out. `pack` and `unpack` make a batch of pieces and find them in one.
    pub fn add_to<'a, T: Send + Sync>(
        &'a mut self,
        flow: &mut Flow<'a, T>,
        parent: Worker,
        requests: impl Fn(&T) -> &[TimedIo] + Send + 'a,
        workers: usize,
        pack: impl Fn(Pieces) -> T + Send + 'a,
        unpack: impl Fn(&T) -> &Pieces + Copy + Send + 'a,
    ) {
        let splitter = &mut self.splitter;
        let split = flow.add(Some(parent), move |batch| {
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
        let workers = workers.clamp(1, self.engines.len().max(1));
        let mut shares: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        for (index, engine) in self.engines.iter_mut().enumerate() {
            shares[index % workers].push(engine);
        }
        for mut share in shares {
            flow.add(Some(split), move |batch| {
                for pieces in &unpack(batch).0 {
                    for engine in &mut share {
                        engine.consume(pieces);
                    }
                }
                None
            });
        }
    }

    /// Whether the trace has more distinct lines than the 2^32 that can be told apart. The results are of what came
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
            if let Some((rate, parts)) = engine.sampled() {
                result.counts = result.counts.toward(&totals, estimates);
                result.read_hit_stderr = if estimates[0] == Estimate::Raw {
                    parts[0].raw_stderr()
                } else {
                    parts[0].adjusted_stderr(totals[0].requests as f64 * rate)
                };
            }
            result
        });
        results.collect()
    }

    /// The counts of each window up to the last that was seen, for each size. One window without windows.
    pub fn windows(&self) -> Vec<Vec<EngineCounts>> {
        let totals = self.splitter.totals();
        let estimates = self.estimates(&whole(totals));
        let sizes = self.engines.iter().map(|engine| {
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
