"""One load, sampled on this machine and over ssh at the same time: both ways must give the same figures."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Iterable
from typing import Any

import pytest
from tests.cut import cut

from bathyscope.analysis.columns import ints, total, where
from bathyscope.host import CephSession, Host
from bathyscope.recording.recorder import Job, Recorder
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.recording.sinks import MemorySink
from bathyscope.records import DeviceSample, ProcessSample, Tables
from bathyscope.sources import SOURCES
from bathyscope.spec import Target

_POOL = "bathy-test-ssh"


def sample_twice(
    host: Host, session: CephSession, target: Target, local: ScopeKeeper, remote: ScopeKeeper
) -> tuple[dict[str, Tables], int]:
    """Return what `proc` saw for the one scope and `node_proc` for the other of a load on objects, and its bytes."""
    keepers = {"proc": local, "node_proc": remote}
    sinks = {name: MemorySink() for name in keepers}
    here, there = (
        Recorder(host, None, keeper, [Job(SOURCES[name], period_s=0.2, budget_ratio=math.inf)], sinks[name])
        for name, keeper in keepers.items()
    )
    session.json("mon", "osd pool create", pool=_POOL, pg_num=8)
    try:
        with here, there:
            words = ["rados", "-c", str(target.conf), "-n", target.client, "-p", _POOL]
            words += ["bench", "10", "write", "-b", "16K"]
            words += ["--keyring", target.keyring] if target.keyring else []
            prefix = ["chroot", target.root] if target.root else []
            load = subprocess.run([*prefix, *words], capture_output=True, text=True, check=False, timeout=100)
            assert load.returncode == 0, load.stderr
    finally:
        session.json("mon", "config set", who="mon", name="mon_allow_pool_delete", value="true")
        session.json("mon", "osd pool rm", pool=_POOL, pool2=_POOL, yes_i_really_really_mean_it=True)
        session.json("mon", "config rm", who="mon", name="mon_allow_pool_delete")
    made = re.search(r"Total writes made:\s+(\d+)", load.stdout)
    assert made is not None
    tables = {name: SOURCES[name].parse(sinks[name].answers(name), keeper.scope) for name, keeper in keepers.items()}
    return tables, int(made[1]) * 16384


def must_agree(found: dict[str, Tables], osds: Iterable[str]) -> None:
    """Hold the figures of both ways together, over the time that both have sampled."""
    ends = [ints(tables[ProcessSample], "at_ns").tolist() for tables in found.values()]
    window = max(min(at) for at in ends), min(max(at) for at in ends)
    seconds = (window[1] - window[0]) / 1e9
    assert seconds > 7
    all_written: list[float] = []
    for osd in osds:
        cpu, written, busy = [], [], []
        for tables in found.values():
            processes = where(cut(ProcessSample, tables[ProcessSample], *window), process=osd)
            devices = where(cut(DeviceSample, tables[DeviceSample], *window), role=osd)
            cpu.append((total(processes, "cpu_user_s") + total(processes, "cpu_system_s")) / seconds)
            written.append(total(devices, "write_bytes"))
            rows: list[dict[str, Any]] = devices.to_pylist()
            busy.append(sum(row["busy_ratio"] * row["duration_ns"] for row in rows) / 1e9 / seconds)
        # A tick of the processor's clock, 10 ms, at either end of the window besides.
        assert cpu[1] == pytest.approx(cpu[0], rel=0.03, abs=0.03 / seconds)
        assert written[1] == pytest.approx(written[0], rel=0.03)
        assert busy[1] == pytest.approx(busy[0], rel=0.03, abs=0.01)
        all_written.append(written[0])
    assert min(all_written) > 0
