"""Who did the I/O, by OSDs, nodes and pools."""

from __future__ import annotations

from tests.unit.activity.conftest import START_NS, Recording, S, rows_of

from bathyscope.commands.analyze import finding_of_view
from bathyscope.records import Collection, ImageIo, OsdIo, PerfCounter, PgIo, Placement, Uncounted
from bathyscope.records.activity_finding import ActivityFinding

AT_NS = START_NS + 30 * S


def placed(*hosts: str) -> list[Placement]:
    return [Placement(osd, host, "ssd", None, None, None, None, None, None) for osd, host in enumerate(hosts)]


def counted(osd: int, **grown: float) -> list[PerfCounter]:
    """Rows of an OSD's counters: a latency's keyword is (seconds, count)."""
    return [
        PerfCounter(AT_NS, 10 * S, f"osd.{osd}", "osd", name, "counter", value, None, None)
        for name, value in grown.items()
    ]


def group(pg: str, osd: int, reads: int, writes: int, pool: str = "rbd") -> PgIo:
    return PgIo(AT_NS, 10 * S, pg, pool, osd, f"{osd} 9", reads, writes, reads * 4096, writes * 4096)


def test_counters_of_osds_give_their_operations_and_latencies(recording: Recording) -> None:
    recording.seen("perf_counters")
    recording.add(
        *placed("a", "a", "b"),
        *counted(0, op_r=60, op_w=30, op_rw=30, op_r_out_bytes=600, op_w_in_bytes=100, op_rw_in_bytes=20),
        *counted(0, op_r_latency=0.06, op_w_latency=0.3, op_rw_latency=0.3),
        *counted(1, op_r=0.0, op_w=60, op_w_latency=0.6),
        *counted(2, numpg=3),
    )
    found = recording.view("osds")
    assert rows_of(found, "OSD", "host", "reads", "writes", "IOPS", "share", "read", "written") == [
        ("osd.0", "a", 60, 60, 2.0, 2 / 3, 600, 120),
        ("osd.1", "a", 0, 60, 1.0, 1 / 3, 0, 0),
        ("osd.2", "b", 0, 0, 0.0, 0.0, 0, 0),
    ]
    assert rows_of(found, "read latency", "write latency") == [(1e6, 1e7), (None, 1e7), (None, None)]
    assert found.unseen == ()


def test_nodes_are_the_sums_of_their_osds(recording: Recording) -> None:
    recording.seen("perf_counters")
    recording.add(*placed("a", "a", "b"))
    recording.add(*counted(0, op_r=60, op_r_latency=0.06), *counted(1, op_r=60, op_r_latency=0.18))
    recording.add(*counted(2, op_w=12, op_w_latency=0.12))
    found = recording.view("nodes")
    assert rows_of(found, "node", "OSDs", "reads", "writes", "read latency", "write latency") == [
        ("a", 2, 120, 0, 2e6, None),
        ("b", 1, 0, 12, None, 1e7),
    ]
    assert found.sentence.startswith("a does 91 %")


def test_without_counters_the_statistics_of_placement_groups_tell_who_did_it(recording: Recording) -> None:
    recording.seen("pg_stats")
    recording.add(*placed("a", "b"), group("2.0", 0, 30, 0), group("2.1", 0, 30, 0), group("2.2", 1, 0, 60))
    found = recording.view("osds")
    assert rows_of(found, "OSD", "reads", "writes", "IOPS", "read latency", "busy PGs") == [
        ("osd.0", 60, 0, 1.0, None, 2),
        ("osd.1", 0, 60, 1.0, None, 1),
    ]
    assert any("osd 'allow *'" in remark for remark in found.unseen)


def test_counters_of_some_osds_are_not_compared_with_groups_of_the_others(recording: Recording) -> None:
    recording.seen("pg_stats")
    recording.seen("perf_counters")
    recording.add(*placed("a", "b"), *counted(0, op_r=1000), group("2.0", 0, 30, 0), group("2.2", 1, 60, 0))
    assert rows_of(recording.view("osds"), "OSD", "reads") == [("osd.0", 30), ("osd.1", 60)]


def test_pools_have_the_sums_of_their_groups(recording: Recording) -> None:
    recording.seen("pg_stats")
    recording.add(group("2.0", 0, 30, 0), group("2.1", 1, 30, 6), group("3.0", 1, 0, 60, pool="other"))
    assert rows_of(recording.view("pools"), "pool", "reads", "writes", "busy PGs", "primaries") == [
        ("rbd", 60, 6, 2, 2),
        ("other", 0, 60, 1, 1),
    ]


def test_what_placement_groups_lost_is_said_where_they_are_what_is_known(recording: Recording) -> None:
    recording.seen("pg_stats")
    recording.add(
        *placed("a"), group("2.0", 0, 30, 0), Uncounted(START_NS + 20 * S, 10 * S, "pg_stats", "they lost some")
    )
    said = "Not all is counted from 10 s to 20 s: they lost some."
    assert said in recording.view("pools").unseen
    for view in ("osds", "nodes"):
        assert said in finding_of_view(recording.run, view).unseen, view


def test_what_an_osd_lost_when_it_went_is_said_in_every_view_of_counts_and_is_no_time_without_any(
    recording: Recording,
) -> None:
    for source in ("pg_stats", "perf_counters", "mgr_counters"):
        recording.seen(source)
    about = {"pool": "rbd", "read_bytes": 0, "write_bytes": 0, "read_latency_ns_sum": 0, "write_latency_ns_sum": 0}
    recording.add(
        *placed("a"),
        group("2.0", 0, 60, 0),
        *counted(0, op_r=60),
        ImageIo(START_NS + 30 * S, 5 * S, namespace="", image="a", image_id=None, client="client.7",
                client_address="10.0.0.1", read_count=60, write_count=0, **about),
        OsdIo(START_NS + 30 * S, 5 * S, osd=0, read_count=60, write_count=0, **about),
        Uncounted(START_NS + 20 * S, 10 * S, "cluster_status", "osd.2 went down"),
    )  # fmt: skip
    recording.view("pools")
    for view in ("devices", "clients", "pools", "osds", "nodes", "balance", "osd_pools"):
        found = finding_of_view(recording.run, view)
        assert "Not all is counted from 10 s to 20 s: osd.2 went down." in found.unseen, view
        if view != "balance":
            assert rows_of(found, "IOPS")[0] == (1.0,), view


def test_a_pool_of_an_osd_has_no_rate_of_the_time_in_which_nothing_was_counted(recording: Recording) -> None:
    recording.seen("mgr_counters")
    recording.seen("pg_stats")
    recording.add(
        OsdIo(START_NS + 30 * S, 5 * S, 0, "rbd", 40, 0, 0, 0, 0, 0),
        Uncounted(START_NS + 35 * S, 20 * S, "mgr_counters", "another manager took over"),
        Uncounted(START_NS + 50 * S, 10 * S, "pg_stats", "groups lost some"),
    )
    found = recording.view("osd_pools")
    assert rows_of(found, "IOPS") == [(1.0,)]
    assert found.unseen == ("Not counted from 15 s to 35 s: another manager took over.",)


def test_a_part_of_the_time_has_the_rate_of_that_time_whatever_the_intervals_are(recording: Recording) -> None:
    """1,000 writes a second in intervals of 10 s, looked at through windows that begin and end anywhere."""
    recording.seen("pg_stats", 0, 60)
    for at_s in range(10, 70, 10):
        recording.add(PgIo(START_NS + at_s * S, 10 * S, "2.0", "rbd", 0, "0", 0, 10_000, 0, 0))
    for since, until in (("3s", "18s"), ("9s", "24s"), ("12s", "27s"), ("45s", "60s")):
        found = finding_of_view_part(recording, since, until)
        assert rows_of(found, "IOPS") == [(1000.0,)], since
        assert rows_of(found, "writes") == [(15_000,)], since


def finding_of_view_part(recording: Recording, since: str, until: str) -> ActivityFinding:
    if recording.run.segments():
        return finding_of_view(recording.run, "pools", since=since, until=until)
    return recording.view("pools", since=since, until=until)


def test_an_osd_that_does_not_answer_costs_its_own_rows_only(recording: Recording) -> None:
    recording.add(*placed("a", "b"), *counted(0, op_r=600), *counted(1, numpg=1))
    for at_s in (0, 60):
        recording.add(Collection(START_NS + at_s * S, "perf_counters", 0, 3, 1, 1, False, "osd.2: timed out"))
    found = recording.view("osds")
    assert rows_of(found, "OSD", "IOPS") == [("osd.0", 10.0), ("osd.1", 0.0)]
