//! Op histories as a table: where the time of each client operation went.
//!
//! One answer of one OSD is in memory as a whole. The stages of an operation count, which its events and the histories of
//! other OSDs tell. Operations are those of clients (`client.4157`), not of other daemons.
//!
//! Limits: an answer is read in one pass, and what is kept is in proportion to its length: at most one row for each
//! hundred bytes of it, and 64 MiB of names of a kind.

use std::collections::HashMap;

use super::clock::Clock;
use super::events::Stages;
use super::op::{HistoryOp, TypeData};
use crate::ceph::op_list::Summary;
use crate::ceph::osd_op::{OsdOp, Target, client_of};
use crate::error::{BadRecord, Position, excerpt};
use crate::event::Op;
use crate::json::cursor::{Bad, Cursor};
use crate::names::NameTable;
use crate::reader::Reason;
use crate::text::{split_once, u64_of};

const TOO_LARGE: Reason = "a number does not fit 64 bits";

/// A client operation. Names are numbers in the tables of [`OpTable`]; times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpRow {
    /// The OSD that holds the history.
    pub osd: i64,
    /// The client's instance, in [`OpTable::clients`].
    pub client: u32,
    /// The client's address without its nonce, in [`OpTable::addresses`].
    pub address: Option<u32>,
    /// The pool.
    pub pool_id: i64,
    /// The placement group, in [`OpTable::pgs`].
    pub pg: u32,
    /// The object, in [`OpTable::objects`].
    pub object: Option<u32>,
    /// `Read`, `Write` or `Other`.
    pub op: Op,
    /// Offset in the object of the first extent.
    pub offset_bytes: Option<i64>,
    /// Length of all extents.
    pub length_bytes: Option<i64>,
    /// The first event, since the Unix epoch.
    pub started_ns: i64,
    /// From the first event to the last.
    pub duration_ns: i64,
    /// The parts of the duration.
    pub stages: Stages,
    /// The replica that was waited for.
    pub slowest_peer: Option<i64>,
    /// Whether a history that held it was not full.
    pub complete_sample: bool,
    /// Since when that history held every op.
    pub complete_since_ns: i64,
}

/// The ops of any number of histories. An op is one row, however many histories of its OSD hold it.
#[derive(Default)]
pub struct OpTable {
    pools: Option<Vec<i64>>,
    rows: Vec<OpRow>,
    clients: NameTable,
    addresses: NameTable,
    pgs: NameTable,
    objects: NameTable,
    requests: NameTable,
    /// OSD, request and start → row. A request that was sent again is another op.
    known: HashMap<(i64, u32, i64), usize>,
    /// Request and replica → how long its part took.
    parts: HashMap<(u32, i64), i64>,
    /// The slowest of several replicas is known when all histories are read.
    waits: Vec<Wait>,
    clock: Clock,
}

struct Wait {
    row: usize,
    request: u32,
    peers: Vec<i64>,
}

/// What a list of ops came to.
#[derive(Default)]
struct Listed {
    count: i64,
    /// Rows of earlier histories that this one holds as well.
    again: Vec<usize>,
    /// The time by the clock of the OSD, if there is an op.
    now_ns: Option<i64>,
}

impl OpTable {
    /// An empty table; with `pools` it takes the client operations of these only.
    pub fn new(pools: Option<Vec<i64>>) -> Self {
        Self {
            pools,
            ..Self::default()
        }
    }

    /// Adds what `dump_historic_ops` of an OSD answered at `asked_ns`. `size` is the one that was set for the history;
    /// its own counts where it is less. After an error the table is of no use.
    ///
    /// # Errors
    /// The answer is not a history.
    pub fn add(&mut self, osd: i64, json: &[u8], asked_ns: i64, size: Option<i64>) -> Result<(), BadRecord> {
        self.read(osd, json, asked_ns, size)
            .map_err(|(at, reason)| BadRecord {
                position: Position::Byte(at as u64),
                reason,
                excerpt: excerpt(json.get(at..).unwrap_or_default()),
            })
    }

    /// The rows, in the order in which the histories gave them.
    pub fn rows(&mut self) -> &[OpRow] {
        for wait in &self.waits {
            let part = |peer: &i64| self.parts.get(&(wait.request, *peer)).copied();
            // Durations are compared, not times: the clocks of hosts differ. Without one of them nothing is known.
            if wait.peers.iter().all(|peer| part(peer).is_some()) {
                // Of equal ones the first.
                self.rows[wait.row].slowest_peer =
                    wait.peers.iter().rev().max_by_key(|peer| part(peer)).copied();
            }
        }
        &self.rows
    }

    /// Names of client instances.
    pub fn clients(&self) -> &NameTable {
        &self.clients
    }

    /// Addresses of clients.
    pub fn addresses(&self) -> &NameTable {
        &self.addresses
    }

    /// Names of placement groups.
    pub fn pgs(&self) -> &NameTable {
        &self.pgs
    }

    /// Names of objects.
    pub fn objects(&self) -> &NameTable {
        &self.objects
    }

    fn read(&mut self, osd: i64, json: &[u8], asked_ns: i64, size: Option<i64>) -> Result<(), Bad> {
        let first_row = self.rows.len();
        let (mut own_size, mut duration_s, mut listed) = (0, 0, None);
        let mut cursor = Cursor::new(json);
        let mut members = cursor.object("the history is not an object")?;
        while let Some(key) = cursor.member(&mut members)? {
            match &*key {
                b"size" => own_size = cursor.integer("the size of the history is not a number")?,
                b"duration" => duration_s = cursor.integer("the duration of the history is not a number")?,
                b"ops" if listed.is_some() => return Err((cursor.at(), "there are two fields 'ops'")),
                b"ops" => listed = Some(self.list(&mut cursor, osd)?),
                _ => cursor.skip()?,
            }
        }
        cursor.end()?;
        let listed = listed.ok_or((0, "no field 'ops'"))?;
        let is_complete = listed.count < size.map_or(own_size, |size| size.min(own_size));
        let now_ns = listed.now_ns.unwrap_or(asked_ns);
        let since_ns = duration_s
            .checked_mul(1_000_000_000)
            .and_then(|duration_ns| now_ns.checked_sub(duration_ns))
            .ok_or((0, TOO_LARGE))?;
        let again = listed.again.into_iter().filter(|_| is_complete);
        for row in again.chain(first_row..self.rows.len()) {
            let row = &mut self.rows[row];
            if !row.complete_sample {
                (row.complete_sample, row.complete_since_ns) = (is_complete, since_ns);
            }
        }
        Ok(())
    }

    fn list(&mut self, cursor: &mut Cursor<'_>, osd: i64) -> Result<Listed, Bad> {
        let mut listed = Listed::default();
        let mut elements = cursor.array("'ops' is not a list")?;
        let mut last = None;
        while cursor.element(&mut elements)? {
            listed.count += 1;
            let pools = self.pools.as_deref();
            let start = cursor.at();
            let op = HistoryOp::read(cursor, &mut self.clock, |text| Subject::of(text).is_wanted(pools))?;
            self.add_op(osd, &op, &mut listed.again)
                .map_err(|reason| (start, reason))?;
            last = Some(op);
        }
        if let Some(last) = last {
            let initiated_ns = last.initiated_ns(&mut self.clock)?;
            let initiated_ns = initiated_ns.ok_or((0, "the last op has no field 'initiated_at'"))?;
            let age_ns = last.age_ns()?.ok_or((0, "the last op has no field 'age'"))?;
            let now_ns = initiated_ns.checked_add(age_ns);
            listed.now_ns = Some(now_ns.ok_or((0, TOO_LARGE))?);
        }
        Ok(listed)
    }

    fn add_op(&mut self, osd: i64, op: &HistoryOp<'_>, again: &mut Vec<usize>) -> Result<(), Reason> {
        let description = op.description.as_deref().ok_or("no field 'description'")?;
        let subject = Subject::of(description);
        if !subject.is_wanted(self.pools.as_deref()) {
            return Ok(());
        }
        let TypeData { address, events } = op.data.as_ref().ok_or("no field 'type_data'")?;
        let events = events.as_ref().ok_or("no field 'events'")?;
        let Some((begin_ns, end_ns)) = events.span_ns else {
            return Ok(());
        };
        let (client, client_op) = match subject {
            Subject::Client(client, client_op) => (client, client_op),
            Subject::Replica(request) => {
                let request = intern(&mut self.requests, request)?;
                let sent_ns = events.commit_sent_ns.unwrap_or(end_ns);
                self.parts.insert((request, osd), sent_ns - begin_ns);
                return Ok(());
            }
            Subject::Other => return Ok(()),
        };
        let request = intern(&mut self.requests, client_op.request)?;
        let identity = (osd, request, begin_ns);
        if let Some(row) = self.known.get(&identity) {
            again.push(*row);
            return Ok(());
        }
        // What cannot be taken apart is a row all the same.
        let flags = client_op.rest;
        let (object, summary) = match client_op.target().unwrap_or(Target::Undecoded { flags }) {
            Target::Object { name, ops } => (Some(name), Summary::of(ops)),
            Target::Undecoded { flags } => (None, Summary::of_flags(flags)),
        };
        let extent = |bytes: Option<u64>| bytes.map(i64::try_from).transpose().map_err(|_| TOO_LARGE);
        let stages = events.stages(summary.op);
        let peers = match stages.replica_wait_ns {
            Some(1..) => events.peers(),
            _ => Vec::new(),
        };
        let address = address.as_deref().map(|address| {
            let plain = split_once(address, b'/').map_or(address, |(plain, _)| plain);
            intern(&mut self.addresses, plain)
        });
        let object = object.map(|name| intern(&mut self.objects, name));
        let row = OpRow {
            osd,
            client: intern(&mut self.clients, client)?,
            address: address.transpose()?,
            pool_id: client_op.pg.pool.into(),
            pg: intern(&mut self.pgs, client_op.pg.text)?,
            object: object.transpose()?,
            op: summary.op,
            offset_bytes: extent(summary.offset_bytes)?,
            length_bytes: extent(summary.length_bytes)?,
            started_ns: begin_ns,
            duration_ns: end_ns - begin_ns,
            stages,
            slowest_peer: if let [peer] = peers[..] { Some(peer) } else { None },
            complete_sample: false,
            complete_since_ns: 0,
        };
        // Nothing fails from here on: what names a row finds it.
        let number = self.rows.len();
        self.known.insert(identity, number);
        if peers.len() > 1 {
            self.waits.push(Wait {
                row: number,
                request,
                peers,
            });
        }
        self.rows.push(row);
        Ok(())
    }
}

fn intern(names: &mut NameTable, name: &[u8]) -> Result<u32, Reason> {
    names
        .intern(name, usize::MAX)
        .ok_or("the names of all ops together are too long")
}

/// Whom an op is for.
enum Subject<'a> {
    /// The client's instance, and its request.
    Client(&'a [u8], OsdOp<'a>),
    /// The replica's side of a write: the client's request.
    Replica(&'a [u8]),
    Other,
}

impl<'a> Subject<'a> {
    fn of(description: &'a [u8]) -> Self {
        if let Some(text) = description.strip_prefix(b"osd_repop(") {
            return split_once(text, b' ').map_or(Self::Other, |(request, _)| Self::Replica(request));
        }
        let Ok(Some(op)) = OsdOp::parse(description) else {
            return Self::Other;
        };
        match client_of(op.request) {
            Some((client, _)) if client.strip_prefix(b"client.").and_then(u64_of).is_some() => {
                Self::Client(client, op)
            }
            _ => Self::Other,
        }
    }

    fn is_wanted(&self, pools: Option<&[i64]>) -> bool {
        match self {
            Self::Client(_, op) => pools.is_none_or(|pools| pools.contains(&op.pg.pool.into())),
            Self::Replica(_) => true,
            Self::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_795_222_923_000_000_000;

    fn event(name: &str, microsecond: u32) -> String {
        format!(
            r#"{{"event":"{name}","time":"2026-11-21T01:02:03.{microsecond:06}+0000","duration":4294967295.99}}"#
        )
    }

    fn op(description: &str, events: &[(&str, u32)]) -> String {
        let events: Vec<_> = events.iter().map(|(name, at)| event(name, *at)).collect();
        format!(
            r#"{{"description":"{description}","initiated_at":"2026-11-21T01:02:03.000000+0000","age":1.5,
            "duration":0.1,"type_data":{{"flag_point":"done","client_info":{{"client":"client.1",
            "client_addr":"10.0.0.1:0/77","tid":2}},"events":[{}]}}}}"#,
            events.join(",")
        )
    }

    fn history(ops: &[String]) -> String {
        format!(r#"{{"size":20,"duration":600,"ops":[{}]}}"#, ops.join(","))
    }

    const WRITE: &str =
        "osd_op(client.1.0:2 2.1f 2:42:::a:head [write 512~4096] snapc 0=[] ondisk+write e22)";

    fn written() -> String {
        // The messenger's stamps are not in order.
        let events = [
            ("initiated", 2),
            ("header_read", 1),
            ("reached_pg", 11),
            ("started", 15),
            ("waiting for subops from 4,7", 21),
            ("sub_op_commit_rec", 40),
            ("op_commit", 61),
            ("sub_op_commit_rec", 91),
            ("commit_sent", 95),
            ("done", 101),
        ];
        op(WRITE, &events)
    }

    fn replica(length: u32) -> String {
        op(
            "osd_repop(client.1.0:2 2.1f e22/20)",
            &[("initiated", 0), ("commit_sent", length), ("done", 99)],
        )
    }

    #[test]
    fn the_stages_of_a_write_and_the_replica_that_came_last() {
        let mut table = OpTable::new(None);
        table.add(1, history(&[written()]).as_bytes(), 0, None).unwrap();
        let row = table.rows()[0].clone();
        assert_eq!((row.started_ns, row.duration_ns), (SECOND_NS + 1000, 100_000));
        assert_eq!(
            row.stages,
            Stages {
                queue_ns: Some(10_000),
                prepare_ns: Some(10_000),
                store_ns: Some(40_000),
                replica_wait_ns: Some(30_000),
                reply_ns: Some(10_000),
            }
        );
        assert_eq!((row.slowest_peer, row.complete_sample), (None, true));
        assert_eq!(row.complete_since_ns, SECOND_NS + 1_500_000_000 - 600_000_000_000);
        assert_eq!(table.clients().get(row.client), Some("client.1"));
        assert_eq!(
            row.address.and_then(|address| table.addresses().get(address)),
            Some("10.0.0.1:0")
        );
        assert_eq!(table.pgs().get(row.pg), Some("2.1f"));
        assert_eq!(
            row.object.and_then(|object| table.objects().get(object)),
            Some("a")
        );
        for (osd, length) in [(4, 50), (7, 60)] {
            table
                .add(osd, history(&[replica(length)]).as_bytes(), 0, None)
                .unwrap();
        }
        assert_eq!(table.rows()[0].slowest_peer, Some(7));
    }

    #[test]
    fn no_order_of_members_is_assumed() {
        let write = written();
        let (start, data) = write.split_once(r#""type_data":"#).unwrap();
        let data = data.strip_suffix('}').unwrap();
        let turned = format!(
            "{{\"type_data\" : {data},\n\t{}}}",
            start[1..].trim_end_matches(',')
        );
        let text = format!(r#"{{"ops":[{turned}],"new":{{"a":[1]}},"duration":600,"size":1}}"#);
        let mut table = OpTable::new(None);
        table.add(1, text.as_bytes(), 0, None).unwrap();
        let mut expected = OpTable::new(None);
        expected.add(1, history(&[write]).as_bytes(), 0, Some(1)).unwrap();
        assert_eq!(table.rows(), expected.rows());
        assert_eq!(table.rows().len(), 1);
    }

    #[test]
    fn an_op_of_several_histories_is_one_row() {
        let mut table = OpTable::new(None);
        table
            .add(1, history(&[written(), written()]).as_bytes(), 0, Some(2))
            .unwrap();
        assert_eq!(
            table
                .rows()
                .iter()
                .map(|row| row.complete_sample)
                .collect::<Vec<_>>(),
            [false]
        );
        table.add(1, history(&[written()]).as_bytes(), 0, None).unwrap();
        table.add(2, history(&[written()]).as_bytes(), 0, None).unwrap();
        let rows: Vec<_> = table
            .rows()
            .iter()
            .map(|row| (row.osd, row.complete_sample))
            .collect();
        assert_eq!(rows, [(1, true), (2, true)]);
    }

    #[test]
    fn ops_of_other_pools_and_other_messages_are_stepped_over() {
        let other = r#"{"description":"pg_notify(x)","type_data":{"events":5}}"#.to_string();
        let text = history(&[written(), written().replace(" 2.1f", " 3.1f"), other, written()]);
        let mut table = OpTable::new(Some(vec![3]));
        table.add(1, text.as_bytes(), 0, None).unwrap();
        assert_eq!(
            table.rows().iter().map(|row| row.pool_id).collect::<Vec<_>>(),
            [3]
        );
    }

    #[test]
    fn what_is_no_history_is_refused_with_its_place() {
        let cut = history(&[written()]);
        for (text, reason) in [
            ("", "the JSON ends too early"),
            ("Error EINVAL", "the history is not an object"),
            ("{}", "no field 'ops'"),
            (r#"{"ops":5}"#, "'ops' is not a list"),
            (r#"{"ops":[],"ops":[]}"#, "there are two fields 'ops'"),
            (r#"{"ops":[]} x"#, "something follows the JSON"),
            (r#"{"ops":[{}]}"#, "no field 'description'"),
            (
                r#"{"size":true,"ops":[]}"#,
                "the size of the history is not a number",
            ),
            (r#"{"duration":1e15,"ops":[]}"#, "a number does not fit 64 bits"),
            (
                r#"{"ops":[{"description":"osd_repop(a b)"}]}"#,
                "no field 'type_data'",
            ),
            (
                r#"{"ops":[{"description":"osd_repop(a b)","type_data":{}}]}"#,
                "no field 'events'",
            ),
            (
                r#"{"ops":[{"description":"x"}]}"#,
                "the last op has no field 'initiated_at'",
            ),
            (
                cut.replace("[write 512", "[write 9223372036854775808").as_str(),
                "a number does not fit 64 bits",
            ),
            (
                cut.replace("01:02:03.000061", "25:02:03.000061").as_str(),
                "a time has an unknown form",
            ),
            (
                cut.replace(r#""event":"done","#, "").as_str(),
                "an event lacks its field 'event' or 'time'",
            ),
        ] {
            let problem = OpTable::new(None).add(1, text.as_bytes(), 0, None).unwrap_err();
            assert_eq!(problem.reason, reason, "{text}");
        }
        for end in 0..cut.len() {
            assert!(
                OpTable::new(None)
                    .add(1, &cut.as_bytes()[..end], 0, None)
                    .is_err(),
                "{end}"
            );
        }
    }

    #[test]
    fn what_an_op_does_to_which_object() {
        let of = |rest: &str| {
            let text = history(&[
                written().replace("2:42:::a:head [write 512~4096] snapc 0=[] ondisk+write e22", rest)
            ]);
            let mut table = OpTable::new(None);
            table.add(1, text.as_bytes(), 0, None).unwrap();
            let row = table.rows()[0].clone();
            let object = row.object.and_then(|object| table.objects().get(object));
            (
                object.map(str::to_owned),
                row.op,
                row.offset_bytes,
                row.length_bytes,
            )
        };
        for (rest, object, op, offset_bytes, length_bytes) in [
            (
                "7:42:ns:key:a [b] (c d:head [sparse-read 8192~512,read 0~4] snapc 0=[] +read e2",
                Some("a [b] (c d"),
                Op::Read,
                Some(8192),
                Some(516),
            ),
            ("7:42:::a:snapdir [delete] e2", Some("a"), Op::Write, None, None),
            // What stands in brackets inside does not end the list.
            (
                "7:42:::a:head [write 0~5 [fadvise_random],write 8~5 [1@2]] snapc 0=[] e2",
                Some("a"),
                Op::Write,
                Some(0),
                Some(10),
            ),
            (
                "7:42:::a:head [cmpext 0~512] snapc 0=[] e2",
                Some("a"),
                Op::Read,
                Some(0),
                Some(512),
            ),
            (
                "4.6e9dfd41 (undecoded) ondisk+read e28",
                None,
                Op::Read,
                None,
                None,
            ),
            ("x:head [read ~5,5~,~", None, Op::Other, None, None),
        ] {
            let expected = (object.map(str::to_owned), op, offset_bytes, length_bytes);
            assert_eq!(of(rest), expected, "{rest}");
        }
    }

    #[test]
    fn descriptions_that_are_no_requests() {
        for text in [
            "osd_op(mds.0.5:12 2.1 x)",
            "osd_op(osd.1.0:9 2.1 x)",
            "osd_op(client.x.0:9 2.1 x)",
            "osd_op(client.1.0:x 2.1 x)",
            "osd_op(client.1.0 2.1 x)",
            "osd_op(client.1.0:9 2 x)",
            "osd_op(client.1.0:9 2. x)",
            "osd_op(client.1.0:9 2.1t0 x)",
            "osd_op(client.1.0:9 99999999999999999999.1 x)",
            "osd_repop(",
            "",
        ] {
            assert!(matches!(Subject::of(text.as_bytes()), Subject::Other), "{text}");
        }
    }
}
