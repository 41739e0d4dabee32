"""Reports: figures as the daemon answers them, rates and percentiles of intervals, what is not known."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from bathyscope.cache.reports import report, with_time
from bathyscope.cache.snapshots import Snapshot
from bathyscope.errors import ParseError
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.views import as_text, render

from .daemons import MIB, latencies, source, status

NAMES = ("status", "io", "usage", "iops", "stats")


def snapshot(answer: dict[str, Any], at_s: float = 1000.0, cache: str = "fast") -> Snapshot:
    return Snapshot(cache, round(at_s * 1e9), answer)


def rows(finding: ActivityFinding, table: int = 0) -> list[dict[str, Any]]:
    found = finding.tables[table]
    return [dict(zip([column.heading for column in found.columns], row, strict=True)) for row in found.rows]


def test_io_and_usage_are_what_the_daemon_answers() -> None:
    finding = report("io", [(snapshot(status()), None)])
    (row,) = rows(finding)
    assert row == {"Source": "ceph0", "Cache read": 30 * MIB, "Cache write": 2 * MIB, "Source read": 10 * MIB,
                   "Source write": MIB, "Compared": 4 * MIB, "Byte hit %": 0.75,
                   "Directory": "/var/lib/ceph/osd/ceph0"}  # fmt: skip
    assert finding.sentence == "75 % of 40.0 MiB read came from the cache."
    (ssd,) = rows(finding, 1)
    assert (ssd["Cache"], ssd["All"], ssd["Data"], ssd["Line table"]) == ("fast", 5 * MIB, 4 * MIB, MIB)
    assert finding.end_ns - finding.start_ns == 100 * 10**9
    (row,) = rows(report("usage", [(snapshot(status()), None)]))
    assert (row["Capacity"], row["Usage"], row["Use %"], row["Max usage"], row["Files"]) == (
        95 * MIB, 19 * MIB, 0.2, 38 * MIB, 7,
    )  # fmt: skip


def test_usage_tells_data_from_the_lines_that_hold_it() -> None:
    finding = report("usage", [(snapshot(status()), None)])
    (row,) = rows(finding)
    assert (row["Usage"], row["Data"]) == (19 * MIB, 2 * MIB)
    assert finding.sentence == "Cached: lines of 19.0 MiB of 7 files, which hold 2.00 MiB of data."
    assert any("a file takes one line at least" in text for text in finding.unseen)


def test_a_full_file_table_is_said_with_what_it_costs() -> None:
    finding = report("status", [(snapshot(status()), None)])
    (cache,) = rows(finding)
    assert (cache["Evictions"], cache["Files evicted"]) == (3, 1976)
    assert dict(finding.facts)["fast file table is full"] == (
        "it has room for 1,024 files; 1,976 files gave way to others, with 2,001 lines"
    )
    empty = status(engine={"file_table": {"files": 3, "files_max": 1024, "evictions": 0, "evicted_lines": 0}})
    assert "fast file table is full" not in dict(report("status", [(snapshot(empty), None)]).facts)


def test_iops_has_a_row_for_the_cache_and_one_for_the_directory_below() -> None:
    cache, below = rows(report("iops", [(snapshot(status()), None)]))
    assert (cache["Device"], cache["Reads"], cache["read mean"], cache["read p99"]) == ("cache", 300, 30_000, 60_000)
    assert cache["Read rate"] == 300 * 4096 / 100
    assert (below["Device"], below["Reads"], below["Writes"], below["write mean"]) == ("source", 100, 50, 4_000_000)
    # The daemon gave no median of these: the bound of the bucket stands for it.
    assert below["read p50"] == 8388608
    assert cache["write mean"] is None


def test_misses_are_what_is_neither_hit_nor_partial() -> None:
    finding = report("stats", [(snapshot(status()), None)])
    reads = next(rows(finding, place)[0] for place, table in enumerate(finding.tables) if table.title == "Reads")
    assert (reads["Read hits"], reads["Read partial"], reads["Read misses"]) == (300, 20, 80)


def test_what_the_daemon_does_not_know_is_not_zero() -> None:
    finding = report("stats", [(snapshot(status()), None)], as_one_table=True)
    (row,) = csv.DictReader(io.StringIO(as_text(finding, "csv")))
    assert (row["attr_read_hits"], row["attr_read_misses"]) == ("", "12")
    assert row["source"] == "ceph0"
    assert row["segments_cached"] == "304"
    empty = report("io", [(snapshot(status(source(io=None, stats=None))), None)])
    assert rows(empty)[0]["Cache read"] is None
    assert empty.sentence == "The daemon reports no figures of its sources."


def test_a_device_whose_lines_were_not_believed_is_named_with_the_reason() -> None:
    devices = [
        {"device": "naa.1", "at_start": "sampled", "sampled_lines": 688, "reason": None},
        {"device": "naa.2", "at_start": "compared", "sampled_lines": None, "reason": "it was away"},
        {"device": "naa.3", "at_start": "dropped", "sampled_lines": None, "reason": "a line differs"},
    ]
    facts = report("status", [(snapshot(status(source(devices_at_start=devices))), None)]).facts
    assert [fact for fact in facts if "stale" in fact[0]] == [
        ("fast may be stale on naa.2", "all cached lines are compared with it before they are used: it was away"),
        ("fast may be stale on naa.3", "all were dropped: a line differs"),
    ]


def later() -> dict[str, Any]:
    """Return the status of 10 s later: 600 reads of the cache more, each of 60 µs."""
    io = {"cache_read_bytes": 50 * MIB, "cache_write_bytes": 2 * MIB, "source_read_bytes": 10 * MIB,
          "source_write_bytes": MIB}  # fmt: skip
    iops = source()["iops"]
    iops["cache"]["reads"] = latencies(900, 50_000, [[32768, 290], [65536, 900]], latency_ns_p99=64_000)
    return status(source(io=io, iops=iops), uptime_s=110.0)


def test_an_interval_has_rates_and_percentiles_of_its_own() -> None:
    pair = (snapshot(later(), 1010.0), snapshot(status()))
    finding = report("io", [pair])
    assert finding.tables[0].columns[1].unit == "bytes/s"
    assert rows(finding)[0]["Cache read"] == 2 * MIB
    assert rows(finding)[0]["Source read"] == 0
    assert finding.end_ns - finding.start_ns == 10 * 10**9
    cache, below = rows(report("iops", [pair]))
    assert cache["Reads"] == 60
    assert cache["read mean"] == pytest.approx(60_000)
    # 290 of the 900 were quick, but none of the interval's 600.
    assert cache["read p50"] == cache["read p99"] == 65536
    # No reads, no latency.
    assert (below["Reads"], below["read mean"], below["read p99"]) == (0, None, None)
    assert any("upper bounds" in remark for remark in report("iops", [pair]).unseen)


@pytest.mark.parametrize("change", [{"pid": 8}, {"uptime_s": 3.0}, {"pid": 8, "uptime_s": 3.0}])
def test_counters_of_a_daemon_that_was_started_anew_are_not_subtracted(change: dict[str, Any]) -> None:
    now = later() | change
    finding = report("io", [(snapshot(now, 1010.0), snapshot(status()))])
    seconds = now["uptime_s"]
    assert rows(finding)[0]["Cache read"] == pytest.approx(50 * MIB / seconds)
    assert "started anew" in finding.unseen[0]


def test_a_source_that_was_stopped_with_open_files_is_no_other_s_figures() -> None:
    stopped = source(is_served=False, stats={"reads": {"bytes": 10, "bytes_hit": 5}})
    before, now = snapshot(status(source())), snapshot(status(source(), stopped, uptime_s=102.0), 1002.0)
    finding = report("io", [(now, before)])
    assert [row["Cache read"] for row in rows(finding)] == [0]
    assert any("Not shown: 1 sources" in remark for remark in finding.unseen)
    shown = rows(report("status", [(now, before)]), 1)
    assert [row["Served"] for row in shown] == ["yes", "no"]
    assert shown[1]["Byte hit %"] == 0.5


def test_a_counter_that_began_anew_is_not_known_and_the_uptime_is_the_daemon_s() -> None:
    anew = source(io={"cache_read_bytes": 5, "source_read_bytes": 20 * MIB})
    pair = snapshot(status(anew, uptime_s=102.0), 1002.0), snapshot(status())
    (row,) = rows(report("io", [pair]))
    assert (row["Cache read"], row["Source read"]) == (None, 5 * MIB)
    assert rows(report("stats", [pair]), 5)[0]["Uptime"] == 102.0


def test_a_source_that_came_in_the_interval_counts_from_its_start() -> None:
    now = status(source(), source("ceph1"), uptime_s=110.0)
    first, second = rows(report("io", [(snapshot(now), snapshot(status()))]))
    assert first["Cache read"] == 0
    assert second["Cache read"] == 3 * MIB


def test_several_caches_have_a_column_and_one_source_can_be_chosen() -> None:
    snapshots = [(snapshot(status()), None), (snapshot(status(source("ceph9")), cache="slow"), None)]
    assert [(row["Cache"], row["Source"]) for row in rows(report("io", snapshots))] == [
        ("fast", "ceph0"), ("slow", "ceph9"),
    ]  # fmt: skip
    assert [row["Source"] for row in rows(report("io", snapshots, source="ceph9"))] == ["ceph9"]


def test_a_cache_without_its_ssd_says_so() -> None:
    finding = report("status", [(snapshot(status(engine=None, problem="/dev/sdz: No such file")), None)])
    assert finding.sentence == "Sources: 1, served: 1. Nothing is cached by: fast."
    assert ("fast problem", "/dev/sdz: No such file") in finding.facts


@pytest.mark.parametrize(
    ("admission", "shown"),
    [
        (None, None),
        ({}, "all"),
        ({"stream_cutoff_bytes": 1 << 20, "is_stream_of_writes": True}, "write-bypass:1M"),
        (
            {"n_hit": 2, "stream_cutoff_bytes": 5000, "write_budget_bytes_per_day": 50 << 30},
            "2-hit+bypass:5000+budget:50G",
        ),
    ],
)
def test_what_may_enter_is_shown_as_it_is_asked_for(admission: dict[str, Any] | None, shown: str | None) -> None:
    every = {
        "n_hit": None,
        "stream_cutoff_bytes": None,
        "is_stream_of_writes": False,
        "write_budget_bytes_per_day": None,
    }
    answer = status()
    answer["cache"]["admission"] = None if admission is None else every | admission
    (row,) = rows(report("status", [(snapshot(answer), None)]))
    assert row["Admission"] == shown


def test_open_files_that_a_cache_has_no_room_for_are_said() -> None:
    answer = status()
    answer["cache"]["engine"]["files_without_room"] = 0
    assert all("is too small" not in name for name, _ in report("status", [(snapshot(answer), None)]).facts)
    answer["cache"]["engine"] |= {"files_without_room": 1234, "uncompared_bytes": 2048 * MIB}
    facts = dict(report("status", [(snapshot(answer), None)]).facts)
    assert facts["fast is too small"].startswith("1,234 open files are not cached")
    assert facts["fast is compared with its files"].startswith("2.00 GiB to go")


@pytest.mark.parametrize("name", NAMES)
def test_every_report_fits_80_columns_without_cutting_a_number(name: Any) -> None:
    answer = status(*(source(f"ceph{number}") for number in range(12)))
    stream = io.StringIO()
    render(report(name, [(snapshot(answer), None)]), "table", stream, width=80, colour=False)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in stream.getvalue()
    assert any(line.startswith("ceph11") for line in lines)


def test_the_problem_of_a_source_is_shown_however_narrow_the_terminal_is() -> None:
    problem = "block leads to /dev/sdq, which is not the disk of the configuration; bathy cache source set a --devices"
    answer = status(source("a", problem=problem), source("b"))
    for width in (40, 80, 200):
        stream = io.StringIO()
        render(report("status", [(snapshot(answer), None)]), "table", stream, width=width, colour=False)
        assert f"a: {problem}" in " ".join(stream.getvalue().split())
        assert "Problem" not in stream.getvalue()
    # What all sources of a cache have is said once.
    answer = status(*(source(name, problem="its daemon was killed") for name in "abc"))
    assert as_text(report("status", [(snapshot(answer), None)]), "table").count("killed") == 1


@pytest.mark.parametrize("name", NAMES)
def test_json_and_csv_have_every_source(name: Any) -> None:
    answer = status(source("a"), source("b"))
    finding = report(name, [(snapshot(answer), None)], as_one_table=True)
    document = json.loads(as_text(finding, "json"))
    assert document["view"] == f"cache {name}"
    assert "b" in str(document["tables"][-1]["rows"])


def test_rows_of_a_watch_carry_their_time() -> None:
    finding = with_time(report("io", [(snapshot(later(), 1010.0), snapshot(status()))]))
    (row,) = csv.DictReader(io.StringIO(as_text(finding, "csv")))
    assert row["ended_ns"] == str(1010 * 10**9)
    assert row["cache_read_bytes_per_s"] == str(2 * MIB)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("answer", [{}, {"uptime_s": "x"}, {"uptime_s": 1, "sources": [7]},
                                    {"uptime_s": 1, "sources": [{"dir": "/d", "io": {"cache_read_bytes": "NaN"},
                                                                 "usage": {"used_bytes": []}, "iops": 3,
                                                                 "stats": {"files": {}}, "size_bytes": {}}],
                                     "cache": 3}])  # fmt: skip
def test_a_broken_answer_is_a_parse_error_or_nothing_known(name: Any, answer: dict[str, Any]) -> None:
    try:
        finding = report(name, [(snapshot(answer), None)])
    except ParseError:
        return
    assert all(
        value in (None, "/d", "d", 1, 1.0, "cache", "source") for row in finding.tables[-1].rows for value in row
    )
