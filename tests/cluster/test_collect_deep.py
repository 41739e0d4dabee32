"""Deep recordings on a real Ceph: exactly the operations that were done, and every option as it was before."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bathyscope.recording.options import overrides
from bathyscope.sources.op_history import OPTIONS
from bathyscope.watch.bursts import SECONDS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

POOL = "deep"
SIZE, BLOCK, OBJECT = 64 << 20, 4096, 4 << 20
# Slow enough that the image is not at its end before a busy machine has recorded.
WRITES_A_SECOND = 40


def ceph(cluster: Any, *words: str) -> str:
    """Run one of Ceph's programs on the cluster."""
    target = cluster.target
    argv = [words[0], "--conf", target.conf, "--keyring", target.keyring, *words[1:]]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def fio(cluster: Any, *words: str) -> subprocess.Popen[bytes]:
    """Write the image from its start to its end, each block once."""
    return subprocess.Popen(
        ["env", f"CEPH_CONF={cluster.target.conf}", f"CEPH_ARGS=--keyring={cluster.target.keyring} --rbd_cache=false",
         "fio", "--name=load", "--ioengine=rbd", "--clientname=admin", f"--pool={POOL}", "--rbdname=image",
         "--rw=write", f"--size={SIZE}", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def loaded(borrowed_lab: Any) -> Iterator[Any]:
    """A lab with an image that is written once, and an override that an operator has set on one OSD."""
    with borrowed_lab("ssd=3") as cluster:
        ceph(cluster, "ceph", "osd", "pool", "create", POOL, "8", "8")
        ceph(cluster, "ceph", "osd", "pool", "application", "enable", POOL, "rbd")
        ceph(cluster, "rbd", "create", f"{POOL}/image", "--size", f"{SIZE >> 20}M")
        assert fio(cluster, "--bs=1M", "--iodepth=4").wait(120) == 0
        ceph(cluster, "ceph", "tell", "osd.1", "config", "set", OPTIONS[0], "77")
        yield cluster


@pytest.fixture(scope="module")
def histories(loaded: Any) -> Iterator[Callable[[], Any]]:
    """What returns the run-time overrides of every OSD's op history."""
    with loaded.session() as session:
        yield lambda: overrides(session, ["osd.0", "osd.1", "osd.2"], OPTIONS)


@contextlib.contextmanager
def recording(cluster: Any, workspace: Path, duration: str) -> Iterator[subprocess.Popen[bytes]]:
    """Record deep in the background; a test that fails leaves no recording to the next one."""
    process = cluster.start(
        "collect", "--lab", cluster.name, "-w", str(workspace), "--depth", "deep", "--interval", "1s",
        "--duration", duration, stderr=workspace / "said",
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def in_a_burst(histories: Callable[[], Any], tools: Any, before: Any) -> None:
    """Wait until all histories are enlarged."""

    def enlarged() -> bool:
        now = histories()
        return all(now[osd] != before[osd] and None not in now[osd].values() for osd in before)

    tools.wait_for(enlarged, timeout_s=200, what="a burst")


def view(cluster: Any, workspace: Path, name: str, *words: str) -> dict[str, Any]:
    found = cluster.bathy("analyze", "last", "-w", str(workspace), "--view", name, "-o", "json", *words)
    assert found.returncode == 0, found.stderr
    return dict(json.loads(found.stdout))


def test_a_burst_has_every_operation_and_restores_every_option(
    loaded: Any, histories: Any, tmp_path: Path, tools: Any
) -> None:
    before = histories()
    assert before["osd.1"] == {OPTIONS[0]: "77", OPTIONS[1]: None}
    # One at a time: librbd joins neighbours that are in flight together.
    load = fio(loaded, f"--bs={BLOCK}", "--iodepth=1", f"--rate_iops={WRITES_A_SECOND}")
    try:
        with recording(loaded, tmp_path, "8s") as process:
            assert process.wait(200) == 0, (tmp_path / "said").read_text()
        assert load.poll() is None
    finally:
        load.terminate()
        load.wait(30)
    assert histories() == before
    assert loaded.journals() == []

    run = tools.newest(tmp_path)
    image_id = json.loads(ceph(loaded, "rbd", "info", f"{POOL}/image", "--format", "json"))["id"]
    data = f"rbd_data.{image_id}."
    ops = [row for row in tools.rows(run, "op") if str(row["object_name"]).startswith(data)]
    assert {(row["op"], row["length_bytes"], row["complete_sample"]) for row in ops} == {("write", BLOCK, True)}
    # The time that all OSDs kept: none began before the last of them did, nor was asked before it was over.
    begins_ns = max(row["complete_since_ns"] for row in ops)
    ends_ns = min(row["complete_since_ns"] for row in ops) + SECONDS * 10**9
    blocks = sorted(
        (int(row["object_name"].removeprefix(data), 16) * OBJECT + row["offset_bytes"]) // BLOCK
        for row in ops
        if begins_ns <= row["started_ns"] <= ends_ns
    )
    # fio writes each block once, in order: a lost or doubled operation would be seen.
    assert blocks == list(range(blocks[0], blocks[0] + len(blocks)))
    assert len(blocks) > WRITES_A_SECOND

    found = view(loaded, tmp_path, "ops", f"{POOL}/image")
    assert f"of {len(ops)} recorded operations" in found["sentence"]
    facts = dict(view(loaded, tmp_path, "image", f"{POOL}/image")["facts"])
    assert "p99 cannot tell" in facts["Write latency"]
    slow = view(loaded, tmp_path, "slow")
    assert slow["tables"][0]["rows"]
    assert not any("were full" in remark for remark in slow["unseen"])


def test_what_a_kill_in_a_burst_leaves_the_next_start_restores(
    loaded: Any, histories: Any, tmp_path: Path, tools: Any
) -> None:
    before = histories()
    with recording(loaded, tmp_path, "200s"):
        tools.wait_for_counters(tmp_path)
        in_a_burst(histories, tools, before)
    assert histories() != before
    killed = tools.newest(tmp_path)
    assert killed.status == "interrupted"
    # A recording of any depth does it.
    done = loaded.bathy("collect", "--lab", loaded.name, "-w", str(tmp_path), "--depth", "light", "--duration", "1s")
    assert done.returncode == 0, done.stderr
    assert f"restoring {OPTIONS[1]} of 3 daemons, {OPTIONS[0]} of 3 daemons" in done.stderr
    assert histories() == before
    assert loaded.journals() == []
    assert loaded.bathy("analyze", killed.id, "-w", str(tmp_path), "--view", "osds").returncode == 0


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_an_interruption_in_a_burst_restores(
    loaded: Any, histories: Any, tmp_path: Path, tools: Any, number: str
) -> None:
    before = histories()
    with recording(loaded, tmp_path, "200s") as process:
        in_a_burst(histories, tools, before)
        process.send_signal(signal.Signals[number])
        assert process.wait(100) == 0, (tmp_path / "said").read_text()
    assert histories() == before
    assert loaded.journals() == []
    assert tools.newest(tmp_path).status == "done"


def test_deep_needs_a_key_that_may_tell_and_the_printed_caps_are_enough(
    loaded: Any, histories: Any, tmp_path: Path, tools: Any
) -> None:
    before = histories()
    for name, words, code in (("small", (), 2), ("large", ("--tell",), 0)):
        keyring = tmp_path / f"{name}.keyring"
        printed = json.loads(loaded.bathy("caps", "collect", *words, "-o", "json").stdout)
        caps = [word for row in printed for word in (row["daemon"], row["caps"])]
        keyring.write_text(ceph(loaded, "ceph", "auth", "get-or-create", f"client.{name}", *caps))
        done = loaded.bathy(
            "collect", "--conf", loaded.target.conf, "--client", f"client.{name}", "--keyring", str(keyring),
            "-w", str(tmp_path / name), "--depth", "deep", "--duration", "2s",
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        if code:
            assert "client.small may not use `ceph tell osd.N`" in done.stderr
            assert "hint: bathy caps collect --tell" in done.stderr
            assert not list(tmp_path.glob(f"{name}/runs/*/segments"))
    assert histories() == before
    collected = tools.rows(tools.newest(tmp_path / "large"), "collection")
    assert [row["success"] for row in collected if row["source"] == "op_history"] == [True]
