//! Op histories of Ceph OSDs (`dump_historic_ops`) as a table: where the time of each client operation went.
//!
//! The reader of traces ([`crate::Format::OpHistory`]) makes I/Os of the same dumps, whatever wraps them and however
//! long they are. Here one answer of one OSD is in memory as a whole, and the stages of an operation count, which its
//! events and the histories of other OSDs tell. What the events mean is said where the dumps are asked for, in
//! `bathyscope.sources.op_history`.
//!
//! Only the events' times are used, and no order of members or events is assumed. A description is looked at first
//! where it comes first, as it does: then what is not wanted (other pools, other messages) is stepped over.
//!
//! Limits: an answer is read in one pass, and what is kept is in proportion to its length: at most one row for each
//! hundred bytes of it, and 64 MiB of names of a kind.

use std::borrow::Cow;
use std::collections::HashMap;

use memchr::{memchr_iter, memmem, memrchr};

use crate::error::{BadRecord, Position, excerpt};
use crate::event::Op;
use crate::json_cursor::{Bad, Cursor};
use crate::names::NameTable;
use crate::reader::Reason;
use crate::text::{leading_timestamp, leading_u64, split_once, u64_of};

const READS: [&[u8]; 3] = [b"read", b"sparse-read", b"sync_read"];
const WRITES: [&[u8]; 8] = [
    b"write",
    b"writefull",
    b"writesame",
    b"append",
    b"zero",
    b"truncate",
    b"create",
    b"delete",
];

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
struct Listed<'a> {
    count: i64,
    /// Rows of earlier histories that this one holds as well.
    again: Vec<usize>,
    last: Ends<'a>,
}

/// Where an op says when it began and how long ago that was.
#[derive(Default)]
struct Ends<'a> {
    initiated_at: Option<Cursor<'a>>,
    age: Option<Cursor<'a>>,
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
        let now_ns = if listed.count == 0 {
            asked_ns
        } else {
            listed.last.now_ns(&mut self.clock)?
        };
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

    fn list<'a>(&mut self, cursor: &mut Cursor<'a>, osd: i64) -> Result<Listed<'a>, Bad> {
        let mut listed = Listed::default();
        let mut elements = cursor.array("'ops' is not a list")?;
        while cursor.element(&mut elements)? {
            listed.count += 1;
            listed.last = self.op(cursor, osd, &mut listed.again)?;
        }
        Ok(listed)
    }

    fn op<'a>(&mut self, cursor: &mut Cursor<'a>, osd: i64, again: &mut Vec<usize>) -> Result<Ends<'a>, Bad> {
        let start = cursor.at();
        let mut ends = Ends::default();
        let mut description = None;
        let (mut data_at, mut data) = (None, None);
        let mut members = cursor.object("an op is not an object")?;
        while let Some(key) = cursor.member(&mut members)? {
            match &*key {
                b"description" => description = Some(cursor.string("a description is not a string")?),
                b"type_data" => {
                    data_at = Some(*cursor);
                    data = match &description {
                        Some(text) if self.is_wanted(&Subject::of(text)) => Some(self.type_data(cursor)?),
                        _ => {
                            cursor.skip()?;
                            None
                        }
                    };
                }
                name => {
                    match name {
                        b"initiated_at" => ends.initiated_at = Some(*cursor),
                        b"age" => ends.age = Some(*cursor),
                        _ => {}
                    }
                    cursor.skip()?;
                }
            }
        }
        let description = description.ok_or((start, "no field 'description'"))?;
        let subject = Subject::of(&description);
        if self.is_wanted(&subject) {
            let data = match (data, data_at) {
                (Some(data), _) => data,
                (None, Some(mut place)) => self.type_data(&mut place)?,
                (None, None) => return Err((start, "no field 'type_data'")),
            };
            self.add_op(osd, &subject, &data, again)
                .map_err(|reason| (start, reason))?;
        }
        Ok(ends)
    }

    fn is_wanted(&self, subject: &Subject<'_>) -> bool {
        match subject {
            Subject::Client(request) => self
                .pools
                .as_ref()
                .is_none_or(|pools| pools.contains(&request.pool_id)),
            Subject::Replica(_) => true,
            Subject::Other => false,
        }
    }

    fn type_data<'a>(&mut self, cursor: &mut Cursor<'a>) -> Result<TypeData<'a>, Bad> {
        let start = cursor.at();
        let mut address = None;
        let mut events = None;
        let mut members = cursor.object("'type_data' is not an object")?;
        while let Some(key) = cursor.member(&mut members)? {
            match &*key {
                b"events" => events = Some(self.events(cursor)?),
                b"client_info" if cursor.peek()? == b'{' => address = address_in(cursor)?,
                _ => cursor.skip()?,
            }
        }
        let events = events.ok_or((start, "no field 'events'"))?;
        Ok(TypeData { address, events })
    }

    fn events<'a>(&mut self, cursor: &mut Cursor<'a>) -> Result<Events<'a>, Bad> {
        let mut events = Events::default();
        let mut elements = cursor.array("'events' is not a list")?;
        while cursor.element(&mut elements)? {
            let (mut name, mut at_ns) = (None, None);
            let mut members = cursor.object("an event is not an object")?;
            while let Some(key) = cursor.member(&mut members)? {
                match &*key {
                    b"event" => name = Some(cursor.string("the name of an event is not a string")?),
                    b"time" => at_ns = Some(self.clock.read(cursor)?),
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

    fn add_op(
        &mut self,
        osd: i64,
        subject: &Subject<'_>,
        data: &TypeData<'_>,
        again: &mut Vec<usize>,
    ) -> Result<(), Reason> {
        let events = &data.events;
        let Some((begin_ns, end_ns)) = events.span_ns else {
            return Ok(());
        };
        let client_op = match subject {
            Subject::Client(client_op) => client_op,
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
        let target = Target::of(client_op.rest)?;
        let stages = events.stages(target.op);
        let peers = match stages.replica_wait_ns {
            Some(1..) => events.peers(),
            _ => Vec::new(),
        };
        let address = data.address.as_deref().map(|address| {
            let plain = split_once(address, b'/').map_or(address, |(plain, _)| plain);
            intern(&mut self.addresses, plain)
        });
        let object = target.object.map(|name| intern(&mut self.objects, name));
        let op = OpRow {
            osd,
            client: intern(&mut self.clients, client_op.client)?,
            address: address.transpose()?,
            pool_id: client_op.pool_id,
            pg: intern(&mut self.pgs, client_op.pg)?,
            object: object.transpose()?,
            op: target.op,
            offset_bytes: target.offset_bytes,
            length_bytes: target.length_bytes,
            started_ns: begin_ns,
            duration_ns: end_ns - begin_ns,
            stages,
            slowest_peer: if let [peer] = peers[..] { Some(peer) } else { None },
            complete_sample: false,
            complete_since_ns: 0,
        };
        // Nothing fails from here on: what names a row finds it.
        let row = self.rows.len();
        self.known.insert(identity, row);
        if peers.len() > 1 {
            self.waits.push(Wait { row, request, peers });
        }
        self.rows.push(op);
        Ok(())
    }
}

fn intern(names: &mut NameTable, name: &[u8]) -> Result<u32, Reason> {
    names
        .intern(name, usize::MAX)
        .ok_or("the names of all ops together are too long")
}

/// The address in `client_info`.
fn address_in<'a>(cursor: &mut Cursor<'a>) -> Result<Option<Cow<'a, [u8]>>, Bad> {
    let mut address = None;
    let mut members = cursor.object("'client_info' is not an object")?;
    while let Some(key) = cursor.member(&mut members)? {
        if *key == *b"client_addr" && cursor.peek()? == b'"' {
            address = Some(cursor.string("")?);
        } else {
            cursor.skip()?;
        }
    }
    Ok(address)
}

impl Ends<'_> {
    /// The time by the clock of the OSD.
    fn now_ns(self, clock: &mut Clock) -> Result<i64, Bad> {
        let mut initiated_at = self
            .initiated_at
            .ok_or((0, "the last op has no field 'initiated_at'"))?;
        let mut age = self.age.ok_or((0, "the last op has no field 'age'"))?;
        let age_ns = age.number("the age of an op is not a number")? * 1e9;
        // Beyond 2^63 the conversion gives the limits, at which the sum does not fit.
        clock
            .read(&mut initiated_at)?
            .checked_add(age_ns as i64)
            .ok_or((initiated_at.at(), TOO_LARGE))
    }
}

struct TypeData<'a> {
    address: Option<Cow<'a, [u8]>>,
    events: Events<'a>,
}

/// What the events of an op say.
#[derive(Default)]
struct Events<'a> {
    /// The first and the last.
    span_ns: Option<(i64, i64)>,
    reached_ns: Option<i64>,
    waiting_ns: Option<i64>,
    started_ns: Option<i64>,
    commit_ns: Option<i64>,
    replica_commit_ns: Option<i64>,
    commit_sent_ns: Option<i64>,
    /// The last of those that name replicas.
    replicas: Option<(i64, Cow<'a, [u8]>)>,
}

impl<'a> Events<'a> {
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

    fn stages(&self, op: Op) -> Stages {
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
    fn peers(&self) -> Vec<i64> {
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

/// Reads times. Most are of the second of the one before, of which only the microseconds are read.
#[derive(Default)]
struct Clock {
    /// "2026-11-21T02:20:23." and "+0000".
    second: Option<([u8; 20], [u8; 5])>,
    second_ns: i64,
}

impl Clock {
    /// The time that stands at the cursor, in nanoseconds since the Unix epoch.
    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<i64, Bad> {
        let start = cursor.at();
        let text = cursor.string("a time is not a string")?;
        self.ns(&text).ok_or((start, "a time has an unknown form"))
    }

    #[inline]
    fn ns(&mut self, text: &[u8]) -> Option<i64> {
        let Ok(text): Result<&[u8; 31], _> = text.try_into() else {
            return whole_time_ns(text);
        };
        let (head, tail) = text.split_first_chunk::<20>()?;
        let (digits, zone) = tail.split_first_chunk::<6>()?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return whole_time_ns(text);
        }
        let microseconds = digits
            .iter()
            .fold(0_i64, |value, digit| value * 10 + i64::from(digit - b'0'));
        let is_known = self
            .second
            .as_ref()
            .is_some_and(|(known, known_zone)| known == head && known_zone == zone);
        if !is_known {
            self.second_ns = whole_time_ns(text)? - microseconds * 1000;
            self.second = Some((*head, zone.try_into().ok()?));
        }
        self.second_ns.checked_add(microseconds * 1000)
    }
}

fn whole_time_ns(text: &[u8]) -> Option<i64> {
    let (ns, rest) = leading_timestamp(text)?;
    i64::try_from(ns).ok().filter(|_| rest.is_empty())
}

/// Whom an op is for.
enum Subject<'a> {
    Client(ClientOp<'a>),
    /// The replica's side of a write: the client's request.
    Replica(&'a [u8]),
    Other,
}

impl<'a> Subject<'a> {
    fn of(description: &'a [u8]) -> Self {
        if let Some(text) = description.strip_prefix(b"osd_op(") {
            ClientOp::of(text).map_or(Self::Other, Self::Client)
        } else if let Some(text) = description.strip_prefix(b"osd_repop(") {
            split_once(text, b' ').map_or(Self::Other, |(request, _)| Self::Replica(request))
        } else {
            Self::Other
        }
    }
}

/// `client.4157.0:9 2.2s0 … e22)`, behind `osd_op(`.
struct ClientOp<'a> {
    request: &'a [u8],
    client: &'a [u8],
    pool_id: i64,
    pg: &'a [u8],
    /// From the object on, without the last bracket.
    rest: &'a [u8],
}

impl<'a> ClientOp<'a> {
    fn of(text: &'a [u8]) -> Option<Self> {
        let (request, text) = split_once(text, b' ')?;
        let number = request.strip_prefix(b"client.")?;
        let client = &request[..request.len() - number.len() + digits(number)?];
        let (_, tid) = request.split_at(memrchr(b':', request)?);
        let (place, rest) = split_once(text, b' ')?;
        let (pool, seed) = split_once(place, b'.')?;
        let hex = seed.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        // An erasure-coded pool's placement group is one of a shard: 7.1fs0.
        let shard = &seed[hex..];
        let is_place = hex > 0 && (shard.is_empty() || shard.strip_prefix(b"s").is_some_and(is_number));
        (is_place && is_number(&tid[1..])).then_some(Self {
            request,
            client,
            pool_id: i64::try_from(u64_of(pool)?).ok()?,
            pg: &place[..place.len() - shard.len()],
            rest: rest.strip_suffix(b")")?,
        })
    }
}

fn is_number(text: &[u8]) -> bool {
    digits(text) == Some(text.len())
}

/// How many digits a text begins with; `None` for no digit.
fn digits(text: &[u8]) -> Option<usize> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then_some(count)
}

/// What an op does to which object.
struct Target<'a> {
    object: Option<&'a [u8]>,
    op: Op,
    offset_bytes: Option<i64>,
    length_bytes: Option<i64>,
}

impl<'a> Target<'a> {
    /// Of `4:6e9dfd41:::NAME:head [write 679936~4096,…] snapc 0=[] ondisk+write+… e28`; before an op is decoded
    /// `4.6e9dfd41 (undecoded) ondisk+read+… e28`. The name of an object may hold blanks and brackets.
    fn of(rest: &'a [u8]) -> Result<Self, Reason> {
        // A name may hold ":a [", which looks like a snapshot; so the usual end is looked for first.
        let head = memmem::rfind(rest, b":head [").map(|at| at + b":head".len());
        let Some(end) = head.or_else(|| end_of_snapshot(rest)) else {
            let flags = memmem::rfind(rest, b"] ").map_or(rest, |at| &rest[at + 2..]);
            let has = |flag: &[u8]| memmem::find(flags, flag).is_some();
            return Ok(Self {
                object: None,
                op: op_of(has(b"+write"), has(b"+read")),
                offset_bytes: None,
                length_bytes: None,
            });
        };
        let listed = &rest[end + 2..];
        let listed = split_once(listed, b']').map_or(listed, |(listed, _)| listed);
        let (mut is_write, mut is_read) = (false, false);
        for part in listed.split(|&byte| byte == b',') {
            let verb = split_once(part, b' ').map_or(part, |(verb, _)| verb);
            is_write |= WRITES.contains(&verb);
            is_read |= READS.contains(&verb);
        }
        let (offset_bytes, length_bytes) = extents(listed)?;
        Ok(Self {
            object: object_name(&rest[..end]),
            op: op_of(is_write, is_read),
            offset_bytes,
            length_bytes,
        })
    }
}

fn op_of(is_write: bool, is_read: bool) -> Op {
    match (is_write, is_read) {
        (true, _) => Op::Write,
        (false, true) => Op::Read,
        (false, false) => Op::Other,
    }
}

/// The end of the first ":snapdir" or ":3f" that " [" follows.
fn end_of_snapshot(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    memmem::find_iter(text, b" [").find(|&end| {
        let piece = &text[from..end];
        from = end;
        memrchr(b':', piece).is_some_and(|colon| {
            let name = &piece[colon + 1..];
            name == b"snapdir" || (!name.is_empty() && name.iter().all(u8::is_ascii_hexdigit))
        })
    })
}

/// The name in "pool:hash:namespace:key:name:snapshot".
fn object_name(text: &[u8]) -> Option<&[u8]> {
    let (pool, text) = split_once(text, b':')?;
    let (hash, text) = split_once(text, b':')?;
    let (_namespace, text) = split_once(text, b':')?;
    let (_key, text) = split_once(text, b':')?;
    let is_hash = !hash.is_empty() && hash.iter().all(u8::is_ascii_hexdigit);
    let is_pool = is_number(pool.strip_prefix(b"-").unwrap_or(pool));
    let end = memrchr(b':', text)?;
    (is_pool && is_hash).then_some(&text[..end])
}

/// Offset of the first extent (`679936~4096`) and length of all.
fn extents(listed: &[u8]) -> Result<(Option<i64>, Option<i64>), Reason> {
    let number = |text: &[u8]| leading_u64(text).and_then(|(number, _)| i64::try_from(number).ok());
    let (mut offset_bytes, mut length_bytes, mut from) = (None, None, 0);
    for tilde in memchr_iter(b'~', listed) {
        let before = &listed[from..tilde];
        let offset_digits = before
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let behind = &listed[tilde + 1..];
        let (1.., Some(length_digits)) = (offset_digits, digits(behind)) else {
            continue;
        };
        let offset = number(&before[before.len() - offset_digits..]).ok_or(TOO_LARGE)?;
        let length = number(behind).ok_or(TOO_LARGE)?;
        offset_bytes.get_or_insert(offset);
        length_bytes = Some(length.checked_add(length_bytes.unwrap_or(0)).ok_or(TOO_LARGE)?);
        from = tilde + 1 + length_digits;
    }
    Ok((offset_bytes, length_bytes))
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
    fn targets_of_every_kind() {
        let of = |text: &'static str| {
            let target = Target::of(text.as_bytes()).unwrap();
            let object = target.object.map(|name| std::str::from_utf8(name).unwrap());
            (object, target.op, target.offset_bytes, target.length_bytes)
        };
        for (text, expected) in [
            (
                "7:42:ns:key:a [b] (c d:head [sparse-read 8192~512,read 0~4] snapc 0=[] +read e2",
                (Some("a [b] (c d"), Op::Read, Some(8192), Some(516)),
            ),
            (
                "7:42:::a b:3f [stat,read 1~2~3,4~5] e2",
                (Some("a b"), Op::Read, Some(1), Some(7)),
            ),
            ("7:42:::a:snapdir [delete] e2", (Some("a"), Op::Write, None, None)),
            (
                "7:42:::rbd_header.1:head [call lock.get_info in=24b] snapc 0=[]",
                (Some("rbd_header.1"), Op::Other, None, None),
            ),
            ("x:head [read ~5,5~,~", (None, Op::Read, None, None)),
            (
                "4.6e9dfd41 (undecoded) ondisk+write+read e28",
                (None, Op::Write, None, None),
            ),
            (
                "4.6e9dfd41 (undecoded) ondisk+read e28",
                (None, Op::Read, None, None),
            ),
            ("", (None, Op::Other, None, None)),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }

    #[test]
    fn descriptions_that_are_no_requests() {
        for text in [
            "osd_op(client.1.0:9 2.1 2:42:::a:head [read 0~1] e2",
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

    #[test]
    fn times_of_the_same_and_of_another_second() {
        let mut clock = Clock::default();
        for (text, expected) in [
            ("2026-11-21T01:02:03.000001+0000", Some(SECOND_NS + 1000)),
            ("2026-11-21T01:02:03.999999+0000", Some(SECOND_NS + 999_999_000)),
            ("2026-11-21T01:02:04.000001+0000", Some(SECOND_NS + 1_000_001_000)),
            (
                "2026-11-21T01:02:03.000001+0100",
                Some(SECOND_NS - 3_599_999_999_000),
            ),
            // Nautilus
            ("2026-11-21 01:02:03.000001", Some(SECOND_NS + 1000)),
            ("2026-11-21T01:02:03.00000x+0000", None),
            ("0.000000", None),
            ("", None),
        ] {
            assert_eq!(clock.ns(text.as_bytes()), expected, "{text}");
        }
    }
}
