"""Recordings made of plain rows, and the views of them as the command line shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bathyscope.commands.analyze import finding_of_view
from bathyscope.records import Collection, Record, to_table
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.store import RunDirectory, Workspace

S = 1_000_000_000
START_NS = 1_790_000_000 * S


class Recording:
    """A recording of `ends_s` seconds that begins at START_NS; `add` its rows, then ask for its views."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.ends_s = 60
        self._rows: dict[type[Record], list[Any]] = {}

    def add(self, *rows: Any) -> None:
        """Add rows of any records."""
        for row in rows:
            self._rows.setdefault(type(row), []).append(row)

    def seen(self, source: str, start_s: float = 0.0, end_s: float = 60.0) -> None:
        """Add good collections of a source from `start_s` to `end_s`."""
        for at_s in (start_s, end_s):
            self.add(Collection(START_NS + round(at_s * S), source, 0, 1, 0, 1, True, None))

    def view(self, name: str, **question: Any) -> ActivityFinding:
        """Write what was added and return a view of it."""
        with self.run.begin_segment("20260923T000000.000Z") as writer:
            for record, rows in self._rows.items():
                writer.table(record, to_table(record, rows))
            writer.commit()
        self.run.update(status="done", ended_ns=START_NS + self.ends_s * S)
        return finding_of_view(self.run, name, **question)


def rows_of(finding: ActivityFinding, *names: str) -> list[tuple[Any, ...]]:
    """Return these columns of the first table of a view."""
    places = [[column.heading for column in finding.tables[0].columns].index(name) for name in names]
    return [tuple(row[place] for place in places) for row in finding.tables[0].rows]


Made = Callable[[], Recording]


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    run = Workspace(tmp_path).create_run(kind="collect", started_ns=START_NS, target={"name": "t"})
    with run:
        yield Recording(run)


__all__: Sequence[str] = ("START_NS", "Recording", "S", "rows_of")
