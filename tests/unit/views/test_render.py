from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re

import pytest
from rich.cells import cell_len

from bathyscope.errors import UsageError
from bathyscope.records.blocks import Column, Table, Unit
from bathyscope.records.figure import Figure
from bathyscope.records.finding import LadderFinding
from bathyscope.views import figures, labels, render
from bathyscope.views.cells import cell
from bathyscope.views.table.rows import cell_text

from . import golden, samples

FINDINGS = {
    "ladder": samples.ladder,
    "compare": samples.compare,
    "recording": samples.recording,
    "account": samples.explained,
    "accounts": samples.accounts,
    "rows": samples.rows,
    "activity": samples.activity,
    "collect": samples.collected,
}


def text_of(finding: object, output: str = "table", **options: object) -> str:
    stream = io.StringIO()
    render(finding, output, stream, **options)  # type: ignore[arg-type]
    return stream.getvalue()


@pytest.mark.parametrize("output", ["table", "json", "csv"])
@pytest.mark.parametrize("kind", FINDINGS)
def test_golden(kind: str, output: str) -> None:
    finding = FINDINGS[kind]()
    if output == "json" and kind == "accounts":
        finding = dataclasses.replace(finding, points=finding.points[2:4])
    if output == "json" and kind == "ladder":
        # Series and distributions are long and hold no case of their own.
        finding = dataclasses.replace(
            finding, groups=finding.groups[4:6], series=finding.series[:1], distributions=finding.distributions[:1],
            commands=finding.commands[:1],
        )  # fmt: skip
    suffix = {"table": "txt"}.get(output, output)
    golden.check(f"{kind}.{suffix}", text_of(finding, output))


def test_golden_of_a_wide_terminal() -> None:
    golden.check("ladder-wide.txt", text_of(samples.ladder(), width=140))


@pytest.mark.parametrize("kind", FINDINGS)
def test_a_table_fits_in_80_columns_without_a_terminal(kind: str) -> None:
    for line in text_of(FINDINGS[kind]()).splitlines():
        assert cell_len(line.rstrip()) <= 80, line


@pytest.mark.parametrize("width", [50, 60, 79])
def test_a_ladder_leaves_columns_out_where_a_terminal_is_narrow_and_cuts_no_figure(width: int) -> None:
    lines = text_of(samples.ladder(), width=width).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    heads = [line.split() for line in lines if line.lstrip().startswith("IOPS ")]
    assert len(heads) == 13
    assert all(head == heads[0] for head in heads)
    assert "p50" not in heads[0]
    assert {"IOPS", "mean", "p99", "loss", "WA"} <= set(heads[0])
    (row,) = [line for line in lines if line.startswith("RADOS[c]")]
    assert row.split()[:3] == ["RADOS[c]", "5.21k", "±1%"]


@pytest.mark.parametrize("width", [50, 80, 120, 160])
def test_the_legend_of_a_ladder_is_of_what_is_shown(width: int) -> None:
    for finding in (samples.ladder(), shared_with(51.5, 2_500_000)):
        text = text_of(finding, width=width)
        heads = next(line for line in text.splitlines() if line.lstrip().startswith("IOPS ")).split()
        legend = " ".join(text[text.rindex("±: ") :].split())
        signs = {"loss", "WA", "CPU/op", "dev", "others", "wait", "ceil"}
        assert {sign for sign in signs if f" {sign}: " in legend} == signs & set(heads)
        assert " n/a: not enough data. –: not applicable." in legend
        assert " [*]: applies to every line." in legend


def test_the_legend_of_a_ladder_has_no_sign_that_stands_nowhere() -> None:
    finding = samples.ladder()
    text = text_of(dataclasses.replace(finding, groups=finding.groups[:1], cross_checks=(), caveats=()))
    assert "n/a" not in text
    assert "[*]" not in text


@pytest.mark.parametrize("width", [120, 121, 140])
def test_a_wide_terminal_has_the_nearest_ceiling_by_its_name(width: int) -> None:
    lines = text_of(samples.ladder(), width=width).splitlines()
    assert max(map(cell_len, lines)) <= width
    (head, *_) = [line for line in lines if line.lstrip().startswith("IOPS ")]
    assert head.endswith(" nearest ceiling")
    (row, *_) = [line for line in lines if line.startswith("RADOS ")]
    assert re.search(r" 33% osd\.0's HDD \(n", row)


def test_at_80_columns_the_nearest_ceiling_is_a_share_and_the_verdict_has_its_name() -> None:
    text = text_of(samples.ladder(), width=80)
    head = next(line for line in text.splitlines() if line.lstrip().startswith("IOPS "))
    assert head.endswith(" ceil")
    assert cell_len(head) == 80
    assert "→ Osd.0's HDD (node2): 92 % of the ceiling is reached." in text


def test_tables_of_one_ladder_have_the_same_columns_whatever_their_rows_have() -> None:
    """A disk alone has no CPU of OSDs and no ceiling: its table has the columns all the same, below each other."""
    finding = samples.ladder()
    first, second = finding.groups[:2]
    alone = dataclasses.replace(first, points=first.points[:1], losses=())
    for groups in ((alone, second), (second, alone)):
        lines = text_of(dataclasses.replace(finding, groups=groups, cross_checks=()), width=160).splitlines()
        head, *heads = [line for line in lines if line.lstrip().startswith("IOPS ")]
        assert heads == [head]
        assert "CPU/op" in head


@pytest.mark.parametrize("width", [30, 44, 60])
def test_no_figure_of_a_comparison_is_cut_in_a_narrow_terminal(width: int) -> None:
    text = text_of(samples.compare(), width=width)
    assert all(cell_len(line.rstrip()) <= width for line in text.splitlines())
    # The dots of an interval stand alone; those of a cut text do not.
    assert "…" not in text.replace(" … ", " ").replace(" …\n", " ")
    joined = " ".join(text.split())
    wide = " ".join(text_of(samples.compare(), width=200).split())
    for effect in samples.compare().effects:
        shown = figures.compact(effect.a.value, effect.a.unit)
        assert shown in wide
        assert shown in joined
        assert effect.verdict in joined


@pytest.mark.parametrize("kind", FINDINGS)
def test_no_escape_sequence_reaches_a_stream_without_a_terminal(kind: str) -> None:
    text = text_of(FINDINGS[kind]())
    assert not any(ord(c) < 32 and c != "\n" for c in text)
    assert "\u202e" not in text


def test_json_of_a_hostile_name_says_it_and_steers_no_terminal() -> None:
    hostile = "a\x1b[2J\x9b31m\u202egnp.exe\u2066\u200f\u2028\x7f\n\u061c"
    buffer = io.StringIO()
    render([{"name": hostile}], "json", buffer)
    text = buffer.getvalue()
    assert json.loads(text) == [{"name": hostile}]
    assert labels.clean(text.replace("\n", "")) == text.replace("\n", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", ["ladder", "account", "accounts"])
def test_colour_is_for_terminals_and_no_color_ends_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = Terminal()
    render(FINDINGS[kind](), "table", coloured, width=80)
    assert "\x1b[" in coloured.getvalue()
    # Only our own sequences, never one from a name.
    assert "\x1b[31mred" not in coloured.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    render(FINDINGS[kind](), "table", plain, width=80)
    assert "\x1b[" not in plain.getvalue()


def test_a_refused_point_shows_its_reason_and_no_number_in_any_output() -> None:
    finding = samples.ladder()
    refused = next(p for g in finding.groups for p in g.points if p.status == "refused")
    assert refused.iops.value == 4630  # the number exists, and is held back
    plain = json.loads(text_of(finding, "json"))
    point = next(p for g in plain["groups"] for p in g["points"] if p["step_key"] == refused.step_key)
    assert point["reason"] == refused.reason
    assert point["iops"]["value"] is None
    assert point["latency_ns_p99"]["value"] is None
    row = next(r for r in csv.DictReader(io.StringIO(text_of(finding, "csv"))) if r["step_key"] == refused.step_key)
    assert row["iops"] == ""
    assert row["reason"] == refused.reason
    assert row["status"] == "refused"
    assert "refused: the image is thin" in text_of(finding)
    assert "4.63k" not in text_of(finding)


def test_json_is_strict_and_whole() -> None:
    finding = samples.ladder()
    plain = json.loads(text_of(finding, "json"), parse_constant=pytest.fail)
    assert plain["finding"] == "LadderFinding"
    assert len(plain["groups"]) == 12
    assert len(plain["series"]) == len(finding.series)
    odd = dataclasses.replace(samples.compare().effects[0], a=Figure(math.nan, "1/s", math.inf, None))
    again = json.loads(text_of(dataclasses.replace(samples.compare(), effects=(odd,)), "json"))
    assert again["effects"][0]["a"]["value"] is None


def test_csv_has_one_row_for_each_point_and_units_in_its_names() -> None:
    rows = list(csv.DictReader(io.StringIO(text_of(samples.ladder(), "csv"))))
    assert len(rows) == 12 * 3 + 1
    first = rows[0]
    assert float(first["latency_ns_mean"]) == pytest.approx(1e9 / 232)
    assert float(first["latency_ns_mean_low"]) < float(first["latency_ns_mean"]) < float(first["latency_ns_mean_high"])
    assert float(rows[1]["loss_iops_ratio"]) == pytest.approx(229 / 232)
    assert {"bandwidth_bytes_per_s", "osd_cpu_us_per_op", "latency_ns_p999_relative_error"} <= first.keys()


def test_csv_has_the_table_that_is_asked_for_and_the_first_by_default() -> None:
    (images,) = samples.activity().tables
    more = Table("osds", "OSDs", (Column("osd", "OSD"), Column("read_bytes", "read", "bytes")), (("osd.3", 7),))
    finding = dataclasses.replace(samples.activity(), tables=(images, more))
    assert text_of(finding, "csv") == text_of(samples.activity(), "csv") == text_of(finding, "csv", table="images")
    assert text_of(finding, "csv", table="osds") == "osd,read_bytes\nosd.3,7\n"
    with pytest.raises(UsageError, match="--table must be one of images, osds \\(got 'pools'\\)"):
        text_of(finding, "csv", table="pools")
    with pytest.raises(UsageError, match="this is one table \\(got --table osds\\)"):
        text_of([{"a": 1}], "csv", table="osds")


def test_csv_of_a_comparison_has_its_differences_as_a_table() -> None:
    header, *rows = text_of(samples.compare(), "csv", table="differences").splitlines()
    assert header == "area,subject,name,a,b,severity"
    assert rows[0] == "plan,plan,client_cache,False,True,refused"
    assert len(rows) == len(samples.compare().differences)


def test_two_columns_of_a_table_have_two_keys() -> None:
    with pytest.raises(ValueError, match="same key"):
        Table("osds", "OSDs", (Column("osd", "OSD"), Column("osd", "host")), ())


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("read_bytes", "count"), ("latency_ns_p99", "s"), ("share_ratio", ""), ("written_bytes_per_s", "bytes"),
        ("latency", "ns"), ("reads", "1/s"), ("ops_per_s", "count"), ("written_bytes_per_day", "1/day"),
    ],
)  # fmt: skip
def test_a_column_whose_key_does_not_end_in_its_unit_cannot_be_made(key: str, unit: Unit) -> None:
    with pytest.raises(ValueError, match=f"the key {key} does not end in the unit"):
        Column(key, key, unit)


def test_csv_text_is_never_a_formula() -> None:
    rows = list(csv.reader(io.StringIO(text_of(samples.rows(), "csv"))))
    assert rows[2][2] == "'" + samples.HOSTILE_CSV


def test_a_runs_id_is_never_broken_over_lines() -> None:
    run = "20261122-133216-1a8a01"
    rows = [{"id": run, "kind": "bench", "target": "/etc/a/long/path/to/the/ceph.conf" * 3, "steps": "2/2"}]
    for width in (60, 80):
        shown = io.StringIO()
        render(rows, "table", shown, width=width)
        assert run in shown.getvalue()
        assert max(map(len, shown.getvalue().splitlines())) <= width


def test_rows_of_dataclasses_and_chosen_columns() -> None:
    effects = samples.compare().effects
    assert text_of(effects, "csv", columns=("step_key", "verdict")).splitlines()[:2] == [
        "step_key,verdict",
        "rbd/ssd/randread-4K-qd16,faster",
    ]
    assert text_of([], "table", empty="no runs here") == "no runs here\n"
    assert text_of([], "json") == "[]\n"
    assert text_of([], "csv", columns=("a", "b")) == "a,b\n"


def test_what_cannot_be_rendered_is_an_error() -> None:
    with pytest.raises(TypeError, match="no renderer"):
        text_of(42)
    with pytest.raises(TypeError, match="no renderer"):
        text_of("text")
    with pytest.raises(UsageError, match="--output must be one of"):
        text_of([], "yaml")


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (Figure(232, "1/s", 231, 233), "±1"),
        (Figure(232, "1/s", 231.8, 232.1), "±0.2"),
        (Figure(14200, "1/s", 14000, 14300), "±1%"),
        (Figure(4.3e6, "ns", 4.2e6, 4.31e6), "±2%"),
        (Figure(232, "1/s"), ""),
        (Figure(None, "1/s"), ""),
    ],
)
def test_plus_minus_is_the_wider_half(figure: Figure, expected: str) -> None:
    assert figures.plus_minus(figure) == expected


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(0.96, "−4.0%"), (0.987, "−1.3%"), (2.88, "+188%"), (1.0, "0%"), (None, "n/a"), (math.nan, "n/a"), (0.5, "−50%")],
)
def test_change(ratio: float | None, expected: str) -> None:
    assert figures.change_text(ratio) == expected


def test_range_writes_a_shared_unit_once() -> None:
    assert figures.range_text(Figure(4.3e6, "ns", 4.28e6, 4.33e6)) == "4.28–4.33 ms"
    assert figures.range_text(Figure(1e6, "ns", 0.98e6, 1.02e6)) == "980 µs–1.02 ms"
    assert figures.range_text(Figure(1e6, "ns")) == ""


def test_write_amplification_is_a_factor_whatever_its_unit_is_called() -> None:
    point = dataclasses.replace(samples.ladder().groups[2].points[1], write_amplification=Figure(14.2, "ratio"))
    group = dataclasses.replace(samples.ladder().groups[2], points=(point,))
    assert " 14.2 " in text_of(dataclasses.replace(samples.ladder(), groups=(group,), cross_checks=()))


def test_cells_say_their_unit() -> None:
    assert cell_text("size_bytes", 512) == "512 B"
    assert cell_text("duration_s", 312.0) == "5 min 12 s"
    assert cell_text("latency_ns", 4.3e6) == "4.30 ms"
    assert cell_text("hit_ratio", 0.61) == "61 %"
    assert cell_text("iops_per_s", 12.0) == "12"
    assert cell_text("complete", False) == "no"
    assert cell_text("anything", None) == "–"


def test_patterns_that_differ_in_more_than_their_load_have_different_names() -> None:
    point = samples.ladder().groups[0].points[0]
    assert labels.pattern(point) == "4K random read, QD 1"
    cold = dataclasses.replace(point, pattern=point.pattern + "-cold")
    assert labels.pattern(cold) == "4K random read, QD 1 (cold)"
    jobs = dataclasses.replace(point, pattern=point.pattern + "-j4", jobs=4)
    assert labels.pattern(jobs) == "4K random read, QD 1, 4 jobs"


def shared_with(iops: float, wait_ns: float) -> LadderFinding:
    """Return the sample as it is on a cluster that others use."""
    finding = samples.ladder()
    more = {"tenant_iops": Figure(iops, "1/s"), "tenant_wait_ns": Figure(wait_ns, "ns")}
    groups = tuple(
        dataclasses.replace(g, points=tuple(dataclasses.replace(p, **more) if p.on_cluster else p for p in g.points))
        for g in finding.groups
    )
    return dataclasses.replace(finding, groups=groups, tenants="The pool cu\x1b[31mst did about 50 before the load.")


def test_other_tenants_are_told_of_everywhere_and_have_columns_where_there_is_room() -> None:
    finding = shared_with(51.5, 2_500_000)
    narrow, wide = (text_of(finding, width=width) for width in (80, 160))
    for text in (narrow, wide):
        assert "did about 50 before the load." in text
        assert "\x1b[31m" not in text
    assert "others" in next(line for line in wide.splitlines() if "IOPS" in line and "p99" in line)
    rows = [line for line in wide.splitlines() if line.startswith("RBD ") and "refused" not in line]
    assert len(rows) > 3
    assert all(re.search(r" 51\.5 +2\.50ms ", line) for line in rows)
    assert max(map(cell_len, narrow.splitlines())) <= 80
    page = text_of(finding, "html")
    assert "Other pools&#39; wait" in page
    assert "did about 50 before the load." in page
    (row, *_) = [row for row in csv.DictReader(io.StringIO(text_of(finding, "csv"))) if row["layer"] == "rbd"]
    assert (float(row["tenant_iops"]), float(row["tenant_wait_ns"])) == (51.5, 2_500_000)


def test_without_other_tenants_nothing_is_said_of_them() -> None:
    assert "others" not in next(line for line in text_of(samples.ladder(), width=160).splitlines() if "p99.9" in line)
    assert "Other pools" not in samples.ladder_page()


def test_the_greatest_rate_of_a_trend_is_the_highest_bar() -> None:
    column = Column("trend_per_s", "trend", "trend")
    # 7 * x / x is more than 7 for these.
    for most in (507.4408597536824, 99.86550665837746):
        assert cell(column, (0.0, None, most)) == "▁ █"


def test_a_comparison_shows_every_step() -> None:
    finding = samples.compare()
    many = dataclasses.replace(finding, effects=(finding.effects[0],) * 60)
    shown = text_of(many, width=100)
    assert shown.count("  faster") == 60
    assert finding.missing[0][0] in shown


def test_of_a_long_table_the_option_that_prints_all_of_it_is_said() -> None:
    table = Table("second", "second", (Column("name", "name"),), (("a",),) * 50)
    finding = samples.activity()
    shown = text_of(dataclasses.replace(finding, tables=(*finding.tables, table)))
    assert "and 10 more; --output csv --table second has them all" in shown


def test_rows_and_tones_that_do_not_fit_are_refused() -> None:
    columns = (Column("name", "name"), Column("count", "count", "count"))
    with pytest.raises(ValueError, match="lacks a value or a tone"):
        Table("t", "t", columns, (("a", 1), ("b",)))
    with pytest.raises(ValueError, match="lacks a value or a tone"):
        Table("t", "t", columns, (("a", 1), ("b", 2)), tones=("bad",))
