from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from bathyscope.errors import StoreError
from bathyscope.records.finding import LadderFinding
from bathyscope.views import charts
from bathyscope.views.charts import pictures
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.theme import Theme
from bathyscope.views.refusal import without_refused

from . import samples

FINDING: LadderFinding = without_refused(samples.ladder())
GROUP = next(g for g in FINDING.groups if g.device_class == "ssd" and g.pattern == "randread-4K-qd16")


def every_kind(theme: Theme = charts.LIGHT) -> list[Drawing]:
    return [
        charts.ladder(FINDING, "hdd", "iops", theme),
        charts.ladder(FINDING, "ssd", "latency_ns_p99", theme),
        charts.distribution(FINDING, GROUP, theme),
        charts.series(FINDING, "rbd/ssd/randread-4K-qd16", "iops", theme),
        charts.series(FINDING, "rbd/ssd/randread-4K-qd16", "device_utilization", theme),
        charts.stages(FINDING, "ssd", theme),
    ]


def test_the_ladder_shows_every_point_once_and_refused_ones_without_a_number() -> None:
    rows = charts.ladder(FINDING, "hdd").rows
    assert [r["kind"] for r in rows].count("point") == 17
    refused = [r for r in rows if r["kind"] == "refused"]
    assert len(refused) == 1
    assert "thin" in refused[0]["label"]
    assert "value" not in refused[0]
    assert len({r["row"] for r in rows}) == len(rows) == 24


def test_panels_of_all_classes_share_their_axis_and_hold_every_interval() -> None:
    domains = set()
    for device_class in ("hdd", "ssd"):
        drawing = charts.ladder(FINDING, device_class)
        spec = drawing.template(charts.LIGHT)
        found = re.findall(r"'type': 'log', 'domain'|'domain': \[([0-9.e+-]+), ([0-9.e+-]+)\]", str(spec))
        low, high = next(pair for pair in found if pair[0])
        domains.add((low, high))
        for row in drawing.rows:
            if row["kind"] == "point":
                assert float(low) < row["low"] <= row["value"] <= row["high"] < float(high)
    assert len(domains) == 1


def test_stage_bars_are_whole() -> None:
    rows = [r for r in charts.stages(FINDING, "ssd").rows if r["kind"] == "segment"]
    by_row: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        by_row.setdefault(row["row"], []).append(row)
    assert len(by_row) == 12  # the disk layer has no operations
    for segments in by_row.values():
        assert segments[0]["from"] == 0
        assert segments[-1]["to"] == pytest.approx(1)


@pytest.mark.parametrize("theme", [charts.LIGHT, charts.DARK], ids=lambda t: t.name)
def test_every_kind_draws_its_marks(theme: Theme) -> None:
    for drawing in every_kind(theme):
        text = pictures.render(drawing, "svg", theme).decode()
        marks = re.findall(r'class="mark-(symbol|line|rect) role-mark', text)
        assert marks, drawing.name
        assert theme.background in text
        assert "NaN" not in text, drawing.name


def test_values_are_labelled_on_the_ladder() -> None:
    svg = pictures.render(charts.ladder(FINDING, "hdd"), "svg").decode()
    for expected in ("229 ±3", "4K random read, QD 16", "RADOS", "thin"):
        assert expected in svg


def test_pictures_are_written_with_safe_names(tmp_path: Path) -> None:
    small = dataclasses.replace(FINDING, groups=FINDING.groups[:1], distributions=(), series=())
    evil = dataclasses.replace(
        small, groups=tuple(dataclasses.replace(g, device_class="../../etc") for g in small.groups)
    )
    files = pictures.write(evil, tmp_path / "charts", "png")
    assert len(files) == 5
    for file in files:
        assert file.resolve().parent == (tmp_path / "charts").resolve()
        assert file.read_bytes().startswith(b"\x89PNG")


def test_a_directory_that_cannot_be_made_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as caught:
        pictures.write(FINDING, tmp_path / "file" / "charts", "svg")
    assert caught.value.hint


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [charts.LIGHT, charts.DARK], ids=lambda t: t.name)
def test_contrast_meets_wcag(theme: Theme) -> None:
    for text in (theme.text, theme.muted, theme.refused):
        assert contrast(text, theme.background) >= 4.5, text
    for mark in theme.layers:
        assert contrast(mark, theme.background) >= 3, mark
    for text, stage in zip(theme.stage_text, theme.stages, strict=True):
        assert contrast(text, stage) >= 4.5, stage
