"""run.json: what a run is, apart from its records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bathyscope.errors import FormatVersionError, StoreError
from bathyscope.store.errors import store_errors

FORMAT_VERSION = 1

# A run.json is a few kilobytes; anything of this size is not one, and is not read into memory.
_SIZE_LIMIT_BYTES = 16 << 20

RunStatus = Literal["running", "interrupted", "done", "failed"]


class RunInfo(BaseModel):
    """The content of run.json. `target` is a dumped `spec.Target`; `plan_text` the plan exactly as given."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format_version: int = FORMAT_VERSION
    id: str = Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$")
    status: RunStatus = "running"
    plan_name: str = ""
    plan_text: str = ""
    target: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict, description="bathy, ceph, fio, kernel, …")
    environment: dict[str, str] = Field(default_factory=dict, description="summary: host, processors, health, …")
    started_ns: int = 0
    ended_ns: int | None = None
    step_count: int | None = Field(default=None, description="steps that the plan has, when known")
    note: str = ""


def read_info(path: Path) -> RunInfo:
    """Return the content of a run.json.

    Raises StoreError when it cannot be read or is not one, FormatVersionError when a newer version wrote it.
    """
    with store_errors("read", path):
        if path.stat().st_size > _SIZE_LIMIT_BYTES:
            raise StoreError(f"{path} is not a run.json: it is larger than 16 MiB")
        content = path.read_bytes()
    try:
        plain = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not valid JSON: {error}", hint=_DAMAGED) from error
    if not isinstance(plain, dict):
        raise StoreError(f"{path} is not a run.json: it holds no object", hint=_DAMAGED)
    version = plain.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StoreError(f"{path} has no format_version", hint=_DAMAGED)
    if version > FORMAT_VERSION:
        raise FormatVersionError(
            f"{path.parent} was written by a newer bathyscope (format {version}, not {FORMAT_VERSION})",
            hint="upgrade bathyscope to read this run",
        )
    try:
        return RunInfo.model_validate(plain)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StoreError(f"{path} is damaged at '{where}': {first['msg']}", hint=_DAMAGED) from error


def info_bytes(info: RunInfo) -> bytes:
    """Return `info` as the text of a run.json. Raises StoreError when a value has no JSON form."""
    try:
        return (info.model_dump_json(indent=1) + "\n").encode()
    except (ValueError, TypeError) as error:
        raise StoreError(f"run.json of {info.id} cannot be written: {error}") from error


_DAMAGED = "the run's records may still be readable: see steps/*/tables/*.parquet in its directory"
