"""Options of the Python API for miss-ratio curves, validated once, with the names of its arguments."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, model_validator

from bathyscope.spec import limits, values
from bathyscope.spec.size import MOST_SAMPLES, By, Flag, LineBytes, LineSizes, Policy, Salt, Threads, TraceFormat
from bathyscope.spec.target import Model

DEFAULT_SAMPLES = 32_768
"""Sampled lines of a curve: mean absolute error at most 0.003 on the traces that it was checked with."""

LEAST_GROUPS = 64
"""Groups that a sample of groups must have room for: its error is judged by eight parts, of eight groups at least."""

# The core takes 32 bits for groups and for the strata of a sample.
MOST_GROUP_LINES = 1 << (32 - limits.STRATA_BITS)

Unit = Literal["lines", "requests", "bytes"]
Ops = Literal["all", "read", "write"]
Samples = Annotated[int, values.whole_number(1, MOST_SAMPLES)]
Rate = Annotated[float, values.number(1.0)]
Nodes = Annotated[
    tuple[Annotated[int, values.whole_number(0, 2**32 - 1)], ...], BeforeValidator(values.listed), AfterValidator(list)
]


class CurveOptions(Model):
    """What a curve counts."""

    unit: Unit = "lines"
    ops: Ops = "all"


class SamplingOptions(Model):
    """Which lines a profile tracks. A `rate` goes before a number of `samples`."""

    samples: Samples | None = DEFAULT_SAMPLES
    rate: Rate | None = None
    salt: Salt = 0
    group_bytes: Annotated[int, values.whole_number(1, limits.MAX_LINE_BYTES * MOST_GROUP_LINES)] | None = None
    threads: Threads = 1

    def sampling(self) -> dict[str, Any]:
        """Return the options of the core, of which `rate` and `max_lines` exclude each other."""
        return {"rate": self.rate, "max_lines": None if self.rate is not None else self.samples, "salt": self.salt}

    def check_groups(self, line_bytes: int) -> None:
        """Raise for groups of more lines than the core takes, or of which the sample would hold too few."""
        lines = (self.group_bytes or 0) // line_bytes
        if lines > MOST_GROUP_LINES:
            raise values.wrong(f"group_bytes must be at most {MOST_GROUP_LINES} lines", self.group_bytes)
        least = LEAST_GROUPS << max(0, lines.bit_length() - 1)
        if lines > 1 and self.rate is None and self.samples is not None and self.samples < least:
            words = f"samples must be at least {least}, {LEAST_GROUPS} groups of group_bytes {self.group_bytes}"
            raise values.wrong(words, self.samples, hint=f"samples={least} or more, or a smaller group_bytes")


class ProfileOptions(SamplingOptions):
    """How a trace in memory is profiled."""

    line_bytes: LineBytes = 4096
    joinable: Flag = False

    @model_validator(mode="after")
    def _groups_fit(self) -> ProfileOptions:
        self.check_groups(self.line_bytes)
        return self

    @property
    def group_bits(self) -> int:
        """The lines that are sampled together, as a power of two."""
        return max(0, ((self.group_bytes or 0) // self.line_bytes).bit_length() - 1)


class FilesOptions(SamplingOptions):
    """How trace files are profiled. `node_of_osd` is the node of each OSD, for `group_by` "node"."""

    line_bytes: LineSizes = (4096, 16_384, 65_536, 262_144)
    group_by: By = "all"
    node_of_osd: Nodes | None = None
    trace_format: TraceFormat | None = None
    skip_bad_records: Flag = False

    @model_validator(mode="after")
    def _groups_fit(self) -> FilesOptions:
        # The smallest lines make the groups of most lines.
        self.check_groups(min(self.line_bytes))
        if self.group_by == "node" and self.node_of_osd is None:
            raise values.wrong("group_by 'node' needs the node of each OSD", hint="pass node_of_osd")
        return self


class SimulationOptions(Model):
    """How a policy is simulated over line numbers."""

    policy: Policy
    line_bytes: LineBytes = 4096
    rate: Rate | None = None
    min_lines: Annotated[int, values.whole_number(1, limits.MAX_CACHE_LINES)] = limits.MIN_MINIATURE_LINES
    salt: Salt = 0
    threads: Threads = 1
