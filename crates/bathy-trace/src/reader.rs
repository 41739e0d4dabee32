//! The reader that every format shares: batches, counts, bad records.

use std::io;
use std::path::{Path, PathBuf};

use crate::batch::EventBatch;
use crate::error::{BadRecord, Position, TraceError, excerpt};
use crate::event::{IoEvent, MOST_REQUEST_BYTES, Op};
use crate::format::Format;
use crate::input::Window;
use crate::names::NameTables;
use crate::options::{OnBadRecord, OpenOptions};
use crate::report::{Columns, ReadReport};

/// A trace that is read batch by batch, in bounded memory.
pub trait TraceReader {
    /// Replaces the content of `out` by the next I/Os and returns their number; 0 at the end of the trace.
    ///
    /// # Errors
    /// When reading fails or, with [`OnBadRecord::Stop`], at a bad record. All I/Os before the error have been
    /// delivered by then. After an error the reader is at its end.
    fn next_batch(&mut self, out: &mut EventBatch) -> Result<usize, TraceError>;

    /// Names that the numbers in the events delivered so far stand for.
    fn names(&self) -> &NameTables;

    /// Counts up to the last batch.
    fn report(&self) -> &ReadReport;

    /// The format being read.
    fn format(&self) -> Format;

    /// The file being read.
    fn path(&self) -> &Path;
}

/// Why a record was refused: a sentence without the position.
pub(crate) type Reason = &'static str;

/// The output of a decoder.
pub(crate) struct Sink<'a> {
    pub(crate) batch: &'a mut EventBatch,
    pub(crate) names: &'a mut NameTables,
    names_max: usize,
    report: &'a mut ReadReport,
}

impl Sink<'_> {
    /// Appends an I/O of `length_bytes`. A format in which an I/O of 0 bytes means something ignores it before.
    #[inline]
    pub(crate) fn push(&mut self, event: IoEvent, length_bytes: u64) -> Result<(), Reason> {
        if length_bytes == 0 {
            return Err("the length is 0");
        }
        if length_bytes > MOST_REQUEST_BYTES && matches!(event.op, Op::Read | Op::Write) {
            return Err("the length is more than 256 MiB, the most that one request moves");
        }
        let Ok(length) = u32::try_from(length_bytes) else {
            return Err("the length is 4 GiB or more");
        };
        if event.offset_bytes.checked_add(length_bytes).is_none() {
            return Err("the extent ends beyond 2^64");
        }
        self.batch.push(IoEvent {
            length_bytes: length,
            ..event
        });
        Ok(())
    }

    /// Notes how far into an object an I/O reaches.
    #[inline]
    pub(crate) fn note_object_end(&mut self, end_bytes: u64) {
        self.report.object_end_bytes = self.report.object_end_bytes.max(end_bytes);
    }

    /// Counts a record that is well formed and carries no I/O.
    #[inline]
    pub(crate) fn ignore(&mut self) {
        self.report.records_ignored += 1;
    }

    /// Counts lines that are well formed and carry no I/O.
    pub(crate) fn ignore_lines(&mut self, lines: u64) {
        self.report.records_ignored += lines;
    }

    /// The number of a volume by name.
    #[inline]
    pub(crate) fn volume(&mut self, name: &[u8]) -> Result<u32, Reason> {
        self.names
            .volumes
            .intern(name, self.names_max)
            .ok_or("there are too many volumes, or their names are too long")
    }

    /// The number of a pool by name.
    #[inline]
    pub(crate) fn pool(&mut self, name: &[u8]) -> Result<u32, Reason> {
        self.names
            .pools
            .intern(name, self.names_max)
            .ok_or("there are too many pools, or their names are too long")
    }
}

/// Why a decoder stopped before the batch was full.
pub(crate) enum Fault {
    /// The record is bad and consumed: decoding can continue after it.
    Record {
        position: Position,
        reason: Reason,
        excerpt: String,
    },
    /// The record is bad and no record after it can be found: the trace ends here, also with [`OnBadRecord::Skip`].
    Lost { position: Position, reason: Reason },
    /// The bytes cannot be read.
    Io(io::Error),
}

impl Fault {
    pub(crate) fn record(position: Position, reason: Reason, record: &[u8]) -> Self {
        Self::Record {
            position,
            reason,
            excerpt: excerpt(record),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Turns bytes into events.
pub(crate) trait Decoder: Send {
    /// The columns that a header names.
    fn columns(&self) -> Columns {
        Columns::default()
    }

    /// Decodes until the sink's batch has at least `events` or the window is at its end, which is `Ok` in both
    /// cases.
    fn decode(&mut self, window: &mut Window, sink: &mut Sink<'_>, events: usize) -> Result<(), Fault>;
}

/// A decoder, its input and its counts.
pub(crate) struct Reader<D> {
    path: PathBuf,
    format: Format,
    window: Window,
    decoder: D,
    names: NameTables,
    report: ReadReport,
    on_bad_record: OnBadRecord,
    batch_events: usize,
    names_max: usize,
    time_ns_last: u64,
    // An error that waits until the events before it have been delivered.
    pending: Option<TraceError>,
    ended: bool,
}

impl<D: Decoder> Reader<D> {
    pub(crate) fn new(
        path: &Path,
        format: Format,
        window: Window,
        decoder: D,
        options: &OpenOptions,
    ) -> Self {
        Self {
            path: path.to_owned(),
            format,
            report: ReadReport {
                file_bytes: window.file_bytes(),
                columns: decoder.columns(),
                ..ReadReport::default()
            },
            window,
            decoder,
            names: NameTables::default(),
            on_bad_record: options.on_bad_record,
            batch_events: options.batch_events,
            names_max: options.names_max,
            time_ns_last: 0,
            pending: None,
            ended: false,
        }
    }

    fn fail(&mut self, error: TraceError) {
        self.pending = Some(error);
        self.ended = true;
    }

    fn bad_record(&mut self, record: BadRecord) {
        match self.on_bad_record {
            OnBadRecord::Skip => self.report.add_bad_record(record),
            OnBadRecord::Stop => {
                self.report.add_bad_record(record.clone());
                self.fail(TraceError::BadRecord {
                    path: self.path.clone(),
                    record,
                });
            }
        }
    }

    fn fill(&mut self, out: &mut EventBatch) {
        while !self.ended && out.len() < self.batch_events {
            let mut sink = Sink {
                batch: out,
                names: &mut self.names,
                names_max: self.names_max,
                report: &mut self.report,
            };
            match self
                .decoder
                .decode(&mut self.window, &mut sink, self.batch_events)
            {
                Ok(()) => self.ended = out.len() < self.batch_events,
                Err(Fault::Record {
                    position,
                    reason,
                    excerpt,
                }) => {
                    self.bad_record(BadRecord {
                        position,
                        reason,
                        excerpt,
                    });
                }
                Err(Fault::Lost { position, reason }) => {
                    self.bad_record(BadRecord {
                        position,
                        reason,
                        excerpt: String::new(),
                    });
                    self.ended = true;
                }
                Err(Fault::Io(source)) => {
                    // A damaged or cut compressed stream: no position behind it can be trusted.
                    let damaged = source.kind() == io::ErrorKind::InvalidData
                        || source.kind() == io::ErrorKind::InvalidInput
                        || source.kind() == io::ErrorKind::UnexpectedEof;
                    if damaged && self.on_bad_record == OnBadRecord::Skip {
                        let position = Position::Byte(self.window.offset());
                        let excerpt = excerpt(source.to_string().as_bytes());
                        let reason = "the compressed data is damaged or truncated from here on";
                        self.report.add_bad_record(BadRecord {
                            position,
                            reason,
                            excerpt,
                        });
                        self.ended = true;
                    } else {
                        self.fail(TraceError::Io {
                            path: self.path.clone(),
                            source,
                        });
                    }
                }
            }
        }
    }
}

impl<D: Decoder> TraceReader for Reader<D> {
    fn next_batch(&mut self, out: &mut EventBatch) -> Result<usize, TraceError> {
        out.clear();
        self.fill(out);
        self.report.events += out.len() as u64;
        self.report.bytes_read = self.window.offset();
        self.report.file_bytes_read = self.window.file_bytes_read();
        if self.format.has_time() {
            self.report.add_times(out.time_ns(), &mut self.time_ns_last);
        }
        if out.is_empty() {
            if let Some(error) = self.pending.take() {
                return Err(error);
            }
        }
        Ok(out.len())
    }

    fn names(&self) -> &NameTables {
        &self.names
    }

    fn report(&self) -> &ReadReport {
        &self.report
    }

    fn format(&self) -> Format {
        self.format
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
