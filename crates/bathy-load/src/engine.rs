//! Sending: one thread that follows the schedule, whatever completes.
//!
//! The thread sends what is due, takes what has completed, and sleeps until the next arrival. Completions carry the time
//! at which they happened, so it does not matter when they are taken. Two things can delay a request beyond its intended
//! start: so many are in flight as may be (it is *held*, counted, and its latency has the wait), or this program came
//! too late (its *lateness*, which is measured and stated). Every request ends before its deadline or fails by it.

use std::collections::VecDeque;

use bathy_random::Random;

use crate::account::{Account, Fault, Second, Sent, Start, Total};
use crate::arrivals::Arrivals;
use crate::buffers::Buffers;
use crate::failure::Failure;
use crate::in_flight::InFlight;
use crate::plan::{Arrival, Plan, Process};
use crate::replay::{Counts, Replay};
use crate::requests::{Request, Requests};
use crate::verify::{Expected, Verifier};
use crate::world::{Done, World};

/// Requests that are sent before completions are looked at again.
const SENT_AT_ONCE: u32 = 64;
const ARRIVALS: u64 = 1 << 32;
const SECOND_NS: u64 = 1_000_000_000;

/// When requests start.
enum Source {
    Open {
        arrivals: Starts,
        /// The next one, and what it is.
        next: Option<(u64, Request)>,
    },
    Closed {
        /// Images that may get another request.
        ready: VecDeque<u32>,
    },
}

/// What an open loop sends, and when.
enum Starts {
    Drawn {
        arrivals: Arrivals,
        /// The image of a constant rate that is next.
        turn: usize,
        by_chance: Option<Random>,
    },
    Recorded(std::vec::IntoIter<(u64, Request)>),
}

impl Starts {
    fn next(&mut self, requests: &mut [Requests]) -> Option<(u64, Request)> {
        match self {
            Self::Drawn {
                arrivals,
                turn,
                by_chance,
            } => {
                let at_ns = arrivals.next()?;
                let images = requests.len();
                let image = match by_chance {
                    Some(random) => random.below(images as u64) as usize,
                    None => std::mem::replace(turn, (*turn + 1) % images),
                };
                Some((at_ns, requests[image].next_request()))
            }
            Self::Recorded(recorded) => recorded.next(),
        }
    }
}

/// A load: what it needs is made before its clock begins, so that no request is late for it.
pub struct Engine<'a, W> {
    world: &'a mut W,
    requests: Vec<Requests>,
    buffers: Buffers,
    verifier: Option<Verifier>,
    account: Account,
    source: Source,
    in_flight: InFlight,
    in_flight_max: u64,
    /// Requests that may still start.
    left: u64,
    /// It has ended before its time: all of these have started, or all of a trace.
    is_cut: bool,
    end_ns: u64,
    deadline_ns: u64,
    /// A request is due and no more may be in flight.
    is_full: bool,
    /// When that ended last.
    replayed: Option<Counts>,
    full_until_ns: Option<u64>,
    /// When the last request was sent that had come until then.
    backlog_sent_ns: Option<u64>,
}

fn source(plan: &Plan, replay: Option<Replay>, images: usize) -> Source {
    let open = |arrivals| Source::Open { arrivals, next: None };
    match &plan.arrival {
        Arrival::Open(schedule) => {
            let rate_iops = Plan::rate_iops(schedule, images);
            let random = Random::of_stream(plan.seed, ARRIVALS);
            let by_chance = Random::of_stream(plan.seed, ARRIVALS + 1);
            open(Starts::Drawn {
                arrivals: Arrivals::new(schedule, rate_iops, random),
                turn: 0,
                by_chance: (schedule.process == Process::Poisson).then_some(by_chance),
            })
        }
        Arrival::Replay(_) => {
            let recorded = replay.map(|replay| replay.requests).unwrap_or_default();
            open(Starts::Recorded(recorded.into_iter()))
        }
        &Arrival::Closed { queue_depth } => {
            let rounds = (0..queue_depth).flat_map(|_| 0..images as u32);
            Source::Closed {
                ready: rounds.collect(),
            }
        }
    }
}

impl<'a, W: World> Engine<'a, W> {
    /// A load on images of these sizes; of a plan that replays a trace, with the trace.
    ///
    /// # Errors
    /// If plan or trace do not fit the images, or the memory that the load may take.
    pub fn new(
        plan: &Plan,
        mut replay: Option<Replay>,
        image_bytes: &[u64],
        world: &'a mut W,
    ) -> Result<Self, Failure> {
        if let (Some(replay), Some(about)) = (&mut replay, plan.replay()) {
            replay.fit(image_bytes, about.beyond_end)?;
        }
        let requests = image_bytes.iter().zip(0..);
        let requests = requests
            .map(|(&bytes, image)| Requests::new(plan, image, bytes))
            .collect::<Result<Vec<_>, _>>()?;
        let working_sets = requests.iter().map(Requests::working_set_bytes);
        let touched_bytes = working_sets.clone().fold(0, u64::saturating_add);
        plan.check_memory(image_bytes.len(), touched_bytes)?;
        let replay_bytes = replay.as_ref().map_or(0, Replay::memory_bytes);
        let data_bytes_max = plan.memory_bytes_max - plan.verify_bytes(touched_bytes) - replay_bytes;
        let replayed = replay.as_ref().map(Replay::counts);
        let verifier = Verifier::new(plan, working_sets);
        let buffers = Buffers::new(plan, replay.as_ref(), data_bytes_max);
        let nanoseconds = |seconds: f64| (seconds * 1e9).round() as u64;
        let start_ns = nanoseconds(plan.ramp_s);
        let end_ns = start_ns + nanoseconds(plan.duration_s);
        Ok(Self {
            world,
            source: source(plan, replay, image_bytes.len()),
            requests,
            buffers,
            verifier,
            account: Account::new(start_ns..end_ns),
            in_flight: InFlight::new(),
            in_flight_max: plan.in_flight_max(image_bytes.len()),
            left: plan.request_count.unwrap_or(u64::MAX),
            is_cut: false,
            end_ns,
            deadline_ns: nanoseconds(plan.deadline_s),
            is_full: false,
            replayed,
            full_until_ns: None,
            backlog_sent_ns: None,
        })
    }

    /// What became of the records of the trace that it replays.
    pub fn replayed(&self) -> Option<Counts> {
        self.replayed
    }

    /// Its clock begins.
    pub fn begin(&mut self) {
        self.world.begin();
    }

    /// Run it to its end. Seconds go to `sink` when they are over.
    pub fn run(mut self, sink: &mut impl FnMut(Second)) -> Total {
        self.go_on(sink);
        let ended_ns = if self.is_cut {
            self.world.now_ns()
        } else {
            self.end_ns
        };
        let world = self.world;
        let object = |image, offset| world.object(image, offset);
        Total {
            never_completed: self.in_flight.in_target(),
            verified: self.verifier.map(|verifier| verifier.finish(object)),
            ..self.account.finish(ended_ns, sink)
        }
    }

    fn go_on(&mut self, sink: &mut impl FnMut(Second)) {
        let mut done = Vec::new();
        self.schedule_next();
        loop {
            let now_ns = self.world.now_ns();
            self.world.take(&mut done);
            for done in done.drain(..) {
                // One that came before others are taken may belong to a second that is over for them.
                self.account.pass(done.at_ns, sink);
                self.completed(done);
            }
            self.account.pass(now_ns, sink);
            self.expire(now_ns);
            let Some((until_ns, for_completion)) = self.send(now_ns) else {
                return;
            };
            let second_ns = (now_ns / SECOND_NS + 1) * SECOND_NS;
            let until_ns = until_ns.min(second_ns).min(self.next_deadline());
            self.world.wait(until_ns, for_completion);
        }
    }

    /// Send what is due. Returns until when nothing is, and whether completions change that; None when all is over.
    fn send(&mut self, now_ns: u64) -> Option<(u64, bool)> {
        match self.source {
            Source::Open { .. } => self.send_due(now_ns),
            Source::Closed { .. } => self.send_ready(now_ns),
        }
    }

    fn send_due(&mut self, mut now_ns: u64) -> Option<(u64, bool)> {
        if std::mem::take(&mut self.is_full) {
            self.full_until_ns = Some(now_ns);
        }
        for _ in 0..SENT_AT_ONCE {
            let Source::Open {
                next: Some((intended_ns, request)),
                ..
            } = self.source
            else {
                return (self.in_flight.waiting() > 0).then_some((u64::MAX, true));
            };
            if intended_ns > now_ns {
                return Some((intended_ns, false));
            }
            if intended_ns + self.deadline_ns <= now_ns {
                self.account.not_sent(&request, intended_ns);
            } else if self.in_flight.in_target() >= self.in_flight_max || !self.buffers.has_room(&request) {
                self.is_full = true;
                return Some((intended_ns + self.deadline_ns, true));
            } else {
                now_ns = self.submit(request, intended_ns);
            }
            self.schedule_next();
        }
        Some((now_ns, false))
    }

    /// Draw the next arrival of an open loop.
    fn schedule_next(&mut self) {
        let Source::Open { arrivals, next } = &mut self.source else {
            return;
        };
        let end_ns = self.end_ns;
        let drawn = arrivals.next(&mut self.requests);
        let is_over = drawn.is_none();
        let drawn = drawn.filter(|&(at_ns, _)| at_ns < end_ns);
        self.is_cut = is_over || (drawn.is_some() && self.left == 0);
        *next = drawn.filter(|_| self.left > 0);
        self.left -= u64::from(next.is_some());
    }

    fn send_ready(&mut self, mut now_ns: u64) -> Option<(u64, bool)> {
        for _ in 0..SENT_AT_ONCE {
            let Source::Closed { ready } = &mut self.source else {
                unreachable!("the loop is closed");
            };
            if now_ns >= self.end_ns || self.left == 0 {
                self.is_cut = self.left == 0;
                return (self.in_flight.waiting() > 0).then_some((u64::MAX, true));
            }
            if ready.is_empty() || self.in_flight.in_target() >= self.in_flight_max {
                return Some((self.end_ns, true));
            }
            let image = ready.pop_front().map_or(0, |image| image as usize);
            self.left -= 1;
            let request = self.requests[image].next_request();
            now_ns = self.submit(request, now_ns);
        }
        Some((now_ns, false))
    }

    /// Give a request to the target; returns when.
    fn submit(&mut self, request: Request, intended_ns: u64) -> u64 {
        let mut memory = self.buffers.take(&request);
        let expected = match &mut self.verifier {
            Some(verifier) => verifier.send(&request, memory.memory()),
            None => Expected::Nothing,
        };
        let submitted_ns = self.world.now_ns();
        let start = self.start(intended_ns, submitted_ns);
        let sent = Sent {
            request,
            intended_ns: match start {
                Start::Completion => submitted_ns,
                Start::Scheduled | Start::Held | Start::BehindHeld(_) => intended_ns,
            },
            submitted_ns,
        };
        let slot = self.in_flight.add(sent, expected);
        self.account.sent(&sent, start, self.in_flight.in_target());
        self.world.submit(slot, &request, memory);
        submitted_ns
    }

    /// What made a request start now. Those that come while a backlog is sent are late through it and not through this
    /// machine; but only the backlog that there was when it could be sent, so that a machine that is too slow is seen.
    fn start(&mut self, intended_ns: u64, submitted_ns: u64) -> Start {
        if let Source::Closed { .. } = self.source {
            return Start::Completion;
        }
        if self.full_until_ns.is_some_and(|until_ns| intended_ns < until_ns) {
            self.backlog_sent_ns = Some(submitted_ns);
            return Start::Held;
        }
        let behind = self.backlog_sent_ns.filter(|&sent_ns| intended_ns < sent_ns);
        behind.map_or(Start::Scheduled, Start::BehindHeld)
    }

    fn completed(&mut self, done: Done) {
        let (sent, expected, is_waiting) = self.in_flight.remove(done.slot);
        let is_ok = done.result.is_ok();
        if let Some(verifier) = &mut self.verifier {
            verifier.completed(&sent.request, &expected, is_ok, done.memory.data());
        }
        self.buffers.give_back(&sent.request, done.memory);
        if let Source::Closed { ready } = &mut self.source {
            ready.push_back(sent.request.image);
        }
        if is_waiting {
            let is_late = done.at_ns >= sent.intended_ns + self.deadline_ns;
            let result = done.result.map_err(Fault::Errno);
            let result = if is_late { Err(Fault::Deadline) } else { result };
            self.account.ended(&sent, done.at_ns, result);
        }
    }

    /// When the oldest request fails by its deadline.
    fn next_deadline(&self) -> u64 {
        let oldest = self.in_flight.oldest();
        oldest.map_or(u64::MAX, |sent| sent.intended_ns + self.deadline_ns)
    }

    fn expire(&mut self, now_ns: u64) {
        while self.next_deadline() <= now_ns {
            if let Some(sent) = self.in_flight.expire_oldest() {
                self.account.ended(&sent, now_ns, Err(Fault::Deadline));
            }
        }
    }
}
