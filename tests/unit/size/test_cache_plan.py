"""The plan for the SSDs of nodes: the shares, what follows from them, what is refused, and the file read again."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from tests.unit.views import schemas
from typer.testing import CliRunner

from bathyscope.commands import cache_plan as verb
from bathyscope.errors import UsageError
from bathyscope.records import Op, Placement, to_table
from bathyscope.simulate.memory import cache_memory
from bathyscope.spec.cache_plan import load_cache_plan
from bathyscope.store import Workspace

from .test_curve_points import ops
from .traces import Row

MIB = 1 << 20
LINE = 64 << 10
ROUNDS = 20
LINES = {0: 256, 1: 64, 2: ROUNDS * 256}
"""Lines that an OSD reads: 0 and 1 again and again, 2 each of them once."""


def placed(osd: int, host: str) -> Placement:
    path = f"/var/lib/ceph/osd/ceph-{osd}"
    return Placement(osd, host, "hdd", None, True, None, "bluestore", None, None, data_path=path)


@pytest.fixture
def run_id(tmp_path: Path) -> str:
    """A run of an hour on two nodes: a has osd.0 and osd.2, b has osd.1 and osd.3, which does nothing."""
    count = max(LINES.values())
    rows: list[Row] = []
    osds = []
    for step in range(count):
        for osd, lines in LINES.items():
            if step < lines * ROUNDS:
                rows.append((step * 3600 * 10**6 // count, "read", step % lines * LINE, LINE, f"v{osd}"))
                osds.append(osd)
    table = ops(rows)
    table = on_osds(table, osds)
    hosts = {0: "a", 1: "b", 2: "a", 3: "b"}
    # osd.2 stood on b first.
    return run_of(tmp_path, table, [placed(2, "b"), *(placed(osd, host) for osd, host in hosts.items())])


def on_osds(operations: pa.Table, osds: list[int]) -> pa.Table:
    place = operations.schema.get_field_index("osd")
    return operations.set_column(place, operations.schema.field("osd"), [osds])


def run_of(workspace: Path, operations: pa.Table, osds: list[Placement]) -> str:
    with Workspace(workspace).create_run(kind="bench", started_ns=1) as run:
        with run.begin_segment("run") as segment:
            segment.table(Op, operations)
            segment.table(Placement, to_table(Placement, osds))
            segment.commit()
        run.compact()
    return run.id


def printed(workspace: Path, *arguments: str) -> str:
    app = typer.Typer()
    app.command("plan")(verb.plan)
    result = CliRunner().invoke(app, [*arguments, "--workspace", str(workspace)], catch_exceptions=False)
    return result.stdout


@pytest.mark.parametrize("line", [16 << 10, 256 << 10])
def test_a_plan_is_for_the_lines_of_the_cache(run_id: str, tmp_path: Path, line: int) -> None:
    text = printed(tmp_path, run_id, "--flash", "64M", "--line-size", f"{line >> 10}K", "--output", "json")
    plan = json.loads(text)
    assert plan["line_bytes"] == line
    for cache in plan["caches"]:
        assert cache["index_bytes"] == (64 << 20) // line * {16 << 10: 81, 64 << 10: 96, 256 << 10: 156}[line] // 2
        for source in cache["sources"]:
            assert source["flash_bytes"] % line == 0
    (tmp_path / "plan.json").write_text(text)
    assert load_cache_plan(tmp_path / "plan.json").settings.line_bytes == line


@pytest.mark.parametrize("words", [("--flash", "0"), ("--flash", "64M", "--memory", "0")])
def test_no_flash_and_no_memory_are_refused(words: tuple[str, ...], run_id: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{words[-2]} must be greater than 0") as refused:
        printed(tmp_path, run_id, *words)
    assert refused.value.hint


def test_a_line_size_that_no_cache_has_is_refused(run_id: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--line-size must be one of 16K, 64K, 256K"):
        printed(tmp_path, run_id, "--flash", "64M", "--line-size", "1M")


def test_each_node_gets_the_shares_that_its_osds_can_use(run_id: str, tmp_path: Path) -> None:
    text = printed(tmp_path, run_id, "--flash", "64M", "--output", "json")
    assert schemas.check(text) == "cache_plan"
    plan = json.loads(text)
    assert (plan["policy"], plan["admission"], plan["mode"]) == ("s3-fifo", "write-bypass", "write-through")
    a, b = plan["caches"]
    assert [(cache["node"], [source["name"] for source in cache["sources"]]) for cache in (a, b)] == [
        ("a", ["osd-0"]),
        ("b", ["osd-1"]),
    ]
    assert (a["without"], b["without"]) == ([2], [3])
    for cache, osd in ((a, 0), (b, 1)):
        (source,) = cache["sources"]
        loop_bytes = LINES[osd] * LINE
        # All of the loop, in flash and the small queue of memory beside it; grid sizes are a few lines apart.
        assert 0.9 * loop_bytes <= source["useful_bytes"] <= 1.3 * loop_bytes
        assert source["read_hit_ratio"] == pytest.approx(1 - 1 / ROUNDS, abs=0.01)
        assert source["disk_time_left_ratio"] == pytest.approx(1 / ROUNDS, abs=0.01)
        # What the run did not show may need the rest.
        assert 64 * MIB - LINE < source["flash_bytes"] <= 64 * MIB
        assert source["directory"] == f"/var/lib/ceph/osd/ceph-{osd}"
    # Each of the scan's reads is a miss.
    assert a["read_hit_ratio"] == pytest.approx(0.5 * (1 - 1 / ROUNDS), abs=0.01)
    assert a["index_bytes"] == 64 * MIB // LINE * 48
    # A 64th of the lines, the daemon, and its threads for two OSDs.
    assert a["memory_bytes"] == a["index_bytes"] + MIB + (16 + 2 * 112) * MIB
    assert (a["memory_budget_bytes"], a["files_max"]) == (4 << 30, 64 * MIB // LINE // 8)


def test_a_plan_that_needs_more_memory_than_it_may_take_is_refused_with_what_would_fit(
    run_id: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"needs 7\.23 GiB of memory") as refused:
        printed(tmp_path, run_id, "--flash", "8T")
    assert "6.00 GiB for the index of 134,217,728 lines" in refused.value.message
    assert refused.value.hint is not None
    assert "--memory 8.4G" in refused.value.hint
    assert "--flash 3776.0G, the most that fits" in refused.value.hint
    with pytest.raises(UsageError, match=r"may take 1\.00 GiB") as refused:
        printed(tmp_path, run_id, "--flash", "1T", "--memory", "1G")
    assert refused.value.hint is not None
    # What it says fits, and with what it says that is needed it is not refused for its memory.
    assert cache_memory(int(float(refused.value.hint.split("--flash ")[1].split("G")[0]) * (1 << 30)), LINE, 1 << 30)
    assert cache_memory(1 << 40, LINE, int(float(refused.value.hint.split("--memory ")[1].split("G")[0]) * (1 << 30)))


def test_a_cache_that_may_take_less_memory_is_simulated_with_less_in_it(tmp_path: Path) -> None:
    line = 256 << 10
    # Each line comes again after 300 others, for which memory has room or has not once the flash is full.
    places = [place for start in range(0, 42_000, 300) for place in (*range(start, start + 300),) * 2]
    rows: list[Row] = [(number, "read", place * line, 4096, "v0") for number, place in enumerate(places)]
    run = run_of(tmp_path, on_osds(ops(rows), [0] * len(rows)), [placed(0, "a")])
    words = (run, "--flash", "5G", "--line-size", "256K", "--output", "json")
    found = [json.loads(printed(tmp_path, *words, *more))["caches"][0] for more in ((), ("--memory", "200M"))]
    dram, hits = ([cache[key] for cache in found] for key in ("dram_bytes", "read_hit_ratio"))
    # A 64th of the lines, and a quarter of the memory.
    assert dram == [(5 << 30) // 64, 50 << 20]
    assert hits[0] == pytest.approx(0.5, abs=0.01)
    assert hits[1] < 0.45


def test_too_little_flash_goes_where_it_brings_most(run_id: str, tmp_path: Path) -> None:
    plan = json.loads(printed(tmp_path, run_id, "--flash", "4608K", "--node", "b", "--output", "json"))
    (cache,) = plan["caches"]
    assert sum(source["flash_bytes"] for source in cache["sources"]) <= 4608 << 10
    assert cache["read_hit_ratio"] >= cache["read_hit_ratio_even"]


def test_a_share_below_one_line_is_none(run_id: str, tmp_path: Path) -> None:
    words = (run_id, "--flash", "32K", "--node", "b")
    (cache,) = json.loads(printed(tmp_path, *words, "--output", "json"))["caches"]
    assert (cache["sources"], cache["without"]) == ([], [1, 3])
    assert "would hit in so much flash" in printed(tmp_path, *words)


def test_the_table_and_the_rows(run_id: str, tmp_path: Path) -> None:
    table = printed(tmp_path, run_id, "--flash", "64M")
    assert max(map(len, table.splitlines())) <= 80
    assert "a: 64.0 MiB for 1 OSD" in table
    assert "without a cache: osd.2" in table
    rows = printed(tmp_path, run_id, "--flash", "64M", "--output", "csv").splitlines()
    assert rows[0].startswith("node,name,osd,directory,flash_bytes")
    assert [row.split(",")[:3] for row in rows[1:]] == [["a", "osd-0", "0"], ["b", "osd-1", "1"]]


def test_a_plan_is_read_again(run_id: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(printed(tmp_path, run_id, "--flash", "64M", "--output", "json"))
    plan = load_cache_plan(file)
    assert plan.mode == "write-through"
    assert [source.name for source in plan.sources_of("b")] == ["osd-1"]
    with pytest.raises(UsageError, match="for 2 nodes"):
        plan.sources_of(None)
    with pytest.raises(UsageError, match="no node 'c'"):
        plan.sources_of("c")
    empty = plan.model_copy(update={"caches": (plan.caches[0].model_copy(update={"sources": ()}),)})
    with pytest.raises(UsageError, match="no sources for the node 'a'"):
        empty.sources_of("a")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"mode": "x", "caches": [{"node": "a", "sources": [{}]}]}'])
def test_files_that_are_no_plan(tmp_path: Path, content: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(content)
    with pytest.raises(UsageError, match="is not a cache plan"):
        load_cache_plan(file)
    with pytest.raises(UsageError, match="cannot be read"):
        load_cache_plan(tmp_path / "none.json")


def test_what_cannot_be_planned(run_id: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no node 'c'"):
        printed(tmp_path, run_id, "--flash", "64M", "--node", "c")
    with pytest.raises(UsageError, match="'much' is not a size"):
        printed(tmp_path, run_id, "--flash", "much")
