//! Op histories of Ceph OSDs: `dump_historic_ops`, `dump_historic_ops_by_duration`, `dump_historic_slow_ops`,
//! `dump_ops_in_flight`, as JSON, pretty or not, any number of dumps one after another, or wrapped in JSON of
//! one's own.
//!
//! Every object that has a `description` and an `initiated_at` of its own is an op, wherever it is; so the
//! wrappers of Ceph 16 to 20 (`ops`, `Ops`, one dump per OSD, JSON lines) need not be distinguished. The latency is
//! from `initiated_at` to the latest `time` among its events; the `duration` of an event is never used, as its
//! meaning changed between releases and it can be an underflowed 4294967295.99. Only where there are no events
//! the op's own `duration` counts. A number or `osd.N` under `osd`, `osd_id`, `whoami` or `daemon` in an
//! enclosing object says the OSD. Source: `TrackedOp::dump` and `OpRequest::_dump` of Ceph, and dumps of
//! 16.2.15; `osd_op(...)` as in the module on RADOS.
//!
//! Replica operations and whatever is not `osd_op` are ignored. Two dumps that overlap repeat ops; they are not
//! removed here.

use crate::error::Position;
use crate::event::{IoEvent, Op, latency_ns_saturating};
use crate::formats::json::{LexError, Lexer, Token};
use crate::formats::rados::{ObjectMap, OsdOp};
use crate::input::Window;
use crate::options::OpenOptions;
use crate::reader::{Decoder, Fault, Reason, Sink};
use crate::text::{leading_timestamp, scaled_of, u32_of};

const DEPTH_MAX: usize = 64;

/// What the key before a value was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Description,
    InitiatedAt,
    Duration,
    Time,
    Osd,
    Other,
}

impl Key {
    fn of(name: &[u8]) -> Self {
        match name {
            b"description" => Self::Description,
            b"initiated_at" => Self::InitiatedAt,
            b"duration" => Self::Duration,
            b"time" => Self::Time,
            b"osd" | b"osd_id" | b"whoami" | b"daemon" => Self::Osd,
            _ => Self::Other,
        }
    }
}

struct Frame {
    array: bool,
    /// In an object: the next string is a key.
    wants_key: bool,
    osd_outside: u32,
}

/// An op in the making. `depth` 0 means that there is none.
#[derive(Default)]
struct Draft {
    depth: usize,
    description: Vec<u8>,
    described: bool,
    initiated_ns: Option<u64>,
    latest_ns: u64,
    duration_ns: Option<u64>,
    start: u64,
}

/// Reads token by token.
pub(crate) struct OpHistory {
    objects: ObjectMap,
    lexer: Lexer,
    frames: Vec<Frame>,
    key: Key,
    osd: u32,
    osd_of_file: u32,
    draft: Draft,
}

impl OpHistory {
    pub(crate) fn new(options: &OpenOptions, osd: u32) -> Self {
        Self {
            objects: ObjectMap::new(options),
            lexer: Lexer::default(),
            frames: Vec::new(),
            key: Key::Other,
            osd,
            osd_of_file: osd,
            draft: Draft::default(),
        }
    }

    fn reset(&mut self) {
        self.frames.clear();
        self.draft.depth = 0;
        self.osd = self.osd_of_file;
        self.key = Key::Other;
    }

    fn open(&mut self, array: bool) -> Result<(), Reason> {
        if self.frames.len() >= DEPTH_MAX {
            return Err("the JSON is nested too deeply");
        }
        self.frames.push(Frame {
            array,
            wants_key: !array,
            osd_outside: self.osd,
        });
        self.key = Key::Other;
        Ok(())
    }

    fn close(&mut self, array: bool, sink: &mut Sink<'_>) -> Result<(), Reason> {
        // Without a frame this is the rest of something broken, which has been reported.
        let Some(frame) = self.frames.last() else {
            return Ok(());
        };
        if frame.array != array {
            return Err("a bracket closes what another kind opened");
        }
        let result = if self.draft.depth == self.frames.len() {
            self.finish(sink)
        } else {
            Ok(())
        };
        if let Some(frame) = self.frames.pop() {
            self.osd = frame.osd_outside;
        }
        result
    }

    fn start_draft(&mut self, position: u64) {
        let draft = &mut self.draft;
        draft.depth = self.frames.len();
        draft.description.clear();
        draft.described = false;
        draft.initiated_ns = None;
        draft.latest_ns = 0;
        draft.duration_ns = None;
        draft.start = position;
    }

    /// A string or number, where it stands.
    fn value(&mut self, number: bool, position: u64) -> Result<(), Reason> {
        let depth = self.frames.len();
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        if frame.array {
            return Ok(());
        }
        if frame.wants_key {
            if number {
                return Err("a key of an object is not a string");
            }
            frame.wants_key = false;
            self.key = Key::of(&self.lexer.text);
            let starts = matches!(self.key, Key::Description | Key::InitiatedAt);
            if starts && self.draft.depth == 0 {
                self.start_draft(position);
            }
            return Ok(());
        }
        let key = std::mem::replace(&mut self.key, Key::Other);
        let own = self.draft.depth == depth;
        let inside = self.draft.depth != 0 && depth > self.draft.depth;
        match key {
            Key::Description if own => {
                self.draft.description.clone_from(&self.lexer.text);
                self.draft.described = !number;
            }
            Key::InitiatedAt if own => {
                let (time_ns, _) = leading_timestamp(&self.lexer.text).ok_or("initiated_at is not a time")?;
                self.draft.initiated_ns = Some(time_ns);
            }
            Key::Duration if own => self.draft.duration_ns = scaled_of(&self.lexer.text, 9),
            Key::Time if inside => {
                let (time_ns, _) =
                    leading_timestamp(&self.lexer.text).ok_or("the time of an event is not a time")?;
                self.draft.latest_ns = self.draft.latest_ns.max(time_ns);
            }
            Key::Osd => {
                let text = self.lexer.text.strip_prefix(b"osd.").unwrap_or(&self.lexer.text);
                if let Some(osd) = u32_of(text) {
                    self.osd = osd;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The op is complete.
    fn finish(&mut self, sink: &mut Sink<'_>) -> Result<(), Reason> {
        self.draft.depth = 0;
        let Some(initiated_ns) = self.draft.initiated_ns.filter(|_| self.draft.described) else {
            // A `description` alone may be anything.
            return Ok(());
        };
        let Some(request) = OsdOp::parse(&self.draft.description)? else {
            sink.ignore();
            return Ok(());
        };
        let latency_ns = match self.draft.latest_ns {
            0 => self.draft.duration_ns.unwrap_or(0),
            latest_ns => latest_ns.saturating_sub(initiated_ns),
        };
        let base = IoEvent {
            time_ns: initiated_ns,
            osd: self.osd,
            pool: request.pool,
            latency_ns: latency_ns_saturating(latency_ns),
            ..IoEvent::new(Op::Other, 0, 0)
        };
        self.objects.push_ops(request.object, request.ops, base, sink)
    }

    fn token(&mut self, token: Token, position: u64, sink: &mut Sink<'_>) -> Result<(), Reason> {
        match token {
            Token::Open { array } => self.open(array),
            Token::Close { array } => self.close(array, sink),
            Token::Comma => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.wants_key = !frame.array;
                }
                self.key = Key::Other;
                Ok(())
            }
            Token::String => self.value(false, position),
            Token::Number => self.value(true, position),
            Token::Colon | Token::Literal | Token::End => Ok(()),
        }
    }
}

impl Decoder for OpHistory {
    fn decode(&mut self, window: &mut Window, sink: &mut Sink<'_>, events: usize) -> Result<(), Fault> {
        while sink.batch.len() < events {
            let position = window.offset();
            let result = match self.lexer.next(window) {
                Ok(Token::End) if self.frames.is_empty() => return Ok(()),
                Ok(Token::End) => {
                    self.reset();
                    let position = Position::Byte(position);
                    return Err(Fault::Lost {
                        position,
                        reason: "the JSON ends inside an object or array",
                    });
                }
                Ok(token) => self.token(token, position, sink),
                Err(LexError::Io(error)) => return Err(Fault::Io(error)),
                Err(LexError::Bad(reason)) => {
                    self.reset();
                    Err(reason)
                }
            };
            if let Err(reason) = result {
                // After a bad op the structure is intact; the draft names the op.
                let (start, text) = match self.draft.description.as_slice() {
                    [] => (position, &b""[..]),
                    description => (self.draft.start, description),
                };
                let fault = Fault::record(Position::Byte(start), reason, text);
                self.draft.depth = 0;
                self.draft.description.clear();
                if reason == "a bracket closes what another kind opened" || self.frames.len() >= DEPTH_MAX {
                    self.reset();
                }
                return Err(fault);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{names_of, read_skipping};
    use crate::{Format, UNKNOWN};

    fn op(description: &str) -> String {
        format!(
            r#"{{"description":"{description}","initiated_at":"2026-11-21T01:02:03.000000+0000","age":1.5,"duration":9.5,
            "type_data":{{"flag_point":"commit sent","client_info":{{"client":"client.1","tid":2}},"events":[
            {{"event":"initiated","time":"2026-11-21T01:02:03.000000+0000","duration":0}},
            {{"event":"header_read","time":"2026-11-21T01:02:02.999999+0000","duration":4294967295.99}},
            {{"event":"done","time":"2026-11-21T01:02:03.000750+0000","duration":0.1}}]}}}}"#
        )
    }

    const WRITE: &str = "osd_op(client.4157.0:22968 2.2 2:422bb82f:::rbd_data.1037b7d03b94.0000000000000001:head \
        [write 512~4096 in=4096b] snapc 0=[] ondisk+write+known_if_redirected e22)";

    fn expected(osd: u32) -> IoEvent {
        IoEvent {
            time_ns: 1_795_222_923_000_000_000,
            volume: 0,
            osd,
            pool: 2,
            latency_ns: 750_000,
            ..IoEvent::new(Op::Write, (4 << 20) + 512, 4096)
        }
    }

    #[test]
    fn dumps_of_several_osds_in_one_file() {
        let text = format!(
            "{{\"osd\":3,\"dump\":{{\"size\":20,\"ops\":[{},{}]}}}}\n{{\"daemon\":\"osd.4\",\"Ops\":[{}]}}\n[{}]",
            op(WRITE),
            op("osd_repop(client.1.0:2 2.2 e22/20)"),
            op(WRITE),
            op(WRITE)
        );
        let (events, names) = names_of(Format::OpHistory, text.as_bytes());
        assert_eq!(events, [expected(3), expected(4), expected(UNKNOWN)]);
        assert_eq!(names.volumes.get(0), Some("1037b7d03b94"));
    }

    #[test]
    fn without_events_the_duration_of_the_op_counts() {
        let text =
            format!(r#"{{"duration":0.25,"initiated_at":"2026-11-21T01:02:03Z","description":"{WRITE}"}}"#);
        // Keys before the first of the two that make an op are not its own yet.
        let (events, _) = names_of(Format::OpHistory, text.as_bytes());
        assert_eq!(events[0].latency_ns, 0);
        let text =
            format!(r#"{{"initiated_at":"2026-11-21T01:02:03Z","description":"{WRITE}","duration":0.25}}"#);
        let (events, _) = names_of(Format::OpHistory, text.as_bytes());
        assert_eq!(events[0].latency_ns, 250_000_000);
    }

    #[test]
    fn reading_goes_on_after_what_is_broken() {
        let text = format!(
            "{{\"ops\":[{},{},{}]}} % {{\"ops\":[{}}} {{\"ops\":[{}",
            op("osd_op(client.1.0:2 x [read 0~1])"),
            op(WRITE),
            op(WRITE).replace("01:02:03.000000+0000\",\"age", "25:02:03\",\"age"),
            op(WRITE),
            op(WRITE),
        );
        let (events, report) = read_skipping(Format::OpHistory, text.as_bytes());
        assert_eq!(events, vec![expected(UNKNOWN); 3]);
        let reasons: Vec<_> = report.first_errors.iter().map(|bad| bad.reason).collect();
        assert_eq!(
            reasons,
            [
                "the placement group of the request has no pool",
                "initiated_at is not a time",
                "there is a character that is not JSON",
                "a bracket closes what another kind opened",
                "the JSON ends inside an object or array",
            ]
        );
    }

    #[test]
    fn deep_nesting_is_refused() {
        let (_, report) = read_skipping(Format::OpHistory, "[".repeat(100_000).as_bytes());
        assert!(report.records_bad > 0);
    }
}
