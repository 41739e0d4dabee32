//! Readers of block I/O traces: every format becomes one stream of [`IoEvent`], in batches of columns. And
//! [`OsdLogReader`] and [`OpTable`], which make of the logs and op histories of Ceph OSDs one row for each operation.
//!
//! ```
//! use bathy_trace::{EventBatch, OpenOptions, open_bytes};
//! let csv = b"time_us,op,offset_bytes,length_bytes\n0,read,4096,4096\n7,write,0,8192\n".to_vec();
//! let mut reader = open_bytes("example.csv".as_ref(), csv, None, &OpenOptions::default())?;
//! let mut batch = EventBatch::new();
//! let mut bytes = 0;
//! while reader.next_batch(&mut batch)? > 0 {
//!     bytes += batch.length_bytes().iter().map(|&length| u64::from(length)).sum::<u64>();
//! }
//! assert_eq!(bytes, 12288);
//! assert_eq!(reader.report().time_ns_range, Some((0, 7000)));
//! # Ok::<(), bathy_trace::TraceError>(())
//! ```
//!
//! Limits: all readers stream; memory is bounded by [`OpenOptions::record_bytes_max`], [`OpenOptions::names_max`] and the
//! decompressor's window, whatever the size or content of the trace. No input makes a reader panic.

mod batch;
mod ceph;
mod decode;
mod detect;
mod error;
mod event;
mod format;
mod formats;
mod input;
mod json;
mod names;
mod open;
mod options;
mod reader;
mod report;
#[cfg(test)]
mod testing;
mod text;

pub use batch::EventBatch;
pub use ceph::history::{OpRow, OpTable, Stages};
pub use ceph::log::{OsdLogOptions, OsdLogReader, OsdLogReport, OsdOpBatch, Texts};
pub use error::{BadRecord, Position, TraceError};
pub use event::{IoEvent, MOST_REQUEST_BYTES, Op, UNKNOWN};
pub use format::Format;
pub use names::{NameTable, NameTables};
pub use open::{open, open_bytes};
pub use options::{BlockStage, OnBadRecord, OpenOptions, OtherObjects};
pub use reader::TraceReader;
pub use report::{Columns, FIRST_ERRORS_MAX, ReadReport};
