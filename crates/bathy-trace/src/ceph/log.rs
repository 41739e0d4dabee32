//! Logs of Ceph OSDs: the operations that their lines say.
//!
//! A log is read in one way, [`LogOps`], whatever is made of it: [`stream`] makes block I/Os, [`OsdLogReader`] a row of each
//! operation. [`line`] says which lines there are.
//!
//! **No operation counts twice.** A log at `debug_osd` 15 and `debug_ms` 1 says everything in both forms. A request is
//! remembered from its arrival on. Its `log_op_stats` line makes the operation and forgets the request, so that its reply,
//! which is logged after that, finds none. What has no such line (requests that failed, for one) has its operation from the
//! reply. The reply to a request that was not seen, because it came before the log began, knows neither place nor latency.

mod batch;
mod line;
mod reader;
mod requests;
mod scan;
pub(crate) mod stream;

use std::io;

pub use batch::{OsdOpBatch, Texts};
pub use reader::{OsdLogOptions, OsdLogReader, OsdLogReport};

use crate::ceph::osd_op::client_of;
use crate::error::{BadRecord, Position, excerpt};
use crate::input::Window;
use crate::reader::Reason;
use line::{Reply, Request, Stats};
use requests::Requests;
use scan::{Found, Scan, Word};

/// The forms of operations that are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forms {
    /// `debug_osd` 15.
    Statistics,
    /// `debug_ms` 1.
    Messages,
    Both,
}

/// An operation.
pub(crate) struct LogOp<'a> {
    pub(crate) started_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) osd: Option<u32>,
    /// Pool and number of the placement group. None: the request was not seen.
    pub(crate) pg: Option<(u32, u32)>,
    /// Of the reply; statistics are of requests that succeeded.
    pub(crate) result: Option<i32>,
    pub(crate) client: &'a [u8],
    /// Empty if it is not known.
    pub(crate) address: &'a [u8],
    pub(crate) object: &'a [u8],
    pub(crate) ops: &'a [u8],
}

/// Where an operation stands.
pub(crate) struct Line<'a> {
    number: u64,
    text: &'a [u8],
}

impl Line<'_> {
    pub(crate) fn bad(&self, reason: Reason) -> BadRecord {
        BadRecord {
            position: Position::Line(self.number),
            reason,
            excerpt: excerpt(self.text),
        }
    }
}

/// What is next in a log.
pub(crate) enum Next<'a> {
    Op(Line<'a>, LogOp<'a>),
    /// A line that should be an operation and cannot be read.
    Bad(BadRecord),
    /// Nothing yet.
    Nothing,
    /// The end of the log.
    End,
}

/// Reads operations, across the logs of a rotated set.
pub(crate) struct LogOps {
    scan: Scan,
    requests: Requests,
    osd_of_file: Option<u32>,
    /// The last OSD that a line of this log named, for messages in a file that does not say whose it is.
    osd_seen: Option<u32>,
    /// Requests that were forgotten because too many waited for their reply.
    pub(crate) requests_forgotten: u64,
}

impl LogOps {
    pub(crate) fn new(forms: Forms, line_bytes_max: usize) -> Self {
        let words: &[Word] = match forms {
            Forms::Statistics => &[Word::Stats],
            Forms::Messages => &[Word::Request, Word::Reply],
            Forms::Both => &[Word::Stats, Word::Request, Word::Reply],
        };
        Self {
            scan: Scan::new(words, line_bytes_max),
            requests: Requests::default(),
            osd_of_file: None,
            osd_seen: None,
            requests_forgotten: 0,
        }
    }

    /// Begins with another log, of this OSD if the lines do not name it.
    pub(crate) fn begin(&mut self, osd: Option<u32>) {
        self.scan.begin();
        (self.osd_of_file, self.osd_seen) = (osd, None);
    }

    /// Moves the window behind what is done with.
    pub(crate) fn settle(&mut self, window: &mut Window) {
        self.scan.settle(window);
    }

    /// Lines that are no operation since this was asked last.
    pub(crate) fn take_others(&mut self) -> u64 {
        self.scan.take_others()
    }

    /// What is next. It is done with when this is called again.
    pub(crate) fn next<'a>(&'a mut self, window: &'a mut Window) -> io::Result<Next<'a>> {
        let found = self.scan.next(window)?;
        let window: &'a Window = window;
        Ok(match found {
            Found::Line {
                word,
                at,
                number,
                line,
            } => {
                let line = Line {
                    number,
                    text: &window.available()[line],
                };
                match self.line(word, line.text, at) {
                    Ok(Some(op)) => Next::Op(line, op),
                    Ok(None) => Next::Nothing,
                    Err(reason) => Next::Bad(line.bad(reason)),
                }
            }
            Found::TooLong { number, line } => {
                let line = Line {
                    number,
                    text: &window.available()[line],
                };
                Next::Bad(line.bad("the line is too long"))
            }
            Found::Nothing => Next::Nothing,
            Found::End => Next::End,
        })
    }

    fn line<'a>(&'a mut self, word: Word, line: &'a [u8], at: usize) -> Result<Option<LogOp<'a>>, Reason> {
        match word {
            Word::Request => {
                if let Some(request) = Request::parse(line, at) {
                    self.requests_forgotten += self.requests.add(&request);
                }
                Ok(None)
            }
            Word::Stats => match Stats::parse(line, at)? {
                Some(stats) => self.stats(&stats).map(Some),
                None => Ok(None),
            },
            Word::Reply => Ok(Reply::parse(line, at)?.map(|reply| self.reply(&reply))),
        }
    }

    fn stats<'a>(&'a mut self, stats: &Stats<'a>) -> Result<LogOp<'a>, Reason> {
        let (client, tid) = client_of(stats.op.request).ok_or("the request has no client")?;
        let address = self.requests.take_of_client(client, tid);
        self.osd_seen = stats.osd.or(self.osd_seen);
        Ok(LogOp {
            started_ns: stats.end_ns.saturating_sub(stats.latency_ns),
            duration_ns: stats.latency_ns,
            osd: stats.osd.or(self.osd_of_file),
            pg: Some((stats.op.pg.pool, stats.op.pg.seed)),
            result: None,
            client,
            address: address.map_or(&b""[..], |address| self.requests.address(address)),
            object: stats.object,
            ops: stats.ops,
        })
    }

    fn reply<'a>(&'a mut self, reply: &Reply<'a>) -> LogOp<'a> {
        let request = self.requests.take_of_address(reply.address, reply.tid);
        let started_ns = request
            .as_ref()
            .map_or(reply.time_ns, |(_, request)| request.time_ns);
        LogOp {
            started_ns,
            duration_ns: reply.time_ns.saturating_sub(started_ns),
            osd: self.osd_of_file.or(self.osd_seen),
            pg: request.as_ref().map(|(_, request)| (request.pool, request.seed)),
            result: Some(reply.result),
            client: request.map_or(&b""[..], |(client, _)| self.requests.client(client)),
            address: reply.address,
            object: reply.object,
            ops: reply.ops,
        }
    }
}
