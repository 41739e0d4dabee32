"""A step's raw answers become its records, a status and caveats. Pure: a run can be judged again years later.

What is judged is all that lies in the step's segment: the raw answers of the load and of every source, and the context
(the step's spec, what was asked of whom). So `reparse` gives what the run itself gave.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import pyarrow as pa

from bathyscope.analysis import steady_state, trust
from bathyscope.analysis.columns import table_of
from bathyscope.analysis.step_figures import StepFigures
from bathyscope.errors import BathyscopeError, ParseError
from bathyscope.fields import last_line
from bathyscope.layers import LAYERS, LayerContext, LoadTables
from bathyscope.records import (
    Caveat,
    EnvironmentFact,
    ImageUsage,
    Interval,
    Op,
    RawAnswer,
    Record,
    Step,
    Tables,
    schema_of,
    to_table,
)
from bathyscope.sources import SOURCES, node_exporter, node_proc, nodes, perf_counters
from bathyscope.spec import StepSpec
from bathyscope.spec.scope import Scope
from bathyscope.window.tables import of_steps

# Raw answers of the load itself, beside those of the sources.
LOAD = "load"


@dataclasses.dataclass(frozen=True, slots=True)
class StepAnswers:
    """All that a step is judged from. `answers` are by source, those of the load under LOAD.

    `max_tenant_share` and `precision` are those of the plan.
    """

    index: int
    spec: StepSpec
    scope: Scope
    prolonged: int
    answers: Mapping[str, Sequence[RawAnswer]]
    max_tenant_share: float = math.inf
    precision: float | None = None


def parse_load(step: StepAnswers) -> tuple[LoadTables, tuple[str, ...]]:
    """Return what the load reported, or nothing and a sentence for each reason why there is nothing."""
    answers = step.answers.get(LOAD, ())
    failures = tuple(
        f"{answer.label} ended with exit code {answer.exit_code}: {last_line(answer.stderr or answer.stdout)}"
        for answer in answers
        if answer.exit_code != 0
    )
    if failures:
        return LoadTables({}), failures
    try:
        return LAYERS[step.spec.layer].parse(step.index, step.spec, answers), ()
    except BathyscopeError as error:
        return LoadTables({}), (error.message,)


def parse_source(name: str, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
    """Return what a source says. Raises ParseError, also when this version has no source of this name."""
    if name not in SOURCES:
        raise ParseError(f"this version of bathyscope has no source named '{name}'; its answers are not read")
    return SOURCES[name].parse(answers, scope)


def is_unsteady(rows: LoadTables) -> bool:
    """Return whether the load is known not to have settled in the measured window."""
    interval = rows.tables.get(Interval)
    if interval is None:
        return False
    return steady_state.judge(steady_state.rate_series(interval)[1]).verdict == "unsteady"


@dataclasses.dataclass(frozen=True, slots=True)
class JudgedStep:
    """A step's row, its figures, and all of its records (the row among them)."""

    row: Step
    figures: StepFigures
    tables: dict[type[Record], pa.Table]


def judge(step: StepAnswers) -> JudgedStep:
    """Return what a step's raw answers say and are worth."""
    rows, failures = parse_load(step)
    tables: dict[type[Record], pa.Table] = dict(rows.tables)
    caveats = []
    record = _record(step, rows)
    for name, answers in sorted(step.answers.items()):
        if name == LOAD:
            continue
        try:
            if name == node_exporter.SOURCE.name:
                window = record.measured_start_ns, record.measured_end_ns
                seen = node_exporter.in_window(answers, step.scope, *window)
                parsed = seen.tables
                caveats += [Caveat(step.index, "node_not_sampled", "warning", t, "capture") for t in seen.missing]
                caveats += [Caveat(step.index, "node_resolution", "note", t, "capture") for t in seen.coarse]
            else:
                parsed = parse_source(name, answers, step.scope)
            for kind, table in parsed.items():
                tables[kind] = pa.concat_tables([tables[kind], table]) if kind in tables else table
        except BathyscopeError as error:
            caveats.append(Caveat(step.index, "capture", "note", f"{name}: {error.message}", "capture"))
    missing = node_proc.caveats(step.answers.get(node_proc.SOURCE.name, ()), step.scope)
    caveats += [Caveat(step.index, "node_not_sampled", "warning", text, "capture") for text in missing]
    restarted = perf_counters.restarted(step.answers.get(perf_counters.SOURCE.name, ()))
    if restarted:
        text = f"{', '.join(restarted)} restarted during the step"
        caveats.append(Caveat(step.index, "capture", "note", text, "capture"))
    facts = {EnvironmentFact.TABLE: nodes.same_machine(step.scope)}
    of_step = of_steps(facts | {kind.TABLE: table for kind, table in tables.items()}, [record])[record.step_index]
    # A look at an image serves every step that reads it, so it is no row of any.
    usage = tables.pop(ImageUsage, schema_of(ImageUsage).empty_table())
    judgement = trust.judge_step(of_step, _context(step, record, failures, written=trust.is_written(usage)))
    record = dataclasses.replace(record, status=judgement.status, reason=judgement.reason)
    # The histories hold what came before the step as well; that belongs to no step, or to another one.
    tables[Op] = table_of(of_step, Op.TABLE)
    tables[Step] = to_table(Step, [record])
    tables[Caveat] = to_table(Caveat, [*judgement.caveats, *caveats])
    return JudgedStep(record, judgement.figures, tables)


def _record(step: StepAnswers, rows: LoadTables) -> Step:
    """Return the step's row before it is judged."""
    spec, load = step.spec, step.answers.get(LOAD, ())
    started_ns = min((answer.started_ns for answer in load), default=0)
    ended_ns = max((answer.ended_ns for answer in load), default=started_ns)
    start_ns = rows.measured_start_ns or started_ns + int(spec.ramp_s * 1e9)
    layer = LAYERS[spec.layer]
    return Step(
        step_index=step.index,
        step_key=spec.key,
        repeat_index=spec.repeat_index,
        layer=spec.layer,
        load_generator=spec.load_generator,
        device_class=spec.device_class,
        op=spec.pattern.op,
        block_size_bytes=spec.pattern.block_size_bytes,
        queue_depth=spec.pattern.queue_depth,
        jobs=spec.jobs,
        object_size_bytes=spec.object_size_bytes,
        working_set_bytes=layer.working_set_bytes(spec, LayerContext(step.scope.target, prefix="", scratch="")),
        temperature=spec.temperature,
        ramp_s=spec.ramp_s,
        runtime_s=spec.runtime_s,
        started_ns=started_ns,
        ended_ns=ended_ns,
        measured_start_ns=start_ns,
        measured_end_ns=max(rows.measured_end_ns or ended_ns, start_ns + 1),
        osds=" ".join(str(osd) for osd in step.scope.asked_osds) if layer.needs_cluster else None,
        prolonged_count=step.prolonged,
        status="done",
        reason=None,
        phase=spec.phase or None,
    )


def _context(step: StepAnswers, record: Step, failures: tuple[str, ...], *, written: bool | None) -> trust.StepContext:
    scope = step.scope
    caches = [osd.cache_bytes for osd in scope.osds if osd.osd in scope.asked_osds]
    known_bytes = [size for size in caches if size is not None]
    here = {daemon.name for daemon in scope.target.daemons_here}
    return trust.StepContext(
        step=record,
        cache_bytes=sum(known_bytes) if known_bytes and len(known_bytes) == len(scope.asked_osds) else None,
        failures=failures,
        image_written=written,
        shared_host=any(f"osd.{osd}" in here for osd in scope.asked_osds)
        and not (scope.target.clients or scope.target.client_host),
        io_count_limited=step.spec.io_count_limit is not None,
        max_tenant_share=step.max_tenant_share,
        precision=step.precision,
    )
