//! The two passes of `bathy size`: LRU profiles of every group, then the cache engine at the sizes that matter.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bathy_mrc::LineSize;
use bathy_mrc::engine::{
    AdmissionOptions, EngineCounts, EngineOptions, EngineResult, EngineSweep, TimedIo, Windows, WriteMode,
};
use bathy_mrc::groups::{GroupedIo, LineSweep};
use bathy_policy::PolicyOptions;
use numpy::{PyArray2, PyReadonlyArray1, ToPyArray};
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::{line_size, slice, tracker_options};
use crate::profile::Profile;
use crate::simulate::{check_sizes, fidelity, policy};
use crate::stream::{Batch, Files, Reading, batch_of_columns};
use crate::trace::profiles;

/// The first pass: profiles of the whole trace and of each group, at every line size.
#[pyclass(module = "bathyscope._core")]
pub(crate) struct ProfilePass {
    lines: Vec<LineSize>,
    whole: LineSweep,
    /// Without it there is one group, the whole.
    groups: Option<LineSweep>,
    reading: Reading,
}

impl ProfilePass {
    fn consume(whole: &mut LineSweep, groups: Option<&mut LineSweep>, batch: &Batch, threads: usize) {
        let Some(groups) = groups else {
            whole.access(&batch.requests, threads);
            return;
        };
        groups.access(&batch.requests, threads);
        let one_group = |request: &GroupedIo| GroupedIo {
            group: 0,
            io: request.io,
        };
        let requests: Vec<GroupedIo> = batch.requests.iter().map(one_group).collect();
        whole.access(&requests, threads);
    }
}

#[pymethods]
impl ProfilePass {
    #[new]
    #[pyo3(signature = (line_bytes, *, group_by="all", node_of_osd=None, max_lines=None, salt=0))]
    fn new(
        line_bytes: Vec<u64>,
        group_by: &str,
        node_of_osd: Option<Vec<u32>>,
        max_lines: Option<usize>,
        salt: u64,
    ) -> PyResult<Self> {
        let options = tracker_options(
            None,
            max_lines,
            salt,
            bathy_mrc::hash::DEFAULT_STRATA_BITS,
            0,
            false,
        )?;
        let lines = line_bytes
            .iter()
            .map(|&bytes| line_size(bytes))
            .collect::<PyResult<Vec<_>>>()?;
        let reading = Reading::new(group_by, node_of_osd)?;
        let groups = (!reading.is_one_group()).then(|| LineSweep::new(options, &lines));
        Ok(Self {
            whole: LineSweep::new(options, &lines),
            groups,
            lines,
            reading,
        })
    }

    /// Streams trace files, in the order given.
    #[pyo3(signature = (paths, *, format=None, threads=1, skip_bad_records=false, progress=None))]
    fn read_traces(
        &mut self,
        py: Python<'_>,
        paths: Vec<std::path::PathBuf>,
        format: Option<&str>,
        threads: usize,
        skip_bad_records: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let files = Files::new(paths, format, skip_bad_records, progress)?;
        let Self {
            whole,
            groups,
            reading,
            ..
        } = self;
        reading.stream(py, &files, |batch| {
            Self::consume(whole, groups.as_mut(), batch, threads);
        })
    }

    /// Adds requests that follow those before.
    #[pyo3(signature = (time_ns, offset_bytes, length_bytes, op, volume, group, *, threads=1))]
    #[allow(clippy::too_many_arguments, reason = "one for each column")]
    fn add_requests(
        &mut self,
        py: Python<'_>,
        time_ns: PyReadonlyArray1<'_, u64>,
        offset_bytes: PyReadonlyArray1<'_, u64>,
        length_bytes: PyReadonlyArray1<'_, u32>,
        op: PyReadonlyArray1<'_, u8>,
        volume: PyReadonlyArray1<'_, u32>,
        group: PyReadonlyArray1<'_, u32>,
        threads: usize,
    ) -> PyResult<()> {
        let batch = batch_of_columns(&time_ns, &offset_bytes, &length_bytes, &op, &volume, &group)?;
        for request in &batch.requests {
            self.reading.lengths.add(request.io.length_bytes);
        }
        let Self { whole, groups, .. } = self;
        py.detach(|| Self::consume(whole, groups.as_mut(), &batch, threads));
        Ok(())
    }

    /// `(line_bytes, Profile)` of the whole trace, in the order of the line sizes; none before the first request.
    fn whole_profiles(&self) -> Vec<(u64, Profile)> {
        profiles(&self.whole, &self.lines, &self.reading)
            .into_iter()
            .map(|(line, _, _, profile)| (line, profile))
            .collect()
    }

    /// `(line_bytes, group number, group name or None, Profile)` of every line size and group.
    fn group_profiles(&self) -> Vec<(u64, u32, Option<String>, Profile)> {
        self.groups
            .as_ref()
            .map_or_else(Vec::new, |groups| profiles(groups, &self.lines, &self.reading))
    }

    /// Counts over all files.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = self.reading.report(py)?;
        let groups = self.groups.as_ref().map_or(0, LineSweep::memory_bytes);
        dict.set_item("memory_bytes", self.whole.memory_bytes() + groups)?;
        dict.set_item("request_bytes_p99", self.reading.lengths.quantile(0.99))?;
        Ok(dict)
    }

    /// Latencies of the reads that have one: middles of buckets in nanoseconds, and counts.
    fn read_latencies<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (values, counts) = self.reading.latencies.buckets();
        let dict = PyDict::new(py);
        dict.set_item("latency_ns", values.to_pyarray(py))?;
        dict.set_item("count", counts.to_pyarray(py))?;
        Ok(dict)
    }
}

/// Which requests a sweep gets.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Slot {
    Whole,
    Group(u32),
    /// Every group without a sweep of its own.
    Others,
}

struct Job {
    slot: usize,
    sweep: EngineSweep,
}

/// The second pass: cache engines of any policy, at several sizes each, over the whole trace and over its groups.
#[pyclass(module = "bathyscope._core")]
pub(crate) struct EnginePass {
    /// Engines can move between threads but not be shared, and a Python object may be looked at from any thread.
    jobs: Mutex<Vec<Job>>,
    slots: HashMap<Slot, usize>,
    requests: Vec<Vec<TimedIo>>,
    reading: Reading,
}

/// The requests of each slot, and then every sweep over its own; threads take the next sweep when they are free.
fn consume(
    jobs: &mut [Job],
    slots: &HashMap<Slot, usize>,
    requests: &mut [Vec<TimedIo>],
    batch: &Batch,
    threads: usize,
) {
    requests.iter_mut().for_each(Vec::clear);
    let (whole, others) = (slots.get(&Slot::Whole), slots.get(&Slot::Others));
    let groups: HashMap<u32, usize> = slots
        .iter()
        .filter_map(|(slot, &index)| match slot {
            Slot::Group(group) => Some((*group, index)),
            _ => None,
        })
        .collect();
    for (request, &time_ns) in batch.requests.iter().zip(&batch.times_ns) {
        let timed = TimedIo {
            time_ns,
            io: request.io,
        };
        if let Some(&slot) = whole {
            requests[slot].push(timed);
        }
        if groups.is_empty() {
            continue;
        }
        if let Some(&slot) = groups.get(&request.group).or(others) {
            requests[slot].push(timed);
        }
    }
    let requests = &*requests;
    if jobs.len() < 2 || threads <= 1 {
        for job in jobs {
            job.sweep.access(requests[job.slot].iter().copied(), threads);
        }
        return;
    }
    let queue: Vec<Mutex<&mut Job>> = jobs.iter_mut().map(Mutex::new).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(queue.len()) {
            scope.spawn(|| {
                while let Some(job) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Each sweep is taken once, so the lock is free and cannot be poisoned by another.
                    if let Ok(mut job) = job.lock() {
                        let requests = &requests[job.slot];
                        job.sweep.access(requests.iter().copied(), 1);
                    }
                }
            });
        }
    });
}

fn write_mode(name: &str) -> PyResult<WriteMode> {
    match name {
        "allocate" => Ok(WriteMode::Allocate),
        "update" => Ok(WriteMode::Update),
        "invalidate" => Ok(WriteMode::Invalidate),
        _ => Err(PyValueError::new_err(format!(
            "on_write is {name:?}; there are: allocate update invalidate"
        ))),
    }
}

#[pymethods]
impl EnginePass {
    #[new]
    #[pyo3(signature = (*, group_by="all", node_of_osd=None))]
    fn new(group_by: &str, node_of_osd: Option<Vec<u32>>) -> PyResult<Self> {
        Ok(Self {
            jobs: Mutex::new(Vec::new()),
            slots: HashMap::new(),
            requests: Vec::new(),
            reading: Reading::new(group_by, node_of_osd)?,
        })
    }

    /// Adds an engine at several sizes and returns its number. Without `group` it gets the whole trace, or, with
    /// `others`, the groups that have no engine of their own.
    #[pyo3(signature = (policy_name, line_bytes, sizes_lines, *, group=None, others=false, rate=None, min_lines=500,
        salt=0, fetch_bytes=None, small_in_ram=true, on_write="allocate", n_hit=None, stream_cutoff_bytes=None,
        write_budget_bytes_per_day=None, windows=None,
        sample_region_bytes=1 << 20))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
    fn add_engine(
        &mut self,
        policy_name: &str,
        line_bytes: u64,
        sizes_lines: PyReadonlyArray1<'_, u64>,
        group: Option<u32>,
        others: bool,
        rate: Option<f64>,
        min_lines: u64,
        salt: u64,
        fetch_bytes: Option<u64>,
        small_in_ram: bool,
        on_write: &str,
        n_hit: Option<u8>,
        stream_cutoff_bytes: Option<u64>,
        write_budget_bytes_per_day: Option<u64>,
        windows: Option<(u64, u64)>,
        sample_region_bytes: u64,
    ) -> PyResult<usize> {
        let sizes = slice("sizes_lines", &sizes_lines)?;
        let fidelity = fidelity(rate, min_lines, salt)?;
        let simulated: Vec<u64> = sizes
            .iter()
            .map(|&size| fidelity.miniature(size).capacity_lines)
            .collect();
        check_sizes(&simulated)?;
        let mut policy_options = PolicyOptions::default();
        policy_options.s3_fifo.small_in_ram = small_in_ram;
        let options = EngineOptions {
            policy: policy(policy_name)?,
            policy_options,
            line: line_size(line_bytes)?,
            fetch_bytes: fetch_bytes.unwrap_or(line_bytes),
            write_mode: write_mode(on_write)?,
            admission: AdmissionOptions {
                n_hit,
                stream_cutoff_bytes,
                write_budget_bytes_per_day,
            },
            windows: windows.map(|(origin_ns, length_ns)| Windows { origin_ns, length_ns }),
            sample_region_bytes,
        };
        if !options.is_valid() {
            return Err(PyValueError::new_err(format!(
                "fetch_bytes is {}; it must be a power of two from a 64th of the line ({line_bytes}) to the line",
                options.fetch_bytes
            )));
        }
        let slot = match (group, others) {
            (Some(group), _) => Slot::Group(group),
            (None, true) => Slot::Others,
            (None, false) => Slot::Whole,
        };
        let next = self.requests.len();
        let slot = *self.slots.entry(slot).or_insert(next);
        if slot == next {
            self.requests.push(Vec::new());
        }
        let sweep = EngineSweep::new(options, sizes, fidelity);
        let jobs = unlocked(&mut self.jobs);
        jobs.push(Job { slot, sweep });
        Ok(jobs.len() - 1)
    }

    /// Streams trace files, in the order given, through every engine.
    #[pyo3(signature = (paths, *, format=None, threads=1, skip_bad_records=false, progress=None))]
    fn read_traces(
        &mut self,
        py: Python<'_>,
        paths: Vec<std::path::PathBuf>,
        format: Option<&str>,
        threads: usize,
        skip_bad_records: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let files = Files::new(paths, format, skip_bad_records, progress)?;
        let Self {
            jobs,
            slots,
            requests,
            reading,
        } = self;
        let jobs = unlocked(jobs);
        reading.stream(py, &files, |batch| consume(jobs, slots, requests, batch, threads))?;
        check_overflow(jobs)
    }

    /// Adds requests that follow those before.
    #[pyo3(signature = (time_ns, offset_bytes, length_bytes, op, volume, group, *, threads=1))]
    #[allow(clippy::too_many_arguments, reason = "one for each column")]
    fn add_requests(
        &mut self,
        py: Python<'_>,
        time_ns: PyReadonlyArray1<'_, u64>,
        offset_bytes: PyReadonlyArray1<'_, u64>,
        length_bytes: PyReadonlyArray1<'_, u32>,
        op: PyReadonlyArray1<'_, u8>,
        volume: PyReadonlyArray1<'_, u32>,
        group: PyReadonlyArray1<'_, u32>,
        threads: usize,
    ) -> PyResult<()> {
        let batch = batch_of_columns(&time_ns, &offset_bytes, &length_bytes, &op, &volume, &group)?;
        let Self {
            jobs,
            slots,
            requests,
            ..
        } = self;
        let jobs = unlocked(jobs);
        py.detach(|| consume(jobs, slots, requests, &batch, threads));
        check_overflow(jobs)
    }

    /// What the engine of that number counted: arrays over its sizes, scaled to the whole trace.
    fn results<'py>(&self, py: Python<'py>, engine: usize) -> PyResult<Bound<'py, PyDict>> {
        let results = self.with_sweep(engine, EngineSweep::results)?;
        let dict = PyDict::new(py);
        for (name, value) in COUNTS {
            let column: Vec<f64> = results.iter().map(|result| value(&result.counts)).collect();
            dict.set_item(name, column.to_pyarray(py))?;
        }
        let others: [Column<EngineResult>; 6] = [
            ("size_lines", |r| r.size_lines as f64),
            ("simulated_lines", |r| r.simulated_lines as f64),
            ("rate", |r| r.rate),
            ("sampled_lines", |r| r.sampled_lines as f64),
            ("distinct_lines", |r| r.distinct_lines),
            ("read_hit_stderr", |r| r.read_hit_stderr),
        ];
        for (name, value) in others {
            let column: Vec<f64> = results.iter().map(value).collect();
            dict.set_item(name, column.to_pyarray(py))?;
        }
        Ok(dict)
    }

    /// Bytes held by every engine and the requests on their way to them.
    fn memory_bytes(&self) -> usize {
        let jobs = self
            .jobs
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let engines: usize = jobs.iter().map(|job| job.sweep.memory_bytes()).sum();
        let requests: usize = self.requests.iter().map(Vec::capacity).sum();
        engines + requests * size_of::<TimedIo>()
    }

    /// The same counts by window: arrays of shape (sizes, windows).
    fn windows<'py>(&self, py: Python<'py>, engine: usize) -> PyResult<Bound<'py, PyDict>> {
        let sizes = self.with_sweep(engine, EngineSweep::windows)?;
        let longest = sizes.iter().map(Vec::len).max().unwrap_or(0);
        let dict = PyDict::new(py);
        for (name, value) in COUNTS {
            let rows: Vec<Vec<f64>> = sizes
                .iter()
                .map(|windows| {
                    let mut row: Vec<f64> = windows.iter().map(value).collect();
                    row.resize(longest, 0.0);
                    row
                })
                .collect();
            let array =
                PyArray2::from_vec2(py, &rows).map_err(|error| PyValueError::new_err(error.to_string()))?;
            dict.set_item(name, array)?;
        }
        Ok(dict)
    }
}

fn check_overflow(jobs: &[Job]) -> PyResult<()> {
    if jobs.iter().any(|job| job.sweep.overflowed()) {
        let message = "the trace has more distinct lines than the 2^32 that a simulation tells apart";
        return Err(PyOverflowError::new_err(message));
    }
    Ok(())
}

/// The content of a lock that nobody else can hold.
fn unlocked<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl EnginePass {
    fn with_sweep<T>(&self, engine: usize, look: impl FnOnce(&EngineSweep) -> T) -> PyResult<T> {
        let jobs = self
            .jobs
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        jobs.get(engine)
            .map(|job| look(&job.sweep))
            .ok_or_else(|| PyIndexError::new_err(format!("there is no engine {engine}")))
    }
}

/// The name that Python sees, and the value.
type Column<T> = (&'static str, fn(&T) -> f64);

const COUNTS: [Column<EngineCounts>; 14] = [
    ("read_requests", |c| c.reads.requests),
    ("read_requests_hit", |c| c.reads.requests_hit),
    ("read_requests_cold", |c| c.reads.requests_cold),
    ("read_bytes", |c| c.reads.bytes),
    ("read_bytes_hit", |c| c.reads.bytes_hit),
    ("write_requests", |c| c.writes.requests),
    ("write_requests_hit", |c| c.writes.requests_hit),
    ("write_requests_cold", |c| c.writes.requests_cold),
    ("write_bytes", |c| c.writes.bytes),
    ("write_bytes_hit", |c| c.writes.bytes_hit),
    ("backing_read_bytes", |c| c.backing_read_bytes),
    ("flash_write_bytes", |c| c.flash_write_bytes),
    ("evictions", |c| c.evictions),
    ("refused", |c| c.refused),
];
