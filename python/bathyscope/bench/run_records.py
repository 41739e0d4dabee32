"""What a bench run keeps, and how its records are made of it: by the run itself, and by `reparse` years later.

    start-1, start-2, …  each start of the run: the cluster's map, this machine and the target as they were then
    step-00000, …        a step: the raw answers of its load and of every source, what asking them cost, and what
                         parsing needs besides
    end                  the map again, after the last step
    run                  the run's own row, made of run.json

A step names the start that it belongs to, so its scope is made again from raw answers alone. No table is made of
another table, so all of them can be lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from bathyscope.analysis import limits
from bathyscope.analysis.environment_caveats import environment_caveats
from bathyscope.bench.judging import LOAD, JudgedStep, StepAnswers, judge, parse_source
from bathyscope.errors import BathyscopeError, ParseError, StoreError, UsageError
from bathyscope.layers import LAYERS
from bathyscope.records import (
    Caveat,
    Collection,
    EnvironmentFact,
    Placement,
    RawAnswer,
    Record,
    Run,
    Step,
    from_table,
    to_table,
)
from bathyscope.records.finding import CommandView
from bathyscope.sources import exporters, nodes
from bathyscope.sources.cluster_map import scope_of
from bathyscope.sources.facts import facts_at
from bathyscope.spec import StepSpec, Target
from bathyscope.spec.scope import Scope
from bathyscope.store import RunDirectory, step_name
from bathyscope.store.segment import Segment, SegmentWriter

Tables = dict[type[Record], pa.Table]

_START = re.compile(r"start-(\d+)")
_FIRST_START = "start-1"
_END = "end"
# What the collections of a step cost was measured, so it is kept beside the raw answers and under a name like theirs.
_COLLECTIONS = "collections"
# The sources whose answers the scope is made of.
_OF_SCOPE = ("cluster_map", "machine", "nodes", "exporters")


def write_step(
    run: RunDirectory, step: StepAnswers, judged: JudgedStep, costs: Sequence[Collection], start: str
) -> None:
    """Keep a finished step: its raw answers, what asking them cost, and the records made of them. Raises StoreError."""
    cost_rows = json.dumps([dataclasses.astuple(cost) for cost in costs]).encode()
    kept = RawAnswer(_COLLECTIONS, (), (), 0, cost_rows, b"", judged.row.started_ns, judged.row.ended_ns)
    with run.begin_segment(step_name(step.index)) as segment:
        for source, answers in (*step.answers.items(), (_COLLECTIONS, [kept])):
            segment.raw(source, answers)
        spec = step.spec.model_dump(mode="json")
        about = {"index": step.index, "spec": spec, "prolonged": step.prolonged, "start": start}
        about |= {"max_tenant_share": step.max_tenant_share, "precision": step.precision}
        segment.context({**about, "scope": _narrowing(step.scope)})
        _commit(segment, {**judged.tables, Collection: to_table(Collection, costs)})


def _narrowing(scope: Scope) -> dict[str, Any]:
    """Return what a scope holds beside the cluster's map, as plain JSON values: kept with what it was used for."""
    return scope.model_dump(mode="json", include={"asked_osds", "own_pools", "images", "op_history_ops", "processes"})


def write_start(run: RunDirectory, answers: Mapping[str, Sequence[RawAnswer]], scope: Scope) -> tuple[str, Tables]:
    """Keep what this start of the run stands on; return the segment's name and its records. Raises StoreError.

    The versions that it found are in run.json from then on.
    """
    name = f"start-{len(_starts(run)) + 1}"
    tables = _write_look(run, name, answers, scope)
    _note_versions(run, [tables])
    write_run_row(run)
    return name, tables


def write_end(run: RunDirectory, answers: Mapping[str, Sequence[RawAnswer]], scope: Scope) -> None:
    """Keep what the run stands on after its last step. Raises StoreError."""
    _write_look(run, _END, answers, scope, collections=run.table(Collection))


def _write_look(
    run: RunDirectory,
    name: str,
    answers: Mapping[str, Sequence[RawAnswer]],
    scope: Scope,
    *,
    collections: pa.Table | None = None,
) -> Tables:
    tables = _look_tables(answers, scope, collections)
    # A run that was killed between its last look and its end has one already.
    with run.replace_segment(name, keep_raw=False) as segment:
        for source, of_source in answers.items():
            segment.raw(source, of_source)
        segment.context({"target": scope.target.model_dump(mode="json"), "scope": _narrowing(scope)})
        _commit(segment, tables)
    return tables


def _commit(segment: SegmentWriter, tables: Mapping[type[Record], pa.Table]) -> None:
    """Write the records of a segment. An OSD is one row of a run, and a fact has two: what only repeats is left out."""
    repeated: tuple[type[Record], ...] = ()
    if segment.name == _END:
        repeated = (Placement,)
    elif segment.name != _FIRST_START and _START.fullmatch(segment.name):
        repeated = (Placement, EnvironmentFact)
    for record, table in tables.items():
        if record not in repeated:
            segment.table(record, table)
    segment.commit()


def _look_tables(
    answers: Mapping[str, Sequence[RawAnswer]], scope: Scope, collections: pa.Table | None = None
) -> Tables:
    """Return the records of a look at the cluster and this machine; what cannot be read is a caveat of the run.

    `collections` are those of all steps, in the look after the last of them; a look before them has none.
    """
    tables: Tables = {}
    caveats: list[Caveat] = []
    for name, of_source in sorted(answers.items()):
        try:
            parsed = dict(parse_source(name, of_source, scope))
        except BathyscopeError as error:
            caveats.append(Caveat(None, "environment", "note", f"{name}: {error.message}", "environment"))
            continue
        for record, table in parsed.items():
            tables[record] = pa.concat_tables([tables[record], table]) if record in tables else table
    if EnvironmentFact in tables:
        moment = "before" if collections is None else "after"
        tables[EnvironmentFact] = facts_at(tables[EnvironmentFact], moment)
    if collections is None:
        by_name = {record.TABLE: table for record, table in tables.items()}
        caveats += environment_caveats(by_name, scope.target.caveats)
        missing = nodes.caveats(answers.get(nodes.SOURCE.name, ()), scope)
        missing += exporters.caveats(answers.get(exporters.SOURCE.name, ()), scope)
        caveats += [Caveat(None, "node_not_sampled", "warning", text, "capture") for text in missing]
    elif unwatched := limits.unwatched(collections):
        text = f"the plan's limits could not be watched all the time: {unwatched}"
        caveats.append(Caveat(None, "limits_unwatched", "warning", text, "limits"))
    tables[Caveat] = to_table(Caveat, caveats)
    return tables


def write_run_row(run: RunDirectory) -> None:
    """Write the row of the table run as run.json is now. Raises StoreError."""
    info = run.info
    versions = info.versions
    row = Run(
        run_id=info.id,
        kind=info.kind,
        plan_name=info.name,
        status=info.status,
        target=str(info.target.get("name", "")),
        bathy_version=versions.get("bathy", ""),
        started_ns=info.started_ns,
        ended_ns=info.ended_ns,
        cluster_fsid=versions.get("fsid"),
        ceph_version=versions.get("ceph"),
        fio_version=versions.get("fio"),
        host_name=versions.get("host"),
        kernel=versions.get("kernel"),
        cpu_count=int(versions["cpu_count"]) if versions.get("cpu_count", "").isdigit() else None,
    )
    with run.replace_segment("run") as segment:
        _commit(segment, {Run: to_table(Run, [row])})


def _note_versions(run: RunDirectory, starts: Iterable[Tables]) -> None:
    """Keep in run.json the versions that the looks of the run's starts found; of two the later counts."""
    noted = dict(run.info.versions)
    facts = [tables[EnvironmentFact] for tables in starts if EnvironmentFact in tables]
    for fact in (fact for table in facts for fact in from_table(EnvironmentFact, table)):
        if fact.subject == "cluster" and fact.name in ("fsid", "osd_version"):
            noted["ceph" if fact.name == "osd_version" else fact.name] = fact.value
        elif fact.subject.startswith("host "):
            noted["host"] = fact.subject.removeprefix("host ")
            if fact.name in ("kernel", "cpu_count", "fio_version"):
                noted["fio" if fact.name == "fio_version" else fact.name] = fact.value
    run.update(versions=noted)


# --- from raw answers


def commands_of(run: RunDirectory) -> list[CommandView]:
    """Return the load commands of every finished step exactly as they ran, in order. Raises StoreError, ParseError."""
    commands = []
    for segment in run.step_segments().values():
        (step,) = from_table(Step, segment.table(Step))
        commands += [
            CommandView(
                step_key=step.step_key,
                repeat_index=step.repeat_index,
                label=answer.label,
                argv=answer.argv,
                environment=answer.environment,
                exit_code=answer.exit_code,
                duration_s=(answer.ended_ns - answer.started_ns) / 1e9,
            )
            for answer in segment.raw(LOAD)
        ]
    return commands


def reparse(run: RunDirectory) -> int:
    """Make all records of a run again from its raw answers, and return how many steps got another status.

    The run must be open for writing. Nothing is replaced before everything that will be read was read once. A segment
    is replaced whole, so a kill leaves each as it was or as it is to be. Raises StoreError, ParseError.
    """
    starts, steps = _starts(run), run.step_segments().values()
    ends = [segment for name, segment in run.segments().items() if name == _END]
    scopes = {segment.name: _scope(segment) for segment in starts}
    for segment in (*starts, *ends):
        _look_again(segment)
    for segment in steps:
        _stored_step(segment, scopes)
        _costs(segment)
    _note_versions(run, [_replace(run, segment, _look_again(segment)) for segment in starts])
    changed, costs = 0, [to_table(Collection, [])]
    for segment in steps:
        judged = judge(_stored_step(segment, scopes))
        changed += _status(segment) not in (None, judged.row.status)
        costs.append(_costs(segment))
        _replace(run, segment, {**judged.tables, Collection: costs[-1]})
    for segment in ends:
        _replace(run, segment, _look_again(segment, pa.concat_tables(costs)))
    write_run_row(run)
    if run.info.status == "done":
        run.compact()
    return changed


def _starts(run: RunDirectory) -> list[Segment]:
    """Return the segments of the run's starts, in their order."""
    starts = {int(match[1]): s for name, s in run.segments().items() if (match := _START.fullmatch(name)) is not None}
    return [segment for _, segment in sorted(starts.items())]


def _replace(run: RunDirectory, segment: Segment, tables: Tables) -> Tables:
    with run.replace_segment(segment.name) as writer:
        _commit(writer, tables)
    return tables


def _status(step: Segment) -> str | None:
    """Return the status that a step had, None when its row is lost."""
    with contextlib.suppress(StoreError):
        for row in from_table(Step, step.table(Step)):
            return row.status
    return None


def _costs(step: Segment) -> pa.Table:
    """Return what the collections of a step cost. Raises ParseError, StoreError."""
    try:
        (answer,) = step.raw(_COLLECTIONS)
        return to_table(Collection, [Collection(*row) for row in answer.json()])
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise ParseError(f"what {step.path} says of its collections is not understood: {error}") from error


def _look_again(segment: Segment, collections: pa.Table | None = None) -> Tables:
    return _look_tables(_raw(segment), _scope(segment), collections)


def _stored_step(segment: Segment, scopes: Mapping[str, Scope]) -> StepAnswers:
    """Return all that a step was judged from.

    Raises StoreError, ParseError when it is damaged or incomplete, UsageError when this version lacks its layer.
    """
    with _context(segment) as context:
        scope = _narrowed(scopes[str(context["start"])], context)
        spec = StepSpec.model_validate(context["spec"])
        index, prolonged = int(context["index"]), int(context["prolonged"])
        share, precision = float(context.get("max_tenant_share", math.inf)), context.get("precision")
    if spec.layer not in LAYERS:
        raise UsageError(
            f"{segment.path} is a step of the layer '{spec.layer}', which this version of bathyscope does not know",
            hint=f"it knows {', '.join(LAYERS)}; parse the run again with the version that made it",
        )
    return StepAnswers(index, spec, scope, prolonged, _raw(segment), share, precision)


def _scope(segment: Segment) -> Scope:
    """Return the scope of a look, from its raw answers. Raises StoreError, ParseError."""
    with _context(segment) as context:
        answers = [answer for source in _OF_SCOPE for answer in segment.raw(source)]
        return _narrowed(scope_of(answers, Target.model_validate(context["target"])), context)


@contextlib.contextmanager
def _context(segment: Segment) -> Iterator[Mapping[str, Any]]:
    """Yield what was kept beside a segment's raw answers. What is missing in it or wrong becomes a StoreError."""
    try:
        yield segment.context()
    except (KeyError, ValueError, TypeError) as error:
        raise StoreError(f"{segment.path} lacks what its raw answers need: {error}") from error


def _narrowed(scope: Scope, context: Mapping[str, Any]) -> Scope:
    return Scope.model_validate({**scope.model_dump(), **context["scope"]})


def _raw(segment: Segment) -> dict[str, list[RawAnswer]]:
    """Return the raw answers of the load and of the sources."""
    return {source: segment.raw(source) for source in segment.raw_sources() if source != _COLLECTIONS}
