//! LRU profiles: every curve of one pass.

use bathy_mrc::curve::Curve;
use bathy_mrc::items::{Columns, Items};
use bathy_mrc::{Ops, Unit, parallel};
use numpy::{PyReadonlyArray1, ToPyArray};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::{column, line_size, ops, sampling, slice, tracker_options, unit};

/// Stack distances of one stream, and the curves they give.
#[pyclass(module = "bathyscope._core")]
pub(crate) struct Profile {
    pub(crate) inner: bathy_mrc::Profile,
}

/// Profiles line numbers that are in memory.
#[pyfunction]
#[pyo3(signature = (keys, *, line_bytes=4096, rate=None, max_lines=None, salt=0, group_bits=0,
    threads=1, joinable=false))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
pub(crate) fn profile_keys(
    py: Python<'_>,
    keys: PyReadonlyArray1<'_, u64>,
    line_bytes: u64,
    rate: Option<f64>,
    max_lines: Option<usize>,
    salt: u64,
    group_bits: u32,
    threads: usize,
    joinable: bool,
) -> PyResult<Profile> {
    let options = tracker_options(sampling(rate, max_lines)?, salt, group_bits, joinable)?;
    let (keys, line) = (slice("keys", &keys)?, line_size(line_bytes)?);
    let inner = py.detach(|| parallel::profile_keys(keys, threads, options, line));
    Ok(Profile { inner })
}

/// Profiles requests that are in memory.
#[pyfunction]
#[pyo3(signature = (offset_bytes, length_bytes, op=None, volume=None, *, line_bytes=4096, rate=None, max_lines=None,
    salt=0, group_bits=0, threads=1, joinable=false))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
pub(crate) fn profile_requests(
    py: Python<'_>,
    offset_bytes: PyReadonlyArray1<'_, u64>,
    length_bytes: PyReadonlyArray1<'_, u32>,
    op: Option<PyReadonlyArray1<'_, u8>>,
    volume: Option<PyReadonlyArray1<'_, u32>>,
    line_bytes: u64,
    rate: Option<f64>,
    max_lines: Option<usize>,
    salt: u64,
    group_bits: u32,
    threads: usize,
    joinable: bool,
) -> PyResult<Profile> {
    let options = tracker_options(sampling(rate, max_lines)?, salt, group_bits, joinable)?;
    let line = line_size(line_bytes)?;
    let items = requests(&offset_bytes, &length_bytes, op.as_ref(), volume.as_ref())?;
    let inner = py.detach(|| parallel::profile(&items, threads, options, line));
    Ok(Profile { inner })
}

fn requests<'a>(
    offset_bytes: &'a PyReadonlyArray1<'_, u64>,
    length_bytes: &'a PyReadonlyArray1<'_, u32>,
    op: Option<&'a PyReadonlyArray1<'_, u8>>,
    volume: Option<&'a PyReadonlyArray1<'_, u32>>,
) -> PyResult<Items<'a>> {
    let offset_bytes = slice("offset_bytes", offset_bytes)?;
    let rows = offset_bytes.len();
    Ok(Items::Requests(Columns {
        offset_bytes,
        length_bytes: column("length_bytes", length_bytes, rows)?,
        op: op.map(|op| column("op", op, rows)).transpose()?,
        volume: volume.map(|volume| column("volume", volume, rows)).transpose()?,
    }))
}

#[pymethods]
impl Profile {
    /// Adds line numbers that follow those before.
    fn add_keys(&mut self, py: Python<'_>, keys: PyReadonlyArray1<'_, u64>) -> PyResult<()> {
        let keys = slice("keys", &keys)?;
        let inner = &mut self.inner;
        py.detach(|| inner.access_keys(keys));
        Ok(())
    }

    /// Adds requests that follow those before.
    #[pyo3(signature = (offset_bytes, length_bytes, op=None, volume=None))]
    fn add_requests(
        &mut self,
        py: Python<'_>,
        offset_bytes: PyReadonlyArray1<'_, u64>,
        length_bytes: PyReadonlyArray1<'_, u32>,
        op: Option<PyReadonlyArray1<'_, u8>>,
        volume: Option<PyReadonlyArray1<'_, u32>>,
    ) -> PyResult<()> {
        let items = requests(&offset_bytes, &length_bytes, op.as_ref(), volume.as_ref())?;
        let inner = &mut self.inner;
        py.detach(|| inner.access_items(&items, 0..items.len()));
        Ok(())
    }

    /// Joins the profile of the piece of trace that follows; `later` stays as it is.
    fn join(&mut self, py: Python<'_>, later: &Self) -> PyResult<()> {
        if !self.inner.can_join(&later.inner) {
            return Err(PyValueError::new_err(
                "profiles join when both are joinable and of equal options",
            ));
        }
        let (inner, later) = (&mut self.inner, later.inner.clone());
        py.detach(|| inner.join(later));
        Ok(())
    }

    /// The miss-ratio curve of one unit and direction at `sizes_lines`.
    fn curve<'py>(
        &self,
        py: Python<'py>,
        sizes_lines: PyReadonlyArray1<'py, u64>,
        unit_name: &str,
        ops_name: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let sizes = slice("sizes_lines", &sizes_lines)?;
        let (unit, ops) = (unit(unit_name)?, ops(ops_name)?);
        let (check, weighted) = py.detach(|| {
            (
                self.inner.self_check(sizes, ops),
                self.inner.weighted(sizes, unit, ops),
            )
        });
        let dict = curve_dict(py, &weighted.curve(sizes, check.estimate))?;
        // The sub-samples count references to lines; what they say of requests and bytes is not known.
        let known = unit == Unit::Lines || self.inner.tracker().is_exact();
        let unknown = vec![f64::NAN; sizes.len()];
        let stderr = if known { check.stderr() } else { &unknown };
        dict.set_item("stderr", stderr.to_pyarray(py))?;
        dict.set_item("total", weighted.total)?;
        Ok(dict)
    }

    /// Bytes of a line.
    #[getter]
    fn line_bytes(&self) -> u64 {
        self.inner.line().bytes()
    }

    /// Share of the lines that is sampled now.
    #[getter]
    fn rate(&self) -> f64 {
        self.inner.tracker().rate()
    }

    /// Lines that are sampled together, as a power of two.
    #[getter]
    fn group_bits(&self) -> u32 {
        self.inner.tracker().options().group_bits
    }

    /// Distinct lines, estimated when sampled.
    #[getter]
    fn distinct_lines(&self) -> f64 {
        self.inner.distinct_lines()
    }

    /// Whether every line is tracked.
    #[getter]
    fn exact(&self) -> bool {
        self.inner.tracker().is_exact()
    }

    /// Bytes of memory held.
    #[getter]
    fn memory_bytes(&self) -> usize {
        self.inner.memory_bytes()
    }

    /// References to lines, requests and bytes of one direction.
    fn totals(&self, ops_name: &str) -> PyResult<(u64, u64, u64)> {
        let ops: Ops = ops(ops_name)?;
        Ok((
            self.inner.lines_total(ops),
            self.inner.requests_total(ops),
            self.inner.bytes_total(ops),
        ))
    }
}

pub(crate) fn curve_dict<'py>(py: Python<'py>, curve: &Curve) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("miss_ratio", curve.miss_ratio.to_pyarray(py))?;
    dict.set_item("miss_ratio_raw", curve.miss_ratio_raw.to_pyarray(py))?;
    dict.set_item("miss_ratio_adjusted", curve.miss_ratio_adjusted.to_pyarray(py))?;
    dict.set_item("cold_miss_ratio", curve.cold_miss_ratio)?;
    dict.set_item("estimate", curve.estimate.name())?;
    Ok(dict)
}
