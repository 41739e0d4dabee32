//! Trace files as batches of requests with groups and times: decoding overlaps with what is done to the batch.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use bathy_mrc::Io;
use bathy_mrc::grouping::{Grouping, Names};
use bathy_mrc::groups::GroupedIo;
use bathy_mrc::log_histogram::LogHistogram;
use bathy_mrc::passes::Batch;
use bathy_trace::{
    Columns, EventBatch, Format, NameTable, OnBadRecord, Op, OpenOptions, TraceError, TraceReader,
};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The names of the trace formats.
#[pyfunction]
pub(crate) fn trace_formats() -> Vec<&'static str> {
    Format::ALL.iter().map(|format| format.name()).collect()
}

/// Between two calls of the progress function.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

fn grouping(name: &str, node_of_osd: Option<Vec<u32>>) -> PyResult<Grouping> {
    match (name, node_of_osd) {
        ("node", Some(nodes)) => Ok(Grouping::Node(nodes)),
        ("node", None) => Err(PyValueError::new_err("grouping by node needs node_of_osd")),
        ("all", _) => Ok(Grouping::All),
        ("image", _) => Ok(Grouping::Volume),
        ("osd", _) => Ok(Grouping::Osd),
        ("pool", _) => Ok(Grouping::Pool),
        (other, _) => Err(PyValueError::new_err(format!("group_by is {other:?}"))),
    }
}

#[derive(Default)]
struct Totals {
    events: u64,
    events_left_out: u64,
    records_ignored: u64,
    records_bad: u64,
    events_out_of_order: u64,
    bytes_read: u64,
    first_errors: Vec<String>,
    object_end_bytes: u64,
    /// Of the first file with a header.
    columns: Columns,
    time_ns_range: Option<(u64, u64)>,
    /// Of the first files that begin before others given earlier end.
    overlaps: Vec<String>,
}

/// Overlaps of files that are reported.
const MOST_OVERLAPS: usize = 10;

impl Totals {
    fn add(&mut self, reader: &(dyn TraceReader + Send)) {
        let report = reader.report();
        self.events += report.events;
        self.records_ignored += report.records_ignored;
        self.records_bad += report.records_bad;
        self.events_out_of_order += report.events_out_of_order;
        self.bytes_read += report.file_bytes_read;
        self.object_end_bytes = self.object_end_bytes.max(report.object_end_bytes);
        if self.columns == Columns::default() {
            self.columns = report.columns.clone();
        }
        self.first_errors.extend(
            report
                .first_errors
                .iter()
                .map(|error| format!("{}: {error}", reader.path().display())),
        );
        if let (Some((_, end)), Some((start, _))) = (self.time_ns_range, report.time_ns_range) {
            if start < end && self.overlaps.len() < MOST_OVERLAPS {
                self.overlaps.push(reader.path().display().to_string());
            }
        }
        self.time_ns_range = match (self.time_ns_range, report.time_ns_range) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }
}

/// What files to read and how.
pub(crate) struct Files {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) format: Option<Format>,
    pub(crate) open: OpenOptions,
    pub(crate) progress: Option<Py<PyAny>>,
}

impl Files {
    pub(crate) fn new(
        paths: Vec<PathBuf>,
        format: Option<&str>,
        skip_bad_records: bool,
        object_bytes: Option<u64>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let format = format
            .map(|name| {
                name.parse::<Format>()
                    .map_err(|error| PyValueError::new_err(error.to_string()))
            })
            .transpose()?;
        let on_bad_record = if skip_bad_records {
            OnBadRecord::Skip
        } else {
            OnBadRecord::Stop
        };
        let defaults = OpenOptions::default();
        let open = OpenOptions {
            on_bad_record,
            object_size_bytes: object_bytes.unwrap_or(defaults.object_size_bytes),
            ..defaults
        };
        Ok(Self {
            paths,
            format,
            open,
            progress,
        })
    }
}

/// Groups, names and counts over all files of a pass.
pub(crate) struct Reading {
    grouping: Grouping,
    volumes: Names,
    pools: Names,
    totals: Totals,
    latencies: LogHistogram,
    lengths: LogHistogram,
}

impl Reading {
    pub(crate) fn new(group_by: &str, node_of_osd: Option<Vec<u32>>) -> PyResult<Self> {
        Ok(Self {
            grouping: grouping(group_by, node_of_osd)?,
            volumes: Names::default(),
            pools: Names::default(),
            totals: Totals::default(),
            latencies: LogHistogram::default(),
            lengths: LogHistogram::default(),
        })
    }

    /// Whether all requests are of one group.
    pub(crate) fn is_one_group(&self) -> bool {
        matches!(self.grouping, Grouping::All)
    }

    /// The name of a group where the trace gives names.
    pub(crate) fn name(&self, group: u32) -> Option<String> {
        match self.grouping {
            Grouping::Volume => self.volumes.get(group).map(str::to_owned),
            Grouping::Pool => self.pools.get(group).map(str::to_owned),
            _ => None,
        }
    }

    /// Counts the lengths of requests that were not read from a file.
    pub(crate) fn count(&mut self, batch: &Batch) {
        for request in batch.requests() {
            self.lengths.add(request.io.length_bytes);
        }
    }

    /// Latencies of the reads that have one: middles of buckets in nanoseconds, and counts.
    pub(crate) fn read_latencies(&self) -> (Vec<f64>, Vec<f64>) {
        self.latencies.buckets()
    }

    /// Counts over all files.
    pub(crate) fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("events", self.totals.events)?;
        dict.set_item("events_left_out", self.totals.events_left_out)?;
        dict.set_item("records_ignored", self.totals.records_ignored)?;
        dict.set_item("records_bad", self.totals.records_bad)?;
        dict.set_item("events_out_of_order", self.totals.events_out_of_order)?;
        dict.set_item("overlapping_files", &self.totals.overlaps)?;
        dict.set_item("bytes_read", self.totals.bytes_read)?;
        dict.set_item("first_errors", &self.totals.first_errors)?;
        dict.set_item("object_end_bytes", self.totals.object_end_bytes)?;
        dict.set_item("columns_used", &self.totals.columns.used)?;
        dict.set_item("columns_ignored", &self.totals.columns.ignored)?;
        dict.set_item("time_ns_range", self.totals.time_ns_range)?;
        dict.set_item("request_bytes_p99", self.lengths.quantile(0.99))?;
        Ok(dict)
    }

    /// Reads the files in order and hands every batch to `consume`, which runs in a thread of its own while the next
    /// batch is decoded. Runs without the GIL. What the progress function raises ends the pass.
    pub(crate) fn stream(
        &mut self,
        py: Python<'_>,
        files: &Files,
        consume: impl FnOnce(Receiver<Batch>) + Send,
    ) -> PyResult<()> {
        py.detach(|| {
            let (sender, receiver) = sync_channel::<Batch>(2);
            std::thread::scope(|scope| {
                scope.spawn(move || consume(receiver));
                // The sender must be gone before the scope ends, or the worker would wait for ever.
                let sender = sender;
                self.read_files(files, &sender)
            })?;
            report_progress(files, self.totals.events, self.totals.bytes_read)
        })
    }

    fn read_files(&mut self, files: &Files, sender: &SyncSender<Batch>) -> PyResult<()> {
        let mut last = Instant::now();
        let mut tick = |events: u64, bytes: u64| -> PyResult<()> {
            if last.elapsed() < PROGRESS_INTERVAL {
                return Ok(());
            }
            last = Instant::now();
            report_progress(files, events, bytes)
        };
        for path in &files.paths {
            let mut reader =
                bathy_trace::open(path, files.format, &files.open).map_err(|error| trace_error(&error))?;
            self.volumes.start_file();
            self.pools.start_file();
            let result = self.decode(&mut *reader, sender, &mut tick);
            self.totals.add(&*reader);
            result?;
        }
        Ok(())
    }

    fn decode(
        &mut self,
        reader: &mut (dyn TraceReader + Send),
        sender: &SyncSender<Batch>,
        tick: &mut impl FnMut(u64, u64) -> PyResult<()>,
    ) -> PyResult<()> {
        let mut events = EventBatch::new();
        while reader
            .next_batch(&mut events)
            .map_err(|error| trace_error(&error))?
            > 0
        {
            self.send(&events, reader, sender);
            tick(
                self.totals.events + reader.report().events,
                self.totals.bytes_read + reader.report().file_bytes_read,
            )?;
        }
        Ok(())
    }

    fn send(&mut self, events: &EventBatch, reader: &(dyn TraceReader + Send), sender: &SyncSender<Batch>) {
        let mut batch = Batch::default();
        let names = reader.names();
        for event in events.iter() {
            let write = match event.op {
                Op::Read => false,
                Op::Write => true,
                _ => {
                    self.totals.events_left_out += 1;
                    continue;
                }
            };
            if event.length_bytes == 0 {
                self.totals.events_left_out += 1;
                continue;
            }
            self.lengths.add(event.length_bytes);
            if !write {
                self.latencies.add(event.latency_ns);
            }
            let volume = number(&mut self.volumes, &names.volumes, event.volume);
            let pool = if names.pools.is_empty() {
                event.pool
            } else {
                number(&mut self.pools, &names.pools, event.pool)
            };
            let group = self.grouping.group(volume, event.osd, pool);
            let io = Io {
                offset_bytes: event.offset_bytes,
                length_bytes: event.length_bytes,
                write,
                volume,
            };
            batch.push(GroupedIo { group, io }, event.time_ns);
            if batch.is_full() {
                // The worker ends before the sender only by a panic, which the scope passes on.
                let _ = sender.send(std::mem::take(&mut batch));
            }
        }
        if !batch.is_empty() {
            let _ = sender.send(batch);
        }
    }
}

/// The number over all files of a name of this one.
fn number(names: &mut Names, of_file: &NameTable, local: u32) -> u32 {
    names.number(local, |index| of_file.get(index).unwrap_or_default())
}

fn report_progress(files: &Files, events: u64, bytes: u64) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        files
            .progress
            .as_ref()
            .map_or(Ok(()), |call| call.call1(py, (events, bytes)).map(drop))
    })
}

pub(crate) fn trace_error(error: &TraceError) -> PyErr {
    match error {
        TraceError::Io { .. } => PyOSError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}
