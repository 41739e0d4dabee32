//! Requests that the target has, and which of them is the oldest.

use crate::account::Sent;
use crate::verify::Expected;

/// No slot.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Waiting,
    /// It has failed by its deadline; the target still has it.
    Expired,
}

struct Slot {
    state: State,
    sent: Sent,
    expected: Expected,
    /// Of those that wait, the one that was sent before, and the one after.
    before: u32,
    after: u32,
}

/// Requests that the target has, each in a slot of its own. They are added in the order of their intended starts.
pub(crate) struct InFlight {
    slots: Vec<Slot>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    waiting: u64,
}

impl InFlight {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
            waiting: 0,
        }
    }

    /// How many the target has.
    pub(crate) fn in_target(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }

    /// How many of them have not failed by their deadline.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// A request goes to the target; returns its slot.
    pub(crate) fn add(&mut self, sent: Sent, expected: Expected) -> u32 {
        let filled = Slot {
            state: State::Waiting,
            sent,
            expected,
            before: self.newest,
            after: NONE,
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = filled;
            slot
        } else {
            self.slots.push(filled);
            (self.slots.len() - 1) as u32
        };
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.slots[newest as usize].after = slot,
        }
        self.newest = slot;
        self.waiting += 1;
        slot
    }

    /// The target gives a request back; false: it had failed by its deadline.
    pub(crate) fn remove(&mut self, slot: u32) -> (Sent, Expected, bool) {
        let is_waiting = self.slots[slot as usize].state == State::Waiting;
        if is_waiting {
            self.leave(slot, State::Free);
        }
        self.free.push(slot);
        let slot = &mut self.slots[slot as usize];
        slot.state = State::Free;
        (slot.sent, std::mem::take(&mut slot.expected), is_waiting)
    }

    /// The one that has waited longest.
    pub(crate) fn oldest(&self) -> Option<&Sent> {
        (self.oldest != NONE).then(|| &self.slots[self.oldest as usize].sent)
    }

    /// The one that has waited longest has failed by its deadline.
    pub(crate) fn expire_oldest(&mut self) -> Option<Sent> {
        let sent = *self.oldest()?;
        self.leave(self.oldest, State::Expired);
        Some(sent)
    }

    /// A request waits no longer.
    fn leave(&mut self, slot: u32, state: State) {
        let left = &mut self.slots[slot as usize];
        left.state = state;
        let (before, after) = (left.before, left.after);
        match before {
            NONE => self.oldest = after,
            before => self.slots[before as usize].after = after,
        }
        match after {
            NONE => self.newest = before,
            after => self.slots[after as usize].before = before,
        }
        self.waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::plan::Direction;
    use crate::requests::Request;

    fn sent(intended_ns: u64) -> Sent {
        Sent {
            request: Request {
                image: 0,
                kind: 0,
                direction: Direction::Read,
                offset: 0,
                bytes: 512,
            },
            intended_ns,
            submitted_ns: intended_ns,
        }
    }

    proptest! {
        /// Against a list of all that wait, oldest first, and one of all that have failed.
        #[test]
        fn the_oldest_is_the_oldest_whatever_has_completed(steps in prop::collection::vec((0_u8..4, any::<prop::sample::Index>()), 1..200)) {
            let mut in_flight = InFlight::new();
            let (mut waiting, mut expired) = (VecDeque::new(), Vec::new());
            for (number, (step, which)) in (0_u64..).zip(steps) {
                match step {
                    0 | 1 => waiting.push_back((number, in_flight.add(sent(number), Expected::Nothing))),
                    2 if !waiting.is_empty() => {
                        let (of, slot) = waiting.remove(which.index(waiting.len())).unwrap();
                        let (sent, _, is_waiting) = in_flight.remove(slot);
                        prop_assert_eq!((sent.intended_ns, is_waiting), (of, true));
                    }
                    2 if !expired.is_empty() => {
                        let (of, slot) = expired.swap_remove(which.index(expired.len()));
                        let (sent, _, is_waiting) = in_flight.remove(slot);
                        prop_assert_eq!((sent.intended_ns, is_waiting), (of, false));
                    }
                    _ => {
                        let oldest = waiting.pop_front();
                        prop_assert_eq!(in_flight.expire_oldest().map(|it| it.intended_ns), oldest.map(|it| it.0));
                        expired.extend(oldest);
                    }
                }
                prop_assert_eq!(in_flight.oldest().map(|it| it.intended_ns), waiting.front().map(|it| it.0));
                prop_assert_eq!(in_flight.waiting(), waiting.len() as u64);
                prop_assert_eq!(in_flight.in_target(), (waiting.len() + expired.len()) as u64);
            }
        }
    }
}
