"""What `bathy explain` shows: the account of one load with what a change would make of it, or those of all in short."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.account import Prediction
from bathyscope.records.blocks import CaveatView
from bathyscope.records.finding import PointFinding


@dataclasses.dataclass(frozen=True, slots=True)
class AccountsFinding:
    """The loads of a run, each with its account, in the order of the ladder; cross-checks come last.

    `caveats` are all of the run, those of loads too.
    """

    NAME: ClassVar[str] = "accounts"

    run_id: str
    target: str
    points: tuple[PointFinding, ...]
    caveats: tuple[CaveatView, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class AccountFinding:
    """One load of a run with its account. Each of `predictions` is of one change alone."""

    NAME: ClassVar[str] = "account"

    run_id: str
    target: str
    point: PointFinding
    predictions: tuple[Prediction, ...] = ()
