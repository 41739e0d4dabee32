from __future__ import annotations

import dataclasses
import re

import altair as alt
import pytest
from altair.utils import schemapi

from bathyscope.errors import UsageError
from bathyscope.records.finding import LadderFinding
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.theme import DARK, LIGHT, Theme
from bathyscope.views.pictures import draw, picture
from bathyscope.views.pictures.blocks import drawings
from bathyscope.views.refusal import without_refused

from . import samples

FINDING: LadderFinding = without_refused(samples.ladder())


def drawn(name: str, theme: Theme = LIGHT) -> Drawing:
    return next(drawing for drawing in drawings(FINDING, theme) if drawing.name == name)


def every_kind(theme: Theme = LIGHT) -> list[Drawing]:
    return [
        drawn(name, theme)
        for name in (
            "ladder-hdd-iops",
            "ladder-ssd-latency_ns_p99",
            "ceilings-ssd-randread-4K-qd16",
            "distribution-ssd-randread-4K-qd16",
            "series-rbd/ssd/randread-4K-qd16-iops",
            "series-rbd/ssd/randread-4K-qd16-device_utilization",
            "stages-ssd",
        )
    ]


def test_the_ladder_shows_every_point_once_and_refused_ones_without_a_number() -> None:
    rows = drawn("ladder-hdd-iops").rows
    assert [r["kind"] for r in rows].count("point") == 17
    refused = [r for r in rows if r["kind"] == "refused"]
    assert len(refused) == 1
    assert "thin" in refused[0]["label"]
    assert "value" not in refused[0]
    assert len({r["row"] for r in rows}) == len(rows) == 24


def test_panels_of_all_classes_share_their_axis_and_hold_every_interval() -> None:
    domains = set()
    for device_class in ("hdd", "ssd"):
        drawing = drawn(f"ladder-{device_class}-iops")
        spec = drawing.template(LIGHT)
        found = re.findall(r"'type': 'log', 'domain'|'domain': \[([0-9.e+-]+), ([0-9.e+-]+)\]", str(spec))
        low, high = next(pair for pair in found if pair[0])
        domains.add((low, high))
        for row in drawing.rows:
            if row["kind"] == "point":
                assert float(low) < row["low"] <= row["value"] <= row["high"] < float(high)
    assert len(domains) == 1


def test_stage_bars_are_whole() -> None:
    rows = [r for r in drawn("stages-ssd").rows if r["kind"] == "segment"]
    by_row: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        by_row.setdefault(row["row"], []).append(row)
    assert len(by_row) == 12  # the disk layer has no operations
    for segments in by_row.values():
        assert segments[0]["from"] == 0
        assert segments[-1]["to"] == pytest.approx(1)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
def test_every_kind_draws_its_marks(theme: Theme) -> None:
    for drawing in every_kind(theme):
        schemapi.validate_jsonschema(drawing.template(theme), alt.load_schema())
        text = picture(drawing, "svg", theme).decode()
        marks = re.findall(r'class="mark-(symbol|line|rect) role-mark', text)
        assert marks, drawing.name
        assert theme.background in text
        assert "NaN" not in text, drawing.name


def test_values_are_labelled_on_the_ladder() -> None:
    svg = picture(drawn("ladder-hdd-iops"), "svg").decode()
    for expected in ("229 ±3", "4K random read, QD 16", "RADOS", "thin"):
        assert expected in svg


def test_pictures_have_safe_names() -> None:
    small = dataclasses.replace(FINDING, groups=FINDING.groups[:1], distributions=(), series=())
    evil = dataclasses.replace(
        small, groups=tuple(dataclasses.replace(g, device_class="../../etc") for g in small.groups)
    )
    pictures = dict(draw(evil, "png"))
    assert len(pictures) == 6
    for name, content in pictures.items():
        assert re.fullmatch(r"[0-9]{3}-[A-Za-z0-9.-]+\.png", name)
        assert content.startswith(b"\x89PNG")


def test_a_finding_without_charts_has_no_pictures_and_rows_are_no_finding() -> None:
    assert list(draw(samples.compare(), "svg")) == []
    with pytest.raises(UsageError, match="plain rows cannot be shown as pictures") as caught:
        next(draw(samples.rows(), "svg"))
    assert caught.value.hint


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
def test_contrast_meets_wcag(theme: Theme) -> None:
    for text in (theme.text, theme.muted, theme.refused):
        assert contrast(text, theme.background) >= 4.5, text
    for mark in theme.layers:
        assert contrast(mark, theme.background) >= 3, mark
    for text, stage in zip(theme.stage_text, theme.stages, strict=True):
        assert contrast(text, stage) >= 4.5, stage
