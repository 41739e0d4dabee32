"""What a study declares.

To add one, add a file with a `STUDY` to this package: `bathy study` carries it out and shows its runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from bathyscope.lab import LabSpec
from bathyscope.spec import Model
from bathyscope.spec.plan import Plan
from bathyscope.spec.study import StudyDesign


@dataclasses.dataclass(frozen=True, slots=True)
class Study:
    """A study: what it is, and what its parameters make of it: a plan with phases, and the lab that it needs."""

    design: StudyDesign
    help: str
    parameters: type[Model]
    plan: Callable[[Any], Plan]
    lab: Callable[[Any], LabSpec]

    @property
    def name(self) -> str:
        """The name by which it is asked for."""
        return self.design.name
