"""Windows over what was recorded: the SQL of a view goes to the store, its answers back to the view."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bathyscope.analysis import image_names
from bathyscope.analysis.activity import VIEWS, ops
from bathyscope.analysis.activity.shape import Question, literal
from bathyscope.errors import AnalysisError, StoreError, UsageError
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import CaveatView
from bathyscope.records.explain_finding import AccountFinding
from bathyscope.records.finding import PointFinding
from bathyscope.store import RunDirectory, duck
from bathyscope.units import parse_seconds


def question_of(run: RunDirectory) -> Question:
    """Return the question for all of a recording; one that goes on, or was killed, ends with its last collection.

    What was imported is about another time than that of its import: that of its operations. Raises StoreError.
    """
    name, end_ns = str(run.info.target.get("name", "")), run.info.ended_ns
    is_imported = "imported_from" in run.info.context
    (found,) = duck.query([run], "SELECT EXISTS (SELECT 1 FROM op WHERE image_id IS NULL) AS are_old").to_pylist()
    if found["are_old"]:
        hint = "`bathy import osd-log FILE…` imports the logs again" if is_imported else f"bathy runs reparse {run.id}"
        raise StoreError(
            f"run {run.id} was made by an earlier bathyscope, which did not keep the images of operations",
            hint=hint,
        )
    if is_imported:
        sql = "SELECT min(started_ns) AS start_ns, max(started_ns + duration_ns) AS end_ns FROM op"
        (span,) = duck.query([run], sql).to_pylist()
        return Question(run.id, name or run.info.name, span["start_ns"] or 0, span["end_ns"] or 0, of_ops=True)
    if end_ns is None:
        (row,) = duck.query([run], "SELECT max(at_ns + duration_ns) AS last_ns FROM collection").to_pylist()
        end_ns = int(row["last_ns"] or run.info.started_ns)
    return Question(run.id, name, run.info.started_ns, end_ns)


def part_of(run: RunDirectory, since: str | None, until: str | None) -> Question:
    """Return the question for a part of a recording, by times after its start as they are written: 30s.

    Raises UsageError, AnalysisError, StoreError.
    """
    whole = question_of(run)
    if whole.end_ns <= whole.start_ns:
        raise AnalysisError(f"nothing was recorded in run {run.id}", hint=f"bathy runs show {run.id}")
    begin_ns = whole.start_ns + round(parse_seconds(since or 0) * 1e9)
    end_ns = whole.end_ns if until is None else whole.start_ns + round(parse_seconds(until) * 1e9)
    if not begin_ns < end_ns:
        raise UsageError("--since must be before --until and before the end of the recording")
    return dataclasses.replace(whole, start_ns=begin_ns, end_ns=end_ns)


def step_keys(run: RunDirectory) -> list[str]:
    """Return the keys of the steps of a benchmark. Raises StoreError."""
    return [
        str(key) for key in duck.query([run], "SELECT DISTINCT step_key FROM step ORDER BY ALL")["step_key"].to_pylist()
    ]


def step_of(run: RunDirectory, key: str) -> Question:
    """Return the question for the last repeat of a step of a benchmark: the time between the looks around it.

    Counters are read before a load and after it: they hold its ramp as well, and its idle edges. Raises StoreError.
    """
    step = (
        f"(SELECT started_ns, ended_ns FROM step WHERE step_key = {literal(key)} "
        "ORDER BY status = 'done' DESC, repeat_index DESC LIMIT 1) AS step"
    )
    sql = (
        "SELECT least(any_value(started_ns), min(at_ns - duration_ns)) AS start_ns, "
        f"greatest(any_value(ended_ns), max(at_ns)) AS end_ns FROM {step} "
        "LEFT JOIN perf_counter ON at_ns > started_ns AND at_ns - duration_ns < ended_ns"
    )
    (span,) = duck.query([run], sql).to_pylist()
    return dataclasses.replace(question_of(run), start_ns=span["start_ns"], end_ns=span["end_ns"])


def images_of(run: RunDirectory) -> list[str]:
    """Return the names of all images that a recording knows. Raises StoreError."""
    columns = "SELECT DISTINCT pool, namespace, image, image_id FROM"
    named = ", ".join(f"{value} AS {name}" for name, value in ops.IMAGE_KEYS.items() if name != "image")
    groups = f"(SELECT DISTINCT {ops.IMAGE_GROUPS} FROM op WHERE image_id <> '')"
    of_ops = f"(SELECT {named}, NULL AS image FROM {groups})"
    sql = " UNION ".join(f"{columns} {table}" for table in ("image", "image_io", of_ops))
    return image_names.names(duck.query([run], sql).to_pylist())


def view_of(run: RunDirectory, name: str, question: Question) -> ActivityFinding:
    """Return a view of a recording. Raises KeyError for none of that name, StoreError, AnalysisError."""
    (found,) = views_of(run, (name,), question)
    return found


def views_of(run: RunDirectory, names: Sequence[str], question: Question) -> tuple[ActivityFinding, ...]:
    """Return several views of a recording: what more than one of them needs is asked once. Raises as `view_of`."""
    queries = {name: VIEWS[name].queries(question) for name in names}
    answers = duck.query_all([run], {sql: sql for needed in queries.values() for sql in needed.values()})
    return tuple(
        VIEWS[name].build({key: answers[sql] for key, sql in needed.items()}, question)
        for name, needed in queries.items()
    )


def load_of(run: RunDirectory, question: Question) -> PointFinding:
    """Return what clients did in a part of a recording, and what limited them. Raises StoreError, AnalysisError."""
    # Judging loads more than most views do.
    from bathyscope.analysis import recorded_load  # noqa: PLC0415

    point = recorded_load.build(duck.query_all([run], recorded_load.queries(question)), question)
    of_target = (CaveatView(code, "note", text) for code, text in run.info.target.get("caveats", ()))
    return dataclasses.replace(point, caveats=(*point.caveats, *of_target))


def account_of(run: RunDirectory, question: Question, changes: Sequence[str] = ()) -> AccountFinding:
    """Return the account of what clients did in a part of a recording, and what each change would bring.

    Raises UsageError for a change of what did not limit them; StoreError, AnalysisError.
    """
    from bathyscope.analysis.what_if import predict  # noqa: PLC0415

    point = load_of(run, question)
    if changes and point.verdict.limit in ("clients", "idle"):
        raise UsageError(
            "nothing can be predicted: the cluster did not limit its clients in this time",
            hint=f"bathy explain {run.id} says what is known; --since and --until choose a busier part",
        )
    return AccountFinding(run.id, question.target, point, tuple(predict(point, change) for change in changes))
