"""What `bathy size` leaves beside its answer: bars while it works, a run of the workspace, a page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bathyscope.commands.talk import progress_bar, say

if TYPE_CHECKING:
    import pyarrow as pa

    from bathyscope.analysis.sizing import SizeQuestion
    from bathyscope.records.size_finding import SizeFinding
    from bathyscope.simulate.trace import Progress

_WORDS = {
    "profile": "working sets",
    "grid": "cache sizes",
    "options": "configurations",
    "target": "smallest size",
    "detail": "more sizes",
    "peak": "busiest minute",
}


@contextmanager
def progress(extent: int) -> Iterator[Callable[[str], Progress | None]]:
    """Yield what makes the progress function of a pass: a bar for each on a terminal, nothing elsewhere."""
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:12}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(compact=True),
    )  # fmt: skip
    with progress_bar(*columns) as bar:

        def bar_of(name: str) -> Progress | None:
            if bar is None:
                return None
            task, started = bar.add_task(_WORDS[name], total=extent, rate=""), time.monotonic()

            def tell(events: int, done: int) -> None:
                seconds = time.monotonic() - started
                # The first call comes after the first batch; a rate from it would be an invention.
                rate = f"{events / seconds / 1e6:.2f}M I/Os/s" if seconds > 0.5 else ""
                bar.update(task, completed=done, rate=rate)

            return tell

        yield bar_of


def keep(
    finding: SizeFinding,
    question: SizeQuestion,
    rows: pa.Table,
    workspace: Path | None,
    report: Path | None,
    *,
    save: bool,
) -> None:
    """Save the curves and the question as a run, and write the page. Raises StoreError."""
    from bathyscope.commands.report import write_page

    try:
        if save:
            _save(question, rows, workspace)
    finally:
        if report is not None:
            say(f"report: {write_page(finding, report)}")


def _save(question: SizeQuestion, rows: pa.Table, workspace: Path | None) -> None:
    from bathyscope.records import CurvePoint
    from bathyscope.store import Workspace

    text, now_ns = question.spec.model_dump_json(), time.time_ns()
    name = " ".join(question.spec.traces)
    with Workspace(workspace).create_run(kind="size", name=name, spec_text=text, started_ns=now_ns) as run:
        with run.begin_segment("run") as segment:
            segment.context(question.as_context())
            segment.table(CurvePoint, rows)
            segment.commit()
        run.compact()
        run.update(status="done", ended_ns=time.time_ns())
        say(f"saved: run {run.id}")
