"""The plan of `bathy cache plan` as CSV: one row for each source."""

from __future__ import annotations

import dataclasses
from typing import TextIO

from bathyscope.records.cache_plan_finding import CachePlan, PlannedSource
from bathyscope.views import Options
from bathyscope.views.csv import write_rows


def write(finding: CachePlan, stream: TextIO, _options: Options) -> None:
    """Write one row for each source, with its node."""
    columns = ["node", *(field.name for field in dataclasses.fields(PlannedSource))]
    rows = [{"node": cache.node, **dataclasses.asdict(source)} for cache in finding.caches for source in cache.sources]
    write_rows(rows, stream, columns)
