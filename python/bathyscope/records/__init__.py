"""Records: the only vocabulary that sources, store, analysis and views share."""

from __future__ import annotations

from bathyscope.records.activity import ANY_IMAGE, Attachment, Image, ImageIo, OsdIo, OsdLatencyBucket, PgIo, ZoneIo
from bathyscope.records.base import (
    RECORDS_BY_TABLE,
    Record,
    RollUp,
    Tables,
    build_table,
    column,
    from_table,
    schema_of,
    to_table,
)
from bathyscope.records.caveat import Caveat
from bathyscope.records.environment import SAME_MACHINE, EnvironmentFact, Placement
from bathyscope.records.raw import RawAnswer
from bathyscope.records.run import Histogram, Interval, Result, Run, Step
from bathyscope.records.sample import (
    HERE,
    CgroupSample,
    ClusterStatus,
    Collection,
    DeviceSample,
    HealthCheck,
    ImageUsage,
    NetworkSample,
    Op,
    OsdLatency,
    PerfCounter,
    PoolIo,
    PoolWait,
    ProcessSample,
    SimulatedDiskSample,
)
from bathyscope.records.size import CurvePoint

__all__ = [
    "ANY_IMAGE",
    "HERE",
    "RECORDS_BY_TABLE",
    "SAME_MACHINE",
    "Attachment",
    "Caveat",
    "CgroupSample",
    "ClusterStatus",
    "Collection",
    "CurvePoint",
    "DeviceSample",
    "EnvironmentFact",
    "HealthCheck",
    "Histogram",
    "Image",
    "ImageIo",
    "ImageUsage",
    "Interval",
    "NetworkSample",
    "Op",
    "OsdIo",
    "OsdLatency",
    "OsdLatencyBucket",
    "PerfCounter",
    "PgIo",
    "Placement",
    "PoolIo",
    "PoolWait",
    "ProcessSample",
    "RawAnswer",
    "Record",
    "Result",
    "RollUp",
    "Run",
    "SimulatedDiskSample",
    "Step",
    "Tables",
    "ZoneIo",
    "build_table",
    "column",
    "from_table",
    "schema_of",
    "to_table",
]
