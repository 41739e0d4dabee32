//! One cache of one size: the plans for each piece of a request, counted and reported as done at once.

use bathy_cache_model::{CacheModel, Room};
use bathy_policy::{Policy, PolicyVisitor};

use super::counts::{EngineCounts, Parts};
use super::crossing::CrossingRequests;
use super::split::Piece;
use super::{EngineOptions, EngineResult};
use crate::hash::REPLICATES;
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
    /// Cached lines by the part of the sample that each is in, of which `parts` tells by id.
    fn residents(&self, parts: &[u8]) -> [f64; REPLICATES];
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
        Box::new(Engine {
            cache: CacheModel::new(self.options.config(self.miniature.rate), policy),
            size_lines: self.size_lines,
            miniature: self.miniature,
            sample: self.sample,
            request_missed: false,
            request_cold: false,
            first_touches: 0,
            parts: [Parts::default(); 2],
            crossing: CrossingRequests::default(),
            window: 0,
            counts: vec![EngineCounts::default()],
        })
    }
}

struct Engine<P> {
    cache: CacheModel<P>,
    size_lines: u64,
    miniature: Miniature,
    /// Pieces of later samples are not its own.
    sample: u16,
    request_missed: bool,
    request_cold: bool,
    first_touches: u64,
    /// Of reads, of writes.
    parts: [Parts; 2],
    crossing: CrossingRequests,
    /// The window of the request that is under way.
    window: u16,
    /// Counts of each window, never empty.
    counts: Vec<EngineCounts>,
}

impl<P: Policy> Engine<P> {
    fn enter_window(&mut self, window: u16) {
        self.window = window;
        let windows = usize::from(window) + 1;
        if self.counts.len() < windows {
            self.counts.resize(windows, EngineCounts::default());
        }
    }

    #[inline]
    fn counts(&mut self) -> &mut EngineCounts {
        &mut self.counts[usize::from(self.window)]
    }

    /// Counts what making room took, and whether the line was kept out.
    #[inline]
    fn count_room(&mut self, room: &Room, refused: bool) {
        if room.victim.is_some() {
            self.counts().evictions += 1.0;
        }
        if let Some(promoted) = room.promoted {
            let bytes = self.cache.bytes_of(promoted.units) as f64;
            self.counts().flash_write_bytes += bytes;
        }
        if refused {
            self.counts().refused += 1.0;
        }
    }

    #[inline]
    fn is_on_flash(&self, slot: u32) -> bool {
        !self.cache.policy().is_in_memory(slot)
    }

    /// The bytes of the piece that the cache serves.
    #[inline]
    fn read(&mut self, piece: &Piece) -> u32 {
        let plan = self.cache.read(&piece.part(), piece.time_ns);
        let Some(miss) = plan.miss else {
            return piece.bytes();
        };
        self.count_room(&miss.room, miss.refused);
        let fetched = self.cache.bytes_of(miss.fetch | miss.pass);
        let asked = fetched - self.cache.bytes_of(miss.ahead);
        if let (Some(slot), Some(fill)) = (plan.slot, miss.fill) {
            self.cache.fill_done(fill, true);
            self.counts().backing_read_bytes += fetched as f64;
            if self.is_on_flash(slot) {
                self.counts().flash_write_bytes += fetched as f64;
            }
        } else {
            self.counts().backing_read_bytes += f64::from(piece.bytes());
        }
        // A missing sub-block that the request covers in part counts as if it were covered whole: never too many hits.
        piece.bytes().saturating_sub(asked as u32)
    }

    /// The bytes of the piece whose line is cached: all or none.
    #[inline]
    fn write(&mut self, piece: &Piece) -> u32 {
        let plan = self.cache.write(&piece.part(), piece.time_ns);
        self.count_room(&plan.room, plan.refused);
        self.cache.write_done(plan.ticket, true);
        if plan.slot.is_some_and(|slot| self.is_on_flash(slot)) {
            let bytes = f64::from(plan.keep_bytes);
            let counts = self.counts();
            counts.flash_write_bytes += bytes;
            counts.flash_update_bytes += bytes;
        }
        if plan.was_cached { piece.bytes() } else { 0 }
    }

    fn count(&mut self, piece: &Piece, bytes_hit: u32) {
        let hit = bytes_hit == piece.bytes();
        let whole_requests = self.miniature.rate >= 1.0;
        self.request_missed |= !hit;
        self.request_cold |= piece.is_first_touch();
        self.first_touches += u64::from(piece.is_first_touch());
        let counts = &mut self.counts[usize::from(self.window)];
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
            self.crossing.weight(piece)
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
                self.enter_window(piece.window);
            }
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
        self.counts
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

    fn residents(&self, parts: &[u8]) -> [f64; REPLICATES] {
        let mut residents = [0.0; REPLICATES];
        self.cache
            .policy()
            .for_each_resident(&mut |id, _| residents[usize::from(parts[id as usize])] += 1.0);
        residents
    }

    fn windows(&self) -> Vec<EngineCounts> {
        let scale = 1.0 / self.miniature.rate;
        self.counts.iter().map(|window| window.scaled(scale)).collect()
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.cache.memory_bytes() + self.counts.capacity() * size_of::<EngineCounts>()
    }
}
