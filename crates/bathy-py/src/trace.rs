//! Trace files, streamed once through profiles of several line sizes and groups.

use std::collections::HashMap;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use bathy_mrc::groups::{GroupedIo, LineSweep};
use bathy_mrc::{Io, LineSize};
use bathy_trace::{
    EventBatch, Format, NameTable, OnBadRecord, Op, OpenOptions, TraceError, TraceReader, UNKNOWN,
};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::{line_size, tracker_options};
use crate::profile::Profile;

/// Between two calls of the progress function.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The names of the trace formats.
#[pyfunction]
pub(crate) fn trace_formats() -> Vec<&'static str> {
    Format::ALL.iter().map(|format| format.name()).collect()
}

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
    names: Vec<String>,
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
            let next = self.names.len() as u32;
            let number = *self.numbers.entry(name.clone()).or_insert(next);
            if number == next {
                self.names.push(name);
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
}

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
        self.time_ns_range = match (self.time_ns_range, report.time_ns_range) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }
}

/// What one pass over trace files gave.
#[pyclass(module = "bathyscope._core")]
pub(crate) struct TraceProfiles {
    sweep: LineSweep,
    lines: Vec<LineSize>,
    grouping: Grouping,
    volumes: Names,
    pools: Names,
    totals: Totals,
}

#[pymethods]
impl TraceProfiles {
    /// `(line_bytes, group number, group name or None, Profile)` of every line size and group.
    fn profiles(&self) -> Vec<(u64, u32, Option<String>, Profile)> {
        let mut all = Vec::new();
        for (set, line) in self.sweep.sets().iter().zip(&self.lines) {
            for (&group, profile) in set.profiles() {
                all.push((
                    line.bytes(),
                    group,
                    self.name(group),
                    Profile {
                        inner: profile.clone(),
                    },
                ));
            }
        }
        all
    }

    /// Counts over all files.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("events", self.totals.events)?;
        dict.set_item("events_left_out", self.totals.events_left_out)?;
        dict.set_item("records_ignored", self.totals.records_ignored)?;
        dict.set_item("records_bad", self.totals.records_bad)?;
        dict.set_item("events_out_of_order", self.totals.events_out_of_order)?;
        dict.set_item("bytes_read", self.totals.bytes_read)?;
        dict.set_item("first_errors", &self.totals.first_errors)?;
        dict.set_item("time_ns_range", self.totals.time_ns_range)?;
        dict.set_item("memory_bytes", self.sweep.memory_bytes())?;
        Ok(dict)
    }
}

impl TraceProfiles {
    fn name(&self, group: u32) -> Option<String> {
        match self.grouping {
            Grouping::Volume => self.volumes.names.get(group as usize).cloned(),
            Grouping::Pool => self.pools.names.get(group as usize).cloned(),
            _ => None,
        }
    }

    fn requests(&mut self, batch: &EventBatch, reader: &(dyn TraceReader + Send), out: &mut Vec<GroupedIo>) {
        out.clear();
        let names = reader.names();
        for event in batch.iter() {
            let write = match event.op {
                Op::Read => false,
                Op::Write => true,
                _ => {
                    self.totals.events_left_out += 1;
                    continue;
                }
            };
            let volume = self.volumes.number(&names.volumes, event.volume);
            let group = match &self.grouping {
                Grouping::All => 0,
                Grouping::Volume => volume,
                Grouping::Osd => event.osd,
                Grouping::Pool => self.pools.number(&names.pools, event.pool),
                Grouping::Node(nodes) => nodes.get(event.osd as usize).copied().unwrap_or(UNKNOWN),
            };
            let io = Io {
                offset_bytes: event.offset_bytes,
                length_bytes: event.length_bytes,
                write,
                volume,
            };
            out.push(GroupedIo { group, io });
        }
    }

    /// Reads one file; the next batch is decoded while the present one is profiled.
    fn read(
        &mut self,
        mut reader: Box<dyn TraceReader + Send>,
        threads: usize,
        tick: &mut impl FnMut(u64, u64) -> PyResult<()>,
    ) -> PyResult<()> {
        self.volumes.of_file.clear();
        self.pools.of_file.clear();
        let (sender, receiver) = sync_channel::<Vec<GroupedIo>>(2);
        let mut sweep = std::mem::take(&mut self.sweep);
        let result = std::thread::scope(|scope| {
            let worker = scope.spawn(move || {
                for requests in receiver {
                    sweep.access(&requests, threads);
                }
                sweep
            });
            let result = self.decode(&mut *reader, &sender, tick);
            drop(sender);
            self.sweep = worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result
        });
        self.totals.add(&*reader);
        result
    }

    fn decode(
        &mut self,
        reader: &mut (dyn TraceReader + Send),
        sender: &std::sync::mpsc::SyncSender<Vec<GroupedIo>>,
        tick: &mut impl FnMut(u64, u64) -> PyResult<()>,
    ) -> PyResult<()> {
        let mut batch = EventBatch::new();
        loop {
            if reader
                .next_batch(&mut batch)
                .map_err(|error| trace_error(&error))?
                == 0
            {
                return Ok(());
            }
            let mut requests = Vec::with_capacity(batch.len());
            self.requests(&batch, reader, &mut requests);
            // The worker ends only when the sender does, so a batch is always taken.
            let _ = sender.send(requests);
            tick(
                self.totals.events + reader.report().events,
                self.totals.bytes_read + reader.report().file_bytes_read,
            )?;
        }
    }
}

fn trace_error(error: &TraceError) -> PyErr {
    match error {
        TraceError::Io { .. } => PyOSError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Streams trace files, in the order given, through profiles of every line size and group.
#[pyfunction]
#[pyo3(signature = (paths, *, line_bytes, format=None, group_by="all", node_of_osd=None, rate=None, max_lines=None,
    salt=0, strata_bits=8, group_bits=0, threads=1, skip_bad_records=false, progress=None))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
pub(crate) fn profile_traces(
    py: Python<'_>,
    paths: Vec<std::path::PathBuf>,
    line_bytes: Vec<u64>,
    format: Option<&str>,
    group_by: &str,
    node_of_osd: Option<Vec<u32>>,
    rate: Option<f64>,
    max_lines: Option<usize>,
    salt: u64,
    strata_bits: u32,
    group_bits: u32,
    threads: usize,
    skip_bad_records: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<TraceProfiles> {
    let options = tracker_options(rate, max_lines, salt, strata_bits, group_bits, false)?;
    let lines = line_bytes
        .iter()
        .map(|&bytes| line_size(bytes))
        .collect::<PyResult<Vec<_>>>()?;
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
    let mut profiles = TraceProfiles {
        sweep: LineSweep::new(options, &lines),
        lines,
        grouping: Grouping::parse(group_by, node_of_osd)?,
        volumes: Names::default(),
        pools: Names::default(),
        totals: Totals::default(),
    };
    py.detach(|| {
        let mut last = Instant::now();
        let mut tick = |events: u64, bytes: u64| -> PyResult<()> {
            if last.elapsed() < PROGRESS_INTERVAL {
                return Ok(());
            }
            last = Instant::now();
            Python::attach(|py| {
                py.check_signals()?;
                progress
                    .as_ref()
                    .map_or(Ok(()), |call| call.call1(py, (events, bytes)).map(drop))
            })
        };
        for path in &paths {
            let reader = bathy_trace::open(path, format, &open).map_err(|error| trace_error(&error))?;
            profiles.read(reader, threads, &mut tick)?;
        }
        Python::attach(|py| {
            let totals = &profiles.totals;
            progress.as_ref().map_or(Ok(()), |call| {
                call.call1(py, (totals.events, totals.bytes_read)).map(drop)
            })
        })
    })?;
    Ok(profiles)
}
