//! Full and miniature simulation of the policies that ship.

use bathy_mrc::simulate::{Fidelity, simulate_keys as simulate};
use bathy_policy::{PolicyKind, PolicyOptions};
use numpy::{PyReadonlyArray1, ToPyArray};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::slice;
use crate::profile::curve_dict;

/// The largest cache that a policy takes, in lines.
const MAX_LINES: u64 = 1 << 30;

/// The names of the policies.
#[pyfunction]
pub(crate) fn policy_names() -> Vec<&'static str> {
    PolicyKind::ALL.iter().map(|kind| kind.name()).collect()
}

pub(crate) fn policy(name: &str) -> PyResult<PolicyKind> {
    name.parse()
        .map_err(|error: bathy_policy::ParsePolicyKindError| PyValueError::new_err(error.to_string()))
}

pub(crate) fn check_sizes(sizes: &[u64]) -> PyResult<()> {
    match sizes.iter().find(|&&size| size == 0 || size > MAX_LINES) {
        Some(size) => Err(PyValueError::new_err(format!(
            "a cache of {size} lines; there are 1 to 2^30"
        ))),
        None => Ok(()),
    }
}

pub(crate) fn fidelity(rate: Option<f64>, min_lines: u64, salt: u64) -> PyResult<Fidelity> {
    match rate {
        None => Ok(Fidelity::Full),
        Some(rate) if rate > 0.0 && rate <= 1.0 => Ok(Fidelity::Miniature {
            rate,
            min_lines,
            salt,
        }),
        Some(rate) => Err(PyValueError::new_err(format!(
            "rate is {rate}; it must lie in (0, 1]"
        ))),
    }
}

/// Simulates a policy over line numbers at several sizes.
#[pyfunction]
#[pyo3(signature = (keys, policy_name, sizes_lines, *, rate=None, min_lines=500, salt=0, threads=1))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
pub(crate) fn simulate_keys<'py>(
    py: Python<'py>,
    keys: PyReadonlyArray1<'py, u64>,
    policy_name: &str,
    sizes_lines: PyReadonlyArray1<'py, u64>,
    rate: Option<f64>,
    min_lines: u64,
    salt: u64,
    threads: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let kind = policy(policy_name)?;
    let (keys, sizes) = (slice("keys", &keys)?, slice("sizes_lines", &sizes_lines)?);
    check_sizes(sizes)?;
    let fidelity = fidelity(rate, min_lines, salt)?;
    let options = PolicyOptions::default();
    let simulation = py.detach(|| simulate(keys, kind, &options, sizes, fidelity, threads));
    let dict = curve_dict(py, &simulation.curve())?;
    let column = |value: fn(&bathy_mrc::simulate::SizeResult) -> f64| -> Vec<f64> {
        simulation.sizes.iter().map(value).collect()
    };
    dict.set_item("misses", column(|size| size.misses as f64).to_pyarray(py))?;
    dict.set_item(
        "simulated_references",
        column(|size| size.references as f64).to_pyarray(py),
    )?;
    dict.set_item(
        "simulated_lines",
        column(|size| size.simulated_lines as f64).to_pyarray(py),
    )?;
    dict.set_item("simulated_rate", column(|size| size.rate).to_pyarray(py))?;
    dict.set_item(
        "flash_writes_lines",
        column(|size| size.flash_writes).to_pyarray(py),
    )?;
    dict.set_item("total", simulation.references as f64)?;
    Ok(dict)
}
