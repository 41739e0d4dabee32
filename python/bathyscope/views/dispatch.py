"""One finding, many renderers: picks the renderer by the output asked for and the finding's type."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal, TextIO

from bathyscope.errors import UsageError
from bathyscope.records.size_finding import SizeFinding
from bathyscope.views import csv, json, size, table
from bathyscope.views.refusal import without_refused

Output = Literal["table", "json", "csv"]


def render(
    finding: Any,
    output: str = "table",
    stream: TextIO | None = None,
    *,
    colour: bool | None = None,
    width: int | None = None,
    columns: Sequence[str] | None = None,
    empty: str = "nothing to show",
) -> None:
    """Write `finding` to `stream` (default: stdout) as `output`: table, json or csv.

    `finding` is a LadderFinding, a CompareFinding, a SizeFinding, or a sequence of mappings or dataclasses (plain
    rows, all of one kind; `columns` picks and orders their keys). `colour` None means: if the stream is a terminal
    and NO_COLOR is not set. `width` None means the terminal's, 80 elsewhere. `empty` is what a table without rows
    says. Raises UsageError for an unknown output and TypeError for a finding that has no renderer.
    """
    stream = sys.stdout if stream is None else stream
    if isinstance(finding, SizeFinding):
        size.write(finding, output, stream, colour=colour, width=width)
        return
    finding = without_refused(finding)
    match output:
        case "table":
            table.write(finding, stream, colour=colour, width=width, columns=columns, empty=empty)
        case "json":
            json.write(finding, stream, columns=columns)
        case "csv":
            csv.write(finding, stream, columns=columns)
        case _:
            raise UsageError(f"'{output}' is not an output", hint="use table, json or csv")
