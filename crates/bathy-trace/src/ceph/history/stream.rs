//! Op histories as block I/Os: `dump_historic_ops`, `dump_historic_ops_by_duration`, `dump_historic_slow_ops`,
//! `dump_ops_in_flight`, as JSON, pretty or not, any number of dumps one after another, or wrapped in JSON of one's own.
//!
//! Every object that has a `description` and an `initiated_at` of its own is an op, wherever it is; so the wrappers of
//! Ceph 16 to 20 (`ops`, `Ops`, one dump per OSD, JSON lines) need not be distinguished. From the first of the two keys on the
//! object is copied, and read when it is whole. Where it has no events, it began at `initiated_at` and took its own
//! `duration`. A number or `osd.N` under `osd`, `osd_id`, `whoami` or `daemon` in an enclosing object says the OSD. Source:
//! `TrackedOp::dump` and `OpRequest::_dump` of Ceph, and dumps of 16.2.15.
//!
//! Replica operations and whatever is not `osd_op` are ignored. Two dumps that overlap repeat ops; they are not
//! removed here.

use super::clock::Clock;
use super::op::HistoryOp;
use crate::ceph::object_map::ObjectMap;
use crate::ceph::osd_op::{OsdOp, Target};
use crate::error::Position;
use crate::event::{IoEvent, Op, UNKNOWN, latency_ns_saturating};
use crate::input::Window;
use crate::json::cursor::Cursor;
use crate::json::lexer::{LexError, Lexer, Token};
use crate::options::OpenOptions;
use crate::reader::{Decoder, Fault, Reason, Sink};
use crate::text::u32_of;

const DEPTH_MAX: usize = 64;
const MISMATCH: Reason = "a bracket closes what another kind opened";

/// What the key before a value was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// One that makes an object an op.
    Op,
    Osd,
    Other,
}

impl Key {
    fn of(name: &[u8]) -> Self {
        match name {
            b"description" | b"initiated_at" => Self::Op,
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

/// Reads token by token.
pub(crate) struct OpHistory {
    objects: ObjectMap,
    lexer: Lexer,
    frames: Vec<Frame>,
    key: Key,
    osd: u32,
    osd_of_file: u32,
    /// How deep the op is that is being copied; 0 means that there is none.
    op_depth: usize,
    op_start: u64,
    /// The copy of an op that has a fault, otherwise empty.
    op_text: Vec<u8>,
    op_bytes_max: usize,
    clock: Clock,
}

impl OpHistory {
    pub(crate) fn new(options: &OpenOptions, osd: Option<u32>) -> Self {
        let osd = osd.unwrap_or(UNKNOWN);
        Self {
            objects: ObjectMap::new(options),
            lexer: Lexer::default(),
            frames: Vec::new(),
            key: Key::Other,
            osd,
            osd_of_file: osd,
            op_depth: 0,
            op_start: 0,
            op_text: Vec::new(),
            op_bytes_max: options.record_bytes_max,
            clock: Clock::default(),
        }
    }

    fn reset(&mut self) {
        self.frames.clear();
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
            return Err(MISMATCH);
        }
        let mut result = Ok(());
        if self.op_depth == self.frames.len() {
            result = self.finish(sink);
            if result.is_ok() {
                self.op_text.clear();
            }
        }
        if let Some(frame) = self.frames.pop() {
            self.osd = frame.osd_outside;
        }
        result
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
            if self.key == Key::Op && self.op_depth == 0 {
                (self.op_depth, self.op_start) = (depth, position);
                let mut copy = std::mem::take(&mut self.op_text);
                copy.clear();
                copy.extend_from_slice(b"{\"");
                copy.extend_from_slice(&self.lexer.text);
                copy.push(b'"');
                self.lexer.copy = Some(copy);
            }
            return Ok(());
        }
        if std::mem::replace(&mut self.key, Key::Other) == Key::Osd {
            let text = self.lexer.text.strip_prefix(b"osd.").unwrap_or(&self.lexer.text);
            if let Some(osd) = u32_of(text) {
                self.osd = osd;
            }
        }
        Ok(())
    }

    /// Ends the copying of an op; the copy is in `op_text`.
    fn end_copy(&mut self) {
        self.op_depth = 0;
        if let Some(copy) = self.lexer.copy.take() {
            self.op_text = copy;
        }
    }

    /// The op is complete.
    fn finish(&mut self, sink: &mut Sink<'_>) -> Result<(), Reason> {
        self.end_copy();
        let mut cursor = Cursor::new(&self.op_text);
        let op = HistoryOp::read(&mut cursor, &mut self.clock, |text| text.starts_with(b"osd_op("))
            .map_err(|(_, reason)| reason)?;
        let initiated_ns = op.initiated_ns(&mut self.clock).map_err(|(_, reason)| reason)?;
        let (Some(description), Some(initiated_ns)) = (&op.description, initiated_ns) else {
            // A `description` alone may be anything.
            return Ok(());
        };
        let Some(request) = OsdOp::parse(description)? else {
            sink.ignore();
            return Ok(());
        };
        let Target::Object { name, ops } = request.target()? else {
            sink.ignore();
            return Ok(());
        };
        let events = op.data.as_ref().and_then(|data| data.events.as_ref());
        let (begin_ns, end_ns) = if let Some(span_ns) = events.and_then(|events| events.span_ns) {
            span_ns
        } else {
            let duration_ns = op.duration_ns().map_err(|(_, reason)| reason)?;
            (
                initiated_ns,
                initiated_ns.saturating_add(duration_ns.unwrap_or(0)),
            )
        };
        let base = IoEvent {
            // No time is before 1970.
            time_ns: begin_ns.unsigned_abs(),
            osd: self.osd,
            pool: request.pg.pool,
            latency_ns: latency_ns_saturating(end_ns.saturating_sub(begin_ns).max(0).unsigned_abs()),
            ..IoEvent::new(Op::Other, 0, 0)
        };
        self.objects.push_ops(name, ops, base, sink)
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
        }?;
        match &self.lexer.copy {
            Some(copy) if copy.len() > self.op_bytes_max => Err("the op is too long"),
            _ => Ok(()),
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
                    self.end_copy();
                    self.op_text.clear();
                    return Err(Fault::Lost {
                        position: Position::Byte(position),
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
                // After a bad op the structure is intact; the copy names the op.
                self.end_copy();
                let start = if self.op_text.is_empty() {
                    position
                } else {
                    self.op_start
                };
                let fault = Fault::record(Position::Byte(start), reason, &self.op_text);
                self.op_text.clear();
                if reason == MISMATCH || self.frames.len() >= DEPTH_MAX {
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
    use crate::Format;
    use crate::testing::{names_of, read_skipping, read_with};

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
            // The messenger's stamp is the first, and not in order.
            time_ns: 1_795_222_922_999_999_000,
            volume: 0,
            osd,
            pool: 2,
            latency_ns: 751_000,
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
                "a time has an unknown form",
                "there is a character that is not JSON",
                "a bracket closes what another kind opened",
                "the JSON ends inside an object or array",
            ]
        );
    }

    #[test]
    fn an_op_that_is_too_long_is_one_bad_record() {
        let options = OpenOptions {
            on_bad_record: crate::OnBadRecord::Skip,
            record_bytes_max: 2000,
            ..OpenOptions::default()
        };
        let long = op(WRITE).replace(
            "{\"event\":\"done\"",
            &format!("{},{{\"event\":\"done\"", vec!["[{}]"; 500].join(",")),
        );
        let text = format!("{{\"ops\":[{},{long},{}]}}", op(WRITE), op(WRITE));
        let (events, _, report) = read_with(Format::OpHistory, text.as_bytes(), &options);
        assert_eq!(events, vec![expected(UNKNOWN); 2]);
        let reasons: Vec<_> = report.first_errors.iter().map(|bad| bad.reason).collect();
        assert_eq!(reasons, ["the op is too long"]);
    }

    #[test]
    fn deep_nesting_is_refused() {
        let (_, report) = read_skipping(Format::OpHistory, "[".repeat(100_000).as_bytes());
        assert!(report.records_bad > 0);
    }
}
