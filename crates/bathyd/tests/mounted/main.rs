//! The daemon, mounted for real. Needs root and /dev/fuse; without them the tests say that they were skipped.
//!
//! `BATHY_TORTURE_OPS` is the number of operations of the model tests. No test is timed.

mod bad_input;
mod cached;
mod daemon;
mod model;
mod peers;
mod unmounting;
