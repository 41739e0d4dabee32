"""What can go wrong, on a real Ceph: one clear line and a hint, exit code 2, nothing left, nothing lost."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

PLAN = """name: trouble
layers: [rbd]
patterns: [randread-4K-qd4, randwrite-4K-qd4]
axes: {image_size: 32M}
repeats: 1
ramp: 0s
runtime: 1s
limits: {prolong: 0, baseline: 1s}
capture: {sample_interval: 0.2s}
"""


def refused(ended: subprocess.CompletedProcess[str], *words: str, hint: str = "") -> None:
    """It ended with exit code 2, a line that holds every word, a hint, and no traceback."""
    talk = ended.stderr.splitlines()
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    (line,) = [text for text in talk if text.startswith("bathy: ")]
    for word in words:
        assert word in line
    (found,) = [text for text in talk if text.startswith("hint: ")]
    assert hint in found


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    return file


@pytest.fixture
def begin(cluster: Any, plan_file: Path, tmp_path: Path, tools: Any) -> Iterator[Any]:
    """Start the plan in the background and return once its step `number` makes load."""
    started: list[subprocess.Popen[bytes]] = []

    def start(number: int, *words: str, on: Any = cluster, workspace: Path | None = None) -> Any:
        said = tmp_path / f"said-{len(started)}"
        place = str(workspace or tmp_path / "ws")
        process = on.start("bench", "run", str(plan_file), "--lab", on.name, "-w", place, *words, stderr=said)
        started.append(process)
        tools.wait_for(
            lambda: (f"[{number}/" in said.read_text() and tools.fio_of(process.pid)) or process.poll() is not None,
            what=f"step {number}",
        )
        assert process.poll() is None, said.read_text()

        def end(timeout_s: float = 150) -> subprocess.CompletedProcess[str]:
            process.wait(timeout_s)
            return subprocess.CompletedProcess(process.args, process.returncode, "", said.read_text())

        end.interrupt = lambda: process.send_signal(signal.SIGINT)  # type: ignore[attr-defined]
        return end

    yield start
    for process in started:
        process.kill()
        process.wait()


# --- before anything is done


def test_no_ceph_conf(cluster: Any, plan_file: Path, tmp_path: Path) -> None:
    words = ("bench", "run", str(plan_file), "--conf", "/nowhere/ceph.conf", "-w", str(tmp_path / "ws"))
    refused(cluster.bathy(*words), "/nowhere/ceph.conf", "No such file", hint="--conf")
    assert not (tmp_path / "ws").exists()


def test_a_wrong_keyring(cluster: Any, plan_file: Path, tmp_path: Path) -> None:
    # Type, time and length before the secret, as Ceph encodes a key.
    key = base64.b64encode(b"\x01\x00" + bytes(8) + b"\x10\x00" + os.urandom(16)).decode()
    keyring = tmp_path / "keyring"
    keyring.write_text(f"[client.admin]\n\tkey = {key}\n")
    words = ("bench", "run", str(plan_file), "--conf", cluster.target.conf, "-w", str(tmp_path / "ws"))
    refused(cluster.bathy(*words, "--keyring", str(keyring)), "refuses client.admin", hint="auth get")
    keyring.write_text("[client.other]\n\tkey = " + key + "\n")
    refused(
        cluster.bathy(*words, "--keyring", str(keyring)),
        "client.admin",
        str(keyring),
        hint="ceph auth get client.admin",
    )
    refused(cluster.bathy(*words, "--keyring", str(tmp_path / "none")), "cannot read the keyring", hint="--keyring")
    assert not (tmp_path / "ws").exists()


def test_no_monitor_answers(cluster: Any, plan_file: Path, tmp_path: Path) -> None:
    conf = tmp_path / "ceph.conf"
    conf.write_text("[global]\nmon host = [v2:127.0.0.1:9,v1:127.0.0.1:10]\nlog file = /dev/null\n")
    words = ("bench", "run", str(plan_file), "--conf", str(conf), "-w", str(tmp_path / "ws"))
    ended = cluster.bathy(*words, "--keyring", cluster.target.keyring)
    refused(ended, "no monitor answered within 10 s", hint=str(conf))


def test_a_fio_without_the_engine(cluster: Any, plan_file: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    fio = programs / "fio"
    fio.write_text("#!/bin/sh\ncase $1 in --version) echo fio-9.9;; --enghelp) echo libaio;; esac\n")
    fio.chmod(0o755)
    words = ("bench", "run", str(plan_file), "--lab", cluster.name, "-w", str(tmp_path / "ws"))
    path = f"{programs}:{os.environ['PATH']}"
    refused(cluster.bathy(*words, PATH=path), "fio-9.9", "no engine 'rbd'", hint="apt install fio")
    fio.write_text("#!/bin/sh\necho no library >&2; exit 127\n")
    refused(cluster.bathy(*words, PATH=path), "fio --version failed", "no library", hint="fio")
    assert not list((tmp_path / "ws" / "runs").glob("*"))


def test_a_broken_plan(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(PLAN.replace("runtime: 1s", "runtme: 1s"))
    refused(cluster.bathy("bench", "run", str(file), "--lab", cluster.name), "line 7", "runtme", hint="runtime")
    file.write_text(PLAN.replace("[rbd]", "[rdb]"))
    refused(cluster.bathy("bench", "run", str(file), "--lab", cluster.name), "line 2", "rdb", hint="rbd")


def test_a_run_of_a_newer_version(cluster: Any, plan_file: Path, tmp_path: Path) -> None:
    words = ("-w", str(tmp_path / "ws"))
    assert cluster.bathy("bench", "run", str(plan_file), "--lab", cluster.name, *words, "--dry-run").returncode == 0
    run = tmp_path / "ws" / "runs" / "20300101-000000-abcdef"
    run.mkdir(parents=True)
    content = json.dumps({"format_version": 99, "id": run.name, "unknown": True})
    (run / "run.json").write_text(content)
    refused(cluster.bathy("bench", "resume", run.name, *words), "newer bathyscope", hint="upgrade")
    assert (run / "run.json").read_text() == content


def test_there_is_no_such_lab_or_run(cluster: Any, plan_file: Path, tmp_path: Path) -> None:
    refused(cluster.bathy("bench", "run", str(plan_file), "--lab", "none"), "no lab 'none'", hint=cluster.name)
    refused(cluster.bathy("bench", "resume", "last", "-w", str(tmp_path)), "no run", hint="bathy")


# --- while a step runs


def test_two_runs_at_once_in_one_workspace(cluster: Any, begin: Any, plan_file: Path, tmp_path: Path) -> None:
    end = begin(1, "--runtime", "60s")
    words = ("bench", "run", str(plan_file), "--lab", cluster.name, "-w", str(tmp_path / "ws"))
    refused(cluster.bathy(*words), "in use by process", hint="another workspace")
    refused(cluster.bathy("bench", "resume", "last", "-w", str(tmp_path / "ws")), "in use by process", hint="workspace")
    # Nothing of the living run may be cleaned away either.
    cleaned = cluster.bathy("bench", "cleanup")
    assert "nothing to clean up" in cleaned.stderr
    assert [name for name in cluster.snapshot()["pools"] if name.startswith("bathy-")]
    end.interrupt()
    first = end()
    assert first.returncode == 130, first.stderr
    assert cluster.bathy("bench", "cleanup").returncode == 0


def test_the_pool_is_deleted_under_us(cluster: Any, begin: Any, tmp_path: Path, tools: Any) -> None:
    end = begin(2, "--runtime", "5s")
    with cluster.session() as session:
        (pool,) = [name for name in cluster.snapshot()["pools"] if name.startswith("bathy-")]
        session.json("mon", "osd pool delete", pool=pool, pool2=pool, yes_i_really_really_mean_it=True)
    refused(end(), pool, "deleted by somebody else", hint="resume")
    run = tools.newest(tmp_path / "ws")
    assert run.status == "interrupted"
    assert [row["status"] for row in tools.rows(run, "step")] == ["done"]


def test_the_cluster_is_full_before_and_during_a_run(
    cluster: Any, begin: Any, plan_file: Path, tmp_path: Path, tools: Any
) -> None:
    end = begin(2, "--runtime", "15s")
    with cluster.session() as session:
        try:
            _set_ratios(session, 0.00001, 0.00005, 0.0001)
            ended = end()
            refused(ended, "the load was stopped", "full", hint="resume")
            assert not [name for name in cluster.snapshot()["pools"] if name.startswith("bathy-")]
            words = ("bench", "run", str(plan_file), "--lab", cluster.name, "-w", str(tmp_path / "other"))
            refused(cluster.bathy(*words), "the cluster is full")
        finally:
            _set_ratios(session, 0.85, 0.9, 0.95)
        tools.wait_for(lambda: "OSD_FULL" not in session.json("mon", "health")["checks"], what="a cluster with room")
    # Preflight has refused: no run. The stopped run keeps its first step.
    assert not list((tmp_path / "other" / "runs").glob("*"))
    assert [row["step_index"] for row in tools.rows(tools.newest(tmp_path / "ws"), "step")] == [0]


def _set_ratios(session: Any, nearfull: float, backfillfull: float, full: float) -> None:
    session.json("mon", "osd set-nearfull-ratio", ratio=nearfull)
    session.json("mon", "osd set-backfillfull-ratio", ratio=backfillfull)
    session.json("mon", "osd set-full-ratio", ratio=full)


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_the_disk_under_the_workspace_is_full(
    cluster: Any, begin: Any, plan_file: Path, tmp_path: Path, tools: Any
) -> None:
    with small_disk(tmp_path / "disk", "48m") as disk:
        end = begin(2, "--runtime", "2s", workspace=disk / "ws")
        with (disk / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(1 << 16))
        ended = end()
        refused(ended, "cannot write", "No space left", hint="space")
        assert not [name for name in cluster.snapshot()["pools"] if name.startswith("bathy-")]
        # What was finished is still there, and the run goes on when there is room.
        run = tools.newest(disk / "ws")
        assert [row["step_index"] for row in tools.rows(run, "step")] == [0]
        (disk / "ballast").unlink()
        resumed = cluster.bathy("bench", "resume", "last", "-w", str(disk / "ws"), "--output", "csv")
        assert resumed.returncode == 0, resumed.stderr
        assert sorted(row["step_index"] for row in tools.rows(tools.newest(disk / "ws"), "step")) == [0, 1]


def test_an_osd_dies_during_a_step(borrowed_lab: Any, begin: Any, tmp_path: Path, tools: Any) -> None:
    with borrowed_lab("ssd=3") as dying:
        (daemon,) = [d for d in dying.target.daemons if d.name == "osd.1"]
        end = begin(2, "--runtime", "12s", on=dying)
        os.kill(daemon.pid, 9)
        refused(end(), "osd.1", "went down", hint="resume")
        after = dying.snapshot()
        assert not [name for name in (*after["pools"], *after["rules"]) if name.startswith("bathy-")]
        assert "osd_op_history_size" not in after["osds"][0]
        assert dying.journals() == []
        assert [row["step_index"] for row in tools.rows(tools.newest(tmp_path / "ws"), "step")] == [0]
        # The same cluster is not fit for a load now.
        words = ("bench", "resume", "last", "-w", str(tmp_path / "ws"))
        refused(dying.bathy(*words), "placement groups are not clean", hint="ceph status")
        assert [row["step_index"] for row in tools.rows(tools.newest(tmp_path / "ws"), "step")] == [0]
