//! Conversion of what Python gives. The Python side has checked it; what no Rust type can hold is a `ValueError`.

use bathy_cache_model::MemoryBudget;
use bathy_mrc::hash::STRATA_BITS;
use bathy_mrc::simulate::{Fidelity, MAX_CACHE_LINES};
use bathy_mrc::{LineSize, Ops, Sampling, TrackerOptions, Unit};
use bathy_policy::PolicyKind;
use numpy::{PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub(crate) fn line_size(bytes: u64) -> PyResult<LineSize> {
    LineSize::new(bytes).ok_or_else(|| PyValueError::new_err(format!("line_bytes is {bytes}")))
}

/// What a cache may take of memory, by default what it may take by default.
pub(crate) fn memory_budget(bytes: Option<u64>) -> MemoryBudget {
    bytes.map_or_else(MemoryBudget::default, MemoryBudget::of)
}

pub(crate) fn policy(name: &str) -> PyResult<PolicyKind> {
    name.parse()
        .map_err(|error: bathy_policy::ParsePolicyKindError| PyValueError::new_err(error.to_string()))
}

fn is_rate(rate: f64) -> PyResult<f64> {
    if rate > 0.0 && rate <= 1.0 {
        return Ok(rate);
    }
    Err(PyValueError::new_err(format!("rate is {rate}")))
}

/// `rate` and `max_lines` exclude each other; without either the profile is exact.
pub(crate) fn sampling(rate: Option<f64>, max_lines: Option<usize>) -> PyResult<Sampling> {
    match (rate, max_lines) {
        (Some(_), Some(_)) => Err(PyValueError::new_err("give rate or max_lines, not both")),
        (Some(rate), None) => is_rate(rate).map(Sampling::Rate),
        (None, Some(0)) => Err(PyValueError::new_err("max_lines is 0")),
        (None, Some(lines)) => Ok(Sampling::Size(lines)),
        (None, None) => Ok(Sampling::Exact),
    }
}

pub(crate) fn tracker_options(
    sampling: Sampling,
    salt: u64,
    group_bits: u32,
    joinable: bool,
) -> PyResult<TrackerOptions> {
    if STRATA_BITS.saturating_add(group_bits) > 32 {
        return Err(PyValueError::new_err("group_bits is too large"));
    }
    Ok(TrackerOptions {
        sampling,
        salt,
        group_bits,
        joinable,
    })
}

pub(crate) fn fidelity(rate: Option<f64>, min_lines: u64, salt: u64) -> PyResult<Fidelity> {
    Ok(match rate {
        None => Fidelity::Full,
        Some(rate) => Fidelity::Miniature {
            rate: is_rate(rate)?,
            min_lines,
            salt,
        },
    })
}

pub(crate) fn check_sizes(mut sizes: impl Iterator<Item = u64>) -> PyResult<()> {
    match sizes.find(|size| !(1..=MAX_CACHE_LINES).contains(size)) {
        Some(size) => Err(PyValueError::new_err(format!(
            "a cache has 1 to 2^30 lines (got {size})"
        ))),
        None => Ok(()),
    }
}

pub(crate) fn unit(name: &str) -> PyResult<Unit> {
    match name {
        "lines" => Ok(Unit::Lines),
        "requests" => Ok(Unit::Requests),
        "bytes" => Ok(Unit::Bytes),
        _ => Err(PyValueError::new_err(format!("unit is {name:?}"))),
    }
}

pub(crate) fn ops(name: &str) -> PyResult<Ops> {
    match name {
        "all" => Ok(Ops::All),
        "read" => Ok(Ops::Reads),
        "write" => Ok(Ops::Writes),
        _ => Err(PyValueError::new_err(format!("ops is {name:?}"))),
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
    array: &'a PyReadonlyArray1<'_, T>,
    rows: usize,
) -> PyResult<&'a [T]> {
    if array.len() != rows {
        let message = format!("{name} has {} rows, offset_bytes has {rows}", array.len());
        return Err(PyValueError::new_err(message));
    }
    slice(name, array)
}
