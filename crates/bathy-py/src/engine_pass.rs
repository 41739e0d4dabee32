//! The second pass of `bathy size`: the cache engine at the sizes that matter, over the whole trace and over its groups.

use std::collections::HashMap;
use std::sync::Mutex;

use bathy_mrc::engine::{
    AdmissionOptions, EngineCounts, EngineOptions, EngineResult, EngineSweep, Pieces, TimedIo, Windows,
    WriteMode,
};
use bathy_mrc::flow::Flow;
use bathy_policy::PolicyOptions;
use numpy::{PyArray2, PyReadonlyArray1, ToPyArray};
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::{Batch, Rows, WINDOW};
use crate::options::{line_size, slice};
use crate::simulate::{check_sizes, fidelity, policy};
use crate::stream::{Files, Reading};

/// Workers for each thread, so that the last to end is not far behind.
const WORKERS_PER_THREAD: usize = 2;

/// Sweeps that have workers of their own: the whole trace at some line sizes and policies comes first.
const FEW_SWEEPS: usize = 16;

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
    reading: Reading,
}

/// What passes between the workers.
enum Step {
    Batch(Batch),
    /// The requests of each slot.
    Routed(Vec<Vec<TimedIo>>),
    /// The requests of one sweep, split.
    Pieces(Pieces),
}

impl Step {
    fn of_slot(&self, slot: usize) -> &[TimedIo] {
        match self {
            Self::Routed(slots) => &slots[slot],
            Self::Batch(_) | Self::Pieces(_) => &[],
        }
    }

    fn pieces(&self) -> &Pieces {
        match self {
            Self::Pieces(pieces) => pieces,
            Self::Batch(_) | Self::Routed(_) => unreachable!("engines follow a splitter"),
        }
    }
}

/// Who gets which requests.
struct Router {
    slots: usize,
    whole: Option<usize>,
    groups: HashMap<u32, usize>,
    others: Option<usize>,
}

impl Router {
    fn new(slots: &HashMap<Slot, usize>) -> Self {
        let of_group = |(slot, &index): (&Slot, &usize)| match slot {
            Slot::Group(group) => Some((*group, index)),
            Slot::Whole | Slot::Others => None,
        };
        Self {
            slots: slots.len(),
            whole: slots.get(&Slot::Whole).copied(),
            groups: slots.iter().filter_map(of_group).collect(),
            others: slots.get(&Slot::Others).copied(),
        }
    }

    fn route(&self, batch: &Batch) -> Vec<Vec<TimedIo>> {
        let mut requests = vec![Vec::new(); self.slots];
        for (request, &time_ns) in batch.requests.iter().zip(&batch.times_ns) {
            let timed = TimedIo {
                time_ns,
                io: request.io,
            };
            if let Some(slot) = self.whole {
                requests[slot].push(timed);
            }
            if let Some(slot) = self.groups.get(&request.group).copied().or(self.others) {
                requests[slot].push(timed);
            }
        }
        requests
    }
}

/// Gives every request to its engines. Of few sweeps each has workers of its own for its sizes; of many, of which most
/// see little of each batch, several share a worker.
fn run(
    jobs: &mut [Job],
    slots: &HashMap<Slot, usize>,
    batches: impl Iterator<Item = Batch> + Send,
    threads: usize,
) {
    let router = Router::new(slots);
    let mut flow = Flow::new(WINDOW);
    let routed = flow.add(None, move |step: &Step| match step {
        Step::Batch(batch) => Some(Step::Routed(router.route(batch))),
        Step::Routed(_) | Step::Pieces(_) => None,
    });
    let mut shares: Vec<Vec<&mut Job>> = (0..WORKERS_PER_THREAD * threads).map(|_| Vec::new()).collect();
    for (index, job) in jobs.iter_mut().enumerate() {
        if index < FEW_SWEEPS {
            let slot = job.slot;
            let workers = WORKERS_PER_THREAD * threads;
            // A closure in a binding would not be general over the lifetime of the step.
            job.sweep.add_to(
                &mut flow,
                routed,
                move |step| step.of_slot(slot),
                workers,
                Step::Pieces,
                Step::pieces,
            );
        } else {
            let share = index % shares.len();
            shares[share].push(job);
        }
    }
    for mut share in shares.into_iter().filter(|share| !share.is_empty()) {
        flow.add(Some(routed), move |step| {
            for job in &mut share {
                job.sweep.access(step.of_slot(job.slot).iter().copied());
            }
            None
        });
    }
    flow.run(batches.map(Step::Batch), threads);
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
        let next = self.slots.len();
        let slot = *self.slots.entry(slot).or_insert(next);
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
        let Self { jobs, slots, reading } = self;
        let jobs = unlocked(jobs);
        reading.stream(py, &files, |batches| {
            run(jobs, slots, batches.into_iter(), threads);
        })?;
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
        let rows = Rows::new(&time_ns, &offset_bytes, &length_bytes, &op, &volume, &group)?;
        let Self { jobs, slots, .. } = self;
        let jobs = unlocked(jobs);
        py.detach(|| run(jobs, slots, rows.batches(), threads));
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

    /// Bytes held by every engine.
    fn memory_bytes(&self) -> usize {
        let jobs = self
            .jobs
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        jobs.iter().map(|job| job.sweep.memory_bytes()).sum()
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
