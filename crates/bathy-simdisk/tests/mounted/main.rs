//! The program, mounted for real. Needs root and /dev/fuse; without them the tests say that they were skipped.
//!
//! No test is timed: what took how long is asked of the model.

mod faults;
mod io;
mod server;
mod stopping;
