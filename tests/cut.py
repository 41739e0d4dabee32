"""Samples cut to a part of time, for tests of what is sampled."""

from __future__ import annotations

import pyarrow as pa

from bathyscope.analysis.window import of_time
from bathyscope.records import Record
from bathyscope.window.tables import in_windows


def cut(record: type[Record], table: pa.Table, start_ns: int, end_ns: int) -> pa.Table:
    """Return the rows of a sample in that time, intervals at its edges in proportion."""
    (found,) = in_windows({record.TABLE: table}, [of_time(start_ns, end_ns)])
    return found.get(record.TABLE, table.slice(0, 0))
