"""What a study declares, and how its steps are measured and kept.

To add one, add a file with a `STUDY` to this package: `bathy study` carries it out and shows its runs.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bathyscope.bench.judging import LOAD
from bathyscope.bench.load import answer_of, run_load
from bathyscope.errors import ParseError, ToolError
from bathyscope.fields import last_line, parsing
from bathyscope.host import Completed, Host, ProcessRequest, SocketRequest
from bathyscope.lab import LabSpec, LabState, caches
from bathyscope.layers.common import fio_tables
from bathyscope.recording.collect import collect
from bathyscope.records import HERE, ProcessSample, RawAnswer, StudyStep, Tables, from_table, to_table
from bathyscope.sources import proc
from bathyscope.spec import Model, StepSpec, Target
from bathyscope.spec.scope import Scope
from bathyscope.spec.study import StudyDesign
from bathyscope.store import RunDirectory, Segment, step_name

# Raw answers of the caches, and of this machine, beside those of the load: before it, then after it, in the same order.
CACHES = "caches"
_MACHINE = Scope(target=Target(name=HERE))


@dataclasses.dataclass(frozen=True, slots=True)
class Study:
    """A study: what it is, its parameters, the lab that it needs, and how it is carried out there.

    `check` raises what stands against it on this machine, before anything is made.
    """

    design: StudyDesign
    help: str
    parameters: type[Model]
    lab: Callable[[Any], LabSpec]
    check: Callable[[], None]
    measure: Callable[[Measurement, Any], None]

    @property
    def name(self) -> str:
        """The name by which it is asked for."""
        return self.design.name


@dataclasses.dataclass(slots=True)
class Measurement:
    """A study under way: where it runs, and the run that keeps what it measures. `lab` is replaced when it changes."""

    host: Host
    lab: LabState
    run: RunDirectory
    note: Callable[[str], None]

    def load(self, requests: Sequence[ProcessRequest]) -> list[Completed]:
        """Run processes side by side to their end. Raises ToolError when one fails."""
        ends = run_load(self.host, requests)
        for end in ends:
            if end.exit_code != 0:
                text = last_line(end.stderr or end.stdout)
                raise ToolError(f"{end.request.label} ended with exit code {end.exit_code}: {text}")
        return ends

    def step(self, phase: str, spec: StepSpec, requests: Sequence[ProcessRequest]) -> None:
        """Measure one access pattern in one phase and keep it. Raises ToolError, ParseError, StoreError."""
        before = self._look()
        load = [answer_of(self.host, end) for end in self.load(requests)]
        after = self._look()
        answers = {LOAD: load, **{source: [*before[source], *after[source]] for source in before}}
        index = len(self.run.step_segments())
        about = {"phase": phase, "spec": spec.model_dump(mode="json")}
        with self.run.begin_segment(step_name(index)) as segment:
            for source, given in answers.items():
                segment.raw(source, given)
            segment.context(about)
            for record, table in step_tables(index, about, answers).items():
                segment.table(record, table)
            segment.commit()

    def _look(self) -> dict[str, list[RawAnswer]]:
        line = json.dumps({"query": "status"})
        sockets = [str(self.lab.layout.cache_socket(osd)) for osd in caches.cached(self.lab)]
        return {
            CACHES: collect(self.host, None, [SocketRequest("cache", socket, line) for socket in sockets]),
            proc.SOURCE.name: collect(self.host, None, proc.SOURCE.plan(_MACHINE)),
        }


def parse_step(segment: Segment, index: int) -> Tables:
    """Return the tables of a step from its raw answers. Raises ParseError, ToolError, StoreError."""
    answers = {source: segment.raw(source) for source in (LOAD, CACHES, proc.SOURCE.name)}
    return step_tables(index, segment.context(), answers)


def step_tables(index: int, about: dict[str, Any], answers: Mapping[str, Sequence[RawAnswer]]) -> Tables:
    """Return the rows of the load, and the step's own. Raises ParseError, ToolError."""
    spec = StepSpec.model_validate(about["spec"])
    rows, status = fio_tables(index, spec, answers[LOAD]), answers[CACHES]
    if rows.measured_start_ns is None or rows.measured_end_ns is None:
        raise ParseError(f"the load of step {index} has no measured window")
    half = len(status) // 2
    counts = [_reads(after) - before for after, before in zip(status[half:], map(_reads, status[:half]), strict=True)]
    reads, hits, size, hit_size = (sum(c.values[place] for c in counts) if counts else None for place in range(4))
    step = StudyStep(
        index,
        str(about["phase"]),
        spec.pattern.name,
        spec.pattern.block_size_bytes,
        rows.measured_start_ns,
        rows.measured_end_ns,
        reads,
        hits,
        size,
        hit_size,
        _steal_ratio(answers[proc.SOURCE.name]),
    )
    return {**rows.tables, StudyStep: to_table(StudyStep, [step])}


def _steal_ratio(readings: Sequence[RawAnswer]) -> float | None:
    """Return the share of the time in which processors waited for a hypervisor; older runs have no readings."""
    table = proc.SOURCE.parse(readings, _MACHINE)[ProcessSample]
    rows = [(row.cpu_steal_s, row.duration_ns * row.processors) for row in from_table(ProcessSample, table)]
    known = [(stolen_s, length_ns / 1e9) for stolen_s, length_ns in rows if stolen_s is not None and length_ns]
    return sum(stolen_s for stolen_s, _ in known) / sum(length_s for _, length_s in known) if known else None


@dataclasses.dataclass(frozen=True, slots=True)
class _Reads:
    """Requests, requests that hit, bytes, bytes that hit."""

    values: tuple[int, int, int, int]

    def __sub__(self, other: _Reads) -> _Reads:
        a, b = self.values, other.values
        return _Reads((a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3]))


def _reads(answer: RawAnswer) -> _Reads:
    """Return what a cache has counted of all directories that it serves since its start."""
    with parsing("the status of a cache"):
        sources = [one for one in answer.json()["answer"]["sources"] if one.get("is_served", True)]
        # What a directory counts was once below "status".
        reads = [(source.get("stats") or source["status"]["stats"])["reads"] for source in sources]
        requests, hits, size, hit_size = (
            sum(one[name] for one in reads) for name in ("requests", "requests_hit", "bytes", "bytes_hit")
        )
        return _Reads((requests, hits, size, hit_size))
