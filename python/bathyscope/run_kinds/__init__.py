"""Run kinds: what a run of a kind shows, how it is continued, and how it is parsed again. One file each."""

from __future__ import annotations

import sys

from bathyscope.discovery import members
from bathyscope.errors import UsageError
from bathyscope.run_kinds.base import RunKind
from bathyscope.store import RunDirectory

__all__ = ["KINDS", "RunKind", "kind_of"]

KINDS: dict[str, RunKind] = members(sys.modules[__name__], "KIND")
"""Every run kind by its name."""


def kind_of(run: RunDirectory) -> RunKind:
    """Return the kind of a run. Raises UsageError when this version of bathyscope has no such kind."""
    kind = KINDS.get(run.info.kind)
    if kind is None:
        raise UsageError(
            f"run {run.id} is of the kind '{run.info.kind}', which this version of bathyscope does not know",
            hint=f"it knows {', '.join(KINDS)}; `bathy runs sql` reads the tables of any run",
        )
    return kind
