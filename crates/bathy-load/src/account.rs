//! What is counted: by second of completion, and for the measured time by intended start.

use std::collections::BTreeMap;
use std::ops::Range;

use hdrhistogram::Histogram;

use crate::plan::Direction;
use crate::requests::Request;
use crate::verify::Verified;

const SECOND_NS: u64 = 1_000_000_000;
/// Latencies up to an hour are told apart; longer ones count as an hour.
const LATENCY_NS_MAX: u64 = 3600 * SECOND_NS;

/// Why a request has no latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It failed, with a number of `errno.h`.
    Errno(i32),
    /// It had not completed at its deadline.
    Deadline,
    /// It had not even been sent at its deadline: too many were in flight, or this machine was too slow.
    NotSent,
}

/// A histogram of latencies whose buckets are 0.8 % wide.
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("bounds that are right")
}

/// What requests of one direction did.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Bytes of requests that completed.
    pub bytes: u64,
    /// Latency from the intended start, of requests that completed. Those that failed have none: percentiles count them as slower than any.
    pub from_intended: Histogram<u64>,
    /// Latency from the submission, of the same requests.
    pub from_submission: Histogram<u64>,
    /// The others.
    pub failed: BTreeMap<Fault, u64>,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            bytes: 0,
            from_intended: latencies(),
            from_submission: latencies(),
            failed: BTreeMap::new(),
        }
    }
}

/// Figures by direction; a direction without a request has none.
pub type ByDirection = [Option<Figures>; Direction::ALL.len()];

/// How many requests there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Intended starts; in a closed loop, requests that were sent.
    pub scheduled: u64,
    /// Given to the target.
    pub sent: u64,
    /// Sent late because as many were in flight as may be, or because those that had waited for that were sent first.
    pub held: u64,
}

/// A second of a load.
#[derive(Clone, Debug)]
pub struct Second {
    /// Its number, from the load's beginning.
    pub second: u64,
    /// Of requests that were sent, or given up unsent, in it.
    pub counts: Counts,
    /// What completed or failed in it.
    pub directions: ByDirection,
}

/// All of the measured time.
#[derive(Clone, Debug)]
pub struct Total {
    /// Requests whose intended start lies in it.
    pub counts: Counts,
    /// What became of them, whenever that was.
    pub directions: ByDirection,
    /// Requests and bytes that completed in it, whenever they started, by direction: the rate that was reached.
    pub completed: [(u64, u64); Direction::ALL.len()],
    /// How late requests of an open loop were sent through this machine alone. Those that others held back have none; of those
    /// that came while these were sent, what they waited after that counts.
    pub lateness: Histogram<u64>,
    /// Most requests that the target had at once.
    pub in_flight_max: u64,
    /// Requests that failed by their deadline and that the target has not given back.
    pub never_completed: u64,
    /// How much of the window had passed when the load ended: all of it, unless the number of requests ended it.
    pub measured_ns: u64,
    /// What was checked, where the plan asks for it, ramp included.
    pub verified: Option<Verified>,
}

/// What made a request start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Its time had come.
    Scheduled,
    /// Its time had come before, and others have completed.
    Held,
    /// Its time had come while those that were held back were sent; the last of them at this time.
    BehindHeld(u64),
    /// Another one has completed, in a closed loop.
    Completion,
}

/// A request that has been sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The request.
    pub request: Request,
    /// When it should have started.
    pub intended_ns: u64,
    /// When it was submitted.
    pub submitted_ns: u64,
}

/// Counts a load as it goes.
pub struct Account {
    window: Range<u64>,
    second: Second,
    total: Total,
}

impl Account {
    /// An account of what happens in `window`, in nanoseconds from the load's beginning.
    pub fn new(window: Range<u64>) -> Self {
        Self {
            window,
            second: Second::at(0),
            total: Total {
                counts: Counts::default(),
                directions: ByDirection::default(),
                completed: Default::default(),
                lateness: latencies(),
                in_flight_max: 0,
                never_completed: 0,
                measured_ns: 0,
                verified: None,
            },
        }
    }

    /// Seconds that are over at `now_ns` go to `sink`.
    pub fn pass(&mut self, now_ns: u64, sink: &mut impl FnMut(Second)) {
        while (self.second.second + 1) * SECOND_NS <= now_ns {
            let next = Second::at(self.second.second + 1);
            sink(std::mem::replace(&mut self.second, next));
        }
    }

    /// A request has been sent.
    pub fn sent(&mut self, sent: &Sent, start: Start, in_target: u64) {
        let count = |counts: &mut Counts| {
            counts.scheduled += 1;
            counts.sent += 1;
            counts.held += u64::from(matches!(start, Start::Held | Start::BehindHeld(_)));
        };
        count(&mut self.second.counts);
        if self.window.contains(&sent.intended_ns) {
            count(&mut self.total.counts);
            let since_ns = match start {
                Start::Scheduled => Some(sent.intended_ns),
                Start::BehindHeld(since_ns) => Some(since_ns),
                Start::Held | Start::Completion => None,
            };
            if let Some(since_ns) = since_ns {
                let late_ns = sent.submitted_ns - since_ns;
                self.total.lateness.saturating_record(late_ns);
            }
        }
        self.total.in_flight_max = self.total.in_flight_max.max(in_target);
    }

    /// A request has completed or failed.
    pub fn ended(&mut self, sent: &Sent, at_ns: u64, result: Result<(), Fault>) {
        let direction = sent.request.direction as usize;
        let bytes = u64::from(sent.request.bytes);
        let count = |figures: &mut Figures| match result {
            Ok(()) => {
                figures.bytes += bytes;
                figures
                    .from_intended
                    .saturating_record(at_ns.saturating_sub(sent.intended_ns));
                figures
                    .from_submission
                    .saturating_record(at_ns.saturating_sub(sent.submitted_ns));
            }
            Err(fault) => *figures.failed.entry(fault).or_default() += 1,
        };
        count(self.second.directions[direction].get_or_insert_default());
        if self.window.contains(&sent.intended_ns) {
            count(self.total.directions[direction].get_or_insert_default());
        }
        if result.is_ok() && self.window.contains(&at_ns) {
            self.total.completed[direction].0 += 1;
            self.total.completed[direction].1 += bytes;
        }
    }

    /// A request was too old to be sent.
    pub fn not_sent(&mut self, request: &Request, intended_ns: u64) {
        let sent = Sent {
            request: *request,
            intended_ns,
            submitted_ns: intended_ns,
        };
        self.second.counts.scheduled += 1;
        self.total.counts.scheduled += u64::from(self.window.contains(&intended_ns));
        self.ended(&sent, intended_ns, Err(Fault::NotSent));
    }

    /// The load has ended at this time, or when its window does.
    pub fn finish(mut self, ended_ns: u64, sink: &mut impl FnMut(Second)) -> Total {
        sink(self.second);
        self.total.measured_ns = ended_ns.min(self.window.end).saturating_sub(self.window.start);
        self.total
    }
}

impl Second {
    fn at(second: u64) -> Self {
        Self {
            second,
            counts: Counts::default(),
            directions: ByDirection::default(),
        }
    }
}
