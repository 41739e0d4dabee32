"""Small steps between Arrow tables and NumPy: select, split by step, sum by key.

Everything here is columnar. A run of a thousand OSDs and a hundred steps has millions of rows; no
function of this package may walk them one by one in Python. Groups are made in one thread (`use_threads=False`): a step
has some thousand rows, for which waking Arrow's threads takes three times as long as the sum, and groups then come in
the order of their first row.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.records import RECORDS_BY_TABLE, schema_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Tables = Mapping[str, pa.Table]


def table_of(tables: Tables, name: str) -> pa.Table:
    """Return a record's table, empty with the right schema when it is not there."""
    table = tables.get(name)
    return _empty(name) if table is None else table


@functools.cache
def _empty(name: str) -> pa.Table:
    return schema_of(RECORDS_BY_TABLE[name]).empty_table()


def floats(table: pa.Table, column: str) -> Floats:
    """Return a column as float64, shape (rows,); nulls become NaN."""
    array = table.column(column).cast(pa.float64()).combine_chunks()
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)


def ints(table: pa.Table, column: str) -> Ints:
    """Return a column without nulls as int64, shape (rows,)."""
    return np.asarray(table.column(column).combine_chunks().to_numpy(zero_copy_only=False), dtype=np.int64)


def strings(table: pa.Table, column: str) -> list[str]:
    """Return a text column as a list; nulls become empty text."""
    return [value or "" for value in table.column(column).to_pylist()]


def where(table: pa.Table, **equal: Any) -> pa.Table:
    """Return the rows whose columns have the given values; a tuple or list means any of its values."""
    for name, value in equal.items():
        if table.num_rows == 0:
            return table
        column = table.column(name)
        if isinstance(value, tuple | list):
            table = table.filter(pc.is_in(column, value_set=pa.array(value, type=column.type)))
        else:
            table = table.filter(pc.equal(column, pa.scalar(value, type=column.type)))
    return table


def total(table: pa.Table, column: str) -> float:
    """Return the sum of a column, 0 when it is empty."""
    return float(pc.sum(table.column(column), min_count=0).as_py())


def sums_by(table: pa.Table, key: str, *columns: str) -> tuple[list[str], list[Floats]]:
    """Return the values of `key` in order and, for each of `columns`, its sum per value, shape (keys,)."""
    if table.num_rows == 0:
        return [], [np.zeros(0) for _ in columns]
    grouped = table.group_by(key, use_threads=False).aggregate([(name, "sum") for name in columns]).sort_by(key)
    return strings(grouped, key), [floats(grouped, f"{name}_sum") for name in columns]


def by_step(table: pa.Table) -> dict[int, pa.Table]:
    """Return the rows of each step; rows without a step are left out. The slices share one sorted copy."""
    table = table.filter(pc.is_valid(table.column("step_index")))
    if table.num_rows == 0:
        return {}
    table = table.sort_by("step_index")
    index = ints(table, "step_index")
    steps, starts = np.unique(index, return_index=True)
    ends = np.append(starts[1:], len(index))
    return {int(s): table.slice(int(a), int(b - a)) for s, a, b in zip(steps, starts, ends, strict=True)}
