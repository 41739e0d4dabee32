"""Renderers: findings in, text or pictures out. Views never compute, and touch no file, clock or network.

What a finding says is the module `views/findings/<NAME of its class>.py`: sections of blocks. The modules `blocks` of
the outputs render them; a layout of its own is `views/<output>/<NAME>.py`. Modules are imported when they are needed,
so that a table waits for no chart library, and one more finding is one more file.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal, TextIO, get_args

from bathyscope.errors import UsageError
from bathyscope.views.refusal import without_refused

__all__ = ["Options", "Output", "as_text", "render", "view_of"]

Output = Literal["table", "json", "csv"]


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """`columns` and `empty` are for plain rows: which keys in which order, and what a table without rows says.

    `table` is the key of the table that is printed as CSV; None is the first.

    `colour` None means: if the stream is a terminal and NO_COLOR is not set. `width` None means the terminal's, 80
    elsewhere.
    """

    colour: bool | None
    width: int | None
    columns: Sequence[str] | None
    empty: str
    table: str | None = None


def render(
    finding: Any,
    output: str = "table",
    stream: TextIO | None = None,
    *,
    colour: bool | None = None,
    width: int | None = None,
    columns: Sequence[str] | None = None,
    empty: str = "nothing to show",
    table: str | None = None,
) -> None:
    """Write `finding` to `stream` (default: stdout) as `output`: table, json, csv or html.

    `finding` is a finding (its class has a NAME), or plain rows: a sequence of mappings or dataclasses. The options are
    those of `Options`. Raises UsageError when there is no such output or table, or the finding has no output of this
    kind, and TypeError for what is neither a finding nor rows.
    """
    stream = sys.stdout if stream is None else stream
    view = view_of(finding, output)
    view.write(without_refused(finding), stream, Options(colour, width, columns, empty, table))


def as_text(finding: Any, output: str, *, table: str | None = None) -> str:
    """Return what `render` writes: `as_text(finding, "html")` is the page of a finding, as one document."""
    buffer = io.StringIO()
    render(finding, output, buffer, table=table)
    return buffer.getvalue()


def view_of(finding: Any, output: str) -> ModuleType:
    """Return the module that shows `finding` as `output`. Raises UsageError when there is none."""
    if output not in (*get_args(Output), "html", "pictures"):
        raise UsageError(f"--output must be one of {', '.join(get_args(Output))} (got '{output}')")
    package = importlib.import_module(f"{__name__}.{output}")
    if not hasattr(package, "__path__"):
        # One module for all findings.
        return package
    name = getattr(finding, "NAME", "rows")
    if found := _module(f"{package.__name__}.{name}"):
        return found
    blocks = _module(f"{package.__name__}.blocks")
    if blocks is not None and _module(f"{__name__}.findings.{name}") is not None:
        return blocks
    raise UsageError(
        f"{getattr(finding, 'NAME', 'plain rows')} cannot be shown as {output}",
        hint="use --output json, which every finding has",
    )


def _module(name: str) -> ModuleType | None:
    """Return a module, None where there is no such file: a fault in it is not hidden."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return None
