//! Simulated disks: files whose I/O takes as long as on a real disk, and fails when it is told to.
//!
//! [`model`] says when requests complete, [`store`] holds the data and what a power cut would lose of it, [`fault`]
//! decides what goes wrong, [`disk`] joins them in real time and counts, [`control`] serves the counters and takes
//! faults. The program mounts the disks through `bathy-fuse`. See README.md of this crate for its use and for the
//! control protocol.

pub mod control;
pub mod counters;
pub mod disk;
pub mod fault;
pub mod histogram;
pub mod lead;
pub mod model;
pub mod options;
pub mod profile;
pub mod program;
pub mod store;
pub mod units;
