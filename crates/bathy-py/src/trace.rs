//! Trace files, streamed once through profiles of several line sizes and groups.

use bathy_mrc::groups::LineSweep;
use bathy_trace::Format;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::{line_size, tracker_options};
use crate::profile::Profile;
use crate::profile_pass;
use crate::stream::{Files, Reading};

/// The names of the trace formats.
#[pyfunction]
pub(crate) fn trace_formats() -> Vec<&'static str> {
    Format::ALL.iter().map(|format| format.name()).collect()
}

/// What one pass over trace files gave.
#[pyclass(module = "bathyscope._core")]
pub(crate) struct TraceProfiles {
    sweep: LineSweep,
    reading: Reading,
}

/// `(line_bytes, group number, group name or None, Profile)` of every line size and group of a sweep, taken away from it:
/// there may be too many to hold them twice.
pub(crate) fn take_profiles(
    sweep: &mut LineSweep,
    reading: &Reading,
) -> Vec<(u64, u32, Option<String>, Profile)> {
    let mut all = Vec::new();
    for (line, set) in sweep.take_profiles() {
        for (group, inner) in set {
            all.push((line.bytes(), group, reading.name(group), Profile { inner }));
        }
    }
    all
}

#[pymethods]
impl TraceProfiles {
    /// `(line_bytes, group number, group name or None, Profile)` of every line size and group; a second call finds none.
    fn take_profiles(&mut self) -> Vec<(u64, u32, Option<String>, Profile)> {
        take_profiles(&mut self.sweep, &self.reading)
    }

    /// Counts over all files.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = self.reading.report(py)?;
        dict.set_item("memory_bytes", self.sweep.memory_bytes())?;
        Ok(dict)
    }
}

/// Streams trace files, in the order given, through profiles of every line size and group.
#[pyfunction]
#[pyo3(signature = (paths, *, line_bytes, format=None, group_by="all", node_of_osd=None, rate=None, max_lines=None,
    salt=0, strata_bits=8, group_bytes=None, threads=1, skip_bad_records=false, progress=None))]
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
    group_bytes: Option<u64>,
    threads: usize,
    skip_bad_records: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<TraceProfiles> {
    let region_bytes = group_bytes.unwrap_or(0);
    // The smallest line has the most lines in a region.
    let smallest = line_bytes.iter().min().copied().unwrap_or(1).max(1);
    let group_bits = (region_bytes / smallest).checked_ilog2().unwrap_or(0);
    tracker_options(rate, max_lines, salt, strata_bits, group_bits, false)?;
    let options = tracker_options(rate, max_lines, salt, strata_bits, 0, false)?;
    let lines = line_bytes
        .iter()
        .map(|&bytes| line_size(bytes))
        .collect::<PyResult<Vec<_>>>()?;
    let files = Files::new(paths, format, skip_bad_records, progress)?;
    let mut reading = Reading::new(group_by, node_of_osd)?;
    let one_group = reading.is_one_group();
    let sweep = if one_group {
        LineSweep::of_whole(options, &lines)
    } else {
        LineSweep::new(options, &lines)
    };
    let mut sweep = sweep.in_regions(region_bytes);
    reading.stream(py, &files, |batches| {
        let (whole, groups) = if one_group {
            (Some(&mut sweep), None)
        } else {
            (None, Some(&mut sweep))
        };
        profile_pass::run(whole, groups, batches.into_iter(), threads);
    })?;
    Ok(TraceProfiles { sweep, reading })
}
