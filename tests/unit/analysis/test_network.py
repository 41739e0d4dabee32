"""The network of machines over a window: interfaces add up, and the nearest link is the one that counts."""

from __future__ import annotations

from tests.cut import cut
from tests.unit.analysis.builders import ladder_tables

from bathyscope.analysis.network import NetworkUse, network_uses
from bathyscope.analysis.step_figures import figures
from bathyscope.records import HERE, NetworkSample, ProcessSample, Step, from_table, schema_of, to_table
from bathyscope.window.tables import of_steps

SECOND = 10**9


def row(at: int, place: tuple[str, str], received: int, sent: int, speed: int | None = None) -> NetworkSample:
    return NetworkSample(at * SECOND, SECOND, *place, received, sent, 0, 0, 1, 0, 0, 2, speed)


def test_interfaces_of_a_machine_add_up_and_the_busiest_link_counts() -> None:
    rows = [
        *(row(at, ("node2", "eth0"), 100, 900, 10_000) for at in (1, 2)),
        *(row(at, ("node2", "eth1"), 50, 25, 1000) for at in (1, 2)),
        row(1, ("node1", "eth0"), 10, 20),
    ]
    assert network_uses(to_table(NetworkSample, rows)) == (
        NetworkUse("node1", 10.0, 20.0, None, 3.0),
        # 900 bytes a second are 72 % of 10 kbit/s; of the slower link, 40 % are used.
        NetworkUse("node2", 150.0, 925.0, 0.72, 12.0),
    )
    assert network_uses(schema_of(NetworkSample).empty_table()) == ()


def test_intervals_are_cut_to_the_window() -> None:
    rows = [row(at, ("node1", "eth0"), 1000, 500) for at in (1, 2, 3)]
    rows_inside = cut(NetworkSample, to_table(NetworkSample, rows), SECOND // 2, 2 * SECOND + SECOND // 2)
    assert network_uses(rows_inside) == (NetworkUse("node1", 1000.0, 500.0, None, 6.0),)


def test_processors_of_the_load_are_those_of_the_machine_that_made_it() -> None:
    """The load of a client host: its processors are judged, not those of the machine that looks on."""
    tables = ladder_tables()
    process = tables["process_sample"].to_pylist()
    for row in process:
        row["host"] = "client1" if row["process"] in ("client", "host") else row["host"]
    idle = [
        {**row, "host": HERE, "cpu_user_s": 0.0, "cpu_system_s": 0.0} for row in process if row["process"] == "host"
    ]
    rows = [ProcessSample(**row) for row in [*process, *idle]]
    moved = {**tables, "process_sample": to_table(ProcessSample, rows)}
    of_both = of_steps(tables), of_steps(moved)
    for step in from_table(Step, tables["step"]):
        before, after = (figures(step, own[step.step_index]) for own in of_both)
        assert (before.load_host, after.load_host) == (HERE, "client1")
        assert after.client_cores == before.client_cores
        assert after.host_cpu_ratio == before.host_cpu_ratio
        assert after.nodes == ()
