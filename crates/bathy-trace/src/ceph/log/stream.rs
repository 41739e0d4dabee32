//! OSD logs as block I/Os.
//!
//! The time of an event is that of its completion, as logged, minus the latency. A reply without its request has neither pool
//! nor latency. What failed moved no data. All other lines are ignored.

use super::{Forms, LogOp, LogOps, Next};
use crate::ceph::object_map::ObjectMap;
use crate::error::BadRecord;
use crate::event::{IoEvent, Op, UNKNOWN, latency_ns_saturating};
use crate::input::Window;
use crate::options::OpenOptions;
use crate::reader::{Decoder, Fault, Reason, Sink};

/// Makes I/Os of the operations of a log.
pub(crate) struct OsdLog {
    ops: LogOps,
    objects: ObjectMap,
}

impl OsdLog {
    pub(crate) fn new(options: &OpenOptions, forms: Forms, osd: Option<u32>) -> Self {
        let mut ops = LogOps::new(forms, options.record_bytes_max);
        ops.begin(osd);
        Self {
            ops,
            objects: ObjectMap::new(options),
        }
    }
}

impl Decoder for OsdLog {
    fn decode(&mut self, window: &mut Window, sink: &mut Sink<'_>, events: usize) -> Result<(), Fault> {
        while sink.batch.len() < events {
            let (result, is_end) = match self.ops.next(window)? {
                Next::Op(line, op) => (
                    push(&self.objects, &op, sink).map_err(|reason| line.bad(reason)),
                    false,
                ),
                Next::Bad(record) => (Err(record), false),
                Next::Nothing => (Ok(()), false),
                Next::End => (Ok(()), true),
            };
            self.ops.settle(window);
            sink.ignore_lines(self.ops.take_others());
            result.map_err(|record: BadRecord| Fault::Record {
                position: record.position,
                reason: record.reason,
                excerpt: record.excerpt,
            })?;
            if is_end {
                break;
            }
        }
        Ok(())
    }
}

fn push(objects: &ObjectMap, op: &LogOp<'_>, sink: &mut Sink<'_>) -> Result<(), Reason> {
    if op.result.is_some_and(|result| result < 0) {
        sink.ignore();
        return Ok(());
    }
    let base = IoEvent {
        time_ns: op.started_ns,
        osd: op.osd.unwrap_or(UNKNOWN),
        pool: op.pg.map_or(UNKNOWN, |(pool, _)| pool),
        latency_ns: latency_ns_saturating(op.duration_ns),
        ..IoEvent::new(Op::Other, 0, 0)
    };
    objects.push_ops(op.object, op.ops, base, sink)
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
