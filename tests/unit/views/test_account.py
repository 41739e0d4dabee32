from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import re
from typing import Any

import pytest
from rich.cells import cell_len

from bathyscope.errors import UsageError
from bathyscope.records.account import Account, Ceiling, OsdShare, Throttle
from bathyscope.records.explain_finding import AccountFinding, AccountsFinding
from bathyscope.records.figure import Figure
from bathyscope.records.finding import RungGroup
from bathyscope.views import account_words, as_text, render
from bathyscope.views.charts.base import Drawing
from bathyscope.views.pictures.blocks import drawings
from bathyscope.views.refusal import without_refused

from . import golden, samples

POINTS = [p for g in samples.ladder().groups for p in g.points if p.account is not None]


def text_of(finding: object, width: int = 80) -> str:
    stream = io.StringIO()
    render(finding, "table", stream, width=width)
    return stream.getvalue()


def changed(**changes: Any) -> AccountFinding:
    """Return the sample with another account."""
    finding = samples.explained()
    assert finding.point.account is not None
    account = dataclasses.replace(finding.point.account, **changes)
    return dataclasses.replace(finding, point=dataclasses.replace(finding.point, account=account))


def test_shares_by_node() -> None:
    def osd(number: int, host: str, ops: float, time: float) -> OsdShare:
        return OsdShare(number, host, Figure(ops, "ratio"), Figure(time, "ratio"), Figure(1e6, "ns"), 0.25)

    four = [osd(0, "a", 0.2, 0.1), osd(1, "a", 0.2, 0.1), osd(2, "b", 0.3, 0.4), osd(3, "b", 0.3, 0.4)]
    expected = "by node: b 60 % of the I/Os and 80 % of the time, a 40 % of the I/Os and 20 % of the time"
    assert account_words.by_node(four) == expected
    # An OSD on each node says it by itself, and one node has all.
    assert account_words.by_node(four[1:3]) == ""
    assert account_words.by_node(four[:2]) == ""
    many = [osd(number, f"n{number % 20}", 0.01, 0.01) for number in range(100)]
    assert account_words.by_node(many).endswith("; and 14 more nodes")


def account_of(finding: AccountFinding) -> Account:
    assert finding.point.account is not None
    return finding.point.account


@pytest.mark.parametrize("point", POINTS, ids=lambda p: p.step_key)
def test_the_sample_is_an_account_that_closes(point: Any) -> None:
    account = point.account
    assert account.in_flight.value == pytest.approx(point.iops.value * point.latency_ns_mean.value / 1e9)
    assert account.in_flight.value == pytest.approx(account.concurrency)
    assert sum(part.share.value for part in account.parts) == pytest.approx(1)
    assert sum(part.latency_ns.value for part in account.parts) == pytest.approx(point.latency_ns_mean.value)
    reached = [one.reached.value for one in account.ceilings if one.reached.value is not None]
    assert reached == sorted(reached, reverse=True)
    assert all(0 < one < 1 for one in reached)
    for one in account.ceilings:
        if one.iops.value is not None:
            assert one.iops.value == pytest.approx(one.capacity.value / one.demand.value)
            assert one.reached.value == pytest.approx(point.iops.value / one.iops.value)


@pytest.mark.parametrize("width", [44, 60])
@pytest.mark.parametrize("kind", ["account", "accounts"])
def test_no_figure_is_cut_in_a_narrow_terminal(kind: str, width: int) -> None:
    text = text_of(samples.explained() if kind == "account" else samples.accounts(), width)
    assert all(cell_len(line.rstrip()) <= width for line in text.splitlines())
    for figure in ("12.1k ±3%", "95%", "12.7k ±1%", "225µs", "41%") if kind == "account" else ("12.1k ±3%", "95%"):
        assert figure in text


def test_golden_of_a_narrow_terminal() -> None:
    golden.check("account-narrow.txt", text_of(samples.explained("rados/hdd/randread-4K-qd16"), 44))


def test_wide_accounts_name_the_nearest_ceiling() -> None:
    line = next(
        one for one in text_of(samples.accounts(), 130).splitlines() if one.startswith("rbd/hdd/randread-4K-qd16")
    )
    assert line.split() == [
        "rbd/hdd/randread-4K-qd16",
        "641",
        "±19",
        "696",
        "92%",
        "osd.0's",
        "HDD",
        "(node2)",
        "device",
        "(osd.0)",
    ]


def test_what_is_not_known_is_said_and_is_never_a_zero() -> None:
    nothing = Figure(None, "s")
    unknown = [dataclasses.replace(one, capacity=nothing, iops=nothing, reached=nothing) for one in _ceilings()]
    text = text_of(changed(ceilings=tuple(unknown)))
    table = text[text.index("Ceilings (") : text.index("capacity not known:")]
    rows = [line for line in table.splitlines() if line.startswith("osd.3's SSD")]
    assert re.findall(r"n/a|0\.333 I/Os", rows[0]) == ["0.333 I/Os", "n/a", "n/a", "n/a"]
    assert not re.search(r"\s0( |$)", table)
    assert account_words.nearest(changed(ceilings=tuple(unknown)).point) is None


def _ceilings() -> tuple[Ceiling, ...]:
    return account_of(samples.explained()).ceilings


def test_a_run_without_accounts_says_so() -> None:
    finding = samples.accounts()
    disks = AccountsFinding(finding.run_id, finding.target, tuple(p for p in finding.points if p.layer == "disk"))
    assert "No load of this run has an account of its resources." in text_of(disks)
    rows = list(csv.DictReader(io.StringIO(as_text(disks, "csv"))))
    assert {row["ceiling_reached_ratio"] for row in rows} == {""}
    assert {row["iops"] != "" for row in rows} == {True}
    assert "this load went through no OSD" in text_of(samples.explained("disk/ssd/randread-4K-qd16", ()))


def test_a_refused_load_shows_its_reason_and_no_account_in_any_output() -> None:
    finding = samples.explained("rbd/hdd/read-64K-qd16", ())
    assert finding.point.account is not None  # it exists, and is held back
    text = text_of(finding)
    assert "refused: the image is thin" in text
    assert "Ceilings" not in text
    assert json.loads(as_text(finding, "json"))["point"]["account"] is None
    rows = list(csv.DictReader(io.StringIO(as_text(finding, "csv"))))
    assert [(row["status"], row["iops"], row["ceiling_iops"]) for row in rows] == [("refused", "", "")]
    with pytest.raises(UsageError, match="--table must be one of loads"):
        as_text(finding, "csv", table="ceilings")
    accounts = text_of(samples.accounts())
    assert "rbd/hdd/read-64K-qd16: the image is thin" in " ".join(accounts.split())


def test_a_load_without_any_part_of_an_account_is_shown() -> None:
    text = text_of(changed(ceilings=(), parts=(), osds=(), foreign=()))
    assert "No resource was seen." in text
    assert "Where the latency is" not in text
    assert "What each OSD does" not in text


def many(count: int) -> AccountFinding:
    """Return the sample on a cluster of many OSDs, of which osd.700 does ten times its share."""
    even = 1 / count
    osds = tuple(
        OsdShare(
            osd, f"node{osd % 40}", Figure(even * (10 if osd == 700 else 1 + osd % 7 / 100), "ratio"),
            Figure(even, "ratio"), Figure(1e6, "ns"), even,
        )
        for osd in range(count)
    )  # fmt: skip
    device = next(one for one in _ceilings() if one.resource == "device")
    disks = tuple(
        dataclasses.replace(device, subject=f"osd.{osd}", words=f"osd.{osd}'s SSD (node{osd % 40})")
        for osd in range(count)
    )
    others = tuple(one for one in _ceilings() if one.resource != "device")
    return changed(osds=osds, ceilings=(*disks, *others))


def test_what_holds_nothing_back_is_never_the_nearest() -> None:
    busy = dataclasses.replace(
        _ceilings()[0], words="the disk's busy time", reached=Figure(0.99, "ratio"), binding=False
    )
    finding = changed(ceilings=(busy, *_ceilings()), throttles=(Throttle("osd.3", "an_option", Figure(0.4, "ratio")),))
    nearest = account_words.nearest(finding.point)
    assert nearest is not None
    assert nearest.words == "the CPU of node2"
    text = text_of(finding)
    assert text.index("\nthe CPU of node2") < text.index("\nthe disk's busy time")
    assert "holds nothing back when reached: the disk's busy time" in text
    assert re.search(r"osd\.3 +an_option +40%", text)
    (drawing,) = pictures(dataclasses.replace(FINDING.groups[7], points=(finding.point,)))
    assert "busy time" not in str(drawing.rows)


def test_of_a_thousand_osds_those_that_stand_out_are_shown_and_the_others_counted() -> None:
    text = text_of(many(1000))
    osds = text[text.index("stand out most") : text.index("Little's law")]
    rows = [line for line in osds.splitlines() if line.startswith("osd.")]
    assert len(rows) == 10
    assert rows[0].startswith("osd.700")
    assert "and 990 more; --output csv --table osds has them all" in osds
    shown = text[text.index("Ceilings (") : text.index("Where the latency is")]
    assert len([line for line in shown.splitlines() if re.match(r"osd\.\d+'s SSD", line)]) == 3
    assert "the CPU of node2" in shown
    assert "and 997 more; --output csv --table ceilings has them all" in shown
    assert len(text.splitlines()) < 80
    assert len(list(csv.DictReader(io.StringIO(as_text(many(1000), "csv", table="osds"))))) == 1000


def test_an_account_that_does_not_close_says_by_how_much() -> None:
    assert "+0" not in account_words.little(account_of(samples.explained()))
    off = account_of(changed(in_flight=Figure(12.8, "")))
    assert account_words.little(off).endswith("12.8 I/Os in flight; the load keeps 16: the account is −20% off.")


@pytest.mark.parametrize(
    ("resource", "capacity", "expected"),
    [
        ("osd_cpu", Figure(2.0, "s"), "2 cores"),
        ("client_cpu", Figure(1.0, "s"), "1 core"),
        ("host_cpu", Figure(0.05, "s"), "0.0500 cores"),
        ("kv_sync", Figure(1.0, "s"), "1 thread"),
        ("in_flight", Figure(16.0, "s"), "16 in flight"),
        ("network", Figure(1.25e9, "bytes"), "1.16 GiB/s"),
        ("device", Figure(41300.0, "I/Os"), "41.3k I/Os/s"),
        ("network", Figure(None, "bytes"), "n/a"),
    ],
)
def test_a_capacity_has_the_unit_of_its_resource(resource: str, capacity: Figure, expected: str) -> None:
    assert (
        account_words.capacity_text(dataclasses.replace(_ceilings()[0], resource=resource, capacity=capacity))
        == expected
    )


FINDING = without_refused(samples.ladder())


def pictures(group: RungGroup) -> list[Drawing]:
    """Return the pictures of the accounts of a ladder that has this group alone."""
    drawn = drawings(dataclasses.replace(FINDING, groups=(group,), series=(), distributions=()))
    return [drawing for drawing in drawn if drawing.name.startswith("ceilings-")]


@pytest.mark.parametrize("group", FINDING.groups, ids=lambda g: f"{g.device_class}-{g.pattern}")
def test_a_picture_shows_the_nearest_ceilings_above_the_load_and_no_name_over_another(group: Any) -> None:
    (drawing,) = pictures(group)
    rows = drawing.rows
    lines = [row for row in rows if row["kind"] in ("nearest", "ceiling", "measured")]
    nearest = [row for row in lines if row["kind"] == "nearest"]
    (measured,) = [row for row in lines if row["kind"] == "measured"]
    assert len(nearest) == 1
    assert 1 <= len(lines) - 1 <= 5
    assert all(row["y"] > measured["y"] for row in lines if row is not measured)
    assert measured["low"] <= measured["y"] <= measured["high"]
    assert all(0 < row["y"] <= 1 and 0 < row["name_y"] <= 1 for row in lines)
    names = sorted(row["name_y"] for row in lines)
    assert min((b - a for a, b in itertools.pairwise(names)), default=1) > 0.05
    parts = [row for row in rows if row["kind"] == "part"]
    assert parts[0]["from"] == 0
    assert parts[-1]["to"] == pytest.approx(1)


def test_names_stay_inside_where_all_rates_are_alike() -> None:
    group = next(g for g in FINDING.groups if g.pattern == "randread-4K-qd16" and g.device_class == "ssd")
    point = group.points[-1]
    alike = tuple(dataclasses.replace(one, iops=Figure(12100.0 + i, "1/s")) for i, one in enumerate(_ceilings()))
    account = dataclasses.replace(account_of(samples.explained()), ceilings=alike)
    other = dataclasses.replace(group, points=(dataclasses.replace(point, account=account),))
    (drawing,) = pictures(other)
    rows = [row for row in drawing.rows if "name_y" in row and row["kind"] != "bottom"]
    names = sorted((row["name_y"] for row in rows), reverse=True)
    assert len(names) == 5
    assert all(a - b > 0.05 for a, b in itertools.pairwise(names))
    assert names[0] <= 1
    assert names[-1] >= 0.28


def test_a_pattern_without_an_account_has_no_picture() -> None:
    group = FINDING.groups[0]
    disk = dataclasses.replace(group, points=group.points[:1])
    assert pictures(disk) == []
    alone = dataclasses.replace(samples.ladder(), groups=(disk,), cross_checks=())
    page = as_text(alone, "html")
    assert 'id="ceilings"' not in page
    assert "Of ceiling" not in page
    # No load has a ceiling: the table has no column for it.
    assert "ceil" not in text_of(alone)


def test_what_is_said_of_a_picture_holds_its_figures() -> None:
    group = next(g for g in FINDING.groups if g.pattern == "randread-4K-qd16" and g.device_class == "hdd")
    (drawing,) = pictures(group)
    for expected in ("641 IOPS measured", "osd.0's HDD (node2) 696 (92 % reached)", "store 66 % of the latency"):
        assert expected in drawing.description


def test_what_the_sentence_names_is_not_said_again() -> None:
    verdict = samples.explained().point.verdict
    first, *others = verdict.alternatives
    said = dataclasses.replace(verdict, sentence=f"{verdict.sentence} Besides, {first.name}.")
    assert others
    assert first.name not in account_words.alternatives(said, "elsewhere")
    assert account_words.alternatives(said, "elsewhere").startswith(f"{others[0].name} (")


def test_how_many_causes_are_left_out_is_said_and_where_they_are() -> None:
    """Of one load the CSV has all with their intervals, and of a ladder the CSV of the load."""
    finding = samples.explained()
    first = finding.point.verdict.alternatives[0]
    others = tuple(dataclasses.replace(first, name=f"cause {number}") for number in range(5))
    verdict = dataclasses.replace(finding.point.verdict, alternatives=others)
    finding = dataclasses.replace(finding, point=dataclasses.replace(finding.point, verdict=verdict))
    shown = " ".join(text_of(finding).split())
    assert "cause 2 (" in shown
    assert "cause 3" not in shown
    assert "; and 2 more: --output csv --table alternatives has them all" in shown
    rows = list(csv.DictReader(as_text(finding, "csv", table="alternatives").splitlines()))
    assert [row["name"] for row in rows] == [cause.name for cause in others]
    assert all(row["value_low"] and row["value_high"] for row in rows)
    page = as_text(finding, "html")
    assert "; and 2 more: the JSON of this page has them all" in page
    group = dataclasses.replace(FINDING.groups[7], points=(*FINDING.groups[7].points[:-1], finding.point))
    ladder = " ".join(text_of(dataclasses.replace(FINDING, groups=(group,))).split())
    command = f"bathy explain {FINDING.run_id} {finding.point.step_key} --output csv --table alternatives"
    assert f"; and 2 more: {command} has them all" in ladder
    assert "and 2 more" not in text_of(samples.explained())


def test_a_bar_of_a_page_begins_at_the_left_as_that_of_a_terminal() -> None:
    page = as_text(samples.explained(), "html")
    assert re.search(r'<td class="figure" style="--share:[0-9.]+%"></td>', page)
    assert ".blocks td[style] { background: linear-gradient(to right," in page


def test_advice_stands_beside_the_sentence() -> None:
    table = text_of(samples.ladder())
    assert "  next: Give the OSDs more cores and measure again." in table
    assert "also considered: the CPU of the load generator (19 %); osd.3's SSD" in table
    page = samples.ladder_page()
    assert "<b>Next:</b> Give the OSDs more cores and measure again." in page
    assert "Also considered: the CPU of the load generator (19 %); osd.3&#39;s SSD (node2) (9.8 %)" in page


def test_a_load_with_a_rate_of_its_own_has_fewer_in_flight_and_nothing_is_off() -> None:
    account = account_of(samples.explained())
    slow = dataclasses.replace(account, in_flight=Figure(0.9, "I/Os"))
    assert account_words.little(slow).endswith(f"I/Os in flight, of at most {account.concurrency}.")
