//! The LRU profile of a stream: every curve that one pass of stack distances can give.

use std::ops::Range;

use crate::chunk::{CHUNK, ChunkSearch};
use crate::curve::{Curve, Estimate, Weighted};
use crate::items::Items;
use crate::recorder::{LineTouch, Ops, Part, Recorder};
use crate::replicates::{ReplicateStep, Replicates};
use crate::sample_filter::{Filtered, SampledLine, filter_ios, filter_items};
use crate::self_check::SelfCheck;
use crate::stack::{LruStack, WARM_AHEAD};
use crate::tracker::{Touch, Tracker, TrackerOptions};
use bathy_cache_model::{Io, LineSize};

/// Lines that are taken together.
const BATCH_LINES: usize = CHUNK;

/// What a curve counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// References to lines.
    Lines,
    /// Requests. In exact tracking a request hits when all its lines do; in a sample, where not all its lines are
    /// seen, it counts by the share of its lines that hit.
    Requests,
    /// Bytes.
    Bytes,
}

/// Stack distances of a stream of requests or line numbers, and the curves they give.
#[derive(Clone, Debug)]
pub struct Profile {
    tracker: Tracker,
    line: LineSize,
    recorder: Recorder,
    /// Only of a sample, and not while another thread follows it.
    replicates: Option<Replicates>,
    /// What the replicates have not followed yet.
    steps: Vec<ReplicateStep>,
    /// Only of an exact profile that is given many items at a time.
    chunks: Option<Box<ChunkSearch>>,
    /// The piece that was joined last, when the order of its last touches is still to be taken over.
    unordered: Option<Box<(Tracker, Option<Replicates>)>>,
}

impl Profile {
    /// An empty profile.
    pub fn new(options: TrackerOptions, line: LineSize) -> Self {
        let mut profile = Self::without_replicates(options, line);
        if !profile.tracker.is_exact() {
            profile.replicates = Some(Replicates::new(&options));
        }
        profile
    }

    /// As [`Profile::new`], for a sample whose replicates are followed elsewhere, by what [`Profile::take_steps`] says, and
    /// given back in the end.
    pub(crate) fn without_replicates(options: TrackerOptions, line: LineSize) -> Self {
        Self {
            tracker: Tracker::new(options),
            line,
            recorder: Recorder::new(options.resolution(), options.joinable),
            replicates: None,
            steps: Vec::new(),
            chunks: None,
            unordered: None,
        }
    }

    /// What has happened to the sample since this was last asked.
    pub(crate) fn take_steps(&mut self) -> Vec<ReplicateStep> {
        std::mem::take(&mut self.steps)
    }

    /// Gives the replicates back, which have followed all that has happened.
    pub(crate) fn put_replicates(&mut self, replicates: Replicates) {
        debug_assert!(self.steps.is_empty());
        self.replicates = Some(replicates);
    }

    /// What an exact profile is made of, for several threads.
    pub(crate) fn parts(&mut self) -> (&mut ChunkSearch, &mut Tracker, &mut Recorder) {
        self.take_over_order();
        (
            self.chunks.get_or_insert_default(),
            &mut self.tracker,
            &mut self.recorder,
        )
    }

    /// The tracker, for its rate and its memory.
    pub fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// The line size.
    pub fn line(&self) -> LineSize {
        self.line
    }

    /// References to lines seen, sampled or not.
    pub fn lines_total(&self, ops: Ops) -> u64 {
        self.recorder.of(ops).map(|op| op.totals.lines).sum()
    }

    /// Requests seen.
    pub fn requests_total(&self, ops: Ops) -> u64 {
        self.recorder.of(ops).map(|op| op.totals.requests).sum()
    }

    /// Bytes seen.
    pub fn bytes_total(&self, ops: Ops) -> u64 {
        self.recorder.of(ops).map(|op| op.totals.bytes).sum()
    }

    /// Distinct lines: exact, or estimated from the sample's first touches.
    pub fn distinct_lines(&self) -> f64 {
        self.recorder.of(Ops::All).map(|op| op.lines.cold()).sum()
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        let replicates = self.replicates.as_ref().map_or(0, Replicates::memory_bytes);
        let unordered = self.unordered.as_ref().map_or(0, |piece| {
            piece.0.memory_bytes() + piece.1.as_ref().map_or(0, Replicates::memory_bytes)
        });
        let steps = self.steps.capacity() * size_of::<ReplicateStep>();
        let chunks = self.chunks.as_ref().map_or(0, |chunks| chunks.memory_bytes());
        self.tracker.memory_bytes() + self.recorder.memory_bytes() + chunks + replicates + unordered + steps
    }

    /// References each of `keys`: line numbers without request, size or direction; they count as reads.
    pub fn access_keys(&mut self, keys: &[u64]) {
        self.access_items(&Items::Keys(keys), 0..keys.len());
    }

    /// References some items of a trace.
    pub fn access_items(&mut self, items: &Items<'_>, range: Range<usize>) {
        for batch in items.batches(range, self.line, BATCH_LINES) {
            if self.tracker.is_exact() {
                let line = self.line;
                let (chunks, tracker, recorder) = self.parts();
                let chunks = chunks.chunks(&items.keys(batch.clone(), line));
                let distances = chunks.iter().flat_map(|chunk| tracker.distances(chunk));
                record_exact(recorder, line, items, batch, distances);
            } else {
                let filtered = filter_items(
                    items,
                    batch,
                    self.tracker.options(),
                    self.line,
                    self.tracker.threshold(),
                );
                self.access_filtered(&filtered);
            }
        }
    }

    /// References the lines of a request.
    pub fn access_io(&mut self, io: Io) {
        self.access_ios(std::iter::once(io));
    }

    /// References the lines of requests, which are looked at twice.
    pub fn access_ios(&mut self, ios: impl Iterator<Item = Io> + Clone) {
        if self.tracker.is_exact() {
            let line = self.line;
            let keys: Vec<u64> = ios
                .clone()
                .flat_map(|io| line.pieces(io))
                .map(|(key, _)| key)
                .collect();
            let (search, tracker, recorder) = self.parts();
            let chunks = search.chunks(&keys);
            let mut distances = chunks
                .iter()
                .flat_map(|chunk| tracker.distances(chunk))
                .map(LruStack::distance_of);
            ios.for_each(|io| record_whole(recorder, line, io, || distances.next().flatten()));
        } else {
            let filtered = filter_ios(ios, self.tracker.options(), self.line, self.tracker.threshold());
            self.access_filtered(&filtered);
        }
    }

    /// References the lines that were found to be in the sample, in order.
    pub(crate) fn access_filtered(&mut self, filtered: &Filtered) {
        self.take_over_order();
        match filtered {
            Filtered::Keys { count, sampled } => {
                self.recorder.count_keys(*count);
                for sampled in sampled.chunks(WARM_AHEAD) {
                    self.tracker.warm(sampled.iter().map(|&(key, _)| key));
                    for &(key, hash) in sampled {
                        if let Some(touch) = self.sampled(key, hash, false) {
                            self.recorder.key(key, touch.distance, touch.weight);
                        }
                    }
                }
            }
            Filtered::Requests { totals, sampled } => {
                self.recorder.count_requests(totals);
                let mut open = OpenPart::default();
                for sampled in sampled.chunks(WARM_AHEAD) {
                    self.tracker.warm(sampled.iter().map(|line| line.key));
                    for &line in sampled {
                        self.sampled_line(&mut open, line);
                    }
                }
                self.end_part(&mut open);
            }
        }
        if let Some(replicates) = &mut self.replicates {
            replicates.follow(&self.steps);
            self.steps.clear();
        }
    }

    /// Touches a key that was in the sample when it was hashed; `None` when it no longer is.
    #[inline]
    fn sampled(&mut self, key: u64, hash: u64, write: bool) -> Option<Touch> {
        let touch = self.tracker.touch_hashed(key, hash)?;
        self.steps.push(ReplicateStep::Touch {
            key,
            weight: touch.weight,
            write,
        });
        if self.tracker.has_left() {
            self.steps
                .extend(self.tracker.take_left().map(ReplicateStep::Leave));
        }
        Some(touch)
    }

    #[inline]
    fn sampled_line(&mut self, open: &mut OpenPart, line: SampledLine) {
        let region = line.key >> self.tracker.options().group_bits;
        let Some(touch) = self.sampled(line.key, line.hash, line.write) else {
            return;
        };
        if (open.request, open.region) != (line.request, region) {
            self.end_part(open);
        }
        let part = open.part.get_or_insert_with(|| Part::new(line.write));
        let touched = LineTouch {
            key: line.key,
            bytes: line.bytes,
            share: line.share,
            distance: touch.distance,
            weight: touch.weight,
        };
        self.recorder.line(part, touched);
        (open.request, open.region, open.weight) = (line.request, region, touch.weight);
    }

    #[inline]
    fn end_part(&mut self, open: &mut OpenPart) {
        if let Some(part) = open.part.take() {
            self.recorder.end_part(part, open.weight);
        }
    }

    /// Whether [`Profile::join`] takes `later`.
    pub fn can_join(&self, later: &Self) -> bool {
        self.tracker.options().joinable
            && self.tracker.options() == later.tracker.options()
            && self.line == later.line
    }

    /// Joins the profile of the piece of trace that follows this one. Both must be joinable and of equal options.
    ///
    /// Exact and fixed-rate profiles become what one pass over both pieces gives. Fixed-size profiles become a valid
    /// estimate at the lower of both rates; one pass would have lowered its threshold at other moments, so the two
    /// differ within their error.
    ///
    /// # Panics
    /// When the profiles are not joinable or their options differ.
    pub fn join(&mut self, later: Self) {
        self.join_piece(later, true);
    }

    /// As [`Profile::join`]. Without `more` to come the order of the last touches is not needed; it is taken over
    /// only if something is added or joined after all.
    pub(crate) fn join_piece(&mut self, mut later: Self, more: bool) {
        self.take_over_order();
        later.take_over_order();
        assert!(
            self.tracker.options().joinable,
            "profiles that are joined are made joinable"
        );
        assert_eq!(
            self.tracker.options(),
            later.tracker.options(),
            "profiles of different options"
        );
        assert_eq!(self.line, later.line, "profiles of different line sizes");
        self.tracker.align(&mut later.tracker);
        for piece in [&mut *self, &mut later] {
            piece.replicates_drop_left();
        }
        let weight = 1.0 / self.tracker.rate();
        later.resolve_first_touches(self, weight);
        self.recorder.append(later.recorder);
        self.drop_unsampled_first_touches();
        if let (Some(mine), Some(theirs)) = (&mut self.replicates, &later.replicates) {
            mine.merge(theirs);
        }
        self.unordered = Some(Box::new((later.tracker, later.replicates)));
        if more {
            self.take_over_order();
        }
    }

    #[inline]
    fn take_over_order(&mut self) {
        if self.unordered.is_some() {
            self.finish_join();
        }
    }

    #[cold]
    fn finish_join(&mut self) {
        let Some(later) = self.unordered.take() else {
            return;
        };
        self.tracker.finish_join(&later.0);
        if let (Some(mine), Some(theirs)) = (&mut self.replicates, &later.1) {
            mine.finish_join(theirs, |key| self.tracker.samples(key));
        }
    }

    fn replicates_drop_left(&mut self) {
        if let Some(replicates) = &mut self.replicates {
            let left: Vec<ReplicateStep> = self.tracker.take_left().map(ReplicateStep::Leave).collect();
            replicates.follow(&left);
        }
    }

    /// A first touch whose line has left a fixed-size sample cannot be resolved later; its weight stays cold, and
    /// those that are still sampled stand for it when they are resolved.
    fn drop_unsampled_first_touches(&mut self) {
        if !self.tracker.is_exact() {
            let tracker = &self.tracker;
            self.recorder.retain_first_touches(|key| tracker.samples(key));
        }
    }

    /// Replays the first touches onto the piece before; keeps those that are first touches of both.
    fn resolve_first_touches(&mut self, before: &mut Self, weight: f64) {
        let mut kept = Vec::new();
        let first_touches = self.recorder.take_first_touches();
        for chunk in first_touches.chunks(WARM_AHEAD) {
            before.tracker.warm(chunk.iter().map(|first| first.key));
            for &first in chunk {
                let Some(touch) = before.tracker.touch(first.key) else {
                    continue;
                };
                let replicate = before
                    .replicates
                    .as_mut()
                    .map(|replicates| replicates.access(first.key, touch.weight));
                if before.tracker.has_left() {
                    before.replicates_drop_left();
                }
                let Some(distance) = touch.distance else {
                    kept.push(first);
                    continue;
                };
                // The replayed touch stands for as many first touches as its present rate says.
                let weight = if self.tracker.is_exact() {
                    first.weight
                } else {
                    weight
                };
                self.recorder.resolve(&first, distance, weight);
                if let (Some(replicates), Some((replicate, Some(distance)))) =
                    (&mut self.replicates, replicate)
                {
                    replicates.resolve(replicate, distance, weight, first.write);
                }
            }
        }
        self.recorder.set_first_touches(kept);
    }

    /// Misses, cold misses and totals at each size.
    pub fn weighted(&self, sizes_lines: &[u64], unit: Unit, ops: Ops) -> Weighted {
        let mut sum = Weighted {
            misses: vec![0.0; sizes_lines.len()],
            ..Weighted::default()
        };
        for op in self.recorder.of(ops) {
            let (histogram, total) = match unit {
                Unit::Lines => (&op.lines, op.totals.lines),
                Unit::Requests => (&op.requests, op.totals.requests),
                Unit::Bytes => (&op.bytes, op.totals.bytes),
            };
            sum.add(&Weighted {
                misses: histogram.miss_weights(sizes_lines),
                cold: histogram.cold(),
                sampled: histogram.total(),
                total: total as f64,
            });
        }
        sum
    }

    /// The curve of one unit and direction, by the estimate that [`Profile::self_check`] chooses.
    pub fn curve(&self, sizes_lines: &[u64], unit: Unit, ops: Ops) -> Curve {
        let estimate = self.self_check(sizes_lines, ops).estimate;
        self.weighted(sizes_lines, unit, ops).curve(sizes_lines, estimate)
    }

    /// How far eight sub-samples agree on the references to lines by these operations, at each size, under either
    /// estimate.
    pub fn self_check(&self, sizes_lines: &[u64], ops: Ops) -> SelfCheck {
        let Some(replicates) = &self.replicates else {
            return SelfCheck::exact(sizes_lines.len(), Estimate::Exact);
        };
        if self.tracker.rate() >= 1.0 {
            // The sample has had room for every line so far.
            return SelfCheck::exact(sizes_lines.len(), Estimate::Adjusted);
        }
        let check =
            SelfCheck::of_replicates(&replicates.weighted(sizes_lines, ops, self.lines_total(ops) as f64));
        // The lines that are touched in a while are known like those of the whole, as far as they are as many.
        let (spread, distinct) = (replicates.lines_stderr(), self.distinct_lines());
        let at = |shift: f64| {
            let shifted = sizes_lines.iter().map(|&size| {
                let of_size = spread * (distinct / (size as f64).max(1.0)).max(1.0).sqrt();
                // Joined pieces add the same weights in another order: a whole number must not fall to the one below it
                // because of the last bit of a sum.
                (size as f64 * (1.0 + shift * of_size) + 1e-6).max(0.0) as u64
            });
            self.weighted(&shifted.collect::<Vec<_>>(), Unit::Lines, ops)
        };
        check.with_distance_error(&at(0.0), &[at(-1.0), at(1.0)])
    }
}

/// The part of a request that the next sampled line may belong to.
#[derive(Debug, Default)]
struct OpenPart {
    part: Option<Part>,
    request: u32,
    region: u64,
    weight: f64,
}

/// Records items whose distances [`LruStack::distance_of`] reads, one for each line.
pub(crate) fn record_exact(
    recorder: &mut Recorder,
    line: LineSize,
    items: &Items<'_>,
    range: Range<usize>,
    distances: impl Iterator<Item = u32>,
) {
    let mut distances = distances.map(LruStack::distance_of);
    match items {
        Items::Keys(keys) => {
            recorder.count_keys(range.len());
            for (&key, distance) in keys[range].iter().zip(distances) {
                recorder.key(key, distance, 1.0);
            }
        }
        Items::Requests(columns) => columns
            .ios(range)
            .for_each(|io| record_whole(recorder, line, io, || distances.next().flatten())),
    }
}

/// Records all lines of a request, whose distances `distance` gives.
fn record_whole(recorder: &mut Recorder, line: LineSize, io: Io, mut distance: impl FnMut() -> Option<u64>) {
    let pieces = line.pieces(io);
    let lines = pieces.lines();
    recorder.count_request(io, lines);
    let mut part = Part::new(io.write);
    for (key, bytes) in pieces {
        let touch = LineTouch {
            key,
            bytes,
            share: 1.0 / lines as f64,
            distance: distance(),
            weight: 1.0,
        };
        recorder.line(&mut part, touch);
    }
    recorder.end_whole(part);
}
