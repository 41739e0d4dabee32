//! The segmented read cache: after a read the head reads on into a segment until something else is asked of it.
//!
//! Progress is computed when it is asked for; reading ahead needs no events.

use super::geometry::Geometry;

#[derive(Debug, Clone, Copy)]
struct Segment {
    start: u64,
    end: u64,
    used: u64,
}

/// The stream that the head reads ahead now. It fills the segment that was used last.
#[derive(Debug, Clone, Copy)]
struct Stream {
    from: u64,
    since_ns: u64,
    /// Where the segment is full.
    limit: u64,
}

/// How a read relates to the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// All of it is there.
    Hit,
    /// The head is reading it: it is at `from` now, and the request ends after that.
    Streaming {
        /// The first byte that has not been read yet.
        from: u64,
    },
    /// It must be fetched.
    Miss,
}

#[derive(Debug)]
pub(super) struct ReadAhead {
    segments: Vec<Segment>,
    segments_max: usize,
    segment_bytes: u64,
    stream: Option<Stream>,
    uses: u64,
}

impl ReadAhead {
    pub(super) fn new(segments_max: usize, segment_bytes: u64) -> Self {
        Self {
            segments: Vec::with_capacity(segments_max),
            segments_max,
            segment_bytes,
            stream: None,
            uses: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.segments.clear();
        self.stream = None;
    }

    /// Look a read up; a hit lets the head read further ahead.
    pub(super) fn lookup(&mut self, geometry: &Geometry, offset: u64, length: u64, now_ns: u64) -> Lookup {
        self.progress(geometry, now_ns);
        let end = offset + length;
        let Some(index) = self
            .segments
            .iter()
            .position(|it| it.start <= offset && offset <= it.end)
        else {
            return Lookup::Miss;
        };
        let is_newest = index + 1 == self.segments.len();
        let segment = self.segments[index];
        if end > segment.end {
            return match self.stream {
                Some(_) if is_newest => Lookup::Streaming { from: segment.end },
                _ => Lookup::Miss,
            };
        }
        if let Some(stream) = self.stream.as_mut().filter(|_| is_newest) {
            // The part of the segment that was delivered is free for what comes next.
            stream.limit = stream
                .limit
                .max((end + self.segment_bytes * 3 / 4).min(geometry.size_bytes()));
        }
        self.uses += 1;
        self.segments[index].used = self.uses;
        Lookup::Hit
    }

    /// Where the head is, if it reads ahead.
    pub(super) fn head(&mut self, geometry: &Geometry, now_ns: u64) -> Option<u64> {
        self.progress(geometry, now_ns);
        self.stream
            .and_then(|_| self.segments.last())
            .map(|segment| segment.end)
    }

    /// The head was sent elsewhere.
    pub(super) fn stop(&mut self, geometry: &Geometry, now_ns: u64) {
        self.progress(geometry, now_ns);
        self.stream = None;
    }

    /// A read of a range from the medium has ended: keep it, and read on from its end if the arm is idle.
    pub(super) fn fetched(
        &mut self,
        geometry: &Geometry,
        offset: u64,
        end: u64,
        reads_on: bool,
        now_ns: u64,
    ) {
        self.uses += 1;
        let continued = self
            .segments
            .iter()
            .position(|it| it.start <= offset && offset <= it.end);
        let mut segment = match continued {
            Some(index) => self.segments.remove(index),
            None => Segment {
                start: offset,
                end,
                used: 0,
            },
        };
        segment.end = segment.end.max(end);
        segment.used = self.uses;
        if self.segments.len() >= self.segments_max {
            let oldest = self
                .segments
                .iter()
                .enumerate()
                .min_by_key(|(_, it)| it.used)
                .map(|(index, _)| index);
            self.segments.remove(oldest.unwrap_or(0));
        }
        self.segments.push(segment);
        self.trim();
        // A segment that already reaches further (the request was an overlap) is not read a second time.
        self.stream = (reads_on && segment.end == end && end < geometry.size_bytes()).then(|| Stream {
            from: end,
            since_ns: now_ns,
            limit: (end + self.segment_bytes * 3 / 4).min(geometry.size_bytes()),
        });
    }

    /// Data on the medium changed.
    pub(super) fn invalidate(&mut self, offset: u64, length: u64) {
        let newest = self.segments.last().map(|segment| segment.start);
        self.segments
            .retain(|it| it.end <= offset || offset + length <= it.start);
        if self.segments.last().map(|segment| segment.start) != newest {
            self.stream = None;
        }
    }

    fn progress(&mut self, geometry: &Geometry, now_ns: u64) {
        let (Some(stream), Some(segment)) = (&mut self.stream, self.segments.last_mut()) else {
            return;
        };
        let reached = geometry.reach(stream.from, now_ns.saturating_sub(stream.since_ns) as f64);
        segment.end = segment.end.max(reached.min(stream.limit));
        if reached >= stream.limit {
            // Full: the drive pauses. It goes on as soon as there is room; the revolution that this may cost it passes
            // while the host is fed from the segment, which holds more than a track.
            stream.from = stream.limit;
            stream.since_ns = now_ns;
        }
        self.trim();
    }

    fn trim(&mut self) {
        if let Some(segment) = self.segments.last_mut() {
            segment.start = segment.start.max(segment.end.saturating_sub(self.segment_bytes));
        }
    }
}
