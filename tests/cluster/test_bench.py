"""A run on a real Ceph, from the plan to the tables, and nothing left on the cluster."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pyarrow.compute as pc
import pytest

from bathyscope.bench.commands_run import commands_of
from bathyscope.spec.plan import expand
from bathyscope.spec.plan_file import parse_plan
from bathyscope.store import Workspace

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and control groups need root"),
]

SHORT = ("--preset", "smoke", "--set", "image_size=32M")


def test_a_run_stores_every_step_whole_and_leaves_nothing(shared_lab, bathy, tmp_path: Path) -> None:
    said = bathy("bench", "--lab", shared_lab.name, *SHORT, "--runtime", "1s", "--output", "json")
    assert said.code == 0, said.err
    run = Workspace(tmp_path / "ws").open_run("last")
    assert run.status == "done"
    plan = parse_plan(run.info.plan_text, name="stored")
    tables = run.tables()
    assert tables["step"]["step_key"].to_pylist() == [s.key for s in expand(plan, ["ssd"])]
    assert set(tables["step"]["status"].to_pylist()) <= {"done", "refused"}
    # Each step has what was promised: totals, a histogram that counts the same I/Os, a series, CPU, devices.
    for index in tables["step"]["step_index"].to_pylist():
        rows = {
            name: table.filter(pc.equal(table["step_index"], index))
            for name, table in tables.items()
            if "step_index" in table.column_names
        }
        lat = rows["histogram"].filter(pc.equal(rows["histogram"]["kind"], "lat"))
        assert pc.sum(lat["count"]).as_py() == pc.sum(rows["result"]["io_count"]).as_py() > 0
        assert rows["interval"].num_rows > 3
        assert {"client", "osd.0", "osd.1", "osd.2", "host"} <= set(rows["process_sample"]["process"].to_pylist())
        roles = set(rows["device_sample"]["role"].to_pylist())
        assert {"osd.0", "osd.1", "osd.2", "disk"} <= roles
    cluster_steps = {
        s.as_py() for s in tables["step"].filter(pc.not_equal(tables["step"]["layer"], "disk"))["step_index"]
    }
    assert set(tables["perf_counter"]["step_index"].to_pylist()) == cluster_steps
    assert set(tables["op"]["step_index"].to_pylist()) == cluster_steps
    assert tables["placement"].num_rows == 3
    assert {"before", "after"} == set(tables["environment"]["moment"].to_pylist())
    ladder = said.json()
    assert {p["layer"] for g in ladder["groups"] for p in g["points"]} == {"disk", "rados", "rbd"}
    assert shared_lab.ours() == []


def test_a_dry_run_prints_what_the_run_then_runs(shared_lab, bathy, tmp_path: Path) -> None:
    words = ("bench", "--lab", shared_lab.name, *SHORT, "--layer", "rbd")
    dry = bathy(*words, "--dry-run")
    assert dry.code == 0, dry.err
    assert shared_lab.ours() == []
    assert not (tmp_path / "ws").exists()
    said = bathy(*words)
    assert said.code == 0, said.err
    run = Workspace(tmp_path / "ws").open_run("last")
    suffix = run.id.rpartition("-")[2]
    ran = [" ".join(c.argv) for c in commands_of(run)]
    assert ran
    unquoted = (
        dry.out.replace("'", "").replace("00000000-000000-000000", run.id).replace("bathy-000000", f"bathy-{suffix}")
    )
    for command in ran:
        assert command in unquoted


def test_what_was_switched_is_restored_exactly(shared_lab, bathy) -> None:
    before = shared_lab.ask("osd dump")["flags"]
    balancer = shared_lab.ask("balancer status", "mgr")["active"]
    said = bathy(
        "bench",
        "--lab",
        shared_lab.name,
        *SHORT,
        "--layer",
        "rados",
        "--set",
        "quiesce.scrub=true",
        "--set",
        "quiesce.balancer=true",
    )
    assert said.code == 0, said.err
    assert "noscrub" in said.err
    assert shared_lab.ask("osd dump")["flags"] == before
    assert shared_lab.ask("balancer status", "mgr")["active"] == balancer
    assert shared_lab.ours() == []


def test_a_prime_number_of_ios_is_counted_exactly(shared_lab, bathy, tmp_path: Path) -> None:
    said = bathy(
        "bench", "--lab", shared_lab.name, *SHORT, "--layer", "rados,rbd", "--set", "io_count=1009", "--runtime", "30s"
    )
    assert said.code == 0, said.err
    tables = Workspace(tmp_path / "ws").open_run("last").tables()
    assert set(tables["result"]["io_count"].to_pylist()) == {1009}


def wait_for_step(process: Popen[str], number: int) -> None:
    """Read the tool's talk until step `number` has begun."""
    assert process.stderr is not None
    for line in process.stderr:
        if re.match(rf"\[{number}/", line):
            return
    raise AssertionError(f"ended with {process.wait()} before step {number}")


def test_ctrl_c_stops_the_load_within_two_seconds_and_resume_ends_the_run(
    shared_lab, bathy, begin: Callable[..., Popen[str]], tmp_path: Path
) -> None:
    process = begin("bench", "--lab", shared_lab.name, *SHORT, "--layer", "rbd", "--repeats", "2", "--runtime", "4s")
    wait_for_step(process, 2)
    time.sleep(1.5)
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    while loads_of(process.pid):
        assert time.monotonic() - asked < 2.0
        time.sleep(0.02)
    assert process.stderr is not None
    talk = process.stderr.read()
    assert process.wait(20) == 130
    assert "bathy bench resume" in talk
    run = Workspace(tmp_path / "ws").open_run("last")
    assert run.status == "interrupted"
    kept = {i: s.step().started_ns for i, s in run.finished_steps().items()}
    assert list(kept) == [0]
    said = bathy("bench", "resume", "last")
    assert said.code == 0, said.err
    run = Workspace(tmp_path / "ws").open_run("last")
    assert run.status == "done"
    assert run.tables()["step"]["step_index"].to_pylist() == [0, 1, 2, 3]
    assert run.finished_steps()[0].step().started_ns == kept[0]
    assert shared_lab.ours() == []


def loads_of(parent: int) -> list[int]:
    """Return the fio processes that are children of `parent`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            name, words = text.partition("(")[2].rpartition(")")[0], text.rpartition(")")[2].split()
            if name == "fio" and int(words[1]) == parent and words[0] != "Z":
                found.append(int(entry.name))
    return found
