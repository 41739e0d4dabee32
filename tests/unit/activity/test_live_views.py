"""Views that a live screen leads to: OSDs × pools, the cluster's health, trends, and rows narrowed to one thing."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from tests.unit.activity.conftest import START_NS, Recording, S, rows_of
from tests.unit.activity.test_devices import io as at_thirty
from tests.unit.activity.test_image import ID, image, op, placed

from bathyscope import views
from bathyscope.analysis.activity import VIEWS
from bathyscope.analysis.activity.shape import TREND_PARTS, Question
from bathyscope.commands.analyze import finding_of_view
from bathyscope.records import (
    RECORDS_BY_TABLE,
    ClusterStatus,
    HealthCheck,
    ImageIo,
    OsdIo,
    PerfCounter,
    PgIo,
    Placement,
    ZoneIo,
    to_table,
)
from bathyscope.store import duck
from bathyscope.views.cells import cell


def asked(recording: Recording, view: str, **only: Any) -> Any:
    if not recording.run.segments():
        recording.view("devices")
    question = Question(recording.run.id, "t", START_NS, START_NS + 60 * S, **only)
    answers = {name: duck.query([recording.run], sql) for name, sql in VIEWS[view].queries(question).items()}
    return VIEWS[view].build(answers, question)


def io(image: str, reads: int, ends_s: float, length_s: float) -> ImageIo:
    at_ns, length_ns = START_NS + round(ends_s * S), round(length_s * S)
    return dataclasses.replace(at_thirty(image, reads, 0), at_ns=at_ns, duration_ns=length_ns)


def osd_io(osd: int, pool: str, reads: int) -> OsdIo:
    return OsdIo(START_NS + 30 * S, 10 * S, osd, pool, reads, 0, reads * 4096, 0, reads * 1000, 0)


def group(osd: int, pool: str, reads: int) -> PgIo:
    return PgIo(START_NS + 30 * S, 10 * S, f"{osd}.{reads:x}", pool, osd, str(osd), reads, 0, 0, 0)


def test_osds_and_pools_are_counted_by_the_module_with_latencies(recording: Recording) -> None:
    recording.seen("mgr_counters")
    recording.add(osd_io(0, "rbd", 90), osd_io(0, "ec", 5), osd_io(1, "rbd", 5), group(0, "rbd", 4000))
    found = asked(recording, "osd_pools")
    assert rows_of(found, "OSD", "pool", "reads", "read latency") == [
        ("osd.0", "rbd", 90, 1000.0),
        ("osd.0", "ec", 5, 1000.0),
        ("osd.1", "rbd", 5, 1000.0),
    ]
    assert found.sentence.startswith("rbd on osd.0 does 90 %")
    assert found.unseen == ()


@pytest.mark.parametrize(("only", "kept"), [({"osd": "osd.0"}, ["rbd", "ec"]), ({"pool": "rbd"}, ["rbd", "rbd"])])
def test_without_the_module_placement_groups_tell_it_and_the_view_says_so(
    recording: Recording, only: dict[str, str], kept: list[str]
) -> None:
    recording.seen("pg_stats")
    recording.add(group(0, "rbd", 90), group(0, "ec", 5), group(1, "rbd", 5))
    found = asked(recording, "osd_pools", **only)
    assert [row[0] for row in rows_of(found, "pool")] == kept
    assert rows_of(found, "read latency")[0] == (None,)
    assert any("bathy mgr install" in remark for remark in found.unseen)


def test_osds_are_narrowed_to_a_node(recording: Recording) -> None:
    for osd, host in ((0, "n1"), (1, "n2"), (2, "")):
        recording.add(Placement(osd, host, "ssd", None, None, None, None, None, None))
    assert rows_of(asked(recording, "osds", node="n2"), "OSD") == [("osd.1",)]
    assert rows_of(asked(recording, "osds", node="(not known)"), "OSD") == [("osd.2",)]


def test_the_health_names_what_holds_and_what_is_over(recording: Recording) -> None:
    for at_s, checks in ((10, ("OSD_DOWN", "POOL_NO_REDUNDANCY")), (40, ("POOL_NO_REDUNDANCY",))):
        at_ns = START_NS + at_s * S
        recording.add(ClusterStatus(at_ns, "HEALTH_WARN", 0, 8, 8, 0, 0, None, None))
        recording.add(*(HealthCheck(at_ns, code, "HEALTH_WARN", f"about {code}") for code in checks))
    found = asked(recording, "health")
    assert found.sentence == "HEALTH_WARN: about POOL_NO_REDUNDANCY."
    assert rows_of(found, "check", "now") == [("POOL_NO_REDUNDANCY", "yes"), ("OSD_DOWN", "no")]


def test_of_a_cluster_that_was_not_asked_the_health_is_not_known(recording: Recording) -> None:
    found = asked(recording, "health")
    assert found.sentence == "The cluster's health is not known."
    assert found.unseen


def test_of_a_cluster_that_is_well_nothing_more_is_said(recording: Recording) -> None:
    recording.add(ClusterStatus(START_NS + S, "HEALTH_OK", 0, 8, 8, 0, 0, None, None))
    assert asked(recording, "health").sentence == "HEALTH_OK."


def test_a_trend_has_the_rates_of_equal_parts_and_ends_with_the_last_report(recording: Recording) -> None:
    recording.seen("mgr_counters")
    part_s = 60 / TREND_PARTS
    rates = [0, 0, 10, 10, 20, 30, 40, 80]
    # The last report ends 5 s before the end of the recording; what came before the first is not known.
    for place, rate in enumerate(rates):
        at_s = 55 - (TREND_PARTS - 1 - place) * part_s
        counted = round(rate * part_s * 10)
        recording.add(io("a", counted, at_s, part_s))
    for place in (2, 7):
        at_s = 55 - (TREND_PARTS - 1 - place) * part_s
        recording.add(io("b", 75, at_s, part_s))
    trends = dict(rows_of(recording.view("devices"), "image", "trend"))
    assert trends["rbd/a"] == pytest.approx([None, None, *(rate * 10.0 for rate in rates[2:])])
    assert trends["rbd/b"] == pytest.approx([None, None, 10.0, 0.0, 0.0, 0.0, 0.0, 10.0])


def test_a_node_s_trend_is_the_sum_of_its_osds(recording: Recording) -> None:
    for osd in (0, 1):
        recording.add(Placement(osd, "n1", "ssd", None, None, None, None, None, None))
        recording.add(
            *(
                PerfCounter(START_NS + 60 * S, 60 * S, f"osd.{osd}", "osd", name, "counter", 600.0, None, None)
                for name in ("op_r", "op_w")
            )
        )
    assert rows_of(asked(recording, "nodes"), "trend")[0][0] == pytest.approx([40.0] * TREND_PARTS)


def test_a_trend_is_bars_in_a_table_and_numbers_for_programs(recording: Recording) -> None:
    recording.seen("mgr_counters")
    recording.add(io("a", 600, 60, 30))
    found = recording.view("devices")
    trend = [column.heading for column in found.tables[0].columns].index("trend")
    assert cell(found.tables[0].columns[trend], found.tables[0].rows[0][trend]).endswith("███")
    columns, values = (line.split(",") for line in views.as_text(found, "csv").splitlines())
    shown = values[columns.index("trend_per_s")].split()
    assert shown[:2] == ["n/a", "n/a"]
    assert float(shown[-1]) == pytest.approx(20.0)
    table = json.loads(views.as_text(found, "json"))["tables"][0]
    assert table["rows"][0]["trend_per_s"][-1] == pytest.approx(20.0)


def test_a_trend_over_rows_of_hours_and_many_operations_fits_its_numbers(recording: Recording) -> None:
    recording.seen("mgr_counters", 0, 3600)
    recording.ends_s = 3600
    recording.add(io("a", 40_000_000, 3600, 3600))
    found = recording.view("devices")
    trend = [column.heading for column in found.tables[0].columns].index("trend")
    assert found.tables[0].rows[0][trend][-1] == pytest.approx(40_000_000 / 3600)


def test_of_a_zone_s_interval_at_the_edge_its_part_counts(recording: Recording) -> None:
    """A minute that was rolled up, of which the last ten seconds are asked for."""
    recording.add(
        image(), *placed("a"), ZoneIo(START_NS + 60 * S, 60 * S, "rbd", ID, 0, 3, 1, 600, 0, 600 * 4096, 0, 9, 0)
    )
    recording.ends_s = 60
    recording.view("devices")
    for view, column in (("objects", "reads"), ("zones", "reads"), ("image", "reads")):
        found = finding_of_view(recording.run, view, image="rbd/disk", since="50s")
        assert sum(row[0] for row in rows_of(found, column)) == 100, view


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_every_view_asks_rows_of_a_live_screen_which_belong_to_no_run(view: str) -> None:
    tables = {record.TABLE: to_table(record, []) for record in RECORDS_BY_TABLE.values()}
    assert "run_id" not in tables["attachment"].column_names
    question = Question("", "t", START_NS, START_NS + 60 * S, image="rbd/disk" if VIEWS[view].of_image else None)
    found = VIEWS[view].build(duck.query_tables(tables, VIEWS[view].queries(question)), question)
    assert found.sentence


def test_the_operations_of_one_object_are_those_of_its_number(recording: Recording) -> None:
    recording.add(image(), *placed("a"))
    recording.add(op(3, at_s=20), op(7, "write", at_s=30))
    found = asked(recording, "ops", image="rbd/disk", object_number=3)
    assert rows_of(found, "object", "op") == [(3, "read")]
    assert found.sentence.startswith("The last 1 of 1 recorded operations of object 3 of rbd/disk")
