//! Full and miniature simulation of a policy over line numbers.

use bathy_cache_model::MemoryBudget;
use bathy_cache_model::memory::{LINES_PER_FILE, THREADS_OF_SOURCE};
use bathy_mrc::simulate::simulate_keys as simulate;
use bathy_policy::PolicyKind;
use numpy::{PyReadonlyArray1, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::{check_sizes, fidelity, line_size, memory_budget, policy, slice};
use crate::profile::curve_dict;

/// The names of the policies.
#[pyfunction]
pub(crate) fn policy_names() -> Vec<&'static str> {
    PolicyKind::ALL.iter().map(|kind| kind.name()).collect()
}

/// Lines of a cache of `size_lines`, or of so large a share of a cache of `cache_lines`, that are in memory, if the cache may
/// take `memory_bytes` or what a cache may by default.
#[pyfunction]
#[pyo3(signature = (policy_name, size_lines, line_bytes, memory_bytes=None, cache_lines=None))]
pub(crate) fn stage_lines(
    policy_name: &str,
    size_lines: u64,
    line_bytes: u64,
    memory_bytes: Option<u64>,
    cache_lines: Option<u64>,
) -> PyResult<u64> {
    let (kind, line) = (policy(policy_name)?, line_size(line_bytes)?);
    Ok(if kind.has_stage() {
        memory_budget(memory_bytes).stage_lines_of_share(size_lines, cache_lines.unwrap_or(size_lines), line)
    } else {
        0
    })
}

/// What a cache of `size_lines` takes of memory if it may take `memory_bytes` or what a cache may by default, the lines of the
/// largest cache that fits so much, and the memory that this one needs to fit. It serves so many sources.
#[pyfunction]
#[pyo3(signature = (size_lines, line_bytes, memory_bytes=None, sources=1))]
pub(crate) fn cache_memory(
    py: Python<'_>,
    size_lines: u64,
    line_bytes: u64,
    memory_bytes: Option<u64>,
    sources: u32,
) -> PyResult<Bound<'_, PyDict>> {
    let line = line_size(line_bytes)?;
    let memory = MemoryBudget {
        threads: u64::from(sources) * THREADS_OF_SOURCE,
        ..memory_budget(memory_bytes)
    };
    let need = memory.need(size_lines, line);
    let needed = memory
        .check(size_lines, line)
        .map_or_else(|over| over.budget_needed(), |_| memory);
    let dict = PyDict::new(py);
    for (name, value) in [
        ("index_bytes", need.index_bytes),
        ("stage_bytes", need.stage_bytes),
        ("daemon_bytes", need.daemon_bytes),
        ("budget_bytes", memory.bytes),
        ("needed_budget_bytes", needed.bytes),
        ("lines_that_fit", memory.lines_that_fit(line)),
        ("files", size_lines / LINES_PER_FILE),
    ] {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// Simulates a policy over line numbers at several sizes, with the stage in memory of a cache with lines of `line_bytes`.
#[pyfunction]
#[pyo3(signature = (keys, policy_name, sizes_lines, *, line_bytes=4096, rate=None, min_lines=500, salt=0, threads=1))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
pub(crate) fn simulate_keys<'py>(
    py: Python<'py>,
    keys: PyReadonlyArray1<'py, u64>,
    policy_name: &str,
    sizes_lines: PyReadonlyArray1<'py, u64>,
    line_bytes: u64,
    rate: Option<f64>,
    min_lines: u64,
    salt: u64,
    threads: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let kind = policy(policy_name)?;
    let (keys, sizes) = (slice("keys", &keys)?, slice("sizes_lines", &sizes_lines)?);
    check_sizes(sizes.iter().copied())?;
    let fidelity = fidelity(rate, min_lines, salt)?;
    let line = line_size(line_bytes)?;
    let simulation = py.detach(|| simulate(keys, kind, Some(line), sizes, fidelity, threads));
    let curve = simulation.curve();
    // The error of a miniature of single lines is not estimated.
    let stderr = if curve.estimate == bathy_mrc::Estimate::Exact {
        0.0
    } else {
        f64::NAN
    };
    let dict = curve_dict(py, &curve)?;
    dict.set_item("stderr", vec![stderr; sizes.len()].to_pyarray(py))?;
    dict.set_item("total", simulation.references as f64)?;
    Ok(dict)
}
