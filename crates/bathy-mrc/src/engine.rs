//! The cache engine without its devices: the policy that ships, lines of sub-blocks, fetch size, admission.
//!
//! It counts what the engine would do with each request: what is read from the backing, what is written to flash,
//! which requests are served from flash alone. Writes go to the backing and then to the cache (write-through).

use bathy_policy::admission::{NHitOptions, StreamBypassOptions};
use bathy_policy::{
    Access, Admission, AdmissionChain, EvictionSink, NHit, Policy, PolicyKind, PolicyOptions, PolicyVisitor,
    StreamBypass, WriteBudget, visit_policy,
};

use crate::key_ids::KeyIds;
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
    /// Bytes a day that may enter; a day's worth can be saved up.
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
}

impl EngineOptions {
    /// Whether the fetch size fits the line.
    pub fn is_valid(&self) -> bool {
        let (line, fetch) = (self.line.bytes(), self.fetch_bytes);
        fetch.is_power_of_two() && fetch <= line && line / fetch <= 64
    }
}

/// A request and its time.
#[derive(Clone, Copy, Debug)]
pub struct TimedIo {
    /// Time of issue, for the write budget.
    pub time_ns: u64,
    /// The request.
    pub io: Io,
}

/// Counts of one direction. Fractions come from samples, where a request counts by the share of its sampled lines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OpCounts {
    /// Requests.
    pub requests: f64,
    /// Requests served from the cache alone.
    pub requests_hit: f64,
    /// Requests with first touches of lines: they miss in a cache of any size.
    pub requests_cold: f64,
    /// Bytes.
    pub bytes: f64,
    /// Bytes served from the cache; of a write, bytes whose line was cached.
    pub bytes_hit: f64,
}

/// What one size gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineResult {
    /// Lines of the cache that was asked for.
    pub size_lines: u64,
    /// Lines of the cache that was simulated.
    pub simulated_lines: u64,
    /// Share of the lines that was simulated; the counts are scaled to the whole trace.
    pub rate: f64,
    /// Reads.
    pub reads: OpCounts,
    /// Writes.
    pub writes: OpCounts,
    /// Bytes read from the backing.
    pub backing_read_bytes: f64,
    /// Bytes written to flash.
    pub flash_write_bytes: f64,
    /// Lines evicted.
    pub evictions: f64,
    /// Lines that admission refused.
    pub refused: f64,
}

/// A line of a request, renumbered, with what it touches.
#[derive(Clone, Copy, Debug)]
struct Piece {
    key: u64,
    hash: u64,
    time_ns: u64,
    /// Sub-blocks touched.
    touched: u64,
    /// Sub-blocks covered whole.
    covered: u64,
    id: u32,
    bytes: u32,
    /// One over the lines of the request.
    share: f64,
    write: bool,
    first_touch: bool,
    last: bool,
}

/// Simulates one engine at several sizes over a stream of requests.
pub struct EngineSweep {
    options: EngineOptions,
    fidelity: Fidelity,
    threshold: u64,
    ids: KeyIds,
    pieces: Vec<Piece>,
    engines: Vec<Box<dyn Consume + Send>>,
}

impl EngineSweep {
    /// # Panics
    /// When the options are not valid or a size is outside what the policy takes.
    pub fn new(options: EngineOptions, sizes_lines: &[u64], fidelity: Fidelity) -> Self {
        assert!(options.is_valid(), "the fetch size fits the line");
        let miniatures: Vec<_> = sizes_lines.iter().map(|&size| fidelity.miniature(size)).collect();
        let engines = sizes_lines
            .iter()
            .zip(&miniatures)
            .map(|(&size_lines, miniature)| {
                let result = EngineResult {
                    size_lines,
                    simulated_lines: miniature.capacity_lines,
                    rate: miniature.rate,
                    ..EngineResult::default()
                };
                let capacity = miniature.capacity_lines as usize;
                let make = Make {
                    options,
                    threshold: miniature.threshold,
                    result,
                };
                visit_policy(options.policy, capacity, None, &options.policy_options, make)
            })
            .collect();
        Self {
            options,
            fidelity,
            threshold: miniatures
                .iter()
                .map(|miniature| miniature.threshold)
                .max()
                .unwrap_or(0),
            ids: KeyIds::new(),
            pieces: Vec::new(),
            engines,
        }
    }

    /// Runs requests through every size; the sizes are spread over `threads` threads.
    pub fn access(&mut self, requests: impl Iterator<Item = TimedIo>, threads: usize) {
        self.pieces.clear();
        for request in requests {
            self.split(request);
        }
        let pieces = &self.pieces;
        let share = self.engines.len().div_ceil(threads.max(1)).max(1);
        if threads <= 1 {
            self.engines.iter_mut().for_each(|engine| engine.consume(pieces));
            return;
        }
        std::thread::scope(|scope| {
            for engines in self.engines.chunks_mut(share) {
                scope.spawn(move || engines.iter_mut().for_each(|engine| engine.consume(pieces)));
            }
        });
    }

    /// The results, scaled to the whole trace, in the order of the sizes.
    pub fn results(&self) -> Vec<EngineResult> {
        self.engines.iter().map(|engine| engine.result()).collect()
    }

    fn split(&mut self, request: TimedIo) {
        let hash = self.fidelity.hash();
        let full = self.fidelity == Fidelity::Full;
        let fetch_shift = self.options.fetch_bytes.trailing_zeros();
        let mut pieces = self.options.line.pieces(request.io);
        let share = 1.0 / pieces.lines() as f64;
        let from = self.pieces.len();
        loop {
            let (start, end) = pieces.peek_range();
            let Some((key, bytes)) = pieces.next() else { break };
            let hash = if full { 0 } else { hash.hash(key) };
            if hash > self.threshold {
                continue;
            }
            let known = self.ids.len();
            let id = self.ids.id(key);
            self.pieces.push(Piece {
                key,
                hash,
                time_ns: request.time_ns,
                touched: bits(start >> fetch_shift, (end - 1) >> fetch_shift),
                covered: covered(start, end, fetch_shift),
                id,
                bytes,
                share,
                write: request.io.write,
                first_touch: self.ids.len() > known,
                last: false,
            });
        }
        if let Some(last) = self.pieces[from..].last_mut() {
            last.last = true;
        }
    }
}

/// The bits `first..=last`.
fn bits(first: u32, last: u32) -> u64 {
    (u64::MAX >> (63 - (last - first))) << first
}

/// Sub-blocks that `start..end` covers whole.
fn covered(start: u32, end: u32, fetch_shift: u32) -> u64 {
    let first = start.div_ceil(1 << fetch_shift);
    let after = end >> fetch_shift;
    if after > first { bits(first, after - 1) } else { 0 }
}

/// An engine of any policy.
trait Consume {
    fn consume(&mut self, pieces: &[Piece]);
    fn result(&self) -> EngineResult;
}

struct Make {
    options: EngineOptions,
    threshold: u64,
    result: EngineResult,
}

impl PolicyVisitor for Make {
    type Output = Box<dyn Consume + Send>;

    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Output {
        let capacity = policy.capacity();
        let staged =
            self.options.policy == PolicyKind::S3Fifo && self.options.policy_options.s3_fifo.small_in_ram;
        Box::new(Engine {
            policy,
            admission: admission(self.options.admission, capacity, self.result.rate),
            write_mode: self.options.write_mode,
            threshold: self.threshold,
            whole_requests: self.result.rate >= 1.0,
            request_missed: false,
            request_cold: false,
            lines: Lines {
                valid: Vec::new(),
                on_flash: Vec::new(),
                fetch_bytes: self.options.fetch_bytes,
                staged,
                flash_write_bytes: 0.0,
                evictions: 0.0,
            },
            result: self.result,
        })
    }
}

/// The filters in the order in which they are cheap; the budget, which is spent by admitting, comes last.
fn admission(options: AdmissionOptions, capacity: usize, rate: f64) -> AdmissionChain {
    let mut parts: Vec<Box<dyn Admission + Send>> = Vec::new();
    if let Some(cutoff_bytes) = options.stream_cutoff_bytes {
        let options = StreamBypassOptions {
            cutoff_bytes,
            ..StreamBypassOptions::default()
        };
        parts.push(Box::new(StreamBypass::new(options)));
    }
    if let Some(threshold) = options.n_hit {
        parts.push(Box::new(NHit::new(NHitOptions {
            threshold,
            ..NHitOptions::for_capacity(capacity)
        })));
    }
    if let Some(bytes) = options.write_budget_bytes_per_day {
        let bytes = (bytes as f64 * rate) as u64;
        parts.push(Box::new(WriteBudget::new(bytes, bytes)));
    }
    AdmissionChain::new(parts)
}

/// What is known of each line, by id.
struct Lines {
    /// Sub-blocks that are cached.
    valid: Vec<u64>,
    /// Whether the line is on flash; in a policy with a stage in memory it may be in memory only.
    on_flash: Vec<bool>,
    fetch_bytes: u64,
    staged: bool,
    flash_write_bytes: f64,
    evictions: f64,
}

impl Lines {
    fn reserve(&mut self, id: u32) {
        let needed = id as usize + 1;
        if self.valid.len() < needed {
            self.valid.resize(needed.next_power_of_two(), 0);
            self.on_flash.resize(needed.next_power_of_two(), false);
        }
    }

    fn bytes_of(&self, sub_blocks: u64) -> f64 {
        f64::from(sub_blocks.count_ones()) * self.fetch_bytes as f64
    }

    /// Sub-blocks become valid; those of a line on flash are written to it.
    fn fill(&mut self, id: u32, sub_blocks: u64) {
        self.valid[id as usize] |= sub_blocks;
        if self.on_flash[id as usize] {
            self.flash_write_bytes += self.bytes_of(sub_blocks);
        }
    }

    fn drop_line(&mut self, id: u32) {
        self.valid[id as usize] = 0;
        self.on_flash[id as usize] = false;
    }
}

impl EvictionSink for Lines {
    fn evicted(&mut self, key: u64) {
        self.drop_line(key as u32);
        self.evictions += 1.0;
    }

    fn promoted(&mut self, key: u64) {
        self.on_flash[key as usize] = true;
        self.flash_write_bytes += self.bytes_of(self.valid[key as usize]);
    }
}

struct Engine<P> {
    policy: P,
    admission: AdmissionChain,
    write_mode: WriteMode,
    threshold: u64,
    whole_requests: bool,
    request_missed: bool,
    request_cold: bool,
    lines: Lines,
    result: EngineResult,
}

impl<P: Policy> Engine<P> {
    /// Inserts the line if admission lets it; whether it is cached now.
    fn insert(&mut self, piece: &Piece, flash_bytes: f64) -> bool {
        self.admission
            .observe_fill(self.policy.len(), self.policy.capacity());
        if !self.admission.admit(piece.key, piece.time_ns, flash_bytes as u64) {
            self.result.refused += 1.0;
            return false;
        }
        let access = self.policy.access_with(u64::from(piece.id), &mut self.lines);
        let inserted = access != (Access::Miss { inserted: false });
        if inserted && !self.lines.staged {
            self.lines.on_flash[piece.id as usize] = true;
        }
        inserted
    }

    /// The bytes of the piece that the cache serves.
    fn read(&mut self, piece: &Piece) -> bool {
        let id = piece.id;
        // Promotion happens within `touch` only in policies that write nothing then: it moves no line to flash.
        let resident = self.policy.touch(u64::from(id));
        let missing = if resident {
            piece.touched & !self.lines.valid[id as usize]
        } else {
            piece.touched
        };
        if resident && missing == 0 {
            self.admission.saw_hit(piece.key, u64::from(piece.bytes));
            return true;
        }
        let fetched = self.lines.bytes_of(missing);
        if resident || self.insert(piece, fetched) {
            self.lines.fill(id, missing);
            self.result.backing_read_bytes += fetched;
        } else {
            self.result.backing_read_bytes += f64::from(piece.bytes);
        }
        false
    }

    fn write(&mut self, piece: &Piece) -> bool {
        let id = piece.id;
        if self.write_mode == WriteMode::Invalidate {
            self.lines.drop_line(id);
            return self.policy.remove(u64::from(id));
        }
        let resident = self.policy.touch(u64::from(id));
        let allocate = self.write_mode == WriteMode::Allocate;
        if resident {
            self.admission.saw_hit(piece.key, u64::from(piece.bytes));
        }
        if resident || (allocate && self.insert(piece, f64::from(piece.bytes))) {
            // A sub-block that is written in part stays as valid as it was: the write is applied to the copy.
            let kept = piece.covered | (piece.touched & self.lines.valid[id as usize]);
            self.lines.valid[id as usize] |= piece.covered;
            if self.lines.on_flash[id as usize] && kept != 0 {
                self.lines.flash_write_bytes += f64::from(piece.bytes).min(self.lines.bytes_of(kept));
            }
        }
        resident
    }

    fn count(&mut self, piece: &Piece, hit: bool) {
        let whole_requests = self.whole_requests;
        self.request_missed |= !hit;
        self.request_cold |= piece.first_touch;
        let counts = if piece.write {
            &mut self.result.writes
        } else {
            &mut self.result.reads
        };
        counts.bytes += f64::from(piece.bytes);
        counts.bytes_hit += if hit { f64::from(piece.bytes) } else { 0.0 };
        if whole_requests {
            if piece.last {
                counts.requests += 1.0;
                counts.requests_hit += f64::from(u8::from(!self.request_missed));
                counts.requests_cold += f64::from(u8::from(self.request_cold));
                self.request_missed = false;
                self.request_cold = false;
            }
        } else {
            counts.requests += piece.share;
            counts.requests_hit += if hit { piece.share } else { 0.0 };
            counts.requests_cold += if piece.first_touch { piece.share } else { 0.0 };
        }
    }
}

impl<P: Policy> Consume for Engine<P> {
    fn consume(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            if piece.hash > self.threshold {
                continue;
            }
            self.lines.reserve(piece.id);
            let hit = if piece.write {
                self.write(piece)
            } else {
                self.read(piece)
            };
            self.count(piece, hit);
        }
    }

    fn result(&self) -> EngineResult {
        let scale = 1.0 / self.result.rate;
        let op = |counts: OpCounts| OpCounts {
            requests: counts.requests * scale,
            requests_hit: counts.requests_hit * scale,
            requests_cold: counts.requests_cold * scale,
            bytes: counts.bytes * scale,
            bytes_hit: counts.bytes_hit * scale,
        };
        EngineResult {
            reads: op(self.result.reads),
            writes: op(self.result.writes),
            backing_read_bytes: self.result.backing_read_bytes * scale,
            flash_write_bytes: self.lines.flash_write_bytes * scale,
            evictions: self.lines.evictions * scale,
            refused: self.result.refused * scale,
            ..self.result
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ops, Profile, Sampling, TrackerOptions, Unit};

    fn options(policy: PolicyKind, line: u64, fetch: u64) -> EngineOptions {
        EngineOptions {
            policy,
            policy_options: PolicyOptions::default(),
            line: LineSize::new(line).expect("valid"),
            fetch_bytes: fetch,
            write_mode: WriteMode::Allocate,
            admission: AdmissionOptions::default(),
        }
    }

    fn requests() -> Vec<TimedIo> {
        (0..40_000u64)
            .map(|step| {
                let random = crate::hash::mix64(step);
                let bound = 1 + (random >> 40) % 4000;
                let io = Io {
                    offset_bytes: (random % bound) * 4096,
                    length_bytes: 4096 * (1 + (random >> 30) as u32 % 20),
                    write: (random >> 60).is_multiple_of(4),
                    volume: 0,
                };
                TimedIo {
                    time_ns: step * 1_000_000,
                    io,
                }
            })
            .collect()
    }

    fn run(options: EngineOptions, sizes: &[u64]) -> Vec<EngineResult> {
        let mut sweep = EngineSweep::new(options, sizes, Fidelity::Full);
        for batch in requests().chunks(1000) {
            sweep.access(batch.iter().copied(), 2);
        }
        sweep.results()
    }

    #[test]
    fn lru_with_whole_lines_equals_the_stack() {
        let sizes = [5, 50, 200];
        let line = LineSize::new(65_536).expect("valid");
        let results = run(options(PolicyKind::Lru, 65_536, 65_536), &sizes);
        let mut profile = Profile::new(TrackerOptions::new(Sampling::Exact), line);
        requests()
            .iter()
            .for_each(|request| profile.access_io(request.io));
        // A partly written line that was not cached has invalid parts, so only the writes agree without reads' help.
        let writes = profile.curve(&sizes, Unit::Requests, Ops::Writes).miss_ratio;
        for (result, miss_ratio) in results.iter().zip(writes) {
            let hit_ratio = result.writes.requests_hit / result.writes.requests;
            assert!(
                (1.0 - hit_ratio - miss_ratio).abs() < 1e-9,
                "{hit_ratio} {miss_ratio}"
            );
        }
    }

    #[test]
    fn four_kib_lines_agree_for_reads_too() {
        let sizes = [100, 1000];
        let results = run(options(PolicyKind::Lru, 4096, 4096), &sizes);
        let mut profile = Profile::new(
            TrackerOptions::new(Sampling::Exact),
            LineSize::new(4096).expect("valid"),
        );
        requests()
            .iter()
            .for_each(|request| profile.access_io(request.io));
        for (unit, of) in [
            (
                Unit::Requests,
                (|c: OpCounts| c.requests_hit / c.requests) as fn(OpCounts) -> f64,
            ),
            (Unit::Bytes, |c| c.bytes_hit / c.bytes),
        ] {
            let misses = profile.curve(&sizes, unit, Ops::Reads).miss_ratio;
            for (result, miss_ratio) in results.iter().zip(misses) {
                assert!((1.0 - of(result.reads) - miss_ratio).abs() < 1e-9);
            }
        }
        assert!((results[0].reads.requests_cold / results[0].reads.requests) < 1.0);
    }

    #[test]
    fn smaller_fetches_read_less_and_hit_less() {
        let coarse = run(options(PolicyKind::S3Fifo, 65_536, 65_536), &[100])[0];
        let fine = run(options(PolicyKind::S3Fifo, 65_536, 4096), &[100])[0];
        assert!(fine.backing_read_bytes < coarse.backing_read_bytes);
        assert!(fine.reads.bytes_hit <= coarse.reads.bytes_hit);
        assert!(fine.flash_write_bytes < coarse.flash_write_bytes);
    }

    #[test]
    fn a_small_queue_in_memory_and_admission_save_flash_writes() {
        let plain = run(options(PolicyKind::S3Fifo, 4096, 4096), &[800])[0];
        let mut staged = options(PolicyKind::S3Fifo, 4096, 4096);
        staged.policy_options.s3_fifo.small_in_ram = true;
        let staged = run(staged, &[800])[0];
        assert!(staged.flash_write_bytes < 0.8 * plain.flash_write_bytes);
        let mut budgeted = options(PolicyKind::Lru, 4096, 4096);
        let budget = 40_000_000_000;
        budgeted.write_mode = WriteMode::Update;
        budgeted.admission.write_budget_bytes_per_day = Some(budget);
        assert!(run(budgeted, &[800])[0].refused == 0.0);
        budgeted.admission.write_budget_bytes_per_day = Some(10_000_000);
        let tight = run(budgeted, &[800])[0];
        assert!(tight.refused > 0.0);
        let mut picky = options(PolicyKind::Lru, 4096, 4096);
        picky.admission.n_hit = Some(3);
        assert!(run(picky, &[800])[0].flash_write_bytes < plain.flash_write_bytes);
    }

    #[test]
    fn writes_that_invalidate_leave_nothing_behind() {
        let mut invalidating = options(PolicyKind::Lru, 4096, 4096);
        invalidating.write_mode = WriteMode::Invalidate;
        let result = run(invalidating, &[2000])[0];
        let allocating = run(options(PolicyKind::Lru, 4096, 4096), &[2000])[0];
        assert!(result.reads.requests_hit < allocating.reads.requests_hit);
        assert!(result.flash_write_bytes < allocating.flash_write_bytes);
    }

    #[test]
    fn sub_block_masks() {
        assert_eq!(bits(0, 63), u64::MAX);
        assert_eq!(bits(2, 3), 0b1100);
        assert_eq!(covered(0, 65_536, 12), 0xffff);
        assert_eq!(covered(1, 8192, 12), 0b10);
        assert_eq!(covered(100, 200, 12), 0);
    }
}
