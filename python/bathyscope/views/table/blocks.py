"""Blocks on a terminal: readable at 60 columns and without colour; what does not fit is left out whole, never cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console

from bathyscope.records.blocks import CaveatView, Facts, HeatMap, Legend, Table, Text, Tone
from bathyscope.records.finding import Verdict
from bathyscope.views import Options, labels
from bathyscope.views.account_words import alternatives, evidence
from bathyscope.views.cells import cell, left_out_first, marks, shown_columns
from bathyscope.views.figures import NOT_APPLICABLE
from bathyscope.views.findings import sections_of, tables_of
from bathyscope.views.footnotes import Footnote
from bathyscope.views.table.fitting import fitting
from bathyscope.views.table.grid import Grid
from bathyscope.views.table.terminal import console, print_wrapped, text

_STYLES: dict[Tone, str] = {
    "": "", "strong": "bold", "dim": "dim", "good": "green", "warning": "yellow", "bad": "red",
}  # fmt: skip
_OF_CAVEATS: dict[str, Tone] = {"refused": "bad", "warning": "warning"}


def write(finding: Any, stream: TextIO, options: Options) -> None:
    """Print the sections of a finding, a line between each two."""
    out = console(stream, options)
    sections = sections_of(finding)
    first = next((table.key for table in tables_of(sections)), None)
    parts: dict[str, list[Table]] = {}
    for table in (block for section in sections for block in section.blocks if isinstance(block, Table)):
        parts.setdefault(table.key, []).append(table)
    # Columns with a width stand below each other in all parts of their table.
    grids = {key: Grid(tables, out) for key, tables in parts.items() if any(each.width for each in tables[0].columns)}
    is_first = True
    for section in sections:
        blocks = [block for block in section.blocks if _is_shown(block)]
        # Words about a picture alone say nothing here.
        is_of_picture = any(isinstance(block, HeatMap) for block in section.blocks)
        if not blocks or (is_of_picture and not any(isinstance(block, Table) for block in blocks)):
            continue
        if not is_first:
            out.print()
            if section.title:
                out.print(text(section.title, "bold"))
        is_first = False
        where = "--output csv --table alternatives"
        if "alternatives" not in parts:
            where = " ".join(
                filter(None, ("bathy explain", getattr(finding, "run_id", "RUN"), section.step_key, where))
            )
        _write_blocks(blocks, out, grids, first, where)


def _is_shown(block: Any) -> bool:
    if isinstance(block, Table):
        return block.only not in ("programs", "page") and bool(block.rows)
    return isinstance(block, Text | Facts | Legend | Verdict | CaveatView | Footnote)


def _write_blocks(
    blocks: Sequence[Any], out: Console, grids: Mapping[str, Grid], first: str | None, where: str
) -> None:
    """Print blocks. `grids` are tables by their keys; `first` is the key that CSV has by default.

    `where` is what prints all the causes that were considered for a verdict.
    """
    several = sum(isinstance(block, Table) for block in blocks) > 1
    for block in blocks:
        match block:
            case Text(whole=True):
                out.print(text(block.lead + block.words, _STYLES[block.tone]), soft_wrap=True)
            case Text():
                print_wrapped(block.lead, block.words, out, out.width, _STYLES[block.tone])
            case Facts():
                for name, value in block.pairs:
                    print_wrapped(f"{labels.clean(name)}: ", value, out, out.width)
            case Legend():
                shown = block.of(grids[block.table].headings_and_cells())
                print_wrapped("", shown, out, out.width, "dim")
            case Verdict():
                _write_verdict(block, where, out)
            case CaveatView():
                _write_caveat("", block, _steps(block), out)
            case Footnote(caveat=caveat):
                mark = "*" if block.everywhere else block.mark
                _write_caveat(f"[{mark}] ", caveat, f" ({caveat.code})", out)
            case Table():
                if several:
                    out.print()
                    out.print(text(block.title, "bold"))
                option = "" if block.key == first else f" --table {block.key}"
                _write_rows(block, out, grids.get(block.key), option)


def _write_rows(table: Table, out: Console, grid: Grid | None, option: str) -> None:
    """Print one of the parts of a table; `option` is what CSV of it needs."""
    if grid is None:
        _write_table(table, out)
    else:
        grid.write(table)
    if table.shown_max is not None and len(table.rows) > table.shown_max:
        more = f"and {len(table.rows) - table.shown_max:,} more; --output csv{option} has them all"
        print_wrapped("", more, out, out.width, "dim")


def _write_caveat(lead: str, caveat: CaveatView, of_what: str, out: Console) -> None:
    style = _STYLES[_OF_CAVEATS.get(caveat.severity, "dim")]
    # A mark stands before the severity: what follows lies below it.
    lead, words = (lead, f"{caveat.severity}: {caveat.text}") if lead else (f"{caveat.severity}: ", caveat.text)
    print_wrapped(lead, words + of_what, out, out.width, style)


def _write_verdict(verdict: Verdict, where: str, out: Console) -> None:
    print_wrapped("→ ", verdict.sentence, out, out.width, "bold green")
    if verdict.next_step:
        print_wrapped("  next: ", verdict.next_step, out, out.width)
    others = alternatives(verdict, f"{where} has them all")
    for lead, words in (("evidence", evidence(verdict)), ("also considered", others)):
        if words:
            print_wrapped(f"  {lead}: ", words, out, out.width, "dim")


def _steps(caveat: CaveatView) -> str:
    more = f" and {len(caveat.step_keys) - 1} more" if len(caveat.step_keys) > 1 else ""
    return f" ({caveat.step_keys[0]}{more})" if caveat.step_keys else ""


def _write_table(table: Table, out: Console) -> None:
    indexes = [index for index in shown_columns(table) if not table.columns[index].prose]
    columns = [table.columns[index] for index in indexes]
    if any(column.unit == "code" for column in columns):
        _write_commands(table, indexes, out)
        return
    nothing: tuple[Tone, ...] = ("",)
    shown = table.rows[: table.shown_max]
    tones = (table.tones or nothing * len(table.rows))[: table.shown_max]
    rows = [
        (_STYLES[tone], [cell(column, row[index]) for column, index in zip(columns, indexes, strict=True)])
        for tone, row in zip(tones, shown, strict=True)
    ]
    headings = [column.heading for column in columns]
    dispensable = [table.columns[index].heading for index in left_out_first(table, indexes)]
    words = [column.heading for column in columns if column.unit in ("", "bar")]
    out.print(fitting(headings, rows, out, dispensable, words=words))
    _write_prose(table, shown, rows, out)
    for column, index in zip(columns, indexes, strict=True):
        if column.unit == "parts" and (parts := next((row[index] for row in table.rows if row[index]), None)):
            letters = ", ".join(f"{letter} {name}" for name, letter in marks([name for name, _ in parts]).items())
            print_wrapped(f"{column.heading}: ", letters, out, out.width, "dim")


def _write_prose(
    table: Table, shown: Sequence[tuple[Any, ...]], rows: Sequence[tuple[str, list[str]]], out: Console
) -> None:
    """Print what has no column after the names of the rows that it is said of: once, if several have the same."""
    said: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for (style, cells), row in zip(rows, shown, strict=True):
        for index, column in enumerate(table.columns):
            if column.prose and column.only != "programs" and row[index]:
                said.setdefault((index, str(row[index])), []).append((cells[0], style))
    for (_, words), those in said.items():
        if len(those) == 1:
            ((name, style),) = those
            print_wrapped(f"{name}: ", words, out, out.width, style)
        else:
            print_wrapped("", f"{', '.join(name for name, _ in those)}: {words}", out, out.width)


def _write_commands(table: Table, indexes: Sequence[int], out: Console) -> None:
    """Print commands as lines of a script, never broken: what is copied is what was run."""
    others = [table.columns[index] for index in indexes[2:]]
    for row in table.rows:
        cells = [cell(table.columns[index], row[index]) for index in indexes]
        out.print(text(f"# {cells[0]}", "dim"), soft_wrap=True)
        out.print(text(cells[1]), soft_wrap=True)
        for column, value in zip(others, cells[2:], strict=True):
            if value != NOT_APPLICABLE:
                out.print(text(f"#   {column.heading}: {value}", "dim"), soft_wrap=True)
