//! Operations of OSD logs as columns.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bathy_trace::{OsdLogOptions, OsdOpBatch, Texts};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::stream::trace_error;

// Python aligns an object to 16 bytes, and PyO3 does not check that this is enough.
const _: () = assert!(align_of::<bathy_trace::OsdLogReader>() <= 16);

/// Reads logs of OSDs; see `bathy_trace::OsdLogReader`.
#[pyclass(module = "bathyscope._core")]
pub(crate) struct OsdLogReader {
    /// A reader can move between threads but not be shared, and a Python object may be looked at from any thread.
    inner: Mutex<bathy_trace::OsdLogReader>,
}

#[pymethods]
impl OsdLogReader {
    #[new]
    #[pyo3(signature = (paths, *, osd=None, since_ns=None, until_ns=None))]
    fn new(
        paths: Vec<PathBuf>,
        osd: Option<u32>,
        since_ns: Option<u64>,
        until_ns: Option<u64>,
    ) -> PyResult<Self> {
        let options = OsdLogOptions {
            osd,
            since_ns,
            until_ns,
            ..OsdLogOptions::default()
        };
        let reader =
            bathy_trace::OsdLogReader::open(&paths, &options).map_err(|error| trace_error(&error))?;
        Ok(Self {
            inner: Mutex::new(reader),
        })
    }

    /// The next operations as columns, which may be empty; None at the end. A text column is a pair: where each text ends,
    /// and all texts one after another.
    fn next_batch<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let reader = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut batch = OsdOpBatch::default();
        let more = py
            .detach(|| reader.next_batch(&mut batch))
            .map_err(|error| trace_error(&error))?;
        if !more {
            return Ok(None);
        }
        let dict = PyDict::new(py);
        for (name, column) in [
            ("started_ns", batch.started_ns),
            ("duration_ns", batch.duration_ns),
            ("osd", batch.osd),
            ("pool_id", batch.pool_id),
            ("offset_bytes", batch.offset_bytes),
            ("length_bytes", batch.length_bytes),
            ("result", batch.result),
        ] {
            dict.set_item(name, PyArray1::from_vec(py, column))?;
        }
        dict.set_item("op", PyArray1::from_vec(py, batch.op))?;
        for (name, Texts { offsets, bytes }) in [
            ("client", batch.client),
            ("client_address", batch.client_address),
            ("pg", batch.pg),
            ("object_name", batch.object_name),
        ] {
            let pair = (PyArray1::from_vec(py, offsets), PyArray1::from_vec(py, bytes));
            dict.set_item(name, pair)?;
        }
        Ok(Some(dict))
    }

    /// Counts up to the last batch.
    fn report<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = self
            .inner
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .report();
        let dict = PyDict::new(py);
        for (name, count) in [
            ("ops", report.ops),
            ("ops_of_stats", report.ops_of_stats),
            ("ops_outside", report.ops_outside),
            ("replies_left_out", report.replies_left_out),
            ("requests_forgotten", report.requests_forgotten),
            ("lines_bad", report.lines_bad),
            ("bytes_read", report.bytes_read),
            ("file_bytes_read", report.file_bytes_read),
        ] {
            dict.set_item(name, count)?;
        }
        dict.set_item("first_errors", &report.first_errors)?;
        Ok(dict)
    }
}
