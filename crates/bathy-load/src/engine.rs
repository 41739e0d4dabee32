//! Sending: one thread that follows the schedule, whatever completes.
//!
//! The thread sends what is due, takes what has completed, and sleeps until the next arrival. Completions carry the time
//! at which they happened, so it does not matter when they are taken. Two things can delay a request beyond its intended
//! start: so many are in flight as may be (it is *held*, counted, and its latency has the wait), or this program came
//! too late (its *lateness*, which is measured and stated). Every request ends by its deadline.

use std::collections::VecDeque;

use crate::account::{Account, Fault, Second, Sent, Start, Total};
use crate::arrivals::Arrivals;
use crate::buffers::Buffers;
use crate::failure::Failure;
use crate::plan::{Arrival, Plan, Process};
use crate::random::Random;
use crate::requests::{Request, Requests};
use crate::verify::{Expected, Verifier};
use crate::world::{Done, World};

/// Requests that are sent before completions are looked at again.
const SENT_AT_ONCE: u32 = 64;
const ARRIVALS: u64 = 1 << 32;
const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    InFlight,
    /// Its deadline is over; the target still has it.
    Expired,
}

struct Slot {
    state: State,
    serial: u64,
    sent: Sent,
    expected: Expected,
}

/// When requests start.
enum Source {
    Open {
        arrivals: Arrivals,
        /// The next one, and what it is.
        next: Option<(u64, Request)>,
        /// The image of a constant rate that is next.
        turn: usize,
        by_chance: Option<Random>,
    },
    Closed {
        /// Images that may get another request.
        ready: VecDeque<u32>,
    },
}

/// A load: what it needs is made before its clock begins, so that no request is late for it.
pub struct Engine<'a, W> {
    world: &'a mut W,
    requests: Vec<Requests>,
    buffers: Buffers,
    verifier: Option<Verifier>,
    account: Account,
    source: Source,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots in flight by intended start, with the serial number that they had then.
    order: VecDeque<(u32, u64)>,
    in_flight: u64,
    in_flight_max: u64,
    /// Requests that may still start.
    left: u64,
    serial: u64,
    end_ns: u64,
    deadline_ns: u64,
    /// A request is due and no more may be in flight.
    is_full: bool,
    /// When that ended last.
    full_until_ns: Option<u64>,
}

fn source(plan: &Plan, images: usize) -> Source {
    match plan.arrival {
        Arrival::Open(schedule) => {
            let rate_iops = Plan::rate_iops(&schedule, images);
            let random = Random::new(plan.seed, ARRIVALS);
            let by_chance = Random::new(plan.seed, ARRIVALS + 1);
            Source::Open {
                arrivals: Arrivals::new(&schedule, rate_iops, random),
                next: None,
                turn: 0,
                by_chance: (schedule.process == Process::Poisson).then_some(by_chance),
            }
        }
        Arrival::Closed { queue_depth } => {
            let rounds = (0..queue_depth).flat_map(|_| 0..images as u32);
            Source::Closed {
                ready: rounds.collect(),
            }
        }
    }
}

impl<'a, W: World> Engine<'a, W> {
    /// A load on images of these sizes.
    ///
    /// # Errors
    /// If the plan does not fit the images.
    pub fn new(plan: &Plan, image_bytes: &[u64], world: &'a mut W) -> Result<Self, Failure> {
        let requests = image_bytes.iter().zip(0..);
        let requests = requests
            .map(|(&bytes, image)| Requests::new(plan, image, bytes))
            .collect::<Result<Vec<_>, _>>()?;
        let nanoseconds = |seconds: f64| (seconds * 1e9).round() as u64;
        let start_ns = nanoseconds(plan.ramp_s);
        let end_ns = start_ns + nanoseconds(plan.duration_s);
        Ok(Self {
            world,
            source: source(plan, image_bytes.len()),
            requests,
            buffers: Buffers::new(plan),
            verifier: Verifier::new(plan),
            account: Account::new(start_ns..end_ns),
            slots: Vec::new(),
            free: Vec::new(),
            order: VecDeque::new(),
            in_flight: 0,
            in_flight_max: plan.in_flight_max(image_bytes.len()),
            left: plan.request_count.unwrap_or(u64::MAX),
            serial: 0,
            end_ns,
            deadline_ns: nanoseconds(plan.deadline_s),
            is_full: false,
            full_until_ns: None,
        })
    }

    /// Its clock begins.
    pub fn begin(&mut self) {
        self.world.begin();
    }

    /// Run it to its end. Seconds go to `sink` when they are over.
    pub fn run(mut self, sink: &mut impl FnMut(Second)) -> Total {
        self.go_on(sink);
        let never_completed = self.in_target() - self.in_flight;
        Total {
            never_completed,
            verified: self.verifier.map(Verifier::finish),
            ..self.account.finish(sink)
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

    /// Requests that the target has, those that are expired included.
    fn in_target(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
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
                return (self.in_flight > 0).then_some((u64::MAX, true));
            };
            if intended_ns > now_ns {
                return Some((intended_ns, false));
            }
            if intended_ns + self.deadline_ns <= now_ns {
                self.account.not_sent(&request, intended_ns);
            } else if self.in_target() >= self.in_flight_max {
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
        let Source::Open {
            arrivals,
            next,
            turn,
            by_chance,
        } = &mut self.source
        else {
            return;
        };
        let end_ns = self.end_ns;
        let at_ns = arrivals.next().filter(|&at_ns| at_ns < end_ns && self.left > 0);
        *next = at_ns.map(|at_ns| {
            self.left -= 1;
            let images = self.requests.len();
            let image = match by_chance {
                Some(random) => random.below(images as u64) as usize,
                None => std::mem::replace(turn, (*turn + 1) % images),
            };
            (at_ns, self.requests[image].next_request())
        });
    }

    fn send_ready(&mut self, mut now_ns: u64) -> Option<(u64, bool)> {
        for _ in 0..SENT_AT_ONCE {
            let Source::Closed { ready } = &mut self.source else {
                unreachable!("the loop is closed");
            };
            if now_ns >= self.end_ns || self.left == 0 {
                return (self.in_flight > 0).then_some((u64::MAX, true));
            }
            if ready.is_empty() || (self.slots.len() - self.free.len()) as u64 >= self.in_flight_max {
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
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        let mut memory = self.buffers.take(&request);
        let expected = match &mut self.verifier {
            Some(verifier) => verifier.send(&request, memory.memory()),
            None => Expected::Nothing,
        };
        self.serial += 1;
        let submitted_ns = self.world.now_ns();
        let start = match self.source {
            Source::Closed { .. } => Start::Completion,
            Source::Open { .. } if self.full_until_ns.is_some_and(|until_ns| intended_ns <= until_ns) => {
                Start::Held
            }
            Source::Open { .. } => Start::Scheduled,
        };
        let sent = Sent {
            request,
            intended_ns: match start {
                Start::Completion => submitted_ns,
                Start::Scheduled | Start::Held => intended_ns,
            },
            submitted_ns,
        };
        let filled = Slot {
            state: State::InFlight,
            serial: self.serial,
            sent,
            expected,
        };
        match self.slots.get_mut(slot as usize) {
            Some(free) => *free = filled,
            None => self.slots.push(filled),
        }
        self.order.push_back((slot, self.serial));
        self.in_flight += 1;
        self.account.sent(&sent, start, self.in_flight);
        self.world.submit(slot, &request, memory);
        submitted_ns
    }

    fn completed(&mut self, done: Done) {
        let slot = &mut self.slots[done.slot as usize];
        let (state, sent) = (slot.state, slot.sent);
        slot.state = State::Free;
        if let Some(verifier) = &mut self.verifier {
            verifier.completed(
                &sent.request,
                &slot.expected,
                done.result.is_ok(),
                done.memory.data(),
            );
        }
        self.free.push(done.slot);
        self.buffers.give_back(&sent.request, done.memory);
        if state == State::InFlight {
            let result = done.result.map_err(Fault::Errno);
            self.ended(&sent, done.at_ns, result);
        }
    }

    fn ended(&mut self, sent: &Sent, at_ns: u64, result: Result<(), Fault>) {
        self.in_flight -= 1;
        self.account.ended(sent, at_ns, result);
        if let Source::Closed { ready } = &mut self.source {
            ready.push_back(sent.request.image);
        }
    }

    /// When the oldest request fails by its deadline.
    fn next_deadline(&mut self) -> u64 {
        while let Some(&(slot, serial)) = self.order.front() {
            let slot = &self.slots[slot as usize];
            if slot.serial == serial && slot.state == State::InFlight {
                return slot.sent.intended_ns + self.deadline_ns;
            }
            self.order.pop_front();
        }
        u64::MAX
    }

    fn expire(&mut self, now_ns: u64) {
        while self.next_deadline() <= now_ns {
            let Some((slot, _)) = self.order.pop_front() else {
                return;
            };
            let slot = &mut self.slots[slot as usize];
            slot.state = State::Expired;
            let sent = slot.sent;
            self.ended(&sent, now_ns, Err(Fault::Deadline));
        }
    }
}
