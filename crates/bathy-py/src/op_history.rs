//! Op histories of OSDs as columns.

use bathy_trace::{NameTable, Op, OpRow, OpTable};
use numpy::ToPyArray;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// In place of a number that is not known; no number of an answer is as small.
pub(crate) const NOT_KNOWN: i64 = i64::MIN;

type Column = (&'static str, fn(&OpRow) -> Option<i64>);

const COLUMNS: [Column; 19] = [
    ("osd", |row| Some(row.osd)),
    ("client", |row| Some(row.client.into())),
    ("client_address", |row| row.address.map(i64::from)),
    ("pool_id", |row| Some(row.pool_id)),
    ("pg", |row| Some(row.pg.into())),
    ("object_name", |row| row.object.map(i64::from)),
    ("op", |row| Some(row.op as i64)),
    ("offset_bytes", |row| row.offset_bytes),
    ("length_bytes", |row| row.length_bytes),
    ("started_ns", |row| Some(row.started_ns)),
    ("duration_ns", |row| Some(row.duration_ns)),
    ("queue_ns", |row| row.stages.queue_ns),
    ("prepare_ns", |row| row.stages.prepare_ns),
    ("store_ns", |row| row.stages.store_ns),
    ("replica_wait_ns", |row| row.stages.replica_wait_ns),
    ("reply_ns", |row| row.stages.reply_ns),
    ("slowest_peer", |row| row.slowest_peer),
    ("complete_sample", |row| Some(row.complete_sample.into())),
    ("complete_since_ns", |row| Some(row.complete_since_ns)),
];

/// The ops of any number of histories.
#[pyclass(module = "bathyscope._core")]
pub(crate) struct OpHistories {
    table: OpTable,
}

#[pymethods]
impl OpHistories {
    #[new]
    fn new(pools: Option<Vec<i64>>) -> Self {
        let table = OpTable::new(pools);
        Self { table }
    }

    /// Adds an OSD's answer to `dump_historic_ops`.
    fn add(
        &mut self,
        py: Python<'_>,
        osd: i64,
        answer: &[u8],
        asked_ns: i64,
        size: Option<i64>,
    ) -> PyResult<()> {
        let table = &mut self.table;
        py.detach(|| table.add(osd, answer, asked_ns, size))
            .map_err(|problem| PyValueError::new_err(problem.to_string()))
    }

    /// The columns as integers, and the names that those of some columns are numbers of.
    fn columns<'py>(&mut self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let columns = PyDict::new(py);
        let rows = self.table.rows();
        for (name, value) in COLUMNS {
            let column: Vec<i64> = rows.iter().map(|row| value(row).unwrap_or(NOT_KNOWN)).collect();
            columns.set_item(name, column.to_pyarray(py))?;
        }
        let names = PyDict::new(py);
        let tables: [(&str, &NameTable); 4] = [
            ("client", self.table.clients()),
            ("client_address", self.table.addresses()),
            ("pg", self.table.pgs()),
            ("object_name", self.table.objects()),
        ];
        for (column, table) in tables {
            names.set_item(column, table.iter().collect::<Vec<_>>())?;
        }
        let ops = [Op::Read, Op::Write, Op::Trim, Op::Other].map(Op::name);
        names.set_item("op", ops)?;
        Ok((columns, names))
    }
}
