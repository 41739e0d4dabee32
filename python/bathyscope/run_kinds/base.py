"""What a run kind declares.

To add one, add a file with a `KIND` to this package: `bathy runs` lists and shows its runs, and `bathy report` reports
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bathyscope.store import RunDirectory

if TYPE_CHECKING:
    from bathyscope.records.finding import LadderFinding


@dataclasses.dataclass(frozen=True, slots=True)
class RunKind:
    """One run kind. Each of its functions imports what it needs when it is called, so that `bathy` starts quickly.

    `finding` returns what a view shows of a run: a finding, or plain rows. `describe` returns (name, value) rows for
    `bathy runs show`. `continue_hint` says, from a run's id, how a run that was interrupted goes on. `reparse` makes
    the tables of a run, open for writing, from its raw answers again and says what became of them in one sentence; None
    when a run of this kind has no raw answers. `loads` returns the loads that a run made, with what limits each; None
    when it made none.
    """

    name: str
    finding: Callable[[RunDirectory], Any]
    describe: Callable[[RunDirectory], Sequence[tuple[str, object]]]
    continue_hint: Callable[[str], str]
    reparse: Callable[[RunDirectory], str] | None = None
    loads: Callable[[RunDirectory], LadderFinding] | None = None
