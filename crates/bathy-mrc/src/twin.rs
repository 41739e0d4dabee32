//! The twin of the cache engine: requests in, hits, fetches and flash writes out, at one cache size.
//!
//! It drives the policies and admissions of `bathy-policy` exactly as a write-through cache of lines with sub-blocks
//! does: a read that finds all of its sub-blocks valid is a hit; a line that is resident but lacks some is fetched in
//! part; a line that is not resident is fetched in units of `fetch_bytes` and inserted if admission agrees; a write
//! goes to the backing device in any case and then renews (or enters) the sub-blocks that it covers whole.
//!
//! It can run on a spatial sample of the lines (miniature simulation). Then a request counts by the share of its
//! sampled lines, and every count is scaled by the rate; the spread over eight independent parts of the sample gives
//! the standard error.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use bathy_policy::admission::{
    AdmissionChain, NHit, NHitOptions, StreamBypass, StreamBypassOptions, WriteBudget,
};
use bathy_policy::{Admission, EvictionSink, Policy, PolicyKind, PolicyOptions, build_with_options};

use crate::hash::{SamplingHash, mix64};
use crate::lines::{Io, LineSize};
use crate::simulate::{Fidelity, Miniature};

/// Sub-blocks of a line: one bit each in the mask of valid ones.
const SUB_BLOCKS_MAX: u64 = 64;
/// Smallest sub-block: what Ceph and every disk of today reads and writes at the least.
const SUB_BLOCK_BYTES_MIN: u64 = 4096;
/// Parts of the sample whose spread gives the standard error.
const PARTS: usize = 8;

/// What a write does to a line that is not resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnWrite {
    /// Written data enters the cache, if admission agrees.
    Allocate,
    /// Only resident lines are renewed.
    Update,
}

/// What enters the cache.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct AdmissionOptions {
    /// Enter at the n-th miss (from 80 % occupancy on); 0 or 1: at the first.
    pub n_hit: u8,
    /// Bytes a day that may be written to flash for new lines; 0: no budget.
    pub write_budget_bytes_per_day: u64,
    /// Sequential runs longer than this go past the cache; 0: none do.
    pub stream_cutoff_bytes: u64,
}

impl AdmissionOptions {
    /// The name in results: "all", "2-hit", "budget", …
    pub fn name(&self) -> String {
        let mut parts = Vec::new();
        if self.stream_cutoff_bytes > 0 {
            parts.push("bypass".to_owned());
        }
        if self.n_hit > 1 {
            parts.push(format!("{}-hit", self.n_hit));
        }
        if self.write_budget_bytes_per_day > 0 {
            parts.push("budget".to_owned());
        }
        if parts.is_empty() {
            "all".to_owned()
        } else {
            parts.join("+")
        }
    }

    /// The chain for a (miniature) cache. A budget shrinks with the sample. `None` admits everything.
    fn build(&self, capacity_lines: u64, rate: f64) -> Option<AdmissionChain> {
        let mut parts: Vec<Box<dyn Admission + Send>> = Vec::new();
        if self.stream_cutoff_bytes > 0 {
            parts.push(Box::new(StreamBypass::new(StreamBypassOptions {
                cutoff_bytes: self.stream_cutoff_bytes,
                ..StreamBypassOptions::default()
            })));
        }
        if self.n_hit > 1 {
            let capacity = usize::try_from(capacity_lines).unwrap_or(usize::MAX / 4);
            parts.push(Box::new(NHit::new(NHitOptions {
                threshold: self.n_hit,
                ..NHitOptions::for_capacity(capacity)
            })));
        }
        if self.write_budget_bytes_per_day > 0 {
            let per_day = (self.write_budget_bytes_per_day as f64 * rate) as u64;
            // An hour's worth may be saved up, so that the budget does not depend on how the requests are spaced.
            parts.push(Box::new(WriteBudget::new(per_day.max(1), (per_day / 24).max(1))));
        }
        (!parts.is_empty()).then(|| AdmissionChain::new(parts))
    }
}

/// The parameters of a twin but for its size.
#[derive(Clone, Copy, Debug)]
pub struct TwinOptions {
    /// Unit of caching.
    pub line: LineSize,
    /// Unit of fetching from the backing device: a power of two, from the sub-block to the line.
    pub fetch_bytes: u64,
    /// Eviction.
    pub policy: PolicyKind,
    /// Its parameters.
    pub policy_options: PolicyOptions,
    /// Admission.
    pub admission: AdmissionOptions,
    /// What a write does.
    pub on_write: OnWrite,
    /// Full, or on a sample.
    pub fidelity: Fidelity,
    /// Length of the windows that are counted apart; 0: none.
    pub window_ns: u64,
}

/// Requests and bytes of one direction that were seen and that hit; of a sample, scaled to the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Direction {
    /// Requests; exact.
    pub requests: u64,
    /// Bytes; exact.
    pub bytes: u64,
    /// Requests whose sub-blocks were all valid.
    pub hit_requests: f64,
    /// Bytes that were valid.
    pub hit_bytes: f64,
    /// Requests that touched a line for the first time, by the share of such lines in a sample.
    pub cold_requests: f64,
    /// Requests that the sample stands for; differs from `requests` by chance only.
    pub sampled_requests: f64,
    /// Bytes that the sample stands for.
    pub sampled_bytes: f64,
}

impl Direction {
    /// Hits per request, 0 without requests.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hit_requests, self.sampled_requests)
    }

    /// Bytes hit per byte, 0 without bytes.
    pub fn byte_hit_ratio(&self) -> f64 {
        ratio(self.hit_bytes, self.sampled_bytes)
    }

    /// First touches per request.
    pub fn cold_ratio(&self) -> f64 {
        ratio(self.cold_requests, self.sampled_requests)
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        (part / whole).clamp(0.0, 1.0)
    } else {
        0.0
    }
}

/// What was counted in the whole trace or in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// Bytes fetched from the backing device for reads.
    pub fetched_bytes: f64,
    /// Bytes written to flash.
    pub flash_bytes: f64,
}

/// Hashes line numbers with one multiplication chain; they come from a trace, not from an enemy who knows the hash.
#[derive(Clone, Copy, Default)]
struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix64(self.0 ^ u64::from(byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = mix64(value);
    }
}

type LineMap<V> = HashMap<u64, V, BuildHasherDefault<LineHasher>>;

#[derive(Clone, Copy, Debug)]
struct Line {
    /// Bit i: sub-block i holds the backing's data.
    valid: u64,
    /// Whether the line is on flash or still in a stage in memory.
    on_flash: bool,
}

/// Hears what the policy moves during one access.
#[derive(Default)]
struct Moves {
    evicted: Vec<u64>,
    promoted: Vec<u64>,
}

impl EvictionSink for Moves {
    fn evicted(&mut self, key: u64) {
        self.evicted.push(key);
    }
    fn promoted(&mut self, key: u64) {
        self.promoted.push(key);
    }
}

/// One cache of one size. See the [module](self).
pub struct Twin {
    options: TwinOptions,
    size_lines: u64,
    miniature: Miniature,
    hash: SamplingHash,
    sub_shift: u32,
    policy: Box<dyn Policy + Send>,
    admission: Option<AdmissionChain>,
    lines: LineMap<Line>,
    seen: LineMap<()>,
    counts: Counts,
    windows: Vec<Counts>,
    first_ns: Option<u64>,
    part_hits: [f64; PARTS],
    part_requests: [f64; PARTS],
    stage_in_ram: bool,
}

impl Twin {
    /// An empty cache of `size_lines`.
    ///
    /// # Panics
    /// When the (miniature) cache would have more than 2^30 lines.
    pub fn new(options: TwinOptions, size_lines: u64) -> Self {
        let miniature = options.fidelity.miniature(size_lines);
        let sub_bytes = SUB_BLOCK_BYTES_MIN
            .max(options.line.bytes() / SUB_BLOCKS_MAX)
            .min(options.line.bytes());
        let capacity = usize::try_from(miniature.capacity_lines).expect("64-bit");
        Self {
            size_lines,
            miniature,
            hash: options.fidelity.hash(),
            sub_shift: sub_bytes.trailing_zeros(),
            policy: build_with_options(options.policy, capacity, None, &options.policy_options),
            admission: options.admission.build(miniature.capacity_lines, miniature.rate),
            lines: LineMap::default(),
            seen: LineMap::default(),
            counts: Counts::default(),
            windows: Vec::new(),
            first_ns: None,
            part_hits: [0.0; PARTS],
            part_requests: [0.0; PARTS],
            stage_in_ram: options.policy == PolicyKind::S3Fifo && options.policy_options.s3_fifo.small_in_ram,
            options,
        }
    }

    /// Lines of the cache that it stands for.
    pub fn size_lines(&self) -> u64 {
        self.size_lines
    }

    /// What was counted over everything.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What was counted in each window since the first request.
    pub fn windows(&self) -> &[Counts] {
        &self.windows
    }

    /// Share of the lines that is simulated.
    pub fn rate(&self) -> f64 {
        self.miniature.rate
    }

    /// Distinct lines that were touched; of a sample, scaled.
    pub fn distinct_lines(&self) -> f64 {
        self.seen.len() as f64 / self.miniature.rate
    }

    /// Lines that the estimate rests on.
    pub fn sampled_lines(&self) -> usize {
        self.seen.len()
    }

    /// Standard error of the read hit ratio by the disagreement of eight parts of the sample; 0 when all is simulated.
    pub fn read_hit_stderr(&self) -> f64 {
        if self.miniature.rate >= 1.0 {
            return 0.0;
        }
        let whole: f64 = self.part_requests.iter().sum();
        if whole <= 0.0 {
            return f64::NAN;
        }
        let mean = self.part_hits.iter().sum::<f64>() / whole;
        // The ratio estimator's variance: residuals of each part against the common ratio.
        let parts = PARTS as f64;
        let squares: f64 = (0..PARTS)
            .map(|i| (self.part_hits[i] - mean * self.part_requests[i]).powi(2))
            .sum();
        (squares * parts / (parts - 1.0)).sqrt() / whole
    }

    /// One request at `time_ns`. Times may repeat or step back a little; windows count from the first.
    pub fn access(&mut self, io: Io, time_ns: u64) {
        let before = self.counts;
        let line = self.options.line;
        let pieces = line.pieces(io);
        let total_lines = pieces.lines() as f64;
        let rate = self.miniature.rate;
        let (mut sampled, mut hits, mut cold) = (0u64, 0u64, 0u64);
        let mut walk = pieces;
        loop {
            let range = walk.peek_range();
            let Some((key, bytes)) = walk.next() else { break };
            if rate < 1.0 && self.hash.hash(key) > self.miniature.threshold {
                continue;
            }
            sampled += 1;
            cold += u64::from(self.seen.insert(key, ()).is_none());
            let valid = if io.write {
                self.write(key, range, time_ns)
            } else {
                self.read(key, range, time_ns)
            };
            let hit = valid >= bytes;
            hits += u64::from(hit);
            let direction = if io.write {
                &mut self.counts.write
            } else {
                &mut self.counts.read
            };
            direction.hit_bytes += f64::from(valid.min(bytes)) / rate;
            direction.sampled_bytes += f64::from(bytes) / rate;
            if !io.write && rate < 1.0 {
                let part = (mix64(key) >> 61) as usize;
                self.part_requests[part] += 1.0 / total_lines;
                self.part_hits[part] += f64::from(u8::from(hit)) / total_lines;
            }
        }
        let direction = if io.write {
            &mut self.counts.write
        } else {
            &mut self.counts.read
        };
        direction.requests += 1;
        direction.bytes += u64::from(io.length_bytes);
        if rate >= 1.0 {
            direction.sampled_requests += 1.0;
            direction.hit_requests += f64::from(u8::from(hits == sampled));
            direction.cold_requests += f64::from(u8::from(cold > 0));
        } else {
            let share = 1.0 / (total_lines * rate);
            direction.sampled_requests += sampled as f64 * share;
            direction.hit_requests += hits as f64 * share;
            direction.cold_requests += cold as f64 * share;
        }
        self.count_window(before, time_ns);
    }

    /// Adds what the request changed to its window.
    fn count_window(&mut self, before: Counts, time_ns: u64) {
        if self.options.window_ns == 0 {
            return;
        }
        let first = *self.first_ns.get_or_insert(time_ns);
        let index =
            (time_ns.saturating_sub(first) / self.options.window_ns).min(MAX_WINDOWS as u64 - 1) as usize;
        if self.windows.len() <= index {
            self.windows.resize(index + 1, Counts::default());
        }
        let (window, now) = (&mut self.windows[index], self.counts);
        for (into, old, new) in [
            (&mut window.read, before.read, now.read),
            (&mut window.write, before.write, now.write),
        ] {
            into.requests += new.requests - old.requests;
            into.bytes += new.bytes - old.bytes;
            into.hit_requests += new.hit_requests - old.hit_requests;
            into.hit_bytes += new.hit_bytes - old.hit_bytes;
            into.cold_requests += new.cold_requests - old.cold_requests;
            into.sampled_requests += new.sampled_requests - old.sampled_requests;
            into.sampled_bytes += new.sampled_bytes - old.sampled_bytes;
        }
        window.fetched_bytes += now.fetched_bytes - before.fetched_bytes;
        window.flash_bytes += now.flash_bytes - before.flash_bytes;
    }

    /// Bits of the sub-blocks that a byte range touches.
    fn touched(&self, (start, end): (u32, u32)) -> u64 {
        bits(start >> self.sub_shift, (end - 1) >> self.sub_shift)
    }

    /// Bits of the sub-blocks that a byte range covers whole: only these hold new data without a read.
    fn covered(&self, (start, end): (u32, u32)) -> u64 {
        let sub = 1u32 << self.sub_shift;
        let first = start.div_ceil(sub);
        // The last sub-block of a line shorter than a sub-block does not exist: a line has at least one whole one.
        let after = end >> self.sub_shift;
        if after > first { bits(first, after - 1) } else { 0 }
    }

    /// Bits of the fetch units around the sub-blocks in `mask`.
    fn fetch_units(&self, mask: u64) -> u64 {
        let per_unit = (self.options.fetch_bytes >> self.sub_shift).clamp(1, SUB_BLOCKS_MAX) as u32;
        if per_unit == 1 {
            return mask;
        }
        let sub_blocks = (self.options.line.bytes() >> self.sub_shift) as u32;
        let mut wide = 0;
        let mut first = 0;
        while first < sub_blocks {
            let unit = bits(first, (first + per_unit - 1).min(sub_blocks - 1));
            if mask & unit != 0 {
                wide |= unit;
            }
            first += per_unit;
        }
        wide
    }

    fn sub_bytes(&self, mask: u64) -> f64 {
        f64::from(mask.count_ones()) * (1u64 << self.sub_shift) as f64 / self.miniature.rate
    }

    /// Returns the bytes of the range that were valid.
    fn read(&mut self, key: u64, range: (u32, u32), time_ns: u64) -> u32 {
        let needed = self.touched(range);
        if self.policy.touch(key) {
            let Some(line) = self.lines.get(&key).copied() else {
                debug_assert!(false, "a resident line is known");
                return 0;
            };
            let missing = needed & !line.valid;
            if let Some(admission) = &mut self.admission {
                admission.saw_hit(key, u64::from(range.1 - range.0));
            }
            if missing == 0 {
                return range.1 - range.0;
            }
            let fetched = self.fetch_units(missing) & !line.valid;
            self.counts.fetched_bytes += self.sub_bytes(fetched);
            if line.on_flash {
                self.counts.flash_bytes += self.sub_bytes(fetched);
            }
            if let Some(line) = self.lines.get_mut(&key) {
                line.valid |= fetched;
            }
            return self.valid_bytes(range, needed & line.valid);
        }
        let fetched = self.fetch_units(needed);
        self.counts.fetched_bytes += self.sub_bytes(fetched);
        self.enter(key, fetched, time_ns);
        0
    }

    /// Returns the bytes of the range that the cache held before.
    fn write(&mut self, key: u64, range: (u32, u32), time_ns: u64) -> u32 {
        let (covered, touched) = (self.covered(range), self.touched(range));
        if self.policy.touch(key) {
            let Some(line) = self.lines.get_mut(&key) else {
                debug_assert!(false, "a resident line is known");
                return 0;
            };
            let before = line.valid;
            // A sub-block that is covered in part stays valid only if it was: the write renews its part on flash.
            line.valid |= covered;
            let renewed = covered | (touched & before);
            if line.on_flash {
                self.counts.flash_bytes += self.sub_bytes(renewed);
            }
            if let Some(admission) = &mut self.admission {
                admission.saw_hit(key, u64::from(range.1 - range.0));
            }
            return self.valid_bytes(range, touched & before);
        }
        if self.options.on_write == OnWrite::Allocate && covered != 0 {
            self.enter(key, covered, time_ns);
        }
        0
    }

    /// Bytes of the range that lie in the sub-blocks of `mask`.
    fn valid_bytes(&self, (start, end): (u32, u32), mask: u64) -> u32 {
        let sub = 1u32 << self.sub_shift;
        let mut total = 0;
        let mut left = mask;
        while left != 0 {
            let first = left.trailing_zeros() * sub;
            total += end
                .min(first.saturating_add(sub))
                .saturating_sub(start.max(first));
            left &= left - 1;
        }
        total
    }

    /// Offers a line that missed, with the sub-blocks that are at hand.
    fn enter(&mut self, key: u64, valid: u64, time_ns: u64) {
        let bytes = u64::from(valid.count_ones()) << self.sub_shift;
        if let Some(admission) = &mut self.admission {
            admission.observe_fill(self.policy.len(), self.policy.capacity());
            if !admission.admit(key, time_ns, bytes) {
                return;
            }
        }
        let mut moves = Moves::default();
        let access = self.policy.access_dyn(key, &mut moves);
        for evicted in moves.evicted {
            self.lines.remove(&evicted);
        }
        if !matches!(access, bathy_policy::Access::Miss { inserted: true }) {
            return;
        }
        let direct = !self.stage_in_ram || moves.promoted.contains(&key);
        self.lines.insert(
            key,
            Line {
                valid,
                on_flash: direct,
            },
        );
        if direct {
            self.counts.flash_bytes += self.sub_bytes(valid);
        }
        for promoted in moves.promoted {
            if promoted == key {
                continue;
            }
            if let Some(line) = self.lines.get_mut(&promoted) {
                line.on_flash = true;
                let written = line.valid;
                self.counts.flash_bytes += self.sub_bytes(written);
            }
        }
    }
}

/// Windows that are kept; what comes later is counted in the last.
pub const MAX_WINDOWS: usize = 4096;

/// Bits `first..=last`, both below 64.
fn bits(first: u32, last: u32) -> u64 {
    debug_assert!(first <= last && last < 64);
    (u64::MAX >> (63 - (last - first))) << first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::simulate_keys;
    use crate::{Ops, Profile, Sampling, TrackerOptions, Unit};
    use proptest::prelude::*;

    fn options(line_bytes: u64, policy: PolicyKind) -> TwinOptions {
        TwinOptions {
            line: LineSize::new(line_bytes).expect("valid"),
            fetch_bytes: line_bytes,
            policy,
            policy_options: PolicyOptions::default(),
            admission: AdmissionOptions::default(),
            on_write: OnWrite::Allocate,
            fidelity: Fidelity::Full,
            window_ns: 0,
        }
    }

    fn io(offset_bytes: u64, length_bytes: u32, write: bool) -> Io {
        Io {
            offset_bytes,
            length_bytes,
            write,
            volume: u32::MAX,
        }
    }

    fn random_requests(count: u64, lines: u64) -> Vec<Io> {
        (0..count)
            .map(|step| {
                let r = mix64(step.wrapping_mul(77));
                let skewed = (r % lines).min((r >> 20) % lines);
                io(skewed * 4096, 4096 << ((r >> 40) % 4), r >> 62 == 0)
            })
            .collect()
    }

    #[test]
    fn bits_are_inclusive() {
        assert_eq!(bits(0, 0), 1);
        assert_eq!(bits(1, 3), 0b1110);
        assert_eq!(bits(0, 63), u64::MAX);
    }

    /// With lines of one sub-block, aligned requests and LRU, the twin is the stack model.
    #[test]
    fn equals_the_exact_lru_profile() {
        let requests = random_requests(60_000, 3000);
        let mut profile = Profile::new(
            TrackerOptions::new(Sampling::Exact),
            LineSize::new(4096).expect("valid"),
        );
        requests.iter().for_each(|&r| profile.access_io(r));
        for size in [1u64, 16, 300, 2000, 4000] {
            let mut twin = Twin::new(options(4096, PolicyKind::Lru), size);
            requests.iter().for_each(|&r| twin.access(r, 0));
            let reads = profile.curve(&[size], Unit::Requests, Ops::Reads).miss_ratio[0];
            let writes = profile.curve(&[size], Unit::Requests, Ops::Writes).miss_ratio[0];
            // A long request to a cache smaller than itself evicts its own lines, in the twin as in the profile.
            assert!(
                (1.0 - twin.counts().read.hit_ratio() - reads).abs() < 1e-12,
                "{size}"
            );
            assert!(
                (1.0 - twin.counts().write.hit_ratio() - writes).abs() < 1e-12,
                "{size}"
            );
            assert_eq!(twin.counts().read.requests + twin.counts().write.requests, 60_000);
            assert_eq!(twin.read_hit_stderr(), 0.0);
        }
    }

    /// With one line a request the twin is the plain simulation, for every policy.
    #[test]
    fn equals_the_simulation_of_keys_for_every_policy() {
        let keys: Vec<u64> = (0..40_000u64)
            .map(|s| mix64(s) % (1 + mix64(s ^ 9) % 2000))
            .collect();
        for kind in PolicyKind::ALL {
            let simulation = simulate_keys(&keys, kind, &PolicyOptions::default(), &[200], Fidelity::Full, 1);
            let mut twin = Twin::new(options(4096, kind), 200);
            keys.iter()
                .for_each(|&key| twin.access(io(key * 4096, 4096, false), 0));
            let misses = 40_000.0 - twin.counts().read.hit_requests;
            // The sketch of W-TinyLFU hashes the keys themselves, and the simulation has renumbered them.
            let tolerance = if kind == PolicyKind::WTinyLfu { 40.0 } else { 0.0 };
            assert!((misses - simulation.sizes[0].misses as f64).abs() <= tolerance, "{kind}: {misses}");
            assert_eq!(twin.counts().fetched_bytes, misses * 4096.0, "{kind}");
        }
    }

    #[test]
    fn a_partly_valid_line_is_fetched_in_part() {
        let mut twin = Twin::new(
            TwinOptions {
                fetch_bytes: 4096,
                ..options(65_536, PolicyKind::Lru)
            },
            4,
        );
        twin.access(io(0, 8192, false), 0);
        assert_eq!(twin.counts().fetched_bytes, 8192.0);
        twin.access(io(4096, 8192, false), 0);
        assert_eq!(twin.counts().fetched_bytes, 12_288.0, "one sub-block was there");
        assert_eq!(
            twin.counts().read.hit_requests,
            0.0,
            "half a request is not a hit"
        );
        assert_eq!(twin.counts().read.hit_bytes, 4096.0);
        twin.access(io(0, 12_288, false), 0);
        assert_eq!(twin.counts().read.hit_requests, 1.0);
        assert_eq!(twin.counts().flash_bytes, 12_288.0);
    }

    #[test]
    fn fetching_whole_lines_prefetches_neighbours() {
        let mut twin = Twin::new(options(65_536, PolicyKind::Lru), 4);
        twin.access(io(0, 4096, false), 0);
        twin.access(io(61_440, 4096, false), 0);
        assert_eq!(twin.counts().read.hit_requests, 1.0);
        assert_eq!(twin.counts().fetched_bytes, 65_536.0);
    }

    #[test]
    fn a_write_makes_valid_only_what_it_covers_whole() {
        let mut twin = Twin::new(
            TwinOptions {
                fetch_bytes: 4096,
                ..options(65_536, PolicyKind::Lru)
            },
            4,
        );
        twin.access(io(2048, 4096, true), 0);
        twin.access(io(0, 4096, false), 0);
        assert_eq!(
            twin.counts().read.hit_requests,
            0.0,
            "no sub-block was covered whole"
        );
        twin.access(io(8192, 8192, true), 0);
        twin.access(io(8192, 8192, false), 0);
        assert_eq!(twin.counts().read.hit_requests, 1.0);
    }

    #[test]
    fn without_write_allocation_only_reads_fill() {
        let update = TwinOptions {
            on_write: OnWrite::Update,
            ..options(4096, PolicyKind::Lru)
        };
        let mut twin = Twin::new(update, 4);
        twin.access(io(0, 4096, true), 0);
        twin.access(io(0, 4096, false), 0);
        twin.access(io(0, 4096, true), 0);
        assert_eq!(
            (twin.counts().read.hit_requests, twin.counts().write.hit_requests),
            (0.0, 1.0)
        );
        assert_eq!(twin.counts().flash_bytes, 8192.0);
    }

    #[test]
    fn a_small_queue_in_memory_saves_flash_writes_and_hardly_hits() {
        let in_ram = PolicyOptions {
            s3_fifo: bathy_policy::S3FifoOptions {
                small_in_ram: true,
                ..Default::default()
            },
            ..Default::default()
        };
        let requests = random_requests(60_000, 3000);
        let mut results = Vec::new();
        for policy_options in [PolicyOptions::default(), in_ram] {
            let mut twin = Twin::new(
                TwinOptions {
                    policy_options,
                    ..options(4096, PolicyKind::S3Fifo)
                },
                500,
            );
            requests.iter().for_each(|&r| twin.access(r, 0));
            results.push(twin.counts());
        }
        assert!(results[1].flash_bytes < results[0].flash_bytes * 0.8);
        assert!((results[1].read.hit_ratio() - results[0].read.hit_ratio()).abs() < 0.05);
    }

    #[test]
    fn admission_at_the_second_miss_keeps_a_scan_out() {
        let admission = AdmissionOptions {
            n_hit: 2,
            ..AdmissionOptions::default()
        };
        let mut twin = Twin::new(
            TwinOptions {
                admission,
                ..options(4096, PolicyKind::Lru)
            },
            100,
        );
        // The filter works from 80 % occupancy on.
        for line in 0..10_000u64 {
            twin.access(io(line * 4096, 4096, false), line);
        }
        assert!(twin.counts().flash_bytes <= 100.0 * 4096.0);
        assert_eq!(admission.name(), "2-hit");
    }

    #[test]
    fn windows_add_up_to_the_whole() {
        let mut twin = Twin::new(
            TwinOptions {
                window_ns: 1000,
                ..options(16_384, PolicyKind::S3Fifo)
            },
            400,
        );
        for (step, request) in random_requests(10_000, 2000).into_iter().enumerate() {
            twin.access(request, 5_000 + step as u64);
        }
        assert_eq!(twin.windows().len(), 10);
        let sum: f64 = twin.windows().iter().map(|w| w.read.hit_requests).sum();
        assert!((sum - twin.counts().read.hit_requests).abs() < 1e-6);
        let requests: u64 = twin
            .windows()
            .iter()
            .map(|w| w.read.requests + w.write.requests)
            .sum();
        assert_eq!(requests, 10_000);
        assert!(twin.windows()[0].read.hit_ratio() < twin.windows()[9].read.hit_ratio());
    }

    #[test]
    fn a_miniature_is_close_and_knows_its_error() {
        let requests: Vec<Io> = (0..400_000u64)
            .map(|step| {
                let r = mix64(step);
                let line = (r % 60_000).min((r >> 17) % 60_000);
                io(line * 4096, 4096 << ((r >> 50) % 3), r >> 62 == 0)
            })
            .collect();
        for size in [5_000u64, 20_000, 40_000] {
            let mut full = Twin::new(options(4096, PolicyKind::S3Fifo), size);
            let fidelity = Fidelity::Miniature {
                rate: 0.1,
                min_lines: 500,
                salt: 5,
            };
            let mut mini = Twin::new(
                TwinOptions {
                    fidelity,
                    ..options(4096, PolicyKind::S3Fifo)
                },
                size,
            );
            for &request in &requests {
                full.access(request, 0);
                mini.access(request, 0);
            }
            // Requests of a sample count by the share of their lines, so the comparison is with bytes.
            let (truth, estimate) = (
                full.counts().read.byte_hit_ratio(),
                mini.counts().read.byte_hit_ratio(),
            );
            assert!((truth - estimate).abs() < 0.01, "{size}: {truth} {estimate}");
            assert!(mini.read_hit_stderr() > 0.0 && mini.read_hit_stderr() < 0.02);
            let lines = mini.distinct_lines() / full.distinct_lines();
            assert!((lines - 1.0).abs() < 0.02, "{lines}");
        }
    }

    proptest! {
        #[test]
        fn never_holds_more_than_its_lines_and_counts_every_byte(
            requests in prop::collection::vec((0u64..1 << 22, 1u32..300_000, any::<bool>()), 1..200),
            size in 1u64..40,
            line_shift in 12u32..19,
            fetch_shift in 12u32..19,
            policy in 0usize..PolicyKind::ALL.len(),
        ) {
            let line_bytes = 1u64 << line_shift;
            let mut twin = Twin::new(
                TwinOptions {
                    fetch_bytes: (1u64 << fetch_shift).min(line_bytes),
                    ..options(line_bytes, PolicyKind::ALL[policy])
                },
                size,
            );
            let mut bytes = 0u64;
            for (offset, length, write) in requests {
                twin.access(io(offset, length, write), 0);
                bytes += u64::from(length);
                prop_assert!(twin.lines.len() as u64 <= size);
                prop_assert_eq!(twin.lines.len(), twin.policy.len());
            }
            let counts = twin.counts();
            prop_assert_eq!(counts.read.bytes + counts.write.bytes, bytes);
            prop_assert_eq!(counts.read.sampled_bytes + counts.write.sampled_bytes, bytes as f64);
            prop_assert!(counts.read.hit_bytes + counts.fetched_bytes >= counts.read.bytes as f64);
        }
    }
}
