//! Ceph OSD logs as block I/Os: see `osd_line` for the lines that are read. All other lines are ignored.
//!
//! The time of an event is that of its completion, as logged, minus the latency. At most 65,536 requests are
//! remembered until their reply; a reply without its request has neither pool nor latency. What failed moved no data.

use std::collections::HashMap;

use crate::decode::LineParser;
use crate::event::{IoEvent, Op, UNKNOWN, latency_ns_saturating};
use crate::formats::osd_line::{REPLY, REQUEST, Reply, Request, STATS, Stats};
use crate::formats::rados::ObjectMap;
use crate::options::OpenOptions;
use crate::reader::{Reason, Sink};

const REQUESTS_MAX: usize = 1 << 16;

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

impl LineParser for OpStats {
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        let stats = match memchr::memmem::find(line, STATS) {
            Some(at) => Stats::parse(line, at)?,
            None => None,
        };
        let Some(stats) = stats else {
            sink.ignore();
            return Ok(());
        };
        let base = IoEvent {
            time_ns: stats.end_ns.saturating_sub(stats.latency_ns),
            osd: stats.osd.unwrap_or(self.osd),
            pool: stats.op.pool,
            latency_ns: latency_ns_saturating(stats.latency_ns),
            ..IoEvent::new(Op::Other, 0, 0)
        };
        self.objects.push_ops(stats.op.object, stats.op.ops, base, sink)
    }
}

/// Time and pool of the requests that wait for their reply, by request number and address.
type Requests = HashMap<(u64, Box<[u8]>), (u64, u32)>;

/// Requests and replies.
pub(crate) struct Messages {
    objects: ObjectMap,
    osd: u32,
    requests: Requests,
}

impl Messages {
    pub(crate) fn new(options: &OpenOptions, osd: u32) -> Self {
        Self {
            objects: ObjectMap::new(options),
            osd,
            requests: HashMap::new(),
        }
    }

    fn request(&mut self, request: &Request<'_>) {
        if self.requests.len() >= REQUESTS_MAX {
            self.requests.clear();
        }
        let key = (request.tid, request.address.into());
        self.requests.insert(key, (request.time_ns, request.pool));
    }

    fn reply(&mut self, reply: &Reply<'_>, sink: &mut Sink<'_>) -> Result<(), Reason> {
        let request = self.requests.remove(&(reply.tid, reply.address.into()));
        if reply.result < 0 {
            sink.ignore();
            return Ok(());
        }
        let (time_ns, pool) = request.map_or((reply.time_ns, UNKNOWN), |(time_ns, pool)| {
            (time_ns.min(reply.time_ns), pool)
        });
        let base = IoEvent {
            time_ns,
            osd: self.osd,
            pool,
            latency_ns: latency_ns_saturating(reply.time_ns - time_ns),
            ..IoEvent::new(Op::Other, 0, 0)
        };
        self.objects.push_ops(reply.object, reply.ops, base, sink)
    }
}

impl LineParser for Messages {
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if let Some(at) = memchr::memmem::find(line, REPLY) {
            if let Some(reply) = Reply::parse(line, at)? {
                return self.reply(&reply, sink);
            }
        } else if let Some(at) = memchr::memmem::find(line, REQUEST) {
            if let Some(request) = Request::parse(line, at) {
                self.request(&request);
            }
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
