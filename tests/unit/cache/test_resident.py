"""Resident memory of daemons: whose process it is, in which unit, and where it is shown."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from bathyscope.cache.config import Places
from bathyscope.cache.daemon import Daemon
from bathyscope.cache.metrics import exposition
from bathyscope.cache.reports import report
from bathyscope.cache.snapshots import Snapshot
from bathyscope.host import SocketRequest
from bathyscope.host.fake import FAKE_SERVER, FakeHost
from bathyscope.host.local import LocalHost
from bathyscope.host.process import resident_memory
from bathyscope.views import as_text

from .daemons import MIB, status

# Of Linux 6.18, in parts.
STATUS = (
    b"Name:\tpython\nPid:\t6355\nVmPeak:\t  412532 kB\nVmSize:\t  412532 kB\nVmHWM:\t   60416 kB\nVmRSS:\t   54044 kB\n"
    b"RssAnon:\t   30132 kB\n"
)


def test_it_is_what_the_kernel_says_in_bytes() -> None:
    found = {"resident_bytes": 54044 * 1024, "resident_bytes_max": 60416 * 1024}
    assert resident_memory([("/proc/6355/status", STATUS)]) == found
    zombie = b"Name:\tbathyd\nState:\tZ (zombie)\n"
    assert resident_memory([]) is None
    assert resident_memory([("/proc/6355/status", zombie)]) is None
    assert resident_memory([("/proc/6355/stat", STATUS)]) is None


def test_the_process_is_the_one_that_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server("s", family=socket.AF_UNIX) as server:

        def answer() -> None:
            channel, _ = server.accept()
            with channel:
                channel.recv(64)
                channel.sendall(b"here\n")

        threading.Thread(target=answer, daemon=True).start()
        said = LocalHost().exchange(SocketRequest("s", "s", "?", process_file="status"))
    ((path, content),) = said.files
    assert (said.line, path) == (b"here\n", f"/proc/{os.getpid()}/status")
    assert (resident_memory(said.files) or {})["resident_bytes"] > MIB
    assert content.startswith(b"Name:")


def test_a_daemon_that_is_not_seen_has_none(tmp_path: Path) -> None:
    places = Places(tmp_path)
    line = json.dumps({"ok": True, "answer": status()}).encode()
    host = FakeHost(sockets={str(places.socket("fast")): lambda _: line})
    assert "process" not in Daemon(host, places, "fast").status()
    host.files[f"/proc/{FAKE_SERVER}/status"] = STATUS
    assert Daemon(host, places, "fast").status()["process"]["resident_bytes"] == 54044 * 1024
    # Nor does it say so itself.
    assert "process" not in Daemon(host, places, "fast").ask(query="status")


def snapshot(resident_bytes: int | None, budget_bytes: int = 4096 * MIB) -> Snapshot:
    answer = status()
    answer["cache"]["engine"]["memory"] = {"budget_bytes": budget_bytes}
    if resident_bytes is not None:
        answer["process"] = {"resident_bytes": resident_bytes, "resident_bytes_max": 900 * MIB}
    return Snapshot("fast", 10**12, answer)


def caches(finding: Any) -> dict[str, Any]:
    table = finding.tables[0]
    return dict(zip([column.heading for column in table.columns], table.rows[0], strict=True))


def test_the_status_has_it_beside_the_budget() -> None:
    finding = report("status", [(snapshot(800 * MIB), None)])
    row = caches(finding)
    assert (row["Resident"], row["Peak resident"], row["Memory budget"]) == (800 * MIB, 900 * MIB, 4096 * MIB)
    assert {column.unit for column in finding.tables[0].columns if "esident" in column.heading} == {"bytes"}
    assert "more memory than its budget" not in str(finding.facts)
    assert not finding.unseen
    assert "800 MiB" in as_text(finding, "table")
    facts = dict(report("status", [(snapshot(800 * MIB, 512 * MIB), None)]).facts)
    assert facts["fast has more memory than its budget"] == "800 MiB are resident, and its budget is 512 MiB"


def test_the_status_says_why_it_is_not_known() -> None:
    finding = report("status", [(snapshot(None), None)])
    assert caches(finding)["Resident"] is None
    assert finding.unseen[0].startswith("Resident memory of 'fast' is not known: its process is not seen from here.")
    down = Snapshot.of_down("fast", 10**12, "stopped", "not running", None)
    assert not report("status", [(down, None)]).unseen


def test_the_metrics_have_it() -> None:
    lines = exposition([snapshot(800 * MIB)], ["fast"]).splitlines()
    assert f'bathy_cache_resident_bytes{{cache="fast"}} {800 * MIB}' in lines
    assert f'bathy_cache_memory_budget_bytes{{cache="fast"}} {4096 * MIB}' in lines
    assert not any(
        line.startswith("bathy_cache_resident_bytes{") for line in exposition([snapshot(None)], ["fast"]).splitlines()
    )
