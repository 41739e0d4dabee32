//! Ceph OSD logs that were written with more debugging than usual.
//!
//! - [`OpStats`]: `debug_osd` 15. One `log_op_stats` line per request has everything: `… 15 osd.0 pg_epoch: 22
//!   pg[2.b( …] log_op_stats osd_op(client.4499.0:717 2.b
//!   2:d447dd18:::rbd_data.1037b7d03b94.00000000000000b6:head [read 2936832~4096 …] …) v8 inb 0 outb 4096 lat
//!   0.000598`. Source: `PrimaryLogPG::log_op_stats`.
//! - [`Messages`]: `debug_ms` 1. The request is printed undecoded on arrival (`<== client.4499
//!   127.0.0.1:0/493084813 68 ==== osd_op(client.4499.0:175 2.18 …`), the reply has object and extents (`-->
//!   127.0.0.1:0/493084813 -- osd_op_reply(175 rbd_data.… [read 1069056~4096 out=4096b] v0'0 uv4156 ondisk =
//!   0)`). They are joined by client address and request number; at most 65,536 requests are remembered. A reply
//!   without its request has neither pool nor latency. Source: `Messenger` and `MOSDOpReply::print`.
//!
//! A line starts with its time, `2026-11-21T01:02:03.123+0000` (a blank instead of the `T` before Ceph 15). It
//! is the time of completion, to the millisecond; the time of the event is that minus the latency. All other
//! lines are ignored.

use std::collections::HashMap;

use crate::decode::LineParser;
use crate::event::{IoEvent, Op, UNKNOWN, latency_ns_saturating};
use crate::formats::rados::{ObjectMap, OsdOp};
use crate::options::OpenOptions;
use crate::reader::{Reason, Sink};
use crate::text::{after, leading_timestamp, leading_u64, scaled_of, split_once, u32_of, u64_of, word};

const REQUESTS_MAX: usize = 1 << 16;
/// An address in both messenger versions with IPv6 has about 110 bytes; a longer text is none.
const ADDRESS_BYTES_MAX: usize = 256;

/// `log_op_stats` lines.
pub(crate) struct OpStats {
    objects: ObjectMap,
    osd: u32,
}

impl OpStats {
    pub(crate) fn new(options: &OpenOptions, osd: u32) -> Self {
        Self {
            objects: ObjectMap::new(options),
            osd,
        }
    }
}

/// The OSD that a line names before `pg_epoch`.
fn osd_of(line: &[u8]) -> Option<u32> {
    let rest = after(line, b" osd.")?;
    let (number, _) = leading_u64(rest)?;
    u32::try_from(number).ok()
}

impl LineParser for OpStats {
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        let Some(at) = memchr::memmem::find(line, b" log_op_stats ") else {
            sink.ignore();
            return Ok(());
        };
        let message = &line[at + b" log_op_stats ".len()..];
        let (end_ns, _) = leading_timestamp(line).ok_or("the line does not start with a time")?;
        let Some(request) = OsdOp::parse(message)? else {
            sink.ignore();
            return Ok(());
        };
        let lat = memchr::memmem::rfind(message, b" lat ").ok_or("there is no latency")?;
        let latency_ns = scaled_of(word(&message[lat + 5..]).0, 9).ok_or("the latency is not a number")?;
        let base = IoEvent {
            time_ns: end_ns.saturating_sub(latency_ns),
            osd: osd_of(&line[..at]).unwrap_or(self.osd),
            pool: request.pool,
            latency_ns: latency_ns_saturating(latency_ns),
            ..IoEvent::new(Op::Other, 0, 0)
        };
        self.objects.push_ops(request.object, request.ops, base, sink)
    }
}

/// A request that waits for its reply.
struct Request {
    time_ns: u64,
    pool: u32,
}

/// Requests and replies.
pub(crate) struct Messages {
    objects: ObjectMap,
    osd: u32,
    requests: HashMap<(u64, Box<[u8]>), Request>,
}

impl Messages {
    pub(crate) fn new(options: &OpenOptions, osd: u32) -> Self {
        Self {
            objects: ObjectMap::new(options),
            osd,
            requests: HashMap::new(),
        }
    }

    /// `<== client.4499 127.0.0.1:0/493084813 68 ==== osd_op(client.4499.0:175 2.18 …`
    fn request(&mut self, line: &[u8], message: &[u8]) -> Option<()> {
        let (time_ns, _) = leading_timestamp(line)?;
        let (_client, rest) = word(message);
        let (address, rest) = word(rest);
        if address.len() > ADDRESS_BYTES_MAX {
            return None;
        }
        let op = after(rest, b"==== osd_op(")?;
        let (client, rest) = word(op);
        let tid = u64_of(&client[memchr::memrchr(b':', client)? + 1..])?;
        let pool = split_once(word(rest).0, b'.').and_then(|(pool, _)| u32_of(pool))?;
        if self.requests.len() >= REQUESTS_MAX {
            self.requests.clear();
        }
        self.requests
            .insert((tid, address.into()), Request { time_ns, pool });
        Some(())
    }

    /// `--> 127.0.0.1:0/493084813 -- osd_op_reply(175 rbd_data.… [read 1069056~4096 out=4096b] v0'0 uv4156
    /// ondisk = 0) v8 -- …`
    fn reply(&mut self, line: &[u8], address: &[u8], text: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        let (end_ns, _) = leading_timestamp(line).ok_or("the line does not start with a time")?;
        let (tid, rest) = leading_u64(text).ok_or("the reply has no request number")?;
        let rest = rest.strip_prefix(b" ").ok_or("the reply has no object")?;
        let (object, ops, behind) = reply_parts(rest).ok_or("the reply has no list of operations")?;
        let request = self.requests.remove(&(tid, Box::from(address)));
        // A failed request moved no data.
        if !is_success(behind) {
            sink.ignore();
            return Ok(());
        }
        let time_ns = request
            .as_ref()
            .map_or(end_ns, |request| request.time_ns.min(end_ns));
        let base = IoEvent {
            time_ns,
            osd: self.osd,
            pool: request.map_or(UNKNOWN, |request| request.pool),
            latency_ns: latency_ns_saturating(end_ns - time_ns),
            ..IoEvent::new(Op::Other, 0, 0)
        };
        self.objects.push_ops(object, ops, base, sink)
    }
}

/// Object, operations and what follows them. A name may contain " [", so the list is the first that `v<version>`
/// follows. Every bracket is looked at once, however many there are.
fn reply_parts(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut opened = Vec::new();
    let mut list: Option<(usize, usize)> = None;
    for at in memchr::memchr2_iter(b'[', b']', text) {
        if text[at] == b'[' {
            opened.push(at);
            continue;
        }
        let Some(start) = opened.pop() else { continue };
        let is_list = start > 0 && text[start - 1] == b' ' && text[at + 1..].starts_with(b" v");
        if is_list && list.is_none_or(|(first, _)| start < first) {
            list = Some((start, at));
        }
    }
    let (start, end) = list?;
    Some((&text[..start - 1], &text[start + 1..end], &text[end + 1..]))
}

/// True for ` v0'0 uv4156 ondisk = 0) v8`, false for `… = -2 ((2) No such file or directory))`.
fn is_success(behind: &[u8]) -> bool {
    after(behind, b" = ").is_none_or(|result| !result.starts_with(b"-"))
}

impl LineParser for Messages {
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if let Some(at) = memchr::memmem::find(line, b" -- osd_op_reply(") {
            if let Some(arrow) = memchr::memmem::rfind(&line[..at], b"--> ") {
                let address = line[arrow + 4..at].trim_ascii();
                return self.reply(line, address, &line[at + b" -- osd_op_reply(".len()..], sink);
            }
        } else if let Some(message) = after(line, b" <== client.") {
            self.request(line, message);
        }
        sink.ignore();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::testing::{names_of, read_skipping};

    const STATS: &str = "2026-11-21T01:02:03.500+0000 7f1 15 osd.7 pg_epoch: 22 pg[2.b( v 22'2407 (0'0,22'2407] \
        active+clean] log_op_stats osd_op(client.4499.0:717 2.b 2:d447dd18:::rbd_data.1037b7d03b94.0000000000000001:head \
        [read 4096~512 out=512b] snapc 0=[] ondisk+read+known_if_redirected e22) v8 inb 0 outb 512 lat 0.000598\n";

    #[test]
    fn statistics_of_a_request() {
        let (events, names) = names_of(Format::OsdLog, STATS.as_bytes());
        let expected = IoEvent {
            time_ns: 1_795_222_923_500_000_000 - 598_000,
            volume: 0,
            osd: 7,
            pool: 2,
            latency_ns: 598_000,
            ..IoEvent::new(Op::Read, (4 << 20) + 4096, 512)
        };
        assert_eq!(events, [expected]);
        assert_eq!(names.volumes.get(0), Some("1037b7d03b94"));
        let broken = STATS.replace("lat 0.000598", "lat x") + &STATS.replace("[read 4096~512", "[read 4096");
        let (events, report) = read_skipping(Format::OsdLog, broken.as_bytes());
        assert_eq!((events.len(), report.records_bad), (0, 2));
    }

    #[test]
    fn requests_and_replies_are_joined() {
        let text = b"2026-11-21T01:02:03.000+0000 7f 1 -- [v2:127.0.0.1:6800/1,v1:127.0.0.1:6801/1] <== client.4499 127.0.0.1:0/49 68 ==== osd_op(client.4499.0:175 2.18 2.7d6ab878 (undecoded) ondisk+read+known_if_redirected e22) v8 ==== 247+0+0 (crc 0 0 0) 0x55 con 0x56\n\
            2026-11-21T01:02:03.004+0000 7f 1 -- [v2:127.0.0.1:6800/1,v1:127.0.0.1:6801/1] --> 127.0.0.1:0/49 -- osd_op_reply(175 rbd_data.1037b7d03b94.00000000000000fc [read 1069056~4096 out=4096b] v0'0 uv4156 ondisk = 0) v8 -- 0x1 con 0x2\n\
            2026-11-21T01:02:03.005+0000 7f 1 -- [v2:127.0.0.1:6800/1] --> 127.0.0.1:0/49 -- osd_op_reply(176 x [stat] v0'0 uv0 ondisk = -2 ((2) No such file or directory)) v8 -- 0x1 con 0x2\n\
            2026-11-21T01:02:03.006+0000 7f 1 -- [v2:127.0.0.1:6800/1] --> 127.0.0.1:0/49 -- osd_op_reply(177 oops\n";
        let (events, report) = read_skipping(Format::OsdMessages, text);
        let expected = IoEvent {
            time_ns: 1_795_222_923_000_000_000,
            volume: 0,
            pool: 2,
            latency_ns: 4_000_000,
            ..IoEvent::new(Op::Read, 0xfc * (4 << 20) + 1_069_056, 4096)
        };
        assert_eq!(events, [expected]);
        assert_eq!(report.records_bad, 1);
    }
}
