//! The Python module `bathyscope._core`: conversion and errors only; every algorithm lives in its own crate.
//!
//! Arrays come in as views of `NumPy` memory and are never copied; long work runs without the GIL.

#![allow(clippy::needless_pass_by_value, reason = "what Python gives arrives by value")]

use pyo3::prelude::*;

mod batch;
mod engine_pass;
mod options;
mod profile;
mod profile_pass;
mod simulate;
mod stream;
mod trace;

/// Registration only; the public API is written in Python.
#[pymodule]
mod _core {
    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_export]
    use crate::engine_pass::EnginePass;
    #[pymodule_export]
    use crate::profile::{Profile, profile_keys, profile_requests};
    #[pymodule_export]
    use crate::profile_pass::ProfilePass;
    #[pymodule_export]
    use crate::simulate::{policy_names, simulate_keys};
    #[pymodule_export]
    use crate::trace::{TraceProfiles, profile_traces, trace_formats};

    /// The version of the compiled core, which must equal the version of the Python package.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        // Figures of a debug build mean nothing; benchmarks warn on it.
        module.add("DEBUG_BUILD", cfg!(debug_assertions))
    }
}
