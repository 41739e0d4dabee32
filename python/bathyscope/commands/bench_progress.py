"""What `bathy bench` and `bathy demo` show of a run that is under way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from bathyscope.analysis.step_figures import StepFigures
from bathyscope.bench.conductor import Watcher
from bathyscope.commands.talk import progress_bar, say
from bathyscope.records import Step
from bathyscope.spec import StepSpec
from bathyscope.units import format_bandwidth, format_rate, format_seconds
from bathyscope.views.labels import clean
from bathyscope.views.table.terminal import text as clean_text


@contextlib.contextmanager
def watching() -> Iterator[Watcher]:
    """A progress bar when stderr is a terminal, else one plain line for each step."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )
    with progress_bar(*columns) as bar:
        yield _LineWatcher() if bar is None else _BarWatcher(bar)


class _LineWatcher(Watcher):
    """One line for each step: for logs and pipes."""

    def __init__(self) -> None:
        self._left_s = 0.0

    def note(self, text: str) -> None:
        say(f"  {text}")

    def time_left(self, seconds: float) -> None:
        self._left_s = seconds

    def step_begins(self, number: int, total: int, step: StepSpec) -> None:
        say(f"[{number}/{total}, {_left(self._left_s)}] {step.key} #{step.repeat_index + 1}")

    def step_ended(self, record: Step, figures: StepFigures) -> None:
        say(_step_line(record, figures))


class _BarWatcher(Watcher):
    """A progress bar on a terminal, with a line above it for each step that is done."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task: Any = None
        self._done = 0
        self._left_s = 0.0

    def time_left(self, seconds: float) -> None:
        self._left_s = seconds

    def note(self, text: str) -> None:
        self._bar.console.print(clean_text(f"  {text}", "dim"), highlight=False)

    def step_begins(self, number: int, total: int, step: StepSpec) -> None:
        text = clean(f"{step.key} #{step.repeat_index + 1}")
        if self._task is None:
            self._task = self._bar.add_task(text, total=total, left="")
        self._done = number - 1
        self._bar.update(self._task, description=text, completed=self._done, left=_left(self._left_s))

    def step_ticks(self, seconds: float, expected_s: float) -> None:
        share = min(0.99, seconds / expected_s) if expected_s > 0 else 0.0
        left = _left(max(0.0, self._left_s - seconds))
        self._bar.update(self._task, completed=self._done + share, left=left)

    def step_ended(self, record: Step, figures: StepFigures) -> None:
        self._bar.console.print(clean_text(_step_line(record, figures)), highlight=False)
        self._bar.update(self._task, completed=self._done + 1)


def _left(seconds: float) -> str:
    """Return the time left; tenths of a second would only flicker."""
    return f"{format_seconds(max(10.0, seconds))} left"


def _step_line(record: Step, figures: StepFigures) -> str:
    """Return one finished step in one line."""
    name = f"{record.step_key} #{record.repeat_index + 1}"
    if record.status != "done":
        return f"  {name}: {record.status}: {record.reason}"
    return f"  {name}: {format_rate(figures.iops)} IOPS, {format_bandwidth(figures.bandwidth_bytes_per_s)}"
