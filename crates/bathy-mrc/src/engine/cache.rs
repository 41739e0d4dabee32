//! One cache of one size: what each piece of a request does to it.

use bathy_policy::admission::NHitOptions;
use bathy_policy::{
    Access, Admission, AdmissionChain, EvictionSink, NHit, Policy, PolicyVisitor, WriteBudget,
};

use super::counts::{EngineCounts, Parts};
use super::cut::CutRequests;
use super::masks::Masks;
use super::split::Piece;
use super::{AdmissionOptions, EngineOptions, EngineResult, WriteMode};
use crate::simulate::Miniature;

/// An engine of any policy.
pub(super) trait Consume {
    fn consume(&mut self, pieces: &[Piece]);
    /// What it counted, scaled by the rate alone.
    fn result(&self) -> EngineResult;
    /// Scaled counts of each window.
    fn windows(&self) -> Vec<EngineCounts>;
    /// Of a sample, its rate, and requests and hits by parts, of reads and of writes.
    fn sampled(&self) -> Option<(f64, &[Parts; 2])>;
    /// Bytes held.
    fn memory_bytes(&self) -> usize;
}

pub(super) struct Make {
    pub(super) options: EngineOptions,
    pub(super) size_lines: u64,
    pub(super) miniature: Miniature,
    /// The number of its sample.
    pub(super) sample: u16,
}

impl PolicyVisitor for Make {
    type Output = Box<dyn Consume + Send>;

    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Output {
        let (options, capacity) = (self.options, policy.capacity());
        let staged = policy.stages_in_memory();
        Box::new(Engine {
            policy,
            admission: admission(options.admission, capacity, self.miniature.rate),
            write_mode: options.write_mode,
            size_lines: self.size_lines,
            miniature: self.miniature,
            sample: self.sample,
            request_missed: false,
            request_cold: false,
            first_touches: 0,
            parts: [Parts::default(); 2],
            cut: CutRequests::default(),
            window: 0,
            lines: Lines {
                valid: Masks::new(options.line.bytes() / options.fetch_bytes),
                in_memory: staged.then(|| Masks::new(1)),
                fetch_shift: options.fetch_bytes.trailing_zeros(),
                counts: vec![EngineCounts::default()],
                window: 0,
            },
        })
    }
}

/// The filters behind the detector of streams, which has marked the pieces; the budget, which is spent by admitting,
/// comes last.
fn admission(options: AdmissionOptions, capacity: usize, rate: f64) -> AdmissionChain {
    let mut parts: Vec<Box<dyn Admission + Send>> = Vec::new();
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

/// What is known of each line, by id, and what it costs to change it.
struct Lines {
    /// Sub-blocks that are cached.
    valid: Masks,
    /// With a policy that has a stage in memory, the cached lines that are in that stage.
    in_memory: Option<Masks>,
    fetch_shift: u32,
    /// Counts of each window, never empty.
    counts: Vec<EngineCounts>,
    /// The window of the request that is under way.
    window: usize,
}

impl Lines {
    fn reserve(&mut self, id: u32) {
        self.valid.cover(id);
        if let Some(in_memory) = &mut self.in_memory {
            in_memory.cover(id);
        }
    }

    fn enter_window(&mut self, window: u16) {
        self.window = usize::from(window);
        if self.counts.len() <= self.window {
            self.counts.resize(self.window + 1, EngineCounts::default());
        }
    }

    fn counts(&mut self) -> &mut EngineCounts {
        &mut self.counts[self.window]
    }

    fn bytes_of(&self, sub_blocks: u64) -> f64 {
        f64::from(sub_blocks.count_ones()) * (1u64 << self.fetch_shift) as f64
    }

    /// Whether a cached line is on flash.
    #[inline]
    fn is_on_flash(&self, id: u32) -> bool {
        self.in_memory.as_ref().is_none_or(|lines| lines.get(id) == 0)
    }

    /// Sub-blocks become valid; those of a line on flash are written to it.
    fn fill(&mut self, id: u32, sub_blocks: u64) {
        self.valid.add(id, sub_blocks);
        if self.is_on_flash(id) {
            let bytes = self.bytes_of(sub_blocks);
            self.counts().flash_write_bytes += bytes;
        }
    }

    fn drop_line(&mut self, id: u32) {
        self.valid.clear(id);
    }

    fn memory_bytes(&self) -> usize {
        self.valid.memory_bytes()
            + self.in_memory.as_ref().map_or(0, Masks::memory_bytes)
            + self.counts.capacity() * size_of::<EngineCounts>()
    }
}

impl EvictionSink for Lines {
    fn evicted(&mut self, key: u64) {
        self.drop_line(key as u32);
        self.counts().evictions += 1.0;
    }

    fn promoted(&mut self, key: u64) {
        if let Some(in_memory) = &mut self.in_memory {
            in_memory.clear(key as u32);
        }
        let bytes = self.bytes_of(self.valid.get(key as u32));
        self.counts().flash_write_bytes += bytes;
    }
}

struct Engine<P> {
    policy: P,
    admission: AdmissionChain,
    write_mode: WriteMode,
    size_lines: u64,
    miniature: Miniature,
    /// Pieces of later samples are not its own.
    sample: u16,
    request_missed: bool,
    request_cold: bool,
    first_touches: u64,
    /// Of reads, of writes.
    parts: [Parts; 2],
    cut: CutRequests,
    /// The window that `lines` counts in.
    window: u16,
    lines: Lines,
}

impl<P: Policy> Engine<P> {
    /// Inserts the line if admission lets it; whether it is cached now.
    fn insert(&mut self, piece: &Piece, flash_bytes: f64) -> bool {
        self.admission
            .observe_fill(self.policy.len(), self.policy.capacity());
        if piece.is_bypassed()
            || !self
                .admission
                .admit(u64::from(piece.id), piece.time_ns, flash_bytes as u64)
        {
            self.lines.counts().refused += 1.0;
            return false;
        }
        // A newcomer is in memory unless the policy says on the way that it is promoted.
        if let Some(in_memory) = &mut self.lines.in_memory {
            in_memory.add(piece.id, 1);
        }
        let access = self.policy.access_with(u64::from(piece.id), &mut self.lines);
        access != (Access::Miss { inserted: false })
    }

    /// The bytes of the piece that the cache serves.
    fn read(&mut self, piece: &Piece) -> u32 {
        let id = piece.id;
        // Promotion happens within `touch` only in policies that write nothing then: it moves no line to flash.
        let resident = self.policy.touch(u64::from(id));
        let touched = piece.touched(self.lines.fetch_shift);
        let missing = if resident {
            touched & !self.lines.valid.get(id)
        } else {
            touched
        };
        if resident && missing == 0 {
            return piece.bytes();
        }
        let fetched = self.lines.bytes_of(missing);
        let kept = if resident {
            self.admission.admit_update(piece.time_ns, fetched as u64)
        } else {
            self.insert(piece, fetched)
        };
        if kept {
            self.lines.fill(id, missing);
            self.lines.counts().backing_read_bytes += fetched;
        } else {
            self.lines.counts().backing_read_bytes += f64::from(piece.bytes());
        }
        // A missing sub-block that the request covers in part counts as if it were covered whole: never too many hits.
        piece.bytes().saturating_sub(fetched as u32)
    }

    /// The bytes of the piece whose line is cached: all or none.
    fn write(&mut self, piece: &Piece) -> u32 {
        let id = piece.id;
        if self.write_mode == WriteMode::Invalidate {
            self.lines.drop_line(id);
            return if self.policy.remove(u64::from(id)) {
                piece.bytes()
            } else {
                0
            };
        }
        let resident = self.policy.touch(u64::from(id));
        let bytes_hit = if resident { piece.bytes() } else { 0 };
        // A sub-block that is written in part stays as valid as it was: the write is applied to the copy.
        let covered = piece.covered(self.lines.fetch_shift);
        let kept = covered | (piece.touched(self.lines.fetch_shift) & self.lines.valid.get(id));
        let written = f64::from(piece.bytes()).min(self.lines.bytes_of(kept));
        let stays = if resident {
            self.admission.admit_update(piece.time_ns, written as u64)
        } else {
            self.write_mode == WriteMode::Allocate && self.insert(piece, f64::from(piece.bytes()))
        };
        if stays {
            self.lines.valid.add(id, covered);
            if self.lines.is_on_flash(id) {
                let counts = self.lines.counts();
                counts.flash_write_bytes += written;
                counts.flash_update_bytes += written;
            }
        } else if resident {
            // What cannot be written must not be served.
            self.policy.remove(u64::from(id));
            self.lines.drop_line(id);
            self.lines.counts().refused += 1.0;
        }
        bytes_hit
    }

    fn count(&mut self, piece: &Piece, bytes_hit: u32) {
        let hit = bytes_hit == piece.bytes();
        let whole_requests = self.miniature.rate >= 1.0;
        self.request_missed |= !hit;
        self.request_cold |= piece.is_first_touch();
        self.first_touches += u64::from(piece.is_first_touch());
        let counts = self.lines.counts();
        let counts = if piece.is_write() {
            &mut counts.writes
        } else {
            &mut counts.reads
        };
        counts.bytes += f64::from(piece.bytes());
        counts.bytes_hit += f64::from(bytes_hit);
        let ends = if whole_requests {
            piece.ends_request()
        } else {
            piece.region_share > 0.0
        };
        if !ends {
            return;
        }
        let share = if whole_requests {
            1.0
        } else {
            self.cut.weight(piece)
        };
        let hit_all = !self.request_missed;
        counts.requests += share;
        counts.requests_hit += if hit_all { share } else { 0.0 };
        counts.requests_cold += if self.request_cold { share } else { 0.0 };
        self.request_missed = false;
        self.request_cold = false;
        if !whole_requests {
            self.parts[usize::from(piece.is_write())].add(piece.part, share, hit_all);
        }
    }
}

impl<P: Policy> Consume for Engine<P> {
    fn consume(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            if piece.sample > self.sample {
                continue;
            }
            if piece.window != self.window {
                self.window = piece.window;
                self.lines.enter_window(piece.window);
            }
            self.lines.reserve(piece.id);
            let bytes_hit = if piece.is_write() {
                self.write(piece)
            } else {
                self.read(piece)
            };
            self.count(piece, bytes_hit);
        }
    }

    fn result(&self) -> EngineResult {
        let mut counts = EngineCounts::default();
        let scale = 1.0 / self.miniature.rate;
        self.lines
            .counts
            .iter()
            .for_each(|window| counts.add_scaled(window, scale));
        EngineResult {
            size_lines: self.size_lines,
            simulated_lines: self.miniature.capacity_lines,
            rate: self.miniature.rate,
            counts,
            sampled_lines: self.first_touches,
            distinct_lines: self.first_touches as f64 * scale,
            read_hit_stderr: 0.0,
        }
    }

    fn sampled(&self) -> Option<(f64, &[Parts; 2])> {
        let rate = self.miniature.rate;
        (rate < 1.0).then_some((rate, &self.parts))
    }

    fn windows(&self) -> Vec<EngineCounts> {
        let scale = 1.0 / self.miniature.rate;
        self.lines
            .counts
            .iter()
            .map(|window| window.scaled(scale))
            .collect()
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.policy.memory_bytes()
            + self.admission.memory_bytes()
            + self.lines.memory_bytes()
    }
}
