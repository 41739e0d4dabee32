"""What all load generators share: where a process runs, and the tables that its answer becomes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from bathyscope.host import Elsewhere
from bathyscope.records import Histogram, Interval, Result, Tables, schema_of


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where and under what a process runs."""

    environment: tuple[tuple[str, str], ...] = ()
    root: str | None = None
    cgroup: str | None = None
    elsewhere: Elsewhere | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LoadTables:
    """What load processes reported: the tables Result, Interval and Histogram, and the measured window.

    The window is in nanoseconds since the epoch by the load machine's clock, None when there was no load.
    """

    tables: Tables
    measured_start_ns: int | None = None
    measured_end_ns: int | None = None


def joined(parts: Sequence[LoadTables]) -> LoadTables:
    """Return what several processes of one step reported together; empty tables for none."""
    starts_ns = [part.measured_start_ns for part in parts if part.measured_start_ns is not None]
    ends_ns = [part.measured_end_ns for part in parts if part.measured_end_ns is not None]
    tables = {
        record: pa.concat_tables([EMPTY[record], *(part.tables[record] for part in parts if record in part.tables)])
        for record in EMPTY
    }
    return LoadTables(tables, min(starts_ns, default=None), max(ends_ns, default=None))


EMPTY: Tables = {record: schema_of(record).empty_table() for record in (Result, Interval, Histogram)}
