//! What a profile counts: distances of lines, of parts of requests and of bytes, reads and writes apart.

use crate::histogram::{DistanceHistogram, Resolution};

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
use bathy_cache_model::Io;

/// Counts of one direction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpProfile {
    pub(crate) lines: DistanceHistogram,
    pub(crate) requests: DistanceHistogram,
    pub(crate) bytes: DistanceHistogram,
    pub(crate) totals: Totals,
}

/// What was seen of one direction, sampled or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) lines: u64,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

impl Totals {
    /// Adds a request of so many lines.
    #[inline]
    pub(crate) fn count(&mut self, io: Io, lines: u64) {
        self.lines += lines;
        self.requests += 1;
        self.bytes += u64::from(io.length_bytes);
    }

    fn add(&mut self, other: Self) {
        self.lines += other.lines;
        self.requests += other.requests;
        self.bytes += other.bytes;
    }
}

impl OpProfile {
    fn new(resolution: Resolution) -> Self {
        Self {
            lines: DistanceHistogram::new(resolution),
            requests: DistanceHistogram::new(resolution),
            bytes: DistanceHistogram::new(resolution),
            totals: Totals::default(),
        }
    }

    fn merge(&mut self, other: &Self) {
        self.lines.merge(&other.lines);
        self.requests.merge(&other.requests);
        self.bytes.merge(&other.bytes);
        self.totals.add(other.totals);
    }

    fn memory_bytes(&self) -> usize {
        self.lines.memory_bytes() + self.requests.memory_bytes() + self.bytes.memory_bytes()
    }
}

/// Lines of a request that are seen together: all of them, or in a sample those of one region. The part hits when all
/// its lines do, so it counts at the largest of their distances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Share of the request's lines.
    share: f64,
    distance_max: u64,
    unresolved: u32,
    write: bool,
}

impl Part {
    pub(crate) fn new(write: bool) -> Self {
        Self {
            share: 0.0,
            distance_max: 0,
            unresolved: 0,
            write,
        }
    }
}

/// A reference to a line by a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineTouch {
    pub(crate) key: u64,
    /// Bytes that the request covers.
    pub(crate) bytes: u32,
    /// Share of the request's lines.
    pub(crate) share: f64,
    pub(crate) distance: Option<u64>,
    /// References that this one stands for.
    pub(crate) weight: f64,
}

/// A first touch of a piece of trace, to be resolved against the piece before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstTouch {
    pub(crate) key: u64,
    pub(crate) weight: f64,
    bytes: u32,
    pub(crate) write: bool,
    /// Index of the part in `open_parts`; keys without a request have none.
    part: Option<u32>,
}

/// Histograms and totals, and what is still open in a piece of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    reads: OpProfile,
    writes: OpProfile,
    /// First touches are kept until the piece before is known.
    keeps_first_touches: bool,
    first_touches: Vec<FirstTouch>,
    /// Parts with first touches among their lines: whether they hit depends on the piece before.
    open_parts: Vec<Part>,
}

impl Recorder {
    pub(crate) fn new(resolution: Resolution, keeps_first_touches: bool) -> Self {
        let op = OpProfile::new(resolution);
        Self {
            reads: op.clone(),
            writes: op,
            keeps_first_touches,
            first_touches: Vec::new(),
            open_parts: Vec::new(),
        }
    }

    #[inline]
    fn op(&mut self, write: bool) -> &mut OpProfile {
        if write { &mut self.writes } else { &mut self.reads }
    }

    /// The directions that `ops` names.
    pub(crate) fn of(&self, ops: Ops) -> impl Iterator<Item = &OpProfile> {
        let reads = (ops != Ops::Writes).then_some(&self.reads);
        let writes = (ops != Ops::Reads).then_some(&self.writes);
        reads.into_iter().chain(writes)
    }

    /// Keys without requests count as reads.
    #[inline]
    pub(crate) fn count_keys(&mut self, keys: usize) {
        self.reads.totals.lines += keys as u64;
    }

    /// A request of so many lines, sampled or not.
    #[inline]
    pub(crate) fn count_request(&mut self, io: Io, lines: u64) {
        self.op(io.write).totals.count(io, lines);
    }

    /// Requests that were counted elsewhere: reads, then writes.
    pub(crate) fn count_requests(&mut self, totals: &[Totals; 2]) {
        self.reads.totals.add(totals[0]);
        self.writes.totals.add(totals[1]);
    }

    /// A reference to a key without a request.
    #[inline]
    pub(crate) fn key(&mut self, key: u64, distance: Option<u64>, weight: f64) {
        self.reads.lines.add_option(distance, weight);
        if distance.is_none() && self.keeps_first_touches {
            self.first_touches.push(FirstTouch {
                key,
                weight,
                bytes: 0,
                write: false,
                part: None,
            });
        }
    }

    /// A reference to a line, in a part that is under way.
    #[inline]
    pub(crate) fn line(&mut self, part: &mut Part, touch: LineTouch) {
        let op = self.op(part.write);
        op.lines.add_option(touch.distance, touch.weight);
        op.bytes
            .add_option(touch.distance, touch.weight * f64::from(touch.bytes));
        part.share += touch.share;
        if let Some(distance) = touch.distance {
            part.distance_max = part.distance_max.max(distance);
            return;
        }
        part.unresolved += 1;
        if self.keeps_first_touches {
            self.first_touches.push(FirstTouch {
                key: touch.key,
                weight: touch.weight,
                bytes: touch.bytes,
                write: part.write,
                part: Some(self.open_parts.len() as u32),
            });
        }
    }

    /// The part has no more lines; it stands for `weight` like it.
    #[inline]
    pub(crate) fn end_part(&mut self, part: Part, weight: f64) {
        let hit_at = (part.unresolved == 0).then_some(part.distance_max);
        self.op(part.write)
            .requests
            .add_option(hit_at, weight * part.share);
        if self.keeps_first_touches && part.unresolved > 0 {
            self.open_parts.push(part);
        }
    }

    /// The part is the whole request: its share is one, whatever the sum of rounded shares is.
    #[inline]
    pub(crate) fn end_whole(&mut self, part: Part) {
        self.end_part(Part { share: 1.0, ..part }, 1.0);
    }

    /// Takes the first touches away, to resolve them one by one.
    pub(crate) fn take_first_touches(&mut self) -> Vec<FirstTouch> {
        std::mem::take(&mut self.first_touches)
    }

    /// The first touches that the piece before does not know either.
    pub(crate) fn set_first_touches(&mut self, first_touches: Vec<FirstTouch>) {
        self.first_touches = first_touches;
    }

    /// Forgets the first touches that cannot be resolved any more; their weight stays cold.
    pub(crate) fn retain_first_touches(&mut self, keep: impl Fn(u64) -> bool) {
        self.first_touches.retain(|first| keep(first.key));
    }

    /// A first touch was a reuse at `distance` of a line of the piece before.
    pub(crate) fn resolve(&mut self, first: &FirstTouch, distance: u64, weight: f64) {
        let op = if first.write {
            &mut self.writes
        } else {
            &mut self.reads
        };
        op.lines.move_from_cold(distance, weight);
        let Some(part) = first.part else { return };
        op.bytes.move_from_cold(distance, weight * f64::from(first.bytes));
        let part = &mut self.open_parts[part as usize];
        part.distance_max = part.distance_max.max(distance);
        part.unresolved -= 1;
        if part.unresolved == 0 {
            op.requests.move_from_cold(part.distance_max, weight * part.share);
        }
    }

    /// Adds what the piece that follows has counted and left open.
    pub(crate) fn append(&mut self, mut later: Self) {
        let offset = self.open_parts.len() as u32;
        for first in &mut later.first_touches {
            first.part = first.part.map(|part| part + offset);
        }
        self.first_touches.append(&mut later.first_touches);
        self.open_parts.append(&mut later.open_parts);
        self.reads.merge(&later.reads);
        self.writes.merge(&later.writes);
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.reads.memory_bytes()
            + self.writes.memory_bytes()
            + self.first_touches.capacity() * size_of::<FirstTouch>()
            + self.open_parts.capacity() * size_of::<Part>()
    }
}
