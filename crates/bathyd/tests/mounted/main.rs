//! The daemon, mounted for real. Needs root and /dev/fuse; without them the tests say that they were skipped.
//!
//! `BATHY_TORTURE_OPS` is the number of operations of the model tests, `BATHY_TORTURE_KILLS` that of kills under load,
//! `BATHY_TORTURE_FAULTS` that of operations of the SSD that fail in turn. `BATHYD_TRANSPORT` is the transport, `dev` or
//! `ring`; `ring` needs `fuse.enable_uring=1`. No test is timed.

mod attach;
mod attacks;
mod bad_input;
mod cached;
mod daemon;
mod devices;
#[path = "../../../bathy-cache/tests/all/history.rs"]
mod history;
mod hung_source;
mod kill;
mod linearizable;
mod live;
mod model;
mod mount_points;
mod peers;
mod reports;
mod rights;
mod shares;
mod ssd_faults;
mod unmounting;
