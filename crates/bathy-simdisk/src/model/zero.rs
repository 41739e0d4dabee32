//! A device without service times, to measure what the simulation itself costs.

use super::{Device, Outcome, Request, Work};

/// Completes every request at the time of its submission.
#[derive(Debug, Default)]
pub struct Zero {
    due: Vec<Outcome>,
}

impl Device for Zero {
    fn submit(&mut self, request: Request, now_ns: u64) {
        self.due.push(Outcome::Completed {
            id: request.id,
            at_ns: now_ns + request.extra_ns,
        });
    }

    fn next_event_ns(&self) -> Option<u64> {
        self.due.iter().map(due_ns).min()
    }

    fn advance(&mut self, now_ns: u64, outcomes: &mut Vec<Outcome>) {
        if self.due.iter().all(|outcome| due_ns(outcome) <= now_ns) {
            outcomes.append(&mut self.due);
            return;
        }
        let (due, later): (Vec<_>, Vec<_>) =
            self.due.drain(..).partition(|outcome| due_ns(outcome) <= now_ns);
        self.due = later;
        outcomes.extend(due);
    }

    fn set_slowdown(&mut self, _factor: f64) {}

    fn power_cut(&mut self, _now_ns: u64) {
        self.due.clear();
    }

    fn work(&self) -> Work {
        Work::default()
    }

    fn is_volatile(&self) -> bool {
        false
    }
}

fn due_ns(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Completed { at_ns, .. } => *at_ns,
        Outcome::Durable { .. } => 0,
    }
}
