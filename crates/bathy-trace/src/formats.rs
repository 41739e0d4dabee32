//! One file per format, or per family of formats. Each says where its format is described.

pub(crate) mod blkparse;
pub(crate) mod blktrace;
pub(crate) mod blocks;
pub(crate) mod cloud;
pub(crate) mod csv;
pub(crate) mod fio;
mod json;
pub(crate) mod op_history;
pub(crate) mod oracle;
pub(crate) mod osd_line;
pub(crate) mod osd_log;
pub(crate) mod rados;
pub(crate) mod raw_u32;
pub(crate) mod spc;
pub(crate) mod vscsi;

pub(crate) use json::unescape;
