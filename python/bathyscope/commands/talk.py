"""What a verb says on stderr while it works: lines, a status line, a progress bar. Results go to stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


def say(text: str) -> None:
    """Print one line, or more. Names from outside must not steer the terminal."""
    from bathyscope.views.labels import clean_lines

    sys.stderr.write(clean_lines(text) + "\n")


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is being done: in place on a terminal, else as lines with the time."""
    if sys.stderr.isatty():
        from rich.console import Console

        from bathyscope.views.table.terminal import text

        with Console(stderr=True).status("") as line:
            yield lambda words: line.update(text(words))
        return
    started = time.monotonic()
    yield lambda text: say(f"[{time.monotonic() - started:5.1f} s] {text}")


@contextmanager
def progress_bar(*columns: ProgressColumn) -> Iterator[Progress | None]:
    """Yield a progress bar that disappears at its end; None when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield bar
