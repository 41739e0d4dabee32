//! The Python module `bathyscope._core`: conversion and errors only; every algorithm lives in its own crate.
//!
//! Arrays come in as views of `NumPy` memory and are never copied; long work runs without the GIL.

#![allow(clippy::needless_pass_by_value, reason = "what Python gives arrives by value")]

use pyo3::prelude::*;

mod op_history;
mod options;
mod osd_log;
mod passes;
mod profile;
mod programs;
mod simulate;
mod stream;

/// Registration only; the public API is written in Python.
#[pymodule]
mod _core {
    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_export]
    use crate::op_history::OpHistories;
    #[pymodule_export]
    use crate::osd_log::OsdLogReader;
    #[pymodule_export]
    use crate::passes::{EnginePass, ProfilePass};
    #[pymodule_export]
    use crate::profile::{Profile, profile_keys, profile_requests};
    #[pymodule_export]
    use crate::programs::{disk_profiles, make_load, serve_cache, serve_disks};
    #[pymodule_export]
    use crate::simulate::{cache_memory, policy_names, simulate_keys, stage_lines};
    #[pymodule_export]
    use crate::stream::trace_formats;

    /// The version of the compiled core, which must equal the version of the Python package.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        // Figures of a debug build mean nothing; benchmarks warn on it.
        module.add("DEBUG_BUILD", cfg!(debug_assertions))?;
        module.add("MIN_LINE_BYTES", bathy_mrc::lines::MIN_LINE_BYTES)?;
        module.add("MAX_LINE_BYTES", bathy_mrc::lines::MAX_LINE_BYTES)?;
        module.add("MAX_VOLUMES", bathy_mrc::lines::MAX_VOLUMES)?;
        module.add("MAX_CACHE_LINES", bathy_mrc::simulate::MAX_CACHE_LINES)?;
        module.add("MAX_FETCH_UNITS", bathy_mrc::engine::MAX_FETCH_UNITS)?;
        module.add("MAX_WINDOWS", bathy_mrc::engine::MAX_WINDOWS)?;
        module.add("MIN_MINIATURE_LINES", bathy_mrc::simulate::MIN_MINIATURE_LINES)?;
        module.add("NOT_KNOWN", crate::op_history::NOT_KNOWN)?;
        module.add("OTHERS", bathy_mrc::passes::OTHERS)?;
        module.add("MOST_REQUEST_BYTES", bathy_trace::MOST_REQUEST_BYTES)?;
        module.add("STRATA_BITS", bathy_mrc::hash::STRATA_BITS)
    }
}
