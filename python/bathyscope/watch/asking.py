"""Asks a recording for its views: the SQL of a view goes to the store, its answers back to the view."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.analysis.see import VIEWS
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
    if "imported_from" in run.info.context:
        sql = (
            "SELECT min(started_ns) AS start_ns, max(started_ns + duration_ns) AS end_ns, "
            "EXISTS (SELECT 1 FROM op WHERE image_id IS NULL) AS is_old FROM op"
        )
        (span,) = duck.query([run], sql).to_pylist()
        if span["is_old"]:
            raise StoreError(
                f"run {run.id} was imported by an earlier bathyscope, which did not keep what image an operation is of",
                hint="`bathy import osd-log FILE…` imports the logs again",
            )
        return Question(run.id, name or run.info.name, span["start_ns"] or 0, span["end_ns"] or 0, of_ops=True)
    if end_ns is None:
        (row,) = duck.query([run], "SELECT max(at_ns + duration_ns) AS last_ns FROM collection").to_pylist()
        end_ns = int(row["last_ns"] or run.info.started_ns)
    return Question(run.id, name, run.info.started_ns, end_ns)


def images_of(run: RunDirectory) -> list[str]:
    """Return the names of all images that a recording knows. Raises StoreError."""
    columns = "SELECT DISTINCT pool, namespace, image, image_id"
    return zooming.names(duck.query([run], f"{columns} FROM image UNION {columns} FROM image_io").to_pylist())


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
