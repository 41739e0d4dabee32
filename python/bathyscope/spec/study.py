"""What a study is, apart from how it is carried out: its phases, and what is expected of them."""

from __future__ import annotations

from pydantic import Field

from bathyscope.spec.target import Model


class Expectation(Model):
    """In a phase the IOPS of an access pattern are at least this many times those of the first phase."""

    pattern: str
    phase: str
    ratio_min: float = Field(gt=0)


class StudyDesign(Model):
    """The first phase is what the others are compared with. `caveats`: (code, sentence) of what holds for every run."""

    name: str
    title: str
    phases: tuple[str, ...]
    expectations: tuple[Expectation, ...]
    caveats: tuple[tuple[str, str], ...] = ()
