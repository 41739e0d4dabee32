//! One file per format. Each says where its format is described.

pub(crate) mod csv;
pub(crate) mod raw_u32;
pub(crate) mod vscsi;
