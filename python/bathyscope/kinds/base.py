"""What a run kind declares.

To add one, add a file with a `KIND` to this package: `bathy runs` lists and shows its runs, and `bathy report` reports
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from bathyscope.store import RunDirectory


@dataclasses.dataclass(frozen=True, slots=True)
class RunKind:
    """One run kind. Each of its functions imports what it needs when it is called, so that `bathy` starts quickly.

    `finding` returns what a view shows of a run: a finding, or plain rows. `describe` returns (name, value) rows for
    `bathy runs show`. `continue_hint` says, from a run's id, how a run that was interrupted goes on. `reparse` makes
    the tables of a run, open for writing, from its raw answers again and says what became of them in one sentence; None
    when a run of this kind has no raw answers.
    """

    name: str
    finding: Callable[[RunDirectory], Any]
    describe: Callable[[RunDirectory], Sequence[tuple[str, object]]]
    continue_hint: Callable[[str], str]
    reparse: Callable[[RunDirectory], str] | None = None
