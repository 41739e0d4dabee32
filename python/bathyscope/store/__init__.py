"""Store: workspaces, run directories, Parquet, DuckDB.

`duck` is not imported here: it costs a tenth of a second and only SQL needs it.
"""

from __future__ import annotations

from bathyscope.store.info import FORMAT_VERSION, RunInfo
from bathyscope.store.lock import FileLock
from bathyscope.store.run_directory import FinishedStep, RunDirectory, StepWriter
from bathyscope.store.workspace import RunEntry, Workspace, new_run_id

__all__ = [
    "FORMAT_VERSION",
    "FileLock",
    "FinishedStep",
    "RunDirectory",
    "RunEntry",
    "RunInfo",
    "StepWriter",
    "Workspace",
    "new_run_id",
]
