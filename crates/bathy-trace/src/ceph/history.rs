//! Op histories of Ceph OSDs: `dump_historic_ops` and its relatives.
//!
//! An operation is read in one way ([`op`]), whatever is made of it: [`stream`] finds operations in files of any length and
//! wrapping and makes block I/Os of them; [`OpTable`] makes a row of each, with its stages, from the answers of OSDs.
//!
//! An operation begins with its first event and ends with its last: only their `time` is used. The `duration` of an event
//! changed its meaning between releases, and it can be an underflowed 4294967295.99.

mod clock;
mod events;
mod op;
pub(crate) mod stream;
mod table;

pub use events::Stages;
pub use table::{OpRow, OpTable};
