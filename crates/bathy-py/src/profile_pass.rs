//! The first pass of `bathy size`: LRU profiles of the whole trace and of every group.

use bathy_mrc::flow::Flow;
use bathy_mrc::groups::{GroupedIo, LineSweep};
use numpy::{PyReadonlyArray1, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::{Batch, Rows, WINDOW};
use crate::options::{line_size, tracker_options};
use crate::profile::Profile;
use crate::stream::{Files, Reading};
use crate::trace::take_profiles;

/// The first pass: profiles of the whole trace and of each group, at every line size.
#[pyclass(module = "bathyscope._core")]
pub(crate) struct ProfilePass {
    whole: LineSweep,
    /// Without it there is one group, the whole.
    groups: Option<LineSweep>,
    reading: Reading,
}

/// What passes between the workers.
enum Step {
    Batch(Batch),
    /// The same by group, in order within each.
    ByGroup(Vec<GroupedIo>),
}

impl Step {
    fn requests(&self) -> &[GroupedIo] {
        match self {
            Self::Batch(batch) => &batch.requests,
            Self::ByGroup(requests) => requests,
        }
    }
}

/// Gives every request to the profiles of the whole and of its group, each line size a worker of its own.
pub(crate) fn run(
    whole: Option<&mut LineSweep>,
    groups: Option<&mut LineSweep>,
    batches: impl Iterator<Item = Batch> + Send,
    threads: usize,
) {
    let mut flow = Flow::new(WINDOW);
    if let Some(groups) = groups {
        let sorted = flow.add(None, |step: &Step| {
            let mut requests = step.requests().to_vec();
            requests.sort_by_key(|request| request.group);
            Some(Step::ByGroup(requests))
        });
        groups.add_to(&mut flow, Some(sorted), Step::requests);
    }
    if let Some(whole) = whole {
        whole.add_to(&mut flow, None, Step::requests);
    }
    flow.run(batches.map(Step::Batch), threads);
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
            whole: LineSweep::of_whole(options, &lines),
            groups,
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
        reading.stream(py, &files, |batches| {
            run(Some(whole), groups.as_mut(), batches.into_iter(), threads);
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
        let rows = Rows::new(&time_ns, &offset_bytes, &length_bytes, &op, &volume, &group)?;
        let Self {
            whole,
            groups,
            reading,
            ..
        } = self;
        py.detach(|| {
            let batches = rows.batches().inspect(|batch| {
                for request in &batch.requests {
                    reading.lengths.add(request.io.length_bytes);
                }
            });
            run(Some(whole), groups.as_mut(), batches, threads);
        });
        Ok(())
    }

    /// `(line_bytes, Profile)` of the whole trace, in the order of the line sizes; none before the first request, and none
    /// at a second call.
    fn take_whole_profiles(&mut self) -> Vec<(u64, Profile)> {
        take_profiles(&mut self.whole, &self.reading)
            .into_iter()
            .map(|(line, _, _, profile)| (line, profile))
            .collect()
    }

    /// `(line_bytes, group number, group name or None, Profile)` of every line size and group; a second call finds none.
    fn take_group_profiles(&mut self) -> Vec<(u64, u32, Option<String>, Profile)> {
        let Self { groups, reading, .. } = self;
        groups
            .as_mut()
            .map_or_else(Vec::new, |groups| take_profiles(groups, reading))
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
