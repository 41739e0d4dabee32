//! A recorded trace as a load: each request starts when it did in the trace, at a stated speed.
//!
//! All of the trace is read before a cluster is asked for anything: a program that decodes a file while it sends is late, and
//! whether images are written to must be known to open them. What cannot be replayed is counted by its reason.

use bathy_trace::{EventBatch, IoEvent, OnBadRecord, Op, OpenOptions, TraceError, TraceReader, UNKNOWN};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::failure::Failure;
use crate::plan::{BeyondEnd, Direction, Plan, ReplayPlan};
use crate::requests::Request;

/// Memory of a request of the trace, with that of a length that no other has.
const REQUEST_BYTES: u64 = 96;
const NANOSECONDS: f64 = 1e9;

/// Requests of a trace, in the order of their times.
pub struct Replay {
    pub(crate) requests: Vec<(u64, Request)>,
    /// Kinds are lengths; how many there are.
    pub(crate) kinds: usize,
    counts: Counts,
}

/// What became of the records of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Requests that are replayed.
    pub requests: u64,
    /// Discards, which are not replayed.
    pub trims: u64,
    /// Neither reads nor writes nor discards.
    pub others: u64,
    /// Of volumes that have no image here.
    pub without_image: u64,
    /// Not well formed.
    pub bad_records: u64,
    /// Of a time after the load's end.
    pub after_end: u64,
    /// Replayed elsewhere, because the image is smaller than the volume was.
    pub wrapped: u64,
}

impl Replay {
    /// Read the trace that a plan names, if it names one.
    ///
    /// # Errors
    /// If it cannot be read, has no times, or does not fit the memory that the load may take.
    pub fn open(plan: &Plan) -> Result<Option<Self>, Failure> {
        let Some(about) = plan.replay() else {
            return Ok(None);
        };
        let reader = about.format().and_then(|format| {
            let options = OpenOptions {
                on_bad_record: OnBadRecord::Skip,
                object_size_bytes: about.object_bytes,
                ..OpenOptions::default()
            };
            bathy_trace::open(&about.trace, format, &options)
        });
        Self::read(plan, about, reader.map_err(|error| unreadable(&error))?.as_mut()).map(Some)
    }

    /// Read a trace.
    ///
    /// # Errors
    /// As [`Replay::open`].
    pub fn read(plan: &Plan, about: &ReplayPlan, reader: &mut dyn TraceReader) -> Result<Self, Failure> {
        let mut replay = Self {
            requests: Vec::new(),
            kinds: 0,
            counts: Counts::default(),
        };
        let count_max = plan.memory_bytes_max / 2 / REQUEST_BYTES;
        let mut kinds = FxHashMap::default();
        let mut images = Images::new(about, plan.images());
        let mut batch = EventBatch::new();
        while reader
            .next_batch(&mut batch)
            .map_err(|error| unreadable(&error))?
            > 0
        {
            images.note(reader);
            for event in batch.iter() {
                let Some(mut request) = replay.request(&event, &images) else {
                    continue;
                };
                let number = kinds.len() as u32;
                request.kind = *kinds.entry(request.bytes).or_insert(number);
                replay.requests.push((event.time_ns, request));
            }
            if replay.requests.len() as u64 > count_max {
                return Err(Failure::new(
                    format!(
                        "the trace has more than {count_max} requests, for which half of memory_bytes_max = {} has room",
                        plan.memory_bytes_max
                    ),
                    "make memory_bytes_max larger, or replay a part of the trace",
                ));
            }
        }
        replay.kinds = kinds.len();
        replay.counts.bad_records = reader.report().records_bad;
        let (first_ns, last_ns) = reader.report().time_ns_range.unwrap_or_default();
        if first_ns == last_ns && replay.requests.len() > 1 {
            return Err(Failure::new(
                "the trace has no times",
                "replay one that has: without them nothing is known of when requests came",
            ));
        }
        replay.start_at(first_ns, about.speed);
        replay.end_at((plan.ramp_s + plan.duration_s) * NANOSECONDS);
        let longest = replay.longest(Direction::Read).map_or(0, u64::from);
        if longest > plan.memory_bytes_max / 2 {
            return Err(Failure::new(
                format!(
                    "the trace has a read of {longest} bytes, for which half of memory_bytes_max = {} has no room",
                    plan.memory_bytes_max
                ),
                "make memory_bytes_max larger",
            ));
        }
        Ok(replay)
    }

    /// An event as a request, or a count of what it is.
    fn request(&mut self, event: &IoEvent, images: &Images) -> Option<Request> {
        let direction = match event.op {
            Op::Read => Direction::Read,
            Op::Write => Direction::Write,
            Op::Trim => {
                self.counts.trims += 1;
                return None;
            }
            Op::Other => {
                self.counts.others += 1;
                return None;
            }
        };
        let Some(image) = images.of(event.volume) else {
            self.counts.without_image += 1;
            return None;
        };
        Some(Request {
            image,
            kind: 0,
            direction,
            offset: event.offset_bytes,
            bytes: event.length_bytes,
        })
    }

    /// Times of the trace, which begins at `first_ns`, become those of the load. Some formats are not in the order of time.
    fn start_at(&mut self, first_ns: u64, speed: f64) {
        for (at_ns, _) in &mut self.requests {
            *at_ns = ((*at_ns - first_ns) as f64 / speed).round() as u64;
        }
        self.requests.sort_by_key(|&(at_ns, _)| at_ns);
    }

    fn end_at(&mut self, end_ns: f64) {
        let in_time = self
            .requests
            .partition_point(|&(at_ns, _)| (at_ns as f64) < end_ns);
        self.counts.after_end = (self.requests.len() - in_time) as u64;
        self.requests.truncate(in_time);
        self.counts.requests = in_time as u64;
    }

    /// Put requests that reach beyond the end of their image into it, or refuse them.
    ///
    /// # Errors
    /// If one does not fit, or is not to be put elsewhere.
    pub fn fit(&mut self, image_bytes: &[u64], beyond_end: BeyondEnd) -> Result<(), Failure> {
        for (_, request) in &mut self.requests {
            let (bytes, size) = (u64::from(request.bytes), image_bytes[request.image as usize]);
            let end = request.offset + bytes;
            if end <= size {
                continue;
            }
            if beyond_end == BeyondEnd::Refuse || bytes > size {
                return Err(Failure::new(
                    format!(
                        "a request of the trace, {bytes} bytes at {}, ends beyond image {}, which has {size} bytes",
                        request.offset, request.image
                    ),
                    "make the image as large as the volume was, or set beyond_end to wrap",
                ));
            }
            request.offset = (request.offset % size).min(size - bytes);
            self.counts.wrapped += 1;
        }
        Ok(())
    }

    /// What became of the records.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether anything is written.
    pub fn writes(&self) -> bool {
        self.longest(Direction::Write).is_some()
    }

    /// The longest request of a direction.
    pub(crate) fn longest(&self, direction: Direction) -> Option<u32> {
        let all = self.requests.iter().map(|(_, request)| request);
        let of_direction = all.filter(|request| request.direction == direction);
        of_direction.map(|request| request.bytes).max()
    }

    /// Memory of the requests.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.requests.len() as u64 * REQUEST_BYTES
    }
}

/// Which image the requests of a volume go to.
struct Images {
    count: usize,
    /// By name; without any, volumes have images in the order in which they appear.
    by_name: FxHashMap<String, usize>,
    /// By number of the volume.
    of_volumes: Vec<Option<u32>>,
}

impl Images {
    fn new(about: &ReplayPlan, count: usize) -> Self {
        Self {
            count,
            by_name: about.volumes.iter().cloned().zip(0..).collect(),
            of_volumes: Vec::new(),
        }
    }

    /// A trace may have named more volumes.
    fn note(&mut self, reader: &dyn TraceReader) {
        let known = self.of_volumes.len();
        for (number, name) in reader.names().volumes.iter().enumerate().skip(known) {
            let image = if self.by_name.is_empty() {
                Some(number)
            } else {
                self.by_name.get(name).copied()
            };
            let image = image.filter(|&image| image < self.count);
            self.of_volumes.push(image.map(|image| image as u32));
        }
    }

    fn of(&self, volume: u32) -> Option<u32> {
        // All of a trace that names no volumes is of one.
        if volume == UNKNOWN {
            return self.by_name.is_empty().then_some(0);
        }
        self.of_volumes.get(volume as usize).copied().flatten()
    }
}

fn unreadable(error: &TraceError) -> Failure {
    Failure::new(
        format!("the trace cannot be replayed: {error}"),
        "bathy size reads the same formats",
    )
}
