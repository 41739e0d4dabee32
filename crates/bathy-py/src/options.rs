//! What Python callers give, checked once: every mistake becomes a `ValueError` that names the argument.

use bathy_mrc::{LineSize, Ops, Sampling, TrackerOptions, Unit};
use numpy::{PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub(crate) fn line_size(bytes: u64) -> PyResult<LineSize> {
    LineSize::new(bytes).ok_or_else(|| {
        PyValueError::new_err(format!(
            "line_bytes is {bytes}; it must be a power of two from 512 to 2^30"
        ))
    })
}

/// `rate` and `max_lines` exclude each other; without either the profile is exact.
pub(crate) fn tracker_options(
    rate: Option<f64>,
    max_lines: Option<usize>,
    salt: u64,
    strata_bits: u32,
    group_bits: u32,
    joinable: bool,
) -> PyResult<TrackerOptions> {
    let sampling = match (rate, max_lines) {
        (Some(_), Some(_)) => return Err(PyValueError::new_err("give rate or max_lines, not both")),
        (Some(rate), None) if rate > 0.0 && rate <= 1.0 => Sampling::Rate(rate),
        (Some(rate), None) => {
            return Err(PyValueError::new_err(format!(
                "rate is {rate}; it must lie in (0, 1]"
            )));
        }
        (None, Some(0)) => {
            return Err(PyValueError::new_err(
                "max_lines is 0; a sample holds at least one line",
            ));
        }
        (None, Some(lines)) => Sampling::Size(lines),
        (None, None) => Sampling::Exact,
    };
    if strata_bits.saturating_add(group_bits) > 32 {
        return Err(PyValueError::new_err("strata_bits + group_bits is above 32"));
    }
    Ok(TrackerOptions {
        sampling,
        salt,
        strata_bits,
        group_bits,
        joinable,
    })
}

pub(crate) fn unit(name: &str) -> PyResult<Unit> {
    match name {
        "lines" => Ok(Unit::Lines),
        "requests" => Ok(Unit::Requests),
        "bytes" => Ok(Unit::Bytes),
        _ => Err(PyValueError::new_err(format!(
            "unit is {name:?}; there are: lines requests bytes"
        ))),
    }
}

pub(crate) fn ops(name: &str) -> PyResult<Ops> {
    match name {
        "all" => Ok(Ops::All),
        "read" => Ok(Ops::Reads),
        "write" => Ok(Ops::Writes),
        _ => Err(PyValueError::new_err(format!(
            "ops is {name:?}; there are: all read write"
        ))),
    }
}

/// A contiguous view of a `NumPy` array, without a copy.
pub(crate) fn slice<'a, T: numpy::Element>(
    name: &str,
    array: &'a PyReadonlyArray1<'_, T>,
) -> PyResult<&'a [T]> {
    array
        .as_slice()
        .map_err(|_| PyValueError::new_err(format!("{name} is not contiguous")))
}

/// As [`slice`], and of `rows` rows.
pub(crate) fn column<'a, T: numpy::Element>(
    name: &str,
    array: Option<&'a PyReadonlyArray1<'_, T>>,
    rows: usize,
) -> PyResult<Option<&'a [T]>> {
    let Some(array) = array else { return Ok(None) };
    if array.len() != rows {
        let message = format!("{name} has {} rows, offset_bytes has {rows}", array.len());
        return Err(PyValueError::new_err(message));
    }
    slice(name, array).map(Some)
}
