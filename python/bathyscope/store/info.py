"""run.json: what a run is, apart from its records."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bathyscope import files
from bathyscope.errors import FormatVersionError, StoreError
from bathyscope.fields import load_json
from bathyscope.store.errors import store_errors

FORMAT_VERSION = 2

_RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}")
_TIME_NS_MAX = 2**63 - 1

RunStatus = Literal["running", "interrupted", "done", "failed"]


class RunInfo(BaseModel):
    """The content of run.json.

    `kind` is the name of a member of `bathyscope.run_kinds`, looked up when the run is shown, not when it is opened.
    `spec_text` is the plan or the question exactly as given, `target` a dumped `spec.Target`, `context` the kind's own.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format_version: int = FORMAT_VERSION
    id: str = Field(pattern=rf"^{_RUN_ID.pattern}$")
    kind: str = Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")
    status: RunStatus = "running"
    name: str = ""
    spec_text: str = ""
    target: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict, description="bathy, ceph, fio, kernel, …")
    environment: dict[str, str] = Field(default_factory=dict, description="summary: host, processors, health, …")
    started_ns: int = Field(default=0, ge=0, le=_TIME_NS_MAX)
    ended_ns: int | None = Field(default=None, ge=0, le=_TIME_NS_MAX)
    step_count: int | None = Field(default=None, ge=0, description="steps that the run is to have, if it has steps")
    context: dict[str, Any] = Field(default_factory=dict, description="what the run's kind keeps for itself")


def is_run_id(text: str) -> bool:
    """Return whether `text` has the form of a run's id: nothing in it leads to another directory or resource."""
    return _RUN_ID.fullmatch(text) is not None


def read_info(path: Path) -> RunInfo:
    """Return the content of a run.json.

    Raises StoreError when it cannot be read or is not one, FormatVersionError when another version wrote it.
    """
    plain = read_json(path, hint=_DAMAGED)
    version = plain.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StoreError(f"{path} has no format_version", hint=_DAMAGED)
    if version < FORMAT_VERSION:
        raise FormatVersionError(
            f"{path.parent} was written by an earlier bathyscope (format {version}, not {FORMAT_VERSION})",
            hint="run it again with this version; `bathy runs rm` deletes the old run",
        )
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


def read_json(path: Path, *, hint: str) -> dict[str, Any]:
    """Return the object in a file of ours. Raises StoreError, with the hint when it is damaged."""
    with store_errors("read", path):
        content = files.read_own(path)
    try:
        plain = load_json(content)
    except ValueError as error:
        raise StoreError(f"{path} is not valid JSON: {error}", hint=hint) from error
    if not isinstance(plain, dict):
        raise StoreError(f"{path} holds no object", hint=hint)
    return plain


def info_bytes(info: RunInfo) -> bytes:
    """Return `info` as the text of a run.json."""
    return (info.model_dump_json(indent=1) + "\n").encode()


_DAMAGED = "the run's records may still be readable: see segments/*/*.parquet in its directory"
