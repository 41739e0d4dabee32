//! Programs of other crates, so that an installed package has them without files of their own.

use pyo3::prelude::*;

/// Carry out a command line of `bathy-simdisk` and return its exit code; while it serves disks, that is when it is told
/// to end. For a process that does nothing else: signals of the calling thread are blocked.
#[pyfunction]
pub(crate) fn serve_disks(py: Python<'_>, arguments: Vec<String>) -> u8 {
    py.detach(|| bathy_simdisk::program::main(arguments))
}

/// Carry out a command line of `bathyd` and return its exit code; while it serves, that is when it is told to end. For a
/// process that does nothing else: signals of the calling thread are blocked.
#[pyfunction]
pub(crate) fn serve_cache(py: Python<'_>, arguments: Vec<String>) -> u8 {
    py.detach(|| bathyd::daemon::main(&arguments))
}

/// Carry out a command line of `bathy-load` and return its exit code when the load is over. For a process that does
/// nothing else: it may end here.
#[pyfunction]
pub(crate) fn make_load(py: Python<'_>, arguments: Vec<String>) -> u8 {
    py.detach(|| bathy_load::program::main(arguments))
}

/// Names and titles of the disks that can be simulated.
#[pyfunction]
pub(crate) fn disk_profiles() -> Vec<(&'static str, &'static str)> {
    let profiles = bathy_simdisk::profile::PROFILES.iter();
    profiles.map(|it| (it.name, it.title)).collect()
}
