"""The page of any finding: its first section as the head, then the others, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from bathyscope.records.blocks import CaveatView, Column, Facts, Section, Table, Text
from bathyscope.records.finding import Verdict, as_plain
from bathyscope.views import Options, labels
from bathyscope.views.account_words import alternatives
from bathyscope.views.cells import cell, shown_columns
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.blocks import drawing_of
from bathyscope.views.charts.theme import PAGE
from bathyscope.views.figures import range_text, value_text
from bathyscope.views.findings import sections_of
from bathyscope.views.footnotes import Footnote
from bathyscope.views.html.frame import render_page

_ROWS_SHOWN = 200


def write(finding: Any, stream: TextIO, _options: Options) -> None:
    """Write the page of a finding."""
    shown = page_sections(sections_of(finding))
    head, target = shown[0]["title"] or finding.NAME.replace("_", " "), getattr(finding, "target", "")
    content = {
        "title": f"{head.lower()} of {labels.clean(target)}" if target else head.lower(),
        "file_stem": f"{shown[0]['key']}-{getattr(finding, 'run_id', '')}".rstrip("-"),
        "csv_row": "One row for each row of the first table",
        "sections": [(shown[0]["key"], head), *((each["key"], each["title"]) for each in shown[1:] if each["title"])],
        "shown": shown,
    }
    charts = chart_data(sections_of(finding))
    stream.write(render_page(finding, "blocks.html.j2", content, charts=charts, data=as_plain(finding)))


def chart_data(
    sections: Iterable[Section], rows_of: Callable[[Any, Drawing], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the charts as `render_page` takes them; `rows_of` says for a block where the rows of its chart are."""
    templates, charts = {}, {}
    for block in (block for section in sections for block in section.blocks):
        if (drawing := drawing_of(block, PAGE)) is None:
            continue
        name = drawing.template_name or drawing.name
        if name not in templates:
            templates[name] = drawing.template(PAGE)
        rows = {"rows": list(drawing.rows)} if rows_of is None else rows_of(block, drawing)
        charts[drawing.name] = {"template": name, "about": drawing.description, **rows}
    return {"templates": templates, "charts": charts, "layers": {}}


def page_sections(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Return what a page shows of sections, as text; those with nothing to show are left out."""
    return [section for section in map(_section, sections) if section["blocks"] or section["sentence"]]


def _section(section: Section) -> dict[str, Any]:
    answer = next((each for each in section.blocks if isinstance(each, Text) and each.tone == "strong"), None)
    verdict = next((each for each in section.blocks if isinstance(each, Verdict)), None)
    blocks = [page_block(each) for each in section.blocks if each is not answer]
    counted = next((each for each in section.blocks if isinstance(each, Table) and each.only != "programs"), None)
    return {
        "key": section.key,
        "title": section.title.removesuffix(":"),
        "sentence": answer.words if answer else verdict.sentence if verdict else "",
        "count": f"{len(counted.rows):,}" if counted is not None and counted.rows else "",
        "blocks": [block for block in blocks if block is not None],
    }


def page_block(block: Any, rows_max: int = _ROWS_SHOWN) -> dict[str, Any] | None:
    """Return what the template shows of a block; None for nothing."""
    match block:
        case Text():
            return {"kind": "text", "lead": block.lead.removeprefix("- "), "words": block.words, "tone": block.tone}
        case Facts():
            return {"kind": "facts", "pairs": block.pairs}
        case Verdict():
            others = alternatives(block, "the JSON of this page has them all")
            said = {"words": block.sentence, "next_step": block.next_step, "alternatives": others}
            evidence = [
                (e.name, value_text(e.figure.value, e.figure.unit), range_text(e.figure)) for e in block.evidence
            ]
            return {"kind": "verdict", **said, "evidence": evidence}
        case CaveatView() | Footnote():
            note = Footnote("", block, everywhere=False) if isinstance(block, CaveatView) else block
            return {"kind": "caveat", "notes": [note]}
        case Table():
            return _table(block, rows_max) if block.only != "programs" and block.rows else None
        case _:
            drawing = drawing_of(block, PAGE)
            return None if drawing is None else {"kind": "chart", "key": drawing.name, "title": drawing.title}


def _table(table: Table, rows_max: int) -> dict[str, Any]:
    columns = [(index, table.columns[index]) for index in shown_columns(table)]
    tones = table.tones or ("",) * len(table.rows)
    return {
        "kind": "table",
        "title": table.title,
        "columns": [(column.heading, column.help, _kind(column)) for _, column in columns],
        "rows": [
            (tone, [(_cell(each, row[index]), _kind(each), _share(each, row[index])) for index, each in columns])
            for tone, row in zip(tones[:rows_max], table.rows, strict=False)
        ],
        "more": max(0, len(table.rows) - rows_max),
    }


def _kind(column: Column) -> str:
    """Return the class of a column's cells: words are read from the left, figures from the right."""
    if column.unit == "code":
        return "prose mono"
    return "figure" if column.unit else "prose" if column.prose else "words"


def _share(column: Column, value: Any) -> str:
    """Return how much of its cell a share fills; nothing for what is no share."""
    is_share = column.unit in ("ratio", "bar") and value is not None and not column.figure
    return f"{100 * min(1.0, max(0.0, value)):.1f}%" if is_share else ""


def _cell(column: Column, value: Any) -> str | list[tuple[str, str]]:
    """Return a value for reading; parts of a whole as (name, share), which the page draws."""
    if column.unit == "bar":
        return ""
    if column.unit == "parts" and value:
        return [(labels.clean(name), f"{share:.1%}") for name, share in value]
    return cell(column, value)
