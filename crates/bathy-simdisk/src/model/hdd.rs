//! A hard disk: one arm, a turning platter, a command queue and two caches.
//!
//! The arm does one thing at a time. Its time is seek + wait for the sector + transfer, and the sector's angle follows
//! from absolute time, so a host that is late for the next sector pays a revolution. When the arm is free it takes the
//! command with the shortest access time, and waiting makes a command cheaper, so that none starves (aged
//! shortest-positioning-time-first: Jacobson and Wilkes, Disk scheduling algorithms based on rotational position, HP
//! Labs 1991; Worthington, Ganger and Patt, Scheduling algorithms for modern disk drives, SIGMETRICS 1994).
//!
//! What that is worth is stated by the data sheet of the Seagate Exos X16: 170 IOPS for 4 KiB random reads at depth 16. One
//! at a time they are about 83, by the drive's seeks and turns, so the gain is 2.05 times; the model of that drive gives 166
//! at depth 16 and 2.2 times at depth 32.
//!
//! Limits: no remapped sectors, no thermal recalibration, no shingled recording, no power states; a track switch always
//! takes the same time; reads of partly cached ranges are fetched whole.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::geometry::{Geometry, GeometryFigures};
use super::read_ahead::{Lookup, ReadAhead};
use super::seek::{SeekCurve, SeekFigures};
use super::write_cache::{Dirty, WriteCache};
use super::{Device, Op, Outcome, Request, RequestId, Settings, Work};

/// What a drive's service times follow from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HddFigures {
    /// Tracks, zones and rates.
    pub geometry: GeometryFigures,
    /// Seek times of reads.
    pub seek: SeekFigures,
    /// Time that a write seek takes longer than a read seek, to settle.
    pub write_settle_ns: u64,
    /// From the command's arrival until the arm may start for it. It overlaps with the command before.
    pub command_overhead_ns: u64,
    /// Rate of the interface, in bytes a second.
    pub interface_bytes_per_s: f64,
    /// Commands that the drive orders (NCQ: 32); more wait in order of arrival.
    pub queue_depth: usize,
    /// What a nanosecond of waiting takes off a command's access time when the next one is chosen.
    pub age_weight: f64,
    /// Segments of the read cache.
    pub read_segments: usize,
    /// Bytes of a segment.
    pub read_segment_bytes: u64,
    /// Bytes that a write cache holds.
    pub write_cache_bytes: u64,
    /// Whether the write cache is on unless [`Settings::write_cache`] says otherwise.
    pub write_cache: bool,
}

/// Extents of the write cache among which the next to be written is chosen.
const DESTAGE_CANDIDATES: usize = 128;
/// The longest run of cached extents that is written in one go.
const DESTAGE_RUN_BYTES: u64 = 1 << 20;
/// A drive does not keep data in its write cache for longer than about this when the host keeps it busy.
const DESTAGE_AGE_NS: u64 = 1_000_000_000;
/// A head that arrives this share of a turn after the sector's start is still in time: times are whole nanoseconds.
const ANGLE_TOLERANCE: f64 = 2e-6;

#[derive(Debug, Clone, Copy)]
struct Command {
    request: Request,
    arrived_ns: u64,
}

#[derive(Debug)]
enum Job {
    Read(Request),
    Write(Request),
    Destage(Vec<Dirty>),
}

#[derive(Debug)]
struct Running {
    job: Job,
    /// The byte after the last that passes under the head.
    end_byte: u64,
    ends_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Access {
    seek_ns: f64,
    rotation_ns: f64,
    /// Whether the arm moves, other than on to the next track of a stream.
    seeks: bool,
}

/// What the arm may do next.
#[derive(Debug, Clone, Copy)]
enum Choice {
    Queued(usize),
    Dirty((u64, u64)),
}

/// See the [module](self).
#[derive(Debug)]
pub struct Hdd {
    figures: HddFigures,
    geometry: Geometry,
    curve: SeekCurve,
    caches_writes: bool,
    slowdown: f64,
    /// Track and stroke where the arm stands.
    head: (u64, f64),
    head_byte: u64,
    running: Option<Running>,
    queue: Vec<Command>,
    beyond_queue: VecDeque<Command>,
    /// Writes for which the write cache has no room yet.
    blocked_writes: VecDeque<Command>,
    cache: WriteCache,
    read_ahead: ReadAhead,
    /// Completions that need no arm: time, order, request.
    electronic: BinaryHeap<Reverse<(u64, u64, RequestId)>>,
    order: u64,
    outcomes: Vec<Outcome>,
    now_ns: u64,
    work: Work,
}

impl Hdd {
    /// A drive whose arm stands at the outer edge.
    pub fn new(figures: HddFigures, settings: &Settings) -> Self {
        let geometry = Geometry::new(figures.geometry, settings.size_bytes);
        let place = geometry.place(0);
        Self {
            figures,
            curve: SeekCurve::fit(figures.seek),
            caches_writes: settings.write_cache.unwrap_or(figures.write_cache),
            slowdown: 1.0,
            head: (place.track, place.stroke),
            head_byte: 0,
            running: None,
            queue: Vec::with_capacity(figures.queue_depth),
            beyond_queue: VecDeque::new(),
            blocked_writes: VecDeque::new(),
            cache: WriteCache::default(),
            read_ahead: ReadAhead::new(figures.read_segments, figures.read_segment_bytes),
            electronic: BinaryHeap::new(),
            order: 0,
            outcomes: Vec::new(),
            now_ns: 0,
            work: Work::default(),
            geometry,
        }
    }

    /// The drive's tracks and zones.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The drive's seek curve.
    pub fn seek_curve(&self) -> &SeekCurve {
        &self.curve
    }

    fn overhead_ns(&self) -> u64 {
        (self.figures.command_overhead_ns as f64 * self.slowdown) as u64
    }

    /// The time of a command that needs no arm.
    fn electronic_ns(&self, request: &Request) -> u64 {
        let bus_ns = match request.op {
            Op::Read | Op::Write { .. } => request.length as f64 * 1e9 / self.figures.interface_bytes_per_s,
            Op::Flush | Op::Discard => 0.0,
        };
        self.overhead_ns() + (bus_ns * self.slowdown) as u64 + request.extra_ns
    }

    fn complete_electronically(&mut self, request: &Request, from_ns: u64) {
        self.order += 1;
        self.electronic.push(Reverse((
            from_ns + self.electronic_ns(request),
            self.order,
            request.id,
        )));
    }

    /// Where the arm stands at `now_ns`, reading ahead considered.
    fn head_at(&mut self, now_ns: u64) -> (u64, f64) {
        match self.read_ahead.head(&self.geometry, now_ns) {
            Some(byte) => {
                let place = self.geometry.place(byte.min(self.geometry.size_bytes() - 1));
                (place.track, place.stroke)
            }
            None => self.head,
        }
    }

    fn access(&self, head: (u64, f64), from_ns: u64, byte: u64, writes: bool) -> Access {
        let target = self.geometry.place(byte);
        let (track, stroke) = head;
        let (mut seek_ns, seeks) = match target.track.abs_diff(track) {
            0 => (0.0, false),
            1 => (self.figures.geometry.track_switch_ns as f64, false),
            _ => (self.curve.time_ns((target.stroke - stroke).abs()), true),
        };
        if seeks && writes {
            seek_ns += self.figures.write_settle_ns as f64;
        }
        let revolution_ns = self.geometry.revolution_ns();
        let arrival_ns = (from_ns % revolution_ns) as f64 + seek_ns;
        let mut turn = (target.angle - arrival_ns / revolution_ns as f64).rem_euclid(1.0);
        if turn > 1.0 - ANGLE_TOLERANCE {
            // Slightly negative, so that the rounding of a stream's times does not add up.
            turn -= 1.0;
        }
        Access {
            seek_ns,
            rotation_ns: turn * revolution_ns as f64,
            seeks,
        }
    }

    /// Give the arm its next job, if there is one.
    fn dispatch(&mut self, now_ns: u64) {
        if self.running.is_some() {
            return;
        }
        self.answer_hits(now_ns);
        let room = self.figures.queue_depth.saturating_sub(self.queue.len());
        let room = room.min(self.beyond_queue.len());
        self.queue.extend(self.beyond_queue.drain(..room));
        match self.choose(now_ns) {
            Some(Choice::Queued(index)) => {
                let command = self.queue.swap_remove(index);
                self.start_command(command, now_ns);
            }
            Some(Choice::Dirty(key)) => self.start_destage(key, now_ns),
            None => {}
        }
    }

    /// Queued reads that have come into the cache meanwhile.
    fn answer_hits(&mut self, now_ns: u64) {
        let mut index = 0;
        while index < self.queue.len() {
            let request = self.queue[index].request;
            let is_read = request.op == Op::Read;
            if is_read
                && self
                    .read_ahead
                    .lookup(&self.geometry, request.offset, request.length, now_ns)
                    == Lookup::Hit
            {
                self.work.cache_hits += 1;
                self.queue.swap_remove(index);
                self.complete_electronically(&request, now_ns);
            } else {
                index += 1;
            }
        }
    }

    fn choose(&mut self, now_ns: u64) -> Option<Choice> {
        let head = self.head_at(now_ns);
        let mut best: Option<(f64, u64, Choice)> = None;
        let mut offer = |cost: f64, arrived_ns: u64, choice: Choice| {
            let better = best.is_none_or(|(least, first, _)| (cost, arrived_ns) < (least, first));
            if better {
                best = Some((cost, arrived_ns, choice));
            }
        };
        for index in 0..self.queue.len() {
            let Command { request, arrived_ns } = self.queue[index];
            let from_ns = now_ns.max(arrived_ns + self.overhead_ns());
            let writes = request.op != Op::Read;
            let streams = !writes
                && matches!(
                    self.read_ahead
                        .lookup(&self.geometry, request.offset, request.length, now_ns),
                    Lookup::Streaming { .. }
                );
            let access_ns = if streams {
                0.0
            } else {
                let access = self.access(head, from_ns, request.offset, writes);
                (from_ns - now_ns) as f64 + access.seek_ns + access.rotation_ns
            };
            let age_ns = now_ns.saturating_sub(arrived_ns) as f64;
            offer(
                access_ns - age_ns * self.figures.age_weight,
                arrived_ns,
                Choice::Queued(index),
            );
        }
        let urgent = self.cache.flush_pending()
            || !self.blocked_writes.is_empty()
            || self.cache.bytes() > self.figures.write_cache_bytes / 4 * 3
            || self
                .cache
                .oldest_ns()
                .is_some_and(|since_ns| now_ns.saturating_sub(since_ns) > DESTAGE_AGE_NS);
        if !self.cache.is_empty() && (urgent || self.queue.is_empty()) {
            for dirty in self.cache.candidates(self.head_byte, DESTAGE_CANDIDATES) {
                let access = self.access(head, now_ns, dirty.offset, true);
                let age_ns = now_ns.saturating_sub(dirty.since_ns) as f64;
                let cost = access.seek_ns + access.rotation_ns - age_ns * self.figures.age_weight;
                offer(cost, dirty.since_ns, Choice::Dirty(dirty.key()));
            }
        }
        best.map(|(_, _, choice)| choice)
    }

    fn start_command(&mut self, command: Command, now_ns: u64) {
        let Command { request, arrived_ns } = command;
        let end_byte = request.offset + request.length;
        let lookup = match request.op {
            Op::Read => self
                .read_ahead
                .lookup(&self.geometry, request.offset, request.length, now_ns),
            _ => Lookup::Miss,
        };
        if let Lookup::Streaming { from } = lookup {
            // The head is on its way there already.
            let transfer_ns = self.geometry.stream_ns(from, end_byte - from) * self.slowdown;
            let ends_ns =
                (now_ns + transfer_ns.round() as u64).max(arrived_ns + self.overhead_ns()) + request.extra_ns;
            self.work.transfer_ns += transfer_ns as u64;
            self.work.media_read_bytes += end_byte - from;
            self.run(Job::Read(request), end_byte, now_ns, ends_ns);
            return;
        }
        let from_ns = now_ns.max(arrived_ns + self.overhead_ns());
        let writes = request.op != Op::Read;
        let passage_ns = self.passage_ns(from_ns, request.offset, request.length, writes);
        if writes {
            self.work.media_write_bytes += request.length;
        } else {
            self.work.media_read_bytes += request.length;
        }
        let job = if writes {
            Job::Write(request)
        } else {
            Job::Read(request)
        };
        self.run(job, end_byte, now_ns, from_ns + passage_ns + request.extra_ns);
    }

    fn start_destage(&mut self, key: (u64, u64), now_ns: u64) {
        let run = self.cache.take_run(key, DESTAGE_RUN_BYTES);
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return;
        };
        let (offset, end_byte) = (first.offset, last.offset + last.length);
        let passage_ns = self.passage_ns(now_ns, offset, end_byte - offset, true);
        self.work.media_write_bytes += end_byte - offset;
        self.run(Job::Destage(run), end_byte, now_ns, now_ns + passage_ns);
    }

    /// Seek, rotation and transfer of a range, counted.
    fn passage_ns(&mut self, from_ns: u64, offset: u64, length: u64, writes: bool) -> u64 {
        let head = self.head_at(from_ns);
        let access = self.access(head, from_ns, offset, writes);
        let transfer_ns = self.geometry.stream_ns(offset, length);
        let slowdown = self.slowdown;
        let scaled = |time_ns: f64| (time_ns * slowdown).round().max(0.0) as u64;
        self.work.seeks += u64::from(access.seeks);
        self.work.seek_ns += scaled(access.seek_ns);
        self.work.rotation_ns += scaled(access.rotation_ns);
        self.work.transfer_ns += scaled(transfer_ns);
        scaled(access.seek_ns + access.rotation_ns + transfer_ns)
    }

    fn run(&mut self, job: Job, end_byte: u64, now_ns: u64, ends_ns: u64) {
        self.read_ahead.stop(&self.geometry, now_ns);
        self.work.mechanism_busy_ns += ends_ns - now_ns;
        self.running = Some(Running {
            job,
            end_byte,
            ends_ns,
        });
    }

    fn finish(&mut self, running: Running) {
        let Running {
            job,
            end_byte,
            ends_ns,
        } = running;
        let place = self.geometry.place(end_byte.min(self.geometry.size_bytes()) - 1);
        self.head = (place.track, place.stroke);
        self.head_byte = end_byte;
        match job {
            Job::Read(request) => {
                self.complete(request.id, ends_ns);
                let idle = self.queue.is_empty() && self.beyond_queue.is_empty();
                self.read_ahead
                    .fetched(&self.geometry, request.offset, end_byte, idle, ends_ns);
            }
            Job::Write(request) => {
                self.read_ahead.invalidate(request.offset, request.length);
                self.outcomes.push(Outcome::Durable { id: request.id });
                self.complete(request.id, ends_ns);
            }
            Job::Destage(run) => {
                let (writes, flushes) = self.cache.written(run);
                self.outcomes
                    .extend(writes.into_iter().map(|id| Outcome::Durable { id }));
                for id in flushes {
                    self.complete(id, ends_ns);
                }
                self.admit_blocked(ends_ns);
            }
        }
        self.dispatch(ends_ns);
    }

    fn complete(&mut self, id: RequestId, at_ns: u64) {
        self.outcomes.push(Outcome::Completed { id, at_ns });
    }

    fn admit_blocked(&mut self, now_ns: u64) {
        while let Some(command) = self.blocked_writes.front().copied() {
            if !self.has_room(command.request.length) {
                break;
            }
            self.blocked_writes.pop_front();
            self.cache_write(&command.request, now_ns);
        }
    }

    fn has_room(&self, length: u64) -> bool {
        self.cache.bytes() == 0 || self.cache.bytes() + length <= self.figures.write_cache_bytes
    }

    fn cache_write(&mut self, request: &Request, now_ns: u64) {
        self.read_ahead.invalidate(request.offset, request.length);
        self.cache
            .insert(request.id, request.offset, request.length, now_ns);
        self.complete_electronically(request, now_ns);
    }

    fn run_until(&mut self, now_ns: u64) {
        while let Some(time_ns) = self.next_step_ns().filter(|&time_ns| time_ns <= now_ns) {
            let due = self.electronic.peek().copied();
            if let Some(Reverse((at_ns, _, id))) = due.filter(|Reverse((at_ns, _, _))| *at_ns == time_ns) {
                self.electronic.pop();
                self.complete(id, at_ns);
            } else if let Some(running) = self.running.take() {
                self.finish(running);
            }
        }
        self.now_ns = self.now_ns.max(now_ns);
    }

    fn next_step_ns(&self) -> Option<u64> {
        let electronic = self.electronic.peek().map(|Reverse((at_ns, _, _))| *at_ns);
        let arm = self.running.as_ref().map(|running| running.ends_ns);
        electronic.into_iter().chain(arm).min()
    }
}

impl Device for Hdd {
    fn submit(&mut self, request: Request, now_ns: u64) {
        self.run_until(now_ns);
        let command = Command {
            request,
            arrived_ns: now_ns,
        };
        match request.op {
            Op::Read => {
                let hit = self.cache.holds(request.offset, request.length)
                    || self
                        .read_ahead
                        .lookup(&self.geometry, request.offset, request.length, now_ns)
                        == Lookup::Hit;
                if hit {
                    self.work.cache_hits += 1;
                    self.complete_electronically(&request, now_ns);
                } else {
                    self.beyond_queue.push_back(command);
                }
            }
            Op::Write { durable } if durable || !self.caches_writes => self.beyond_queue.push_back(command),
            Op::Write { .. } => {
                if self.blocked_writes.is_empty() && self.has_room(request.length) {
                    self.cache_write(&request, now_ns);
                } else {
                    self.blocked_writes.push_back(command);
                }
            }
            Op::Flush => {
                if self.cache.flush(request.id) {
                    self.complete_electronically(&request, now_ns);
                }
            }
            Op::Discard => self.complete_electronically(&request, now_ns),
        }
        self.dispatch(now_ns);
    }

    fn next_event_ns(&self) -> Option<u64> {
        if self.outcomes.is_empty() {
            self.next_step_ns()
        } else {
            Some(self.now_ns)
        }
    }

    fn advance(&mut self, now_ns: u64, outcomes: &mut Vec<Outcome>) {
        self.run_until(now_ns);
        outcomes.append(&mut self.outcomes);
    }

    fn set_slowdown(&mut self, factor: f64) {
        self.slowdown = factor;
    }

    fn power_cut(&mut self, now_ns: u64) {
        self.run_until(now_ns);
        self.running = None;
        self.queue.clear();
        self.beyond_queue.clear();
        self.blocked_writes.clear();
        self.cache = WriteCache::default();
        self.read_ahead.clear();
        self.electronic.clear();
        self.outcomes.clear();
    }

    fn work(&self) -> Work {
        Work {
            volatile_bytes: self.cache.bytes(),
            ..self.work
        }
    }

    fn is_volatile(&self) -> bool {
        // Without a write cache a write in flight can still be torn.
        true
    }
}
