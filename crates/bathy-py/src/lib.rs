//! The Python module `bathyscope._core`: conversion and errors only; every algorithm lives in its own crate.

use pyo3::prelude::*;

/// Registration only; the public API is written in Python.
#[pymodule]
mod _core {
    use super::*;

    /// The version of the compiled core, which must equal the version of the Python package.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
