//! The events of an operation, and the stages that follow from them.
//!
//! Only the events' times are used, and no order of events is assumed. What they mean is said where the dumps are asked for,
//! in `bathyscope.sources.op_history`.

use std::borrow::Cow;

use super::clock::Clock;
use crate::event::Op;
use crate::json::cursor::{Bad, Cursor};
use crate::text::u64_of;

/// The stages of an operation, which add up to its duration; none where the events are missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    /// Until it was taken up.
    pub queue_ns: Option<i64>,
    /// Until it was started, or sent to the replicas.
    pub prepare_ns: Option<i64>,
    /// Until the own commit, or until the read was done.
    pub store_ns: Option<i64>,
    /// From the own commit to the last of the replicas.
    pub replica_wait_ns: Option<i64>,
    /// The rest.
    pub reply_ns: Option<i64>,
}

/// What the events of an op say.
#[derive(Default)]
pub(crate) struct Events<'a> {
    /// The first and the last.
    pub(crate) span_ns: Option<(i64, i64)>,
    reached_ns: Option<i64>,
    waiting_ns: Option<i64>,
    started_ns: Option<i64>,
    commit_ns: Option<i64>,
    replica_commit_ns: Option<i64>,
    pub(crate) commit_sent_ns: Option<i64>,
    /// The last of those that name replicas.
    replicas: Option<(i64, Cow<'a, [u8]>)>,
}

impl<'a> Events<'a> {
    /// Reads the list at the cursor.
    pub(crate) fn read(cursor: &mut Cursor<'a>, clock: &mut Clock) -> Result<Self, Bad> {
        let mut events = Self::default();
        let mut elements = cursor.array("'events' is not a list")?;
        while cursor.element(&mut elements)? {
            let (mut name, mut at_ns) = (None, None);
            let mut members = cursor.object("an event is not an object")?;
            while let Some(key) = cursor.member(&mut members)? {
                match &*key {
                    b"event" => name = Some(cursor.string("the name of an event is not a string")?),
                    b"time" => at_ns = Some(clock.read(cursor)?),
                    _ => cursor.skip()?,
                }
            }
            let (Some(name), Some(at_ns)) = (name, at_ns) else {
                return Err((cursor.at(), "an event lacks its field 'event' or 'time'"));
            };
            events.add(at_ns, name);
        }
        Ok(events)
    }

    #[inline]
    fn add(&mut self, at_ns: i64, name: Cow<'a, [u8]>) {
        let (first, last) = self.span_ns.unwrap_or((at_ns, at_ns));
        self.span_ns = Some((first.min(at_ns), last.max(at_ns)));
        // "sub_op_commit_rec" and "sub_op_commit_rec from 2" are the same event.
        let is = |event: &[u8]| {
            name.strip_prefix(event)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b" from "))
        };
        let at = Some(at_ns);
        match name.first() {
            Some(b'r') if is(b"reached_pg") => {
                // An op that had to wait for its object reaches it again; all of that is preparation.
                self.reached_ns = self.reached_ns.map_or(at, |known| Some(known.min(at_ns)));
            }
            Some(b's') if is(b"started") => self.started_ns = self.started_ns.max(at),
            Some(b's') if is(b"sub_op_commit_rec") => self.replica_commit_ns = self.replica_commit_ns.max(at),
            Some(b'o') if is(b"op_commit") => self.commit_ns = self.commit_ns.max(at),
            Some(b'c') if *name == *b"commit_sent" => self.commit_sent_ns = self.commit_sent_ns.max(at),
            Some(b'w') if is(b"waiting for subops") => {
                self.waiting_ns = self.waiting_ns.max(at);
                let before = self.replicas.as_ref().map(|(at_ns, name)| (*at_ns, &**name));
                if name.len() > b"waiting for subops".len() && before < Some((at_ns, &*name)) {
                    self.replicas = Some((at_ns, name));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn stages(&self, op: Op) -> Stages {
        let (Some((begin, end)), Some(reached)) = (self.span_ns, self.reached_ns) else {
            return Stages::default();
        };
        let queued = Stages {
            queue_ns: Some(reached - begin),
            ..Stages::default()
        };
        let Some(sent) = self
            .waiting_ns
            .or(self.started_ns)
            .filter(|&sent| sent >= reached)
        else {
            return queued;
        };
        let prepared = Stages {
            prepare_ns: Some(sent - reached),
            ..queued
        };
        let Some(commit) = self.commit_ns else {
            // A read is done when its reply is on its way; nothing marks the moment between the two.
            let store_ns = (op != Op::Write).then_some(end - sent);
            return Stages { store_ns, ..prepared };
        };
        let both = self
            .replica_commit_ns
            .map_or(commit, |replicas| replicas.max(commit));
        Stages {
            store_ns: Some(commit - sent),
            replica_wait_ns: Some(both - commit),
            reply_ns: Some(end - both),
            ..prepared
        }
    }

    /// The replicas of "waiting for subops from 1,2".
    pub(crate) fn peers(&self) -> Vec<i64> {
        let names = self.replicas.as_ref().map_or(&b""[..], |(_, name)| &**name);
        let numbers = names
            .strip_prefix(b"waiting for subops from ")
            .unwrap_or_default();
        numbers
            .split(|&byte| byte == b',')
            .filter_map(|number| u64_of(number.trim_ascii()).and_then(|number| i64::try_from(number).ok()))
            .collect()
    }
}
