"""What a study found, on the terminal: the patterns in every phase, then the expectations."""

from __future__ import annotations

from typing import TextIO

from bathyscope.records.study_finding import StudyFinding
from bathyscope.views import Options
from bathyscope.views.figures import NOT_KNOWN
from bathyscope.views.study_words import cell_lines, expectation_words
from bathyscope.views.table.terminal import console, new_table, print_wrapped, text

_STYLES = {True: "green", False: "bold red", None: "yellow"}


def write(finding: StudyFinding, stream: TextIO, options: Options) -> None:
    """Print the table, the expectations and the caveats."""
    out = console(stream, options)
    out.print(text(finding.title, "bold"))
    over = "" if finding.base is None else f", IOPS over {finding.base}"
    out.print(text(f"{finding.clients} clients; IOPS, bandwidth, mean latency{over}", "dim"))
    table = new_table()
    table.add_column("pattern")
    for phase in finding.phases:
        table.add_column(phase, justify="right")
    for row in finding.rows:
        cells = {cell.phase: "\n".join(cell_lines(cell)) for cell in row.cells}
        table.add_row(text(row.pattern, "bold"), *(cells.get(phase, NOT_KNOWN) for phase in finding.phases))
    out.print(table)
    for expectation in finding.expectations:
        print_wrapped("- ", expectation_words(expectation), out, out.width, _STYLES[expectation.met])
    style = ("bold green" if finding.passed else "bold red") if finding.is_judged else "bold"
    out.print(text(f"{finding.sentence}.", style))
    for caveat in sorted(finding.caveats, key=lambda caveat: caveat.rank):
        style = "yellow" if caveat.severity == "warning" else "dim"
        print_wrapped(f"{caveat.severity}: ", caveat.text, out, out.width, style)
