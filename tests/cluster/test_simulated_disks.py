"""A lab whose hard disks are simulated: what a run says of them, and what a fault does to it."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bathyscope.lab import simdisk

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not simdisk.possible(), reason="FUSE needs root and /dev/fuse"),
]
PLAN = """name: seeks
layers: [disk, rados]
patterns: [randread-4K-qd1, randread-4K-qd16, read-256K-qd4]
axes: {image_size: 1G}
repeats: 1
ramp: 0.5s
runtime: 3s
limits: {prolong: 0, baseline: 1s}
capture: {op_history: false}
"""


@pytest.fixture(scope="module")
def disks(borrowed_lab: Any) -> Iterator[Any]:
    with borrowed_lab("hdd=3") as cluster:
        yield cluster


def run(disks: Any, tmp_path: Path, *words: str, pattern: str | None = None) -> dict[tuple[str, str], Any]:
    """Run the plan and return (layer, pattern) → point."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN if pattern is None else re.sub(r"patterns: .*", f"patterns: [{pattern}]", PLAN))
    named = ("--lab", disks.name, "-w", str(tmp_path / "ws"), "--output", "json")
    ended = disks.bathy("bench", "run", str(plan), *named, *words, timeout_s=400)
    assert ended.returncode == 0, ended.stderr
    groups = json.loads(ended.stdout)["groups"]
    return {(point["layer"], point["pattern"]): point for group in groups for point in group["points"]}


def test_the_ladder_is_physical(disks: Any, tmp_path: Path) -> None:
    """A 7,200 rpm disk: half a turn is 4.2 ms, so no random read at queue depth 1 is done faster on average."""
    found = run(disks, tmp_path)
    disk, rados = found["disk", "randread-4K-qd1"], found["rados", "randread-4K-qd1"]
    assert 4.2e6 < disk["latency_ns_mean"]["value"] < 17e6
    # Half a turn and the way there are spread evenly about their mean; a machine that is busy adds to some reads only.
    assert 4.2e6 < disk["latency_ns_p50"]["value"] < 1.15 * disk["latency_ns_mean"]["value"]
    # Every OSD has all of the image, and a twentieth of it in its cache.
    assert rados["latency_ns_mean"]["value"] > 0.9 * 4.2e6
    # Three disks, sixteen at a time: the queue is sorted, and all arms are at work.
    assert found["rados", "randread-4K-qd16"]["iops"]["value"] > 2 * rados["iops"]["value"]
    assert found["disk", "randread-4K-qd16"]["iops"]["value"] > 1.4 * disk["iops"]["value"]
    sequential, random = found["disk", "read-256K-qd4"], found["disk", "randread-4K-qd16"]
    assert sequential["bandwidth_bytes_per_s"]["value"] > 20 * random["bandwidth_bytes_per_s"]["value"]
    verdict = random["verdict"]
    assert verdict["limit"] == "device"
    assert "seeking" in verdict["sentence"]
    # Busy with the next read as soon as one is done: what the disk itself counted, without this machine's delays.
    assert 0.9 < random["device_utilization"]["value"] <= 1


def test_a_fault_is_seen_told_of_and_cleared(disks: Any, tmp_path: Path, tools: Any) -> None:
    said = disks.bathy("lab", "fault", "--name", disks.name, "osd.1", "slow=10x")
    assert said.returncode == 0, said.stderr
    try:
        history = ("--set", "capture.op_history=true")
        points = run(disks, tmp_path, "--layer", "rados", *history, pattern="randread-4K-qd16")
        listed = disks.bathy("lab", "fault", "--name", disks.name, "list", "--output", "json")
        assert [(f["target"], f["fault"]) for f in json.loads(listed.stdout)] == [("osd.1", "slow=10x")]
    finally:
        cleared = disks.bathy("lab", "fault", "--name", disks.name, "clear")
    assert "1 cleared" in cleared.stderr
    (slow,) = points.values()
    (caveat,) = [c for c in slow["caveats"] if c["code"] == "disk_faults"]
    assert "osd.1 (node2): slow=10x" in caveat["text"]
    # It is the one that the verdict names, and the one whose operations wait for their store.
    assert "osd.1's HDD (node2) is saturated" in slow["verdict"]["sentence"]
    times: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for op in tools.rows(tools.newest(tmp_path / "ws"), "op"):
        if op["op"] == "read" and op["store_ns"] is not None:
            times[op["osd"] == 1].append((op["duration_ns"], op["store_ns"]))
    for place in (0, 1):
        faulty, sound = (statistics.median(each[place] for each in times[is_slow]) for is_slow in (True, False))
        assert faulty > 3 * sound
    (good,) = run(disks, tmp_path, "--layer", "rados", pattern="randread-4K-qd16").values()
    assert not [c for c in good["caveats"] if c["code"] == "disk_faults"]
    assert good["iops"]["value"] > 1.5 * slow["iops"]["value"]


@pytest.mark.parametrize(
    ("words", "line", "hint"),
    [
        (("osd.7", "slow=10x"), "has no 'osd.7'", "osd.0, osd.1, osd.2, hdd"),
        (("osd.1", "slow=fast"), "slow needs a factor", "slow=10x"),
        (("osd.1",), "expected TARGET FAULT", "bathy lab fault"),
    ],
)
def test_what_is_no_fault_is_refused(disks: Any, words: tuple[str, ...], line: str, hint: str) -> None:
    ended = disks.bathy("lab", "fault", "--name", disks.name, *words)
    assert ended.returncode == 2
    (message, advice) = ended.stderr.splitlines()
    assert line in message
    assert hint in advice
