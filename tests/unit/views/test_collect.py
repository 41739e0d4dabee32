"""The page of a recording: its charts in a browser, names that stay text, and its pictures."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from bathyscope.analysis.activity import words
from bathyscope.records.blocks import Bars, Column, Table
from bathyscope.records.report_finding import ReportFinding
from bathyscope.views import as_text, view_of
from bathyscope.views.charts.bars import drawing as bars
from bathyscope.views.charts.theme import LIGHT
from bathyscope.views.findings import sections_of
from bathyscope.views.pictures import draw

from . import samples
from .pages import in_a_browser, loaded, unpacked


def test_hostile_names_stay_text_and_nothing_is_fetched() -> None:
    html = as_text(samples.collected(), "html")
    assert "<img src=x" not in html
    assert "<script>alert" not in html
    assert "\x1b" not in html
    assert "evil\ufffd" in html


def test_every_view_has_a_section_and_every_chart_its_rows() -> None:
    html = as_text(samples.collected(), "html")
    found = re.findall(r'<section id="([a-z-]+)"', html)
    of_load = ["load", "load-ceilings", "load-latency", "load-osds", "load-throttles", "load-foreign"]
    of_load += ["load-alternatives", "load-evidence"]
    assert [name for name in found if name in of_load] == found[: found.index("devices")]
    assert found[found.index("devices") :] == [
        "devices",
        "heat",
        "clients",
        "recording",
        "gaps",
        "absences",
    ]
    charts = unpacked(html, "charts-data")["charts"]
    rows = charts["heat-images"]["rows"]
    # What is not known has no rectangle.
    assert [row["v"] for row in rows] == [1.0, 2.5, 0.0, 100.0, 3.0]
    assert len(unpacked(html, "finding-data")["views"]) == 2


def test_without_a_hint_nothing_is_said_to_come_next() -> None:
    finding = dataclasses.replace(samples.collected(), load=None, why_no_load="nobody counts")
    assert "Next: " in as_text(dataclasses.replace(finding, next_step="look again"), "html")
    assert "Next: " not in as_text(finding, "html")


def test_a_heat_map_is_a_picture() -> None:
    ((name, content),) = draw(samples.collected(), "svg")
    assert name == "001-heat-images.svg"
    assert b"I/O of images over time" in content


def test_a_page_of_both_is_the_benchmark_s_with_a_section_of_the_recording() -> None:
    ladder, recorded = samples.ladder(), samples.collected()
    both = ReportFinding(ladder, recorded)
    html = as_text(both, "html")
    sections, alone = (re.findall(r'<section id="([a-z]+)"', page) for page in (html, samples.ladder_page()))
    assert sections == [*alone[: alone.index("caveats")], "who", *alone[alone.index("caveats") :]]
    section = html[html.index('<section id="who"') :]
    (first,) = re.findall(r'<p class="lead">([^<]*)</p>', section)
    assert first.startswith("rbd/vm-1 does 91 % of the I/O")
    assert recorded.load is not None
    assert first.endswith(recorded.load.point.verdict.sentence)
    charts = unpacked(html, "charts-data")["charts"]
    assert {"heat-images", "ladder-hdd-iops"} <= set(charts)
    assert 'data-chart="heat-images"' in section
    assert unpacked(html, "finding-data")["recording"]["run_id"] == recorded.run_id
    # What is refused stays out of this page, too.
    assert "4.63k" not in html
    assert [drawing.name for drawing in view_of(both, "pictures").drawings(both, LIGHT)][-1] == "heat-images"


@in_a_browser
def test_the_page_draws_its_charts_in_a_browser(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(as_text(samples.collected(), "html"))
    document, said = loaded(page, tmp_path / "profile")
    assert said == []
    assert 'data-drawn="1"' in document


def test_a_view_is_a_page_and_a_picture_of_its_own() -> None:
    """One with a heat map has that as its picture, one of rows that count has bars, one of neither has none."""
    view, (heat,) = samples.activity(), samples.collected().heat_maps
    pictured = dataclasses.replace(view, heat_maps=(dataclasses.replace(heat, name="offsets", kind="offset"),))
    html = as_text(pictured, "html")
    assert "<img src=x" not in html
    assert list(unpacked(html, "charts-data")["charts"]) == ["heat-offsets"]
    ((name, content),) = draw(pictured, "svg")
    assert name == "001-heat-offsets.svg"
    assert b"I/O of images over time" in content
    assert list(draw(view, "svg")) == []
    assert re.findall(r'<section id="([a-z]+)"', as_text(view, "html")) == ["devices"]


def test_bars_are_reads_and_writes_with_the_share_beside_them() -> None:
    columns = (Column("node", "node"), *words.COUNTS[:6])
    rows = (("a", 30, 10, 1.0, 0.8, 0, 0), ("<b>", 0, 10, 0.2, 0.2, 0, 0))
    nodes = dataclasses.replace(samples.activity(), view="nodes", tables=(Table("nodes", "nodes", columns, rows),))
    (block,) = (each for section in sections_of(nodes) for each in section.blocks if isinstance(each, Bars))
    drawing = bars(block)
    assert drawing is not None
    assert [(row["name"], row["kind"], row["v"], row["total"], row["share"]) for row in drawing.rows] == [
        ("a", "reads", 30, 40, "80 %"),
        ("a", "writes", 10, 40, "80 %"),
        ("<b>", "reads", 0, 10, "20 %"),
        ("<b>", "writes", 10, 10, "20 %"),
    ]
    ((name, content),) = draw(nodes, "svg")
    assert name == "001-bars-nodes.svg"
    assert b"80 %" in content
    recording = dataclasses.replace(samples.collected(), views=(nodes,))
    assert list(unpacked(as_text(recording, "html"), "charts-data")["charts"]) == ["bars-nodes", "heat-images"]
