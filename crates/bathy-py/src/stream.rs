//! Trace files as batches of requests with groups and times: decoding overlaps with what is done to the batch.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use bathy_mrc::Io;
use bathy_mrc::groups::GroupedIo;
use bathy_trace::{
    EventBatch, Format, NameTable, OnBadRecord, Op, OpenOptions, TraceError, TraceReader, UNKNOWN,
};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::Batch;

/// Between two calls of the progress function.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// By what the requests of a mixed trace are told apart.
#[derive(Clone)]
enum Grouping {
    All,
    Volume,
    Osd,
    Pool,
    /// Node number of each OSD.
    Node(Vec<u32>),
}

impl Grouping {
    fn parse(name: &str, node_of_osd: Option<Vec<u32>>) -> PyResult<Self> {
        match (name, node_of_osd) {
            ("node", Some(nodes)) => Ok(Self::Node(nodes)),
            ("node", None) => Err(PyValueError::new_err("grouping by node needs node_of_osd")),
            ("all", _) => Ok(Self::All),
            ("image", _) => Ok(Self::Volume),
            ("osd", _) => Ok(Self::Osd),
            ("pool", _) => Ok(Self::Pool),
            (other, _) => {
                let known = "all image osd pool node";
                Err(PyValueError::new_err(format!(
                    "group_by is {other:?}; there are: {known}"
                )))
            }
        }
    }
}

/// Names met in several files, under one number each.
#[derive(Default)]
struct Names {
    known: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Numbers of the names of the file that is being read.
    of_file: Vec<u32>,
}

impl Names {
    fn number(&mut self, table: &NameTable, local: u32) -> u32 {
        if local == UNKNOWN {
            return UNKNOWN;
        }
        while self.of_file.len() <= local as usize {
            let index = self.of_file.len() as u32;
            let name = table.get(index).unwrap_or_default().to_owned();
            let next = self.known.len() as u32;
            let number = *self.numbers.entry(name.clone()).or_insert(next);
            if number == next {
                self.known.push(name);
            }
            self.of_file.push(number);
        }
        self.of_file[local as usize]
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
    time_ns_range: Option<(u64, u64)>,
    /// Of the first files that begin before others given earlier end.
    overlaps: Vec<String>,
}

/// Overlaps of files that are told.
const MOST_OVERLAPS: usize = 10;

impl Totals {
    fn add(&mut self, reader: &(dyn TraceReader + Send)) {
        let report = reader.report();
        self.events += report.events;
        self.records_ignored += report.records_ignored;
        self.records_bad += report.records_bad;
        self.events_out_of_order += report.events_out_of_order;
        self.bytes_read += report.file_bytes_read;
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

/// Latencies or lengths in buckets of 1/32 of a power of two: a value is known to 1.6 %.
#[derive(Clone)]
pub(crate) struct LogHistogram {
    counts: Vec<u64>,
}

const SUB_BITS: u32 = 5;

impl LogHistogram {
    pub(crate) fn new() -> Self {
        let buckets = Self::bucket(u32::MAX) + 1;
        Self {
            counts: vec![0; buckets],
        }
    }

    fn bucket(value: u32) -> usize {
        let exponent = value
            .checked_ilog2()
            .map_or(0, |log| log.saturating_sub(SUB_BITS));
        ((exponent << SUB_BITS) + (value >> exponent)) as usize
    }

    /// Counts a value; 0 means that it is not known.
    pub(crate) fn add(&mut self, value: u32) {
        if value > 0 {
            self.counts[Self::bucket(value)] += 1;
        }
    }

    /// The value that a share of the values does not exceed, to the width of a bucket; 0 when there are none.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let (values, counts) = self.buckets();
        let wanted = share * counts.iter().sum::<f64>();
        let mut below = 0.0;
        let reached = counts.iter().position(|count| {
            below += count;
            below >= wanted
        });
        reached
            .and_then(|bucket| values.get(bucket))
            .copied()
            .unwrap_or(0.0)
    }

    /// Middle and count of each bucket that holds anything, in order.
    pub(crate) fn buckets(&self) -> (Vec<f64>, Vec<f64>) {
        let middle = |bucket: usize| {
            let exponent = (bucket >> SUB_BITS).saturating_sub(1);
            let mantissa = bucket - (exponent << SUB_BITS);
            (mantissa as f64 + 0.5) * (1u64 << exponent) as f64 - 0.5
        };
        self.counts
            .iter()
            .enumerate()
            .filter(|&(_, &count)| count > 0)
            .map(|(bucket, &count)| (middle(bucket), count as f64))
            .unzip()
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
        let open = OpenOptions {
            on_bad_record,
            ..OpenOptions::default()
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
    pub(crate) latencies: LogHistogram,
    pub(crate) lengths: LogHistogram,
}

impl Reading {
    pub(crate) fn new(group_by: &str, node_of_osd: Option<Vec<u32>>) -> PyResult<Self> {
        Ok(Self {
            grouping: Grouping::parse(group_by, node_of_osd)?,
            volumes: Names::default(),
            pools: Names::default(),
            totals: Totals::default(),
            latencies: LogHistogram::new(),
            lengths: LogHistogram::new(),
        })
    }

    /// Whether all requests are of one group.
    pub(crate) fn is_one_group(&self) -> bool {
        matches!(self.grouping, Grouping::All)
    }

    /// The name of a group where the trace gives names.
    pub(crate) fn name(&self, group: u32) -> Option<String> {
        match self.grouping {
            Grouping::Volume => self.volumes.known.get(group as usize).cloned(),
            Grouping::Pool => self.pools.known.get(group as usize).cloned(),
            _ => None,
        }
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
        dict.set_item("time_ns_range", self.totals.time_ns_range)?;
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
            self.volumes.of_file.clear();
            self.pools.of_file.clear();
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
            let volume = self.volumes.number(&names.volumes, event.volume);
            let group = match &self.grouping {
                Grouping::All => 0,
                Grouping::Volume => volume,
                Grouping::Osd => event.osd,
                Grouping::Pool if names.pools.is_empty() => event.pool,
                Grouping::Pool => self.pools.number(&names.pools, event.pool),
                Grouping::Node(nodes) => nodes.get(event.osd as usize).copied().unwrap_or(UNKNOWN),
            };
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

fn report_progress(files: &Files, events: u64, bytes: u64) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        files
            .progress
            .as_ref()
            .map_or(Ok(()), |call| call.call1(py, (events, bytes)).map(drop))
    })
}

fn trace_error(error: &TraceError) -> PyErr {
    match error {
        TraceError::Io { .. } => PyOSError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}
