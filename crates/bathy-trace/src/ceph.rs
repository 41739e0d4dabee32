//! What Ceph prints of the operations of its clients: op histories and logs of OSDs.
//!
//! Both print a request in the same words, which [`osd_op`] takes apart. [`history`] and [`log`] are each read in one way,
//! whether block I/Os are made of them, to simulate a cache with, or a table of operations.

pub(crate) mod file_name;
pub(crate) mod history;
pub(crate) mod log;
pub(crate) mod object_map;
pub(crate) mod op_list;
pub(crate) mod osd_op;
