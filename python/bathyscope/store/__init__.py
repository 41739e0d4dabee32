"""Store: workspaces, run directories, segments, roll-ups, Parquet, DuckDB.

Nothing here loads Arrow before rows are read or written, and `duck` and `roll_up` are imported where they are used: a
verb starts without what it does not use.
"""

from __future__ import annotations

from bathyscope.store.info import FORMAT_VERSION, RunInfo, is_run_id
from bathyscope.store.run_directory import RunDirectory, step_name
from bathyscope.store.segment import Segment, SegmentWriter
from bathyscope.store.workspace import RunEntry, Workspace, new_run_id

__all__ = [
    "FORMAT_VERSION",
    "RunDirectory",
    "RunEntry",
    "RunInfo",
    "Segment",
    "SegmentWriter",
    "Workspace",
    "is_run_id",
    "new_run_id",
    "step_name",
]
