//! The passes of a mixed trace: profiles of the whole and of groups, and cache engines.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bathy_mrc::engine::{
    AdmissionOptions, EngineCounts, EngineOptions, EngineResult, EngineSweep, FetchSize, StreamCutoff,
    Windows, WriteMode,
};
use bathy_mrc::groups::LineSweep;
use bathy_mrc::passes::{Batch, EngineSet, ProfileSet, Rows, Share};
use numpy::{PyArray1, PyArray2, PyReadonlyArray1, ToPyArray};
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::{
    check_sizes, column, fidelity, line_size, memory_budget, policy, sampling, slice, tracker_options,
};
use crate::profile::Profile;
use crate::stream::{Files, Reading};

/// `(line_bytes, group number, group name or None, Profile)`.
type GroupProfile = (u64, u32, Option<String>, Profile);

/// Profiles of the whole trace and of each group, at every line size.
#[pyclass(module = "bathyscope._core")]
pub(crate) struct ProfilePass {
    set: ProfileSet,
    reading: Reading,
}

#[pymethods]
impl ProfilePass {
    /// `whole` False profiles the groups only, `group_by` "all" the whole only. With more than `most_groups` the profiles
    /// of groups are not complete; a pass with the `chosen` ones has them, and the others as one, `OTHERS`.
    #[new]
    #[pyo3(signature = (line_bytes, *, group_by="all", node_of_osd=None, rate=None, max_lines=None, salt=0,
        group_bytes=None, whole=true, most_groups=None, chosen=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
    fn new(
        line_bytes: Vec<u64>,
        group_by: &str,
        node_of_osd: Option<Vec<u32>>,
        rate: Option<f64>,
        max_lines: Option<usize>,
        salt: u64,
        group_bytes: Option<u64>,
        whole: bool,
        most_groups: Option<usize>,
        chosen: Option<HashSet<u32>>,
    ) -> PyResult<Self> {
        let options = tracker_options(sampling(rate, max_lines)?, salt, 0, false)?;
        let lines = line_bytes
            .iter()
            .map(|&bytes| line_size(bytes))
            .collect::<PyResult<Vec<_>>>()?;
        let reading = Reading::new(group_by, node_of_osd)?;
        let region_bytes = group_bytes.unwrap_or(0);
        let groups = !reading.is_one_group();
        let set = ProfileSet {
            whole: whole.then(|| LineSweep::of_whole(options, &lines).in_regions(region_bytes)),
            groups: groups.then(|| LineSweep::new(options, &lines).in_regions(region_bytes)),
            most_groups,
            chosen,
            counts: BTreeMap::new(),
        };
        Ok(Self { set, reading })
    }

    /// Streams trace files, in the order given.
    #[pyo3(signature = (paths, *, format=None, threads=1, skip_bad_records=false, object_bytes=None, progress=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
    fn read_traces(
        &mut self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        format: Option<&str>,
        threads: usize,
        skip_bad_records: bool,
        object_bytes: Option<u64>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let files = Files::new(paths, format, skip_bad_records, object_bytes, progress)?;
        let Self { set, reading } = self;
        reading.stream(py, &files, |batches| set.run(batches.into_iter(), threads))
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
        let rows = rows(&time_ns, &offset_bytes, &length_bytes, &op, &volume, &group)?;
        let Self { set, reading } = self;
        py.detach(|| {
            let counted = |batch: &Batch| reading.count(batch);
            set.run(rows.batches().inspect(counted), threads);
        });
        Ok(())
    }

    /// `(line_bytes, Profile)` of the whole trace, in the order of the line sizes; none before the first request, and none
    /// at a second call.
    fn take_whole_profiles(&mut self) -> Vec<(u64, Profile)> {
        let taken = take(self.set.whole.as_mut(), &self.reading);
        taken
            .into_iter()
            .map(|(line, _, _, profile)| (line, profile))
            .collect()
    }

    /// The groups: numbers, and requests that read and that write.
    #[allow(clippy::type_complexity, reason = "columns of a table")]
    fn group_requests<'py>(
        &self,
        py: Python<'py>,
    ) -> (
        Bound<'py, PyArray1<u32>>,
        Bound<'py, PyArray1<u64>>,
        Bound<'py, PyArray1<u64>>,
    ) {
        let counts = &self.set.counts;
        let of = |op: usize| PyArray1::from_iter(py, counts.values().map(|counts| counts[op]));
        (PyArray1::from_iter(py, counts.keys().copied()), of(0), of(1))
    }

    /// `(line_bytes, group number, group name or None, Profile)` of every line size and group; a second call finds none.
    fn take_group_profiles(&mut self) -> Vec<GroupProfile> {
        take(self.set.groups.as_mut(), &self.reading)
    }

    /// Counts over all files.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = self.reading.report(py)?;
        dict.set_item("memory_bytes", self.set.memory_bytes())?;
        Ok(dict)
    }

    /// Latencies of the reads that have one: middles of buckets in nanoseconds, and counts.
    fn read_latencies<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (values, counts) = self.reading.read_latencies();
        let dict = PyDict::new(py);
        dict.set_item("latency_ns", values.to_pyarray(py))?;
        dict.set_item("count", counts.to_pyarray(py))?;
        Ok(dict)
    }
}

/// The profiles of a sweep, taken away from it: there may be too many to hold them twice.
fn take(sweep: Option<&mut LineSweep>, reading: &Reading) -> Vec<GroupProfile> {
    let mut all = Vec::new();
    for (line, set) in sweep.map(LineSweep::take_profiles).unwrap_or_default() {
        for (group, inner) in set {
            all.push((line.bytes(), group, reading.name(group), Profile { inner }));
        }
    }
    all
}

/// Requests that are in memory.
fn rows<'a>(
    time_ns: &'a PyReadonlyArray1<'_, u64>,
    offset_bytes: &'a PyReadonlyArray1<'_, u64>,
    length_bytes: &'a PyReadonlyArray1<'_, u32>,
    op: &'a PyReadonlyArray1<'_, u8>,
    volume: &'a PyReadonlyArray1<'_, u32>,
    group: &'a PyReadonlyArray1<'_, u32>,
) -> PyResult<Rows<'a>> {
    let offset_bytes = slice("offset_bytes", offset_bytes)?;
    let rows = offset_bytes.len();
    Ok(Rows {
        time_ns: column("time_ns", time_ns, rows)?,
        offset_bytes,
        length_bytes: column("length_bytes", length_bytes, rows)?,
        op: column("op", op, rows)?,
        volume: column("volume", volume, rows)?,
        group: column("group", group, rows)?,
    })
}

/// Cache engines of any policy, at several sizes each, over the whole trace and over its groups.
#[pyclass(module = "bathyscope._core")]
pub(crate) struct EnginePass {
    /// Engines can move between threads but not be shared, and a Python object may be looked at from any thread.
    set: Mutex<EngineSet>,
    reading: Reading,
}

#[pymethods]
impl EnginePass {
    #[new]
    #[pyo3(signature = (*, group_by="all", node_of_osd=None))]
    fn new(group_by: &str, node_of_osd: Option<Vec<u32>>) -> PyResult<Self> {
        Ok(Self {
            set: Mutex::default(),
            reading: Reading::new(group_by, node_of_osd)?,
        })
    }

    /// Adds an engine at several sizes and returns its number. Without `group` it gets the whole trace, or, with
    /// `others`, the groups that have no engine of their own. `unit_bytes` are valid or not together, without it what is
    /// fetched together; with `break_even_bytes` the fetch size is adaptive, for a disk of which that is known. The stage is
    /// that of a cache that may take `memory_bytes`, or what a cache may by default; with `cache_lines` the sizes are shares
    /// of such a cache.
    #[pyo3(signature = (policy_name, line_bytes, sizes_lines, *, group=None, others=false, rate=None, min_lines=500,
        salt=0, fetch_bytes=None, unit_bytes=None,
        break_even_bytes=None, on_write="allocate", n_hit=None, stream_cutoff_bytes=None,
        is_stream_of_writes=false, write_budget_bytes_per_day=None, windows=None, sample_region_bytes=1 << 20,
        memory_bytes=None, cache_lines=None))]
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
        unit_bytes: Option<u64>,
        break_even_bytes: Option<u64>,
        on_write: &str,
        n_hit: Option<u8>,
        stream_cutoff_bytes: Option<u64>,
        is_stream_of_writes: bool,
        write_budget_bytes_per_day: Option<u64>,
        windows: Option<(u64, u64)>,
        sample_region_bytes: u64,
        memory_bytes: Option<u64>,
        cache_lines: Option<u64>,
    ) -> PyResult<usize> {
        let sizes = slice("sizes_lines", &sizes_lines)?;
        let fidelity = fidelity(rate, min_lines, salt)?;
        check_sizes(sizes.iter().map(|&size| fidelity.miniature(size).capacity_lines))?;
        let fetch_bytes = fetch_bytes.unwrap_or(line_bytes);
        let options = EngineOptions {
            policy: policy(policy_name)?,
            memory: Some(memory_budget(memory_bytes)),
            line: line_size(line_bytes)?,
            unit_bytes: unit_bytes.unwrap_or(fetch_bytes),
            fetch: break_even_bytes.map_or(FetchSize::Fixed(fetch_bytes), |break_even_bytes| {
                FetchSize::Adaptive { break_even_bytes }
            }),
            write_mode: write_mode(on_write)?,
            admission: AdmissionOptions {
                n_hit,
                stream_cutoff: stream_cutoff_bytes.map(|bytes| StreamCutoff {
                    bytes,
                    is_of_writes: is_stream_of_writes,
                }),
                write_budget_bytes_per_day,
            },
            windows: windows.map(|(origin_ns, length_ns)| Windows { origin_ns, length_ns }),
            sample_region_bytes,
        };
        if !options.is_valid() {
            return Err(PyValueError::new_err(
                "fetch_bytes or unit_bytes does not fit line_bytes",
            ));
        }
        let share = match (group, others) {
            (Some(group), _) => Share::Group(group),
            (None, true) => Share::Others,
            (None, false) => Share::Whole,
        };
        let sweep = EngineSweep::of_shares(options, sizes, cache_lines, fidelity);
        Ok(unlocked(&mut self.set).add(share, sweep))
    }

    /// Streams trace files, in the order given, through every engine.
    #[pyo3(signature = (paths, *, format=None, threads=1, skip_bad_records=false, object_bytes=None, progress=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
    fn read_traces(
        &mut self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        format: Option<&str>,
        threads: usize,
        skip_bad_records: bool,
        object_bytes: Option<u64>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let files = Files::new(paths, format, skip_bad_records, object_bytes, progress)?;
        let Self { set, reading } = self;
        let set = unlocked(set);
        reading.stream(py, &files, |batches| set.run(batches.into_iter(), threads))?;
        check_overflow(set)
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
        let rows = rows(&time_ns, &offset_bytes, &length_bytes, &op, &volume, &group)?;
        let set = unlocked(&mut self.set);
        py.detach(|| set.run(rows.batches(), threads));
        check_overflow(set)
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

    /// Bytes held by every engine.
    fn memory_bytes(&self) -> usize {
        self.set
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .memory_bytes()
    }
}

impl EnginePass {
    fn with_sweep<T>(&self, engine: usize, look: impl FnOnce(&EngineSweep) -> T) -> PyResult<T> {
        let set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        set.get(engine)
            .map(look)
            .ok_or_else(|| PyIndexError::new_err(format!("there is no engine {engine}")))
    }
}

fn write_mode(name: &str) -> PyResult<WriteMode> {
    match name {
        "allocate" => Ok(WriteMode::Allocate),
        "update" => Ok(WriteMode::Update),
        "invalidate" => Ok(WriteMode::Invalidate),
        _ => Err(PyValueError::new_err(format!("on_write is {name:?}"))),
    }
}

fn check_overflow(set: &EngineSet) -> PyResult<()> {
    if set.overflowed() {
        let message = "the trace has more than 2^32 distinct lines, the most that a simulation takes";
        return Err(PyOverflowError::new_err(message));
    }
    Ok(())
}

/// The content of a lock that nobody else can hold.
fn unlocked<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
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
