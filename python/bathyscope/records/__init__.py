"""Records: the only vocabulary that sources, store, analysis and views share."""

from __future__ import annotations

from bathyscope.records.base import ColumnHelp, Record, column, from_table, help_of, schema_of, to_table
from bathyscope.records.environment import EnvironmentFact, Placement
from bathyscope.records.inside import Caveat, DeviceSample, Op, PerfCounter, ProcessSample
from bathyscope.records.run import Histogram, Interval, Result, Run, Step
from bathyscope.records.size import CurvePoint

ALL_RECORDS: tuple[type[Record], ...] = (
    Run,
    Step,
    Result,
    Interval,
    Histogram,
    Op,
    PerfCounter,
    DeviceSample,
    ProcessSample,
    Caveat,
    EnvironmentFact,
    Placement,
    CurvePoint,
)

RECORDS_BY_TABLE: dict[str, type[Record]] = {record.TABLE: record for record in ALL_RECORDS}

__all__ = [
    "ALL_RECORDS",
    "RECORDS_BY_TABLE",
    "Caveat",
    "ColumnHelp",
    "CurvePoint",
    "DeviceSample",
    "EnvironmentFact",
    "Histogram",
    "Interval",
    "Op",
    "PerfCounter",
    "Placement",
    "ProcessSample",
    "Record",
    "Result",
    "Run",
    "Step",
    "column",
    "from_table",
    "help_of",
    "schema_of",
    "to_table",
]
