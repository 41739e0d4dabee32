//! The LRU profile of a stream: every curve that one pass of stack distances can give.

use crate::curve::{Curve, Estimate, Weighted};
use crate::histogram::DistanceHistogram;
use crate::lines::{Io, LineSize};
use crate::tracker::{Half, LANES, Touch, Tracker, TrackerOptions};

/// Noise that raw must undercut adjusted by before it is chosen: the noise of either is itself known from eight lanes
/// only, to about a quarter, and with stratified samples the adjusted estimate is the better one by default.
const RAW_MUST_BE_BELOW: f64 = 0.6;

const CHUNK: usize = 4096;

/// Keys whose table entries are read ahead together.
const WARM_AHEAD: usize = 64;

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

/// Which requests a curve counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ops {
    /// Reads and writes.
    All,
    /// Reads.
    Reads,
    /// Writes.
    Writes,
}

#[derive(Clone, Debug, PartialEq)]
struct OpProfile {
    lines: DistanceHistogram,
    requests: DistanceHistogram,
    bytes: DistanceHistogram,
    lines_total: u64,
    requests_total: u64,
    bytes_total: u64,
}

/// A first touch of a piece, to be resolved against the piece before.
#[derive(Clone, Copy, Debug)]
struct FirstTouch {
    key: u64,
    weight: f64,
    bytes: u32,
    write: bool,
    /// Index of the request in `open_requests`, or the share of its request in a sample.
    request: RequestPart,
}

#[derive(Clone, Copy, Debug)]
enum RequestPart {
    Whole(u32),
    Share(f64),
    None,
}

/// A request with first touches among its lines: whether it hits depends on the piece before.
#[derive(Clone, Copy, Debug)]
struct OpenRequest {
    distance_max: u64,
    unresolved: u32,
    write: bool,
}

/// Stack distances of a stream of requests or line numbers, and the curves they give.
#[derive(Clone, Debug)]
pub struct Profile {
    tracker: Tracker,
    line: LineSize,
    reads: OpProfile,
    writes: OpProfile,
    lanes: Vec<DistanceHistogram>,
    first_touches: Vec<FirstTouch>,
    open_requests: Vec<OpenRequest>,
    survivors: Vec<u32>,
    /// The tracker of the piece that was joined last, when the order of its last touches is still to be taken over.
    unordered: Option<Box<Tracker>>,
    /// Whether requests were given, so that request and byte curves exist.
    has_requests: bool,
}

impl Profile {
    /// An empty profile.
    pub fn new(options: TrackerOptions, line: LineSize) -> Self {
        Self::of_half(options, line, Half::Both)
    }

    /// As [`Profile::new`], for half of the work on a sample; see [`Profile::complete`].
    pub(crate) fn of_half(options: TrackerOptions, line: LineSize, half: Half) -> Self {
        let resolution = options.resolution();
        let op = OpProfile {
            lines: DistanceHistogram::new(resolution),
            requests: DistanceHistogram::new(resolution),
            bytes: DistanceHistogram::new(resolution),
            lines_total: 0,
            requests_total: 0,
            bytes_total: 0,
        };
        let tracker = Tracker::of_half(options, half);
        let lanes = if tracker.is_exact() { 0 } else { LANES };
        Self {
            tracker,
            line,
            reads: op.clone(),
            writes: op,
            lanes: vec![DistanceHistogram::new(resolution); lanes],
            first_touches: Vec::new(),
            open_requests: Vec::new(),
            survivors: Vec::new(),
            unordered: None,
            has_requests: false,
        }
    }

    /// Takes over what only the other half knows, which saw the same items in the same order.
    pub(crate) fn complete(&mut self, lanes: Self) {
        self.tracker.complete(lanes.tracker);
        self.lanes = lanes.lanes;
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
        self.of(ops).map(|op| op.lines_total).sum()
    }

    /// Requests seen.
    pub fn requests_total(&self, ops: Ops) -> u64 {
        self.of(ops).map(|op| op.requests_total).sum()
    }

    /// Bytes seen.
    pub fn bytes_total(&self, ops: Ops) -> u64 {
        self.of(ops).map(|op| op.bytes_total).sum()
    }

    /// Distinct lines: exact, or estimated from the sample's first touches.
    pub fn distinct_lines(&self) -> f64 {
        self.reads.lines.cold() + self.writes.lines.cold()
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        let op =
            |op: &OpProfile| op.lines.memory_bytes() + op.requests.memory_bytes() + op.bytes.memory_bytes();
        self.tracker.memory_bytes()
            + op(&self.reads)
            + op(&self.writes)
            + self
                .lanes
                .iter()
                .map(DistanceHistogram::memory_bytes)
                .sum::<usize>()
            + self
                .unordered
                .as_ref()
                .map_or(0, |tracker| tracker.memory_bytes())
            + self.first_touches.capacity() * size_of::<FirstTouch>()
            + self.open_requests.capacity() * size_of::<OpenRequest>()
    }

    /// References each of `keys`: line numbers without request, size or direction; they count as reads.
    pub fn access_keys(&mut self, keys: &[u64]) {
        self.take_over_order();
        self.reads.lines_total += keys.len() as u64;
        if self.tracker.is_exact() {
            for chunk in keys.chunks(WARM_AHEAD) {
                self.tracker.warm(chunk.iter().copied());
                for &key in chunk {
                    self.access_key(key);
                }
            }
            return;
        }
        let mut survivors = std::mem::take(&mut self.survivors);
        for chunk in keys.chunks(CHUNK) {
            self.tracker.filter(chunk, &mut survivors);
            for &position in &survivors {
                self.access_key(chunk[position as usize]);
            }
        }
        self.survivors = survivors;
    }

    #[inline]
    fn access_key(&mut self, key: u64) {
        let Some(touch) = self.tracker.touch(key) else {
            return;
        };
        self.record_lane(touch);
        if self.tracker.half() == Half::Lanes {
            return;
        }
        self.reads.lines.add_option(touch.distance, touch.weight);
        if touch.distance.is_none() && self.tracker.options().joinable {
            let request = RequestPart::None;
            self.first_touches.push(FirstTouch {
                key,
                weight: touch.weight,
                bytes: 0,
                write: false,
                request,
            });
        }
    }

    #[inline]
    fn record_lane(&mut self, touch: Touch) {
        if let Some((lane, distance)) = touch.lane {
            self.lanes[lane].add_option(distance, touch.weight * LANES as f64);
        }
    }

    /// References the lines of a request.
    pub fn access_io(&mut self, io: Io) {
        self.take_over_order();
        self.has_requests = true;
        let pieces = self.line.pieces(io);
        let lines = pieces.lines();
        let op = if io.write {
            &mut self.writes
        } else {
            &mut self.reads
        };
        op.lines_total += lines;
        op.requests_total += 1;
        op.bytes_total += u64::from(io.length_bytes);
        if self.tracker.is_exact() {
            self.access_whole(io, pieces);
        } else {
            self.access_sampled(io, pieces);
        }
    }

    fn access_whole(&mut self, io: Io, pieces: crate::lines::Pieces) {
        let joinable = self.tracker.options().joinable;
        let request = self.open_requests.len() as u32;
        let (mut distance_max, mut unresolved) = (0, 0);
        for (key, bytes) in pieces {
            let Some(touch) = self.tracker.touch(key) else {
                continue;
            };
            let op = if io.write {
                &mut self.writes
            } else {
                &mut self.reads
            };
            op.lines.add_option(touch.distance, 1.0);
            op.bytes.add_option(touch.distance, f64::from(bytes));
            if let Some(distance) = touch.distance {
                distance_max = distance.max(distance_max);
                continue;
            }
            unresolved += 1;
            if joinable {
                let request = RequestPart::Whole(request);
                self.first_touches.push(FirstTouch {
                    key,
                    weight: 1.0,
                    bytes,
                    write: io.write,
                    request,
                });
            }
        }
        let op = if io.write {
            &mut self.writes
        } else {
            &mut self.reads
        };
        op.requests
            .add_option((unresolved == 0).then_some(distance_max), 1.0);
        if joinable && unresolved > 0 {
            self.open_requests.push(OpenRequest {
                distance_max,
                unresolved,
                write: io.write,
            });
        }
    }

    fn access_sampled(&mut self, io: Io, pieces: crate::lines::Pieces) {
        let share = 1.0 / pieces.lines() as f64;
        for (key, bytes) in pieces {
            let Some(touch) = self.tracker.touch(key) else {
                continue;
            };
            self.record_lane(touch);
            if self.tracker.half() == Half::Lanes {
                continue;
            }
            let op = if io.write {
                &mut self.writes
            } else {
                &mut self.reads
            };
            op.lines.add_option(touch.distance, touch.weight);
            op.bytes
                .add_option(touch.distance, touch.weight * f64::from(bytes));
            op.requests.add_option(touch.distance, touch.weight * share);
            if touch.distance.is_none() && self.tracker.options().joinable {
                let request = RequestPart::Share(share);
                let weight = touch.weight;
                self.first_touches.push(FirstTouch {
                    key,
                    weight,
                    bytes,
                    write: io.write,
                    request,
                });
            }
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
        let align_weight = {
            self.tracker.align(&mut later.tracker);
            1.0 / self.tracker.rate()
        };
        later.resolve_first_touches(&mut self.tracker, align_weight, self.open_requests.len() as u32);
        self.first_touches.append(&mut later.first_touches);
        self.open_requests.append(&mut later.open_requests);
        self.drop_unsampled_first_touches();
        self.reads.merge(&later.reads);
        self.writes.merge(&later.writes);
        for (mine, theirs) in self.lanes.iter_mut().zip(&later.lanes) {
            mine.merge(theirs);
        }
        self.has_requests |= later.has_requests;
        self.unordered = Some(Box::new(later.tracker));
        if more {
            self.take_over_order();
        }
    }

    #[inline]
    fn take_over_order(&mut self) {
        if let Some(later) = self.unordered.take() {
            self.tracker.finish_join(&later);
        }
    }

    /// A first touch whose line has left a fixed-size sample cannot be resolved later; its weight stays cold, and
    /// those that are still sampled stand for it when they are resolved.
    fn drop_unsampled_first_touches(&mut self) {
        if !self.tracker.is_exact() {
            let tracker = &self.tracker;
            self.first_touches.retain(|first| tracker.samples(first.key));
        }
    }

    /// Replays the first touches onto the tracker of the piece before; keeps those that are first touches of both.
    fn resolve_first_touches(&mut self, before: &mut Tracker, weight: f64, request_offset: u32) {
        let mut kept = Vec::new();
        let first_touches = std::mem::take(&mut self.first_touches);
        for chunk in first_touches.chunks(WARM_AHEAD) {
            before.warm(chunk.iter().map(|first| first.key));
            for &(mut first) in chunk {
                if !before.samples(first.key) {
                    continue;
                }
                let Some(touch) = before.touch(first.key) else {
                    continue;
                };
                if let Some(distance) = touch.distance {
                    // The replayed touch stands for as many first touches as its present rate says.
                    let weight = if self.tracker.is_exact() {
                        first.weight
                    } else {
                        weight
                    };
                    self.move_from_cold(&first, distance, weight, touch.lane);
                } else {
                    if let RequestPart::Whole(request) = &mut first.request {
                        *request += request_offset;
                    }
                    kept.push(first);
                }
            }
        }
        self.first_touches = kept;
    }

    fn move_from_cold(
        &mut self,
        first: &FirstTouch,
        distance: u64,
        weight: f64,
        lane: Option<(usize, Option<u64>)>,
    ) {
        if let Some((lane, Some(lane_distance))) = lane {
            self.lanes[lane].move_from_cold(lane_distance, weight * LANES as f64);
        }
        let op = if first.write {
            &mut self.writes
        } else {
            &mut self.reads
        };
        op.lines.move_from_cold(distance, weight);
        if first.bytes > 0 {
            op.bytes.move_from_cold(distance, weight * f64::from(first.bytes));
        }
        match first.request {
            RequestPart::None => {}
            RequestPart::Share(share) => op.requests.move_from_cold(distance, weight * share),
            RequestPart::Whole(index) => {
                let request = &mut self.open_requests[index as usize];
                request.distance_max = request.distance_max.max(distance);
                request.unresolved -= 1;
                if request.unresolved == 0 {
                    debug_assert_eq!(request.write, first.write);
                    op.requests.move_from_cold(request.distance_max, 1.0);
                }
            }
        }
    }

    fn of(&self, ops: Ops) -> impl Iterator<Item = &OpProfile> {
        let reads = (ops != Ops::Writes).then_some(&self.reads);
        let writes = (ops != Ops::Reads).then_some(&self.writes);
        reads.into_iter().chain(writes)
    }

    /// Misses, cold misses and totals at each size.
    pub fn weighted(&self, sizes_lines: &[u64], unit: Unit, ops: Ops) -> Weighted {
        let mut sum = Weighted {
            misses: vec![0.0; sizes_lines.len()],
            ..Weighted::default()
        };
        for op in self.of(ops) {
            let (histogram, total) = match unit {
                Unit::Lines => (&op.lines, op.lines_total),
                Unit::Requests => (&op.requests, op.requests_total),
                Unit::Bytes => (&op.bytes, op.bytes_total),
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
        let estimate = self.self_check(sizes_lines).estimate;
        self.weighted(sizes_lines, unit, ops).curve(sizes_lines, estimate)
    }

    /// How far eight sub-samples agree, at each size, under either estimate.
    pub fn self_check(&self, sizes_lines: &[u64]) -> SelfCheck {
        if self.tracker.is_exact() {
            let zero = vec![0.0; sizes_lines.len()];
            return SelfCheck {
                raw_stderr: zero.clone(),
                adjusted_stderr: zero,
                estimate: Estimate::Exact,
            };
        }
        let total = self.lines_total(Ops::All) as f64;
        let lanes: Vec<Weighted> = self
            .lanes
            .iter()
            .map(|lane| Weighted {
                misses: lane.miss_weights(sizes_lines),
                cold: lane.cold(),
                sampled: lane.total(),
                total,
            })
            .collect();
        let raw_stderr = standard_error(&lanes.iter().map(Weighted::raw).collect::<Vec<_>>());
        let adjusted_stderr = standard_error(&lanes.iter().map(Weighted::adjusted).collect::<Vec<_>>());
        let (raw, adjusted): (f64, f64) = (raw_stderr.iter().sum(), adjusted_stderr.iter().sum());
        let estimate = if raw < RAW_MUST_BE_BELOW * adjusted {
            Estimate::Raw
        } else {
            Estimate::Adjusted
        };
        SelfCheck {
            raw_stderr,
            adjusted_stderr,
            estimate,
        }
    }
}

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

impl OpProfile {
    fn merge(&mut self, other: &Self) {
        self.lines.merge(&other.lines);
        self.requests.merge(&other.requests);
        self.bytes.merge(&other.bytes);
        self.lines_total += other.lines_total;
        self.requests_total += other.requests_total;
        self.bytes_total += other.bytes_total;
    }
}
