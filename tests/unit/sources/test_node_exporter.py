"""The figures of nodes that a Prometheus knows: whose series are whose, and what of them may be used."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from bathyscope.host import HttpRequest
from bathyscope.records import (
    DeviceSample,
    EnvironmentFact,
    NetworkSample,
    ProcessSample,
    RawAnswer,
    Tables,
    from_table,
)
from bathyscope.sources import exporters, node_exporter
from bathyscope.spec import DaemonTarget, PrometheusAccess, Target
from bathyscope.spec.scope import Scope, ScopeExporter, ScopeOsd
from bathyscope.spec.target import BluefsDevice

Recorded = Callable[[str], list[RawAnswer]]
SECOND, MS = 10**9, 10**6
ACCESS = PrometheusAccess(url="http://mon1:9095/p/", match={"cluster": 'a"b'})
TARGET = Target(name="t", prometheus=ACCESS)
# The devices of the recorded lab.
OSDS = tuple(
    ScopeOsd(osd=osd, device_class="ssd", host_name="node1", device=device)
    for osd, device in ((0, "loop14"), (1, "loop16"), (2, "loop15"))
)
SCOPE = Scope(target=TARGET, osds=OSDS)
SAMPLED = SCOPE.model_copy(update={"exporters": (ScopeExporter(name="node1", instance="node1:9100", job="node"),)})


def recorded_series(recorded: Recorded) -> tuple[list[RawAnswer], Scope]:
    """Return recorded answers of both sources and their scope, for the tests of all sources."""
    return recorded("prometheus/2.42.0/three-osds"), SAMPLED


def uname(*rows: tuple[str | None, str, str]) -> list[RawAnswer]:
    """Return an answer of `node_uname_info`: (nodename, instance, job)."""
    result = [
        {"metric": {"instance": instance, "job": job, **({"nodename": name} if name else {})}, "value": [1, "1"]}
        for name, instance, job in rows
    ]
    said = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return [RawAnswer("node_uname_info", ("curl",), (), 0, json.dumps(said).encode(), b"", 1, 2)]


def changed(answers: list[RawAnswer], label: str, change: Callable[[dict[str, str], list[list[object]]], None]) -> None:
    """Change the series of a kind in place: `change` gets labels and [time, value] of each."""
    for place, answer in enumerate(answers):
        if answer.label == label:
            said = answer.json()
            for series in said["data"]["result"]:
                change(series["metric"], series["values"])
            answers[place] = dataclasses.replace(answer, stdout=json.dumps(said).encode())


def span(answers: list[RawAnswer]) -> tuple[int, int]:
    own = [answer for answer in answers if answer.label == "cpu-node1"]
    return own[0].started_ns, own[-1].ended_ns


def test_only_machines_that_are_elsewhere_are_asked_for_and_values_are_quoted() -> None:
    uname_query, *clocks = exporters.SOURCE.plan(SCOPE)
    assert isinstance(uname_query, HttpRequest)
    assert uname_query.url == "http://mon1:9095/p/api/v1/query"
    assert dict(uname_query.parameters) == {"query": '{__name__=~"node_uname_info",cluster="a\\"b"}'}
    assert len(clocks) == 4
    queries = [dict(r.parameters)["query"] for r in node_exporter.SOURCE.plan(SAMPLED) if isinstance(r, HttpRequest)]
    assert queries[0] == "time()"
    assert queries[2].startswith('{__name__=~"node_disk_(reads_completed_total|')
    assert queries[2].endswith('job="node",device=~"loop14|loop16|loop15"}[150s]')
    here = tuple(DaemonTarget(name=f"osd.{n}", pid=1, start_ticks=1) for n in range(3))
    assert exporters.SOURCE.plan(SCOPE.model_copy(update={"target": TARGET.model_copy(update={"daemons": here})})) == []
    without = SAMPLED.model_copy(update={"target": Target(name="t")})
    assert (exporters.SOURCE.plan(without), node_exporter.SOURCE.plan(without)) == ([], [])


@pytest.mark.parametrize(
    ("rows", "instance"),
    [
        ([("node1", "10.0.0.1:9100", "a"), ("node2", "10.0.0.2:9100", "a")], "10.0.0.1:9100"),
        # cephadm's: the instance is the name.
        ([(None, "node1", "node")], "node1"),
        ([(None, "node1:9100", "node")], "node1:9100"),
        ([("node1.example.org", "i", "a")], "i"),
        ([("node1", "i", "a"), ("node1.example.org", "k", "a")], "i"),
        ([("node1.a.org", "i", "a"), ("node1.b.org", "k", "a")], None),
        ([("node1", "i", "a"), ("node1", "k", "a")], None),
        ([("node1", "i", "a"), ("node1", "i", "b")], None),
        ([("node10", "node10", "a")], None),
        ([], None),
    ],
)  # fmt: skip
def test_a_machine_is_found_by_its_name_or_not_at_all(
    rows: list[tuple[str | None, str, str]], instance: str | None
) -> None:
    found = exporters.exporters_of(uname(*rows), SCOPE)
    assert [exporter.instance for exporter in found] == ([] if instance is None else [instance])
    said = exporters.caveats(uname(*rows), SCOPE)
    assert len(said) == (instance is None)
    assert all(text.startswith("node1 was not sampled for osd.0, osd.1, osd.2: Prometheus has ") for text in said)


def test_what_is_wrong_with_prometheus_is_said() -> None:
    refused = [dataclasses.replace(uname()[0], exit_code=22, stdout=b"", stderr=b"HTTP 401: Unauthorized")]
    assert exporters.problem(refused) == "HTTP 401: Unauthorized"
    assert exporters.caveats(refused, SCOPE) == [
        "node1 was not sampled for osd.0, osd.1, osd.2: Prometheus gave no answer: HTTP 401: Unauthorized"
    ]
    assert "resultType" in str(exporters.problem([dataclasses.replace(uname()[0], stdout=b'{"data": {}}')]))
    assert exporters.problem(uname()) is None
    assert (exporters.problem([]), exporters.caveats([], SCOPE)) == (None, [])


def test_the_clock_of_prometheus_is_told(recorded: Recorded) -> None:
    answers, scope = recorded_series(recorded)
    found = exporters.SOURCE.parse(answers, scope)[EnvironmentFact]
    facts = {(f.subject, f.name): f.value for f in from_table(EnvironmentFact, found)}
    assert facts["node node1", "node_exporter"] == "node1:9100"
    # It was the same machine; Prometheus tells milliseconds.
    assert abs(int(facts["prometheus", "clock_offset_ns"])) <= int(facts["prometheus", "clock_error_ns"]) + MS


def test_rows_are_what_was_counted_between_scrapes(recorded: Recorded) -> None:
    answers, scope = recorded_series(recorded)
    tables = node_exporter.SOURCE.parse(answers, scope)
    devices = from_table(DeviceSample, tables[DeviceSample])
    assert {(row.role, row.device, row.host, row.device_class) for row in devices} == {
        ("osd.0", "loop14", "node1", "ssd"), ("osd.1", "loop16", "node1", "ssd"), ("osd.2", "loop15", "node1", "ssd"),
    }  # fmt: skip
    assert all(900 * MS < row.duration_ns < 1100 * MS for row in devices)
    start_ns, end_ns = span(answers)
    assert all(start_ns < row.at_ns < end_ns for row in devices)
    # The rows add up to what the counter of the first and the last scrape say.
    (last,) = [answer for answer in answers if answer.label == "disk-node1"][-1:]
    (written,) = [
        series["values"]
        for series in last.json()["data"]["result"]
        if series["metric"]["__name__"] == "node_disk_written_bytes_total" and series["metric"]["device"] == "loop14"
    ]
    since = [value for at_s, value in written if at_s * 1e9 <= start_ns + 2 * MS][-1]
    assert sum(row.write_bytes for row in devices if row.role == "osd.0") == float(written[-1][1]) - float(since)
    machine = from_table(ProcessSample, tables[ProcessSample])
    assert {(row.process, row.processors, row.memory_bytes) for row in machine} == {("host", 2, None)}
    assert all(0 < row.cpu_user_s + row.cpu_system_s < 2.2 for row in machine)
    assert "lo" not in {row.interface for row in from_table(NetworkSample, tables[NetworkSample])}


def test_steal_is_known_where_the_exporter_has_it(recorded: Recorded) -> None:
    answers, scope = recorded_series(recorded)

    def stolen(tables: Tables) -> set[float | None]:
        return {row.cpu_steal_s for row in from_table(ProcessSample, tables[ProcessSample])}

    assert stolen(node_exporter.SOURCE.parse(answers, scope)) == {None}

    def as_steal(labels: dict[str, str], values: list[list[object]]) -> None:
        if labels["mode"] == "softirq":
            labels["mode"] = "steal"
            for place, pair in enumerate(values):
                pair[1] = str(0.25 * place)

    changed(answers, "cpu-node1", as_steal)
    # A quarter of a second in each interval and of each of the two processors; the system's part has what is left.
    assert stolen(node_exporter.SOURCE.parse(answers, scope)) == {0.5}


def test_answers_overlap_so_one_that_failed_loses_nothing(recorded: Recorded) -> None:
    answers, scope = recorded_series(recorded)
    whole = node_exporter.SOURCE.parse(answers, scope)
    middle = [n for n, answer in enumerate(answers) if answer.label == "disk-node1"][1]
    answers[middle] = dataclasses.replace(answers[middle], exit_code=28, stdout=b"", stderr=b"no whole answer")
    assert node_exporter.SOURCE.parse(answers, scope)[DeviceSample].equals(whole[DeviceSample])


def test_a_counter_that_began_anew_costs_one_interval(recorded: Recorded) -> None:
    answers, scope = recorded_series(recorded)
    before = node_exporter.SOURCE.parse(answers, scope)
    moment = (span(answers)[0] + 5 * SECOND) / 1e9

    def reboot(_: dict[str, str], values: list[list[object]]) -> None:
        first = next((float(str(value)) for at, value in values if float(str(at)) > moment), 0.0)
        for pair in values:
            if float(str(pair[0])) > moment:
                pair[1] = str(float(str(pair[1])) - first)

    for label in ("cpu-node1", "disk-node1"):
        changed(answers, label, reboot)
    after = node_exporter.SOURCE.parse(answers, scope)
    assert after[ProcessSample].num_rows == before[ProcessSample].num_rows - 1
    assert after[DeviceSample].num_rows == before[DeviceSample].num_rows - 3
    assert all(row.write_bytes >= 0 for row in from_table(DeviceSample, after[DeviceSample]))


def test_a_window_has_only_intervals_that_lie_in_it(recorded: Recorded) -> None:
    answers, scope = recorded_series(recorded)
    start_ns = span(answers)[0] + 2 * SECOND
    seen = node_exporter.in_window(answers, scope, start_ns, start_ns + 8 * SECOND)
    rows = from_table(ProcessSample, seen.tables[ProcessSample])
    assert len(rows) == 7
    assert all(start_ns <= row.at_ns - row.duration_ns and row.at_ns <= start_ns + 8 * SECOND for row in rows)
    assert seen.missing == ()
    (text,) = seen.coarse
    assert text.startswith("figures of node1 come from Prometheus: one scrape every 1.0 s, so up to 2.0 s at the ends ")


@pytest.mark.parametrize("seconds", [0.5, 2.0, 3.0])
def test_a_step_of_a_few_scrapes_has_no_figures(recorded: Recorded, seconds: float) -> None:
    answers, scope = recorded_series(recorded)
    start_ns = span(answers)[0] + 2 * SECOND
    seen = node_exporter.in_window(answers, scope, start_ns, start_ns + round(seconds * SECOND))
    assert all(table.num_rows == 0 for table in seen.tables.values())
    (text,) = seen.missing
    assert text.startswith("node1 has no processor and device figures: one scrape every 1.0 s leaves ")
    assert text.endswith("3 are needed, take --runtime 5s or more")


def test_figures_of_a_part_of_the_time_do_not_pass_for_all_of_it(recorded: Recorded) -> None:
    answers, scope = recorded_series(recorded)
    start_ns, end_ns = span(answers)
    seen = node_exporter.in_window(answers, scope, start_ns, end_ns + 60 * SECOND)
    assert all(table.num_rows == 0 for table in seen.tables.values())
    assert len(seen.missing) == 1


def test_a_node_without_series_costs_only_its_own_figures(recorded: Recorded) -> None:
    answers, scope = recorded_series(recorded)
    other = ScopeExporter(name="node2", instance="node2:9100", job="node")
    osd = ScopeOsd(osd=3, host_name="node2", device="sdb")
    scope = scope.model_copy(update={"exporters": (*scope.exporters, other), "osds": (*OSDS, osd)})
    seen = node_exporter.in_window(answers, scope, *span(answers))
    assert set(seen.tables[ProcessSample]["host"].to_pylist()) == {"node1"}
    assert seen.missing == ("node2 has no processor and device figures: Prometheus has no samples of it",)


def test_a_prometheus_that_goes_away_is_named(recorded: Recorded) -> None:
    answers, scope = recorded_series(recorded)
    gone = [dataclasses.replace(a, exit_code=7, stdout=b"", stderr=b"mon1:9095: Connection refused") for a in answers]
    seen = node_exporter.in_window(gone, scope, *span(answers))
    assert seen.missing == (
        "node1 has no processor and device figures: Prometheus gave no answer: mon1:9095: Connection refused",
    )
    # Before the step's end: what was scraped until then is of a part of the time only.
    half = [a if a.started_ns < span(answers)[0] + 8 * SECOND else b for a, b in zip(answers, gone, strict=True)]
    assert len(node_exporter.in_window(half, scope, *span(answers)).missing) == 1


def test_a_device_without_series_is_named(recorded: Recorded) -> None:
    answers, scope = recorded_series(recorded)
    more = ScopeOsd(osd=3, host_name="node1", device="nvme0n1")
    seen = node_exporter.in_window(answers, scope.model_copy(update={"osds": (*OSDS, more)}), *span(answers))
    assert seen.missing == ("node1 has no figures of nvme0n1: Prometheus has no series of it",)
    assert seen.tables[DeviceSample].num_rows


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300", "x", None])
def test_values_that_are_no_counts_cost_the_node_and_nothing_else(recorded: Recorded, value: object) -> None:
    answers, scope = recorded_series(recorded)

    def spoil(labels: dict[str, str], values: list[list[object]]) -> None:
        if labels["__name__"].endswith("written_bytes_total") and values:
            values[-1][1] = value

    changed(answers, "disk-node1", spoil)
    seen = node_exporter.in_window(answers, scope, *span(answers))
    assert all(table.num_rows == 0 for table in seen.tables.values())
    assert len(seen.missing) == 1


def test_osds_of_one_disk_share_its_row(recorded: Recorded) -> None:
    answers, scope = recorded_series(recorded)
    shared = OSDS[1].model_copy(update={"device": "loop14"})
    scope = scope.model_copy(update={"osds": (OSDS[0], shared)})
    rows = node_exporter.SOURCE.parse(answers, scope)[DeviceSample]
    assert set(rows["role"].to_pylist()) == {"osd.0 osd.1"}


def test_block_db_and_wal_are_devices_of_their_osd(recorded: Recorded) -> None:
    answers, scope = recorded_series(recorded)
    db = BluefsDevice(use="db", device="loop15")
    osds = tuple(osd.model_copy(update={"bluefs_devices": (db,)}) for osd in OSDS[:2])
    scope = scope.model_copy(update={"osds": osds})
    (asked,) = [dict(r.parameters)["query"] for r in node_exporter.SOURCE.plan(scope) if r.label == "disk-node1"]  # type: ignore[union-attr]
    assert 'device=~"loop14|loop15|loop16"' in asked
    seen = node_exporter.in_window(answers, scope, *span(answers))
    assert seen.missing == ()
    rows = from_table(DeviceSample, seen.tables[DeviceSample])
    assert {(row.device, row.role) for row in rows} == {
        ("loop14", "osd.0"), ("loop16", "osd.1"), ("loop15", "osd.0.db osd.1.db"),
    }  # fmt: skip
    # Without the figures of its block.db those of an OSD's data would pass for all that it writes.
    gone = osds[1].model_copy(update={"bluefs_devices": (BluefsDevice(use="wal", device="nvme0n1"),)})
    seen = node_exporter.in_window(answers, scope.model_copy(update={"osds": (osds[0], gone)}), *span(answers))
    assert set(seen.tables[DeviceSample]["device"].to_pylist()) == {"loop14", "loop15"}
    assert seen.missing == (
        "node1 has no figures of nvme0n1: Prometheus has no series of it",
        "node1 has no figures of loop16: its OSD has another device without figures",
    )


@pytest.mark.parametrize(("kind", "name"), [("disk", "loop16"), ("network", "eth0")])
def test_a_device_that_is_seen_for_a_part_of_the_window_has_no_figures(
    recorded: Recorded, kind: str, name: str
) -> None:
    answers, scope = recorded_series(recorded)
    start_ns, end_ns = span(answers)
    whole = node_exporter.in_window(answers, scope, start_ns, end_ns)

    def end_early(labels: dict[str, str], values: list[list[object]]) -> None:
        if labels["device"] == name:
            values[:] = [pair for pair in values if float(str(pair[0])) < end_ns / 1e9 - 5]

    changed(answers, f"{kind}-node1", end_early)
    seen = node_exporter.in_window(answers, scope, start_ns, end_ns)
    (text,) = seen.missing
    assert text.startswith(f"node1 has no figures of {name}: Prometheus has ")
    record, column = (DeviceSample, "device") if kind == "disk" else (NetworkSample, "interface")
    assert set(seen.tables[record][column].to_pylist()) == set(whole.tables[record][column].to_pylist()) - {name}
    assert seen.tables[ProcessSample].equals(whole.tables[ProcessSample])


@pytest.mark.parametrize("kind", ["disk", "network"])
def test_a_last_answer_that_failed_leaves_no_part_for_the_whole(recorded: Recorded, kind: str) -> None:
    answers, scope = recorded_series(recorded)
    failed = dict.fromkeys(n for n, answer in enumerate(answers) if answer.label == f"{kind}-node1")
    for those in (list(failed)[-1:], list(failed)):
        for n in those:
            answers[n] = dataclasses.replace(answers[n], exit_code=22, stdout=b"", stderr=b"HTTP 503")
        seen = node_exporter.in_window(answers, scope, *span(answers))
        assert seen.tables[DeviceSample if kind == "disk" else NetworkSample].num_rows == 0
        assert len(seen.missing) == 1
        assert seen.tables[ProcessSample].num_rows
    if kind == "network":
        assert seen.missing == ("node1 has no network figures: Prometheus gave no answer: HTTP 503",)


@pytest.mark.parametrize(
    ("kind", "what"), [("cpu", "processor 0, "), ("disk", "loop14 "), ("network", "")]
)  # fmt: skip
def test_two_series_of_one_counter_cost_the_node(recorded: Recorded, kind: str, what: str) -> None:
    """Two servers' series in one store, with one label more: nobody knows which is the machine's."""
    answers, scope = recorded_series(recorded)
    for place, answer in enumerate(answers):
        if answer.label == f"{kind}-node1":
            said = answer.json()
            series = said["data"]["result"]
            series += [{**each, "metric": {**each["metric"], "replica": "b"}} for each in series]
            answers[place] = dataclasses.replace(answer, stdout=json.dumps(said).encode())
    seen = node_exporter.in_window(answers, scope, *span(answers))
    assert all(table.num_rows == 0 for table in seen.tables.values())
    (text,) = seen.missing
    assert text.startswith(f"node1 has no processor and device figures: Prometheus has several series of {what}")
    assert text.endswith("choose with --prometheus-match")
