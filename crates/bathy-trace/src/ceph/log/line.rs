//! Lines of a Ceph OSD log that say what clients asked for.
//!
//! - [`Stats`]: `debug_osd` 15. One `log_op_stats` line per request that succeeded has everything: `… 15 osd.0
//!   pg_epoch: 22 pg[2.b( …] log_op_stats osd_op(client.4499.0:717 2.b
//!   2:d447dd18:::rbd_data.1037b7d03b94.00000000000000b6:head [read 2936832~4096 …] …) v8 inb 0 outb 4096 lat
//!   0.000598`. Source: `PrimaryLogPG::log_op_stats`, which is called before the reply is sent, and not at all for a
//!   request that failed.
//! - [`Request`] and [`Reply`]: `debug_ms` 1. The request is printed undecoded on arrival (`<== client.4499
//!   127.0.0.1:0/493084813 68 ==== osd_op(client.4499.0:175 2.18 …`), the reply has object and extents (`-->
//!   127.0.0.1:0/493084813 -- osd_op_reply(175 rbd_data.… [read 1069056~4096 out=4096b] v0'0 uv4156 ondisk = 0)`). They
//!   are joined by client and request number. Source: `Messenger` and `MOSDOpReply::print`.
//!
//! A line starts with its time, `2026-11-21T01:02:03.123+0000` (a blank instead of the `T` and no zone before Ceph 15),
//! and the thread. It may stand behind what others put before it: journald, the log driver of a container, `debug`.
//! The time is of a coarse clock as a rule (`log_coarse_timestamps`): steps of one to four milliseconds.

use crate::ceph::osd_op::{OsdOp, Pg, Target, client_of};
use crate::reader::Reason;
use crate::text::{after, hex_of, leading_timestamp, leading_u64, scaled_of, word};

/// What a line of [`Stats`] contains.
pub(crate) const STATS: &[u8] = b" log_op_stats osd_op(";
/// What a line of a [`Request`] contains.
pub(crate) const REQUEST: &[u8] = b"==== osd_op(";
/// What a line of a [`Reply`] contains.
pub(crate) const REPLY: &[u8] = b" -- osd_op_reply(";

/// What stands before a line's own time is shorter.
const PREFIX_BYTES_MAX: usize = 256;
/// An address in both messenger versions with IPv6 has about 110 bytes; a longer text is none.
const ADDRESS_BYTES_MAX: usize = 256;
/// The digits of a thread, which is an address in memory. Journald's own times are followed by the name of the host.
const THREAD_DIGITS_MIN: usize = 8;

/// The time of a line; a time without a zone is taken for UTC.
pub(crate) fn time_of(line: &[u8]) -> Option<u64> {
    time_and_thread(line)
        .or_else(|| {
            let head = &line[..line.len().min(PREFIX_BYTES_MAX)];
            memchr::memchr_iter(b'-', head).find_map(|at| time_and_thread(&line[at.checked_sub(4)?..]))
        })
        .or_else(|| leading_timestamp(line).map(|(time_ns, _)| time_ns))
}

/// The time that starts the text, if the number of a thread follows: a line of any Ceph daemon.
pub(crate) fn time_and_thread(text: &[u8]) -> Option<u64> {
    let (time_ns, rest) = leading_timestamp(text)?;
    let (thread, _) = word(rest.strip_prefix(b" ")?);
    (thread.len() >= THREAD_DIGITS_MIN && hex_of(thread).is_some()).then_some(time_ns)
}

/// The statistics of a request.
pub(crate) struct Stats<'a> {
    pub(crate) end_ns: u64,
    pub(crate) latency_ns: u64,
    pub(crate) osd: Option<u32>,
    pub(crate) op: OsdOp<'a>,
    pub(crate) object: &'a [u8],
    pub(crate) ops: &'a [u8],
}

impl<'a> Stats<'a> {
    /// Reads a line that has [`STATS`] at `at`; `Ok(None)` for a request that is printed undecoded.
    pub(crate) fn parse(line: &'a [u8], at: usize) -> Result<Option<Self>, Reason> {
        let message = &line[at + STATS.len() - b"osd_op(".len()..];
        let end_ns = time_of(line).ok_or(NO_TIME)?;
        let Some(op) = OsdOp::parse(message)? else {
            return Ok(None);
        };
        let Target::Object { name, ops } = op.target()? else {
            return Ok(None);
        };
        let lat = memchr::memmem::rfind(message, b" lat ").ok_or("there is no latency")?;
        let latency_ns = scaled_of(word(&message[lat + 5..]).0, 9).ok_or("the latency is not a number")?;
        Ok(Some(Self {
            end_ns,
            latency_ns,
            osd: osd_of(&line[..at]),
            op,
            object: name,
            ops,
        }))
    }
}

const NO_TIME: Reason = "the line does not start with a time";

/// The OSD that a line names before `pg_epoch`.
fn osd_of(line: &[u8]) -> Option<u32> {
    let named = &line[..memchr::memmem::find(line, b" pg_epoch: ")?];
    let (number, _) = leading_u64(&named[memchr::memmem::rfind(named, b" osd.")? + 5..])?;
    u32::try_from(number).ok()
}

/// A request on arrival.
pub(crate) struct Request<'a> {
    pub(crate) time_ns: u64,
    /// `client.4499`
    pub(crate) client: &'a [u8],
    /// With port and nonce.
    pub(crate) address: &'a [u8],
    pub(crate) tid: u64,
    pub(crate) pg: Pg<'a>,
}

impl<'a> Request<'a> {
    /// Reads a line that has [`REQUEST`] at `at`. What is not whole is none.
    pub(crate) fn parse(line: &'a [u8], at: usize) -> Option<Self> {
        let (_entity, rest) = word(after(&line[..at], b" <== ")?);
        let (address, _) = word(rest);
        let (request, rest) = word(&line[at + REQUEST.len()..]);
        let (client, tid) = client_of(request)?;
        let pg = Pg::parse(word(rest).0)?;
        let time_ns = time_of(line)?;
        (address.len() <= ADDRESS_BYTES_MAX && client.len() <= ADDRESS_BYTES_MAX).then_some(Self {
            time_ns,
            client,
            address,
            tid,
            pg,
        })
    }
}

/// The reply to a request.
pub(crate) struct Reply<'a> {
    pub(crate) time_ns: u64,
    pub(crate) address: &'a [u8],
    pub(crate) tid: u64,
    pub(crate) object: &'a [u8],
    pub(crate) ops: &'a [u8],
    /// Below 0: the number of an error.
    pub(crate) result: i32,
}

impl<'a> Reply<'a> {
    /// Reads a line that has [`REPLY`] at `at`; `Ok(None)` when it was not sent.
    pub(crate) fn parse(line: &'a [u8], at: usize) -> Result<Option<Self>, Reason> {
        let Some(arrow) = memchr::memmem::rfind(&line[..at], b"--> ") else {
            return Ok(None);
        };
        let time_ns = time_of(line).ok_or(NO_TIME)?;
        let text = &line[at + REPLY.len()..];
        let (tid, rest) = leading_u64(text).ok_or("the reply has no request number")?;
        let rest = rest.strip_prefix(b" ").ok_or("the reply has no object")?;
        let (object, ops, behind) = reply_parts(rest).ok_or("the reply has no list of operations")?;
        Ok(Some(Self {
            time_ns,
            address: line[arrow + 4..at].trim_ascii(),
            tid,
            object,
            ops,
            result: result_of(behind).ok_or("the reply has no result")?,
        }))
    }
}

/// Object, operations and what follows them. A name may contain brackets, so the list is the one whose end is the last
/// that `v<version>` follows; its start is the bracket that belongs to this end.
fn reply_parts(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let end = memchr::memmem::rfind(text, b"] v")?;
    let mut depth = 0_usize;
    for at in memchr::memchr2_iter(b'[', b']', &text[..=end]).rev() {
        if text[at] == b']' {
            depth += 1;
            continue;
        }
        depth -= 1;
        if depth == 0 {
            let object = text[..at].strip_suffix(b" ")?;
            return Some((object, &text[at + 1..end], &text[end + 1..]));
        }
    }
    None
}

/// -2 for ` v0'0 uv0 ondisk = -2 ((2) No such file or directory)) v8`.
fn result_of(behind: &[u8]) -> Option<i32> {
    let text = after(behind, b" = ")?;
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let (number, _) = leading_u64(digits)?;
    let number = i32::try_from(number).ok()?;
    Some(if digits.len() < text.len() {
        -number
    } else {
        number
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: &[u8], marker: &[u8]) -> usize {
        memchr::memmem::find(line, marker).unwrap()
    }

    #[test]
    fn a_time_may_stand_behind_the_words_of_others() {
        let own = "2026-11-21T01:02:03.500+0000 7f5445fe36c0 15 osd.7 pg_epoch: 22 x";
        for before in [
            "",
            "debug ",
            "Nov 21 01:02:03 node1 ceph-osd[4242]: ",
            "Nov 21 01:02:03 node-1 ceph-1b-2c-osd-7[42]: debug ",
            "2026-11-21T02:02:03+0100 node1 ceph-osd[4242]: ",
            "2026-11-21T01:02:03.600000000Z stderr F debug ",
            "{\"log\":\"debug ",
            "   -12> ",
        ] {
            let line = format!("{before}{own}");
            assert_eq!(
                time_of(line.as_bytes()),
                Some(1_795_222_923_500_000_000),
                "{before}"
            );
            assert_eq!(osd_of(line.as_bytes()), Some(7), "{before}");
        }
        let before_15 = b"2026-11-21 01:02:03.500123 7f5445fe36c0 15 x";
        assert_eq!(time_of(before_15), Some(1_795_222_923_500_123_000));
        assert_eq!(time_and_thread(b"2026-11-21T01:02:03+0000 node1 ceph-osd"), None);
        assert_eq!(time_of(b"no time - at all"), None);
        assert_eq!(time_of(b"-"), None);
    }

    #[test]
    fn parts_of_a_reply() {
        let parse = |line: &'static [u8]| Reply::parse(line, at(line, REPLY));
        let line = b"2026-11-21T01:02:03.102+0000 7f1c  1 -- [v2:a] --> [v2:[fe80::1]:0/4,v1:[fe80::1]:0/5] -- \
            osd_op_reply(176 odd [name] [x [write 0~8 [fadvise_random] in=8b] v22'1 uv1 ondisk = 0) v8 -- 0x55";
        let reply = parse(line).unwrap().unwrap();
        assert_eq!(reply.address, b"[v2:[fe80::1]:0/4,v1:[fe80::1]:0/5]");
        assert_eq!(reply.object, b"odd [name] [x");
        assert_eq!(reply.ops, b"write 0~8 [fadvise_random] in=8b");
        assert_eq!((reply.tid, reply.result), (176, 0));
        let line = b"2026-11-21T01:02:03.102+0000 7f1c  1 -- x --> 127.0.0.1:0/4 -- osd_op_reply(177 gone [stat] v0'0 \
            uv0 ondisk = -2 ((2) No such file or directory)) v8 -- 0x55";
        assert_eq!(parse(line).unwrap().unwrap().result, -2);
        for bad in [
            &b"2026-11-21T01:02:03.1+0000 --> x -- osd_op_reply(x y [stat] v0 = 0)"[..],
            b"2026-11-21T01:02:03.1+0000 --> x -- osd_op_reply(1 y [stat",
            b"2026-11-21T01:02:03.1+0000 --> x -- osd_op_reply(1 y ]]] v0 = 0)",
            b"2026-11-21T01:02:03.1+0000 --> x -- osd_op_reply(1 y [stat] v0 = x)",
            b"--> x -- osd_op_reply(1 y [stat] v0 = 0)",
        ] {
            assert!(parse(bad).is_err());
        }
        assert!(parse(b"x -- osd_op_reply(1 y [stat] v0 = 0)").unwrap().is_none());
    }

    #[test]
    fn parts_of_a_request() {
        let line =
            b"2026-11-21T01:02:03.100+0000 7f1c  1 -- [v2:x] <== client.4499 127.0.0.1:0/493084813 68 ==== \
            osd_op(client.4499.0:175 2.18 2.5a (undecoded) ondisk+read e22) v8 ==== 204+0+0";
        let request = Request::parse(line, at(line, REQUEST)).unwrap();
        assert_eq!(request.client, b"client.4499");
        assert_eq!(request.address, b"127.0.0.1:0/493084813");
        assert_eq!((request.tid, request.pg.pool, request.pg.seed), (175, 2, 0x18));
        let line = b"2026-11-21T01:02:03.100+0000 7f1c 1 -- x <== client.1 y 68 ==== osd_op(client.1.0:1 x (undecoded)";
        assert!(Request::parse(line, at(line, REQUEST)).is_none());
    }
}
