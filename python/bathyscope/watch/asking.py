"""Asks a recording for its views: the SQL of a view goes to the store, its answers back to the view."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.analysis.see import VIEWS, ops
from bathyscope.analysis.see.shape import Question
from bathyscope.errors import StoreError
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.store import RunDirectory, duck
from bathyscope.watch import zooming


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


def images_of(run: RunDirectory) -> list[str]:
    """Return the names of all images that a recording knows. Raises StoreError."""
    columns = "SELECT DISTINCT pool, namespace, image, image_id FROM"
    named = ", ".join(f"{value} AS {name}" for name, value in ops.IMAGE_KEYS.items() if name != "image")
    groups = f"(SELECT DISTINCT {ops.IMAGE_GROUPS} FROM op WHERE image_id <> '')"  # noqa: S608 - columns of ours
    of_ops = f"(SELECT {named}, NULL AS image FROM {groups})"  # noqa: S608 - columns of ours
    sql = " UNION ".join(f"{columns} {table}" for table in ("image", "image_io", of_ops))
    return zooming.names(duck.query([run], sql).to_pylist())


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
