//! One file per format, or per family of formats; those of Ceph are in [`crate::ceph`]. Each says where its format is described.

pub(crate) mod blkparse;
pub(crate) mod blktrace;
pub(crate) mod blocks;
pub(crate) mod cloud;
pub(crate) mod csv;
pub(crate) mod fio;
pub(crate) mod oracle;
pub(crate) mod raw_u32;
pub(crate) mod spc;
pub(crate) mod vscsi;
