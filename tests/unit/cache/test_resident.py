"""Resident memory of daemons: whose process it is, in which unit, and where it is shown."""

from __future__ import annotations

import os
from typing import Any

import pytest

from bathyscope.cache.looks import Look
from bathyscope.cache.metrics import exposition
from bathyscope.cache.reports import report
from bathyscope.cache.resident import resident_memory
from bathyscope.host.fake import FakeHost
from bathyscope.host.local import LocalHost
from bathyscope.views import as_text

from .daemons import MIB, status

# Of Linux 6.18, in parts.
STATUS = (
    b"Name:\tpython\nPid:\t6355\nVmPeak:\t  412532 kB\nVmSize:\t  412532 kB\nVmHWM:\t   60416 kB\nVmRSS:\t   54044 kB\n"
    b"RssAnon:\t   30132 kB\n"
)
CONFIG = "/etc/bathyscope/cache/fast.json"


def host(*argv: str, status: bytes = STATUS) -> FakeHost:
    cmdline = "".join(f"{word}\0" for word in argv).encode()
    return FakeHost(files={"/proc/6355/cmdline": cmdline, "/proc/6355/status": status})


@pytest.mark.parametrize(
    "argv",
    [
        ("/usr/bin/python3", "-P", "-m", "bathyscope.bathyd", CONFIG),
        ("/usr/bin/bathyd", CONFIG),
        ("bathyd", "fast.json"),
    ],
)
def test_it_is_what_the_kernel_says_in_bytes(argv: tuple[str, ...]) -> None:
    found = resident_memory(host(*argv), "fast", 6355)
    assert found == {"resident_bytes": 54044 * 1024, "resident_bytes_max": 60416 * 1024}


@pytest.mark.parametrize(
    "argv",
    [
        ("/usr/bin/python3", "-P", "-m", "bathyscope.bathyd", CONFIG.replace("fast", "other")),
        ("/usr/bin/python3", "-P", "-m", "bathyscope.cli", CONFIG),
        ("/usr/bin/less", CONFIG),
        (CONFIG,),
        # Of a thread of the kernel.
        (),
    ],
)
def test_another_process_with_its_number_is_not_its_daemon(argv: tuple[str, ...]) -> None:
    assert resident_memory(host(*argv), "fast", 6355) is None


def test_what_has_ended_or_has_no_number_is_not_known() -> None:
    daemon = ("/usr/bin/bathyd", CONFIG)
    assert resident_memory(host(*daemon, status=b"Name:\tbathyd\nState:\tZ (zombie)\n"), "fast", 6355) is None
    for pid in (1, None, "6355", True):
        assert resident_memory(host(*daemon), "fast", pid) is None
    # What runs this test is no daemon.
    assert resident_memory(LocalHost(), "fast", os.getpid()) is None


def look(resident_bytes: int | None, budget_bytes: int = 4096 * MIB) -> Look:
    answer = status()
    answer["cache"]["engine"]["memory"] = {"budget_bytes": budget_bytes}
    memory = None if resident_bytes is None else {"resident_bytes": resident_bytes, "resident_bytes_max": 900 * MIB}
    return Look("fast", 10**12, answer).with_process(memory)


def caches(finding: Any) -> dict[str, Any]:
    table = finding.tables[0]
    return dict(zip([column.name for column in table.columns], table.rows[0], strict=True))


def test_the_status_has_it_beside_the_budget() -> None:
    finding = report("status", [(look(800 * MIB), None)])
    row = caches(finding)
    assert (row["Resident"], row["Peak resident"], row["Memory budget"]) == (800 * MIB, 900 * MIB, 4096 * MIB)
    assert {column.unit for column in finding.tables[0].columns if "esident" in column.name} == {"bytes"}
    assert "more memory than its budget" not in str(finding.facts)
    assert not finding.unseen
    assert "800 MiB" in as_text(finding, "table")
    facts = dict(report("status", [(look(800 * MIB, 512 * MIB), None)]).facts)
    assert facts["fast has more memory than its budget"] == "800 MiB are resident, and its budget is 512 MiB"


def test_the_status_says_why_it_is_not_known() -> None:
    finding = report("status", [(look(None), None)])
    assert caches(finding)["Resident"] is None
    assert finding.unseen[0].startswith("Resident memory of 'fast' is not known: process 7 is not its daemon here.")
    down = Look.of_down("fast", 10**12, "stopped", "not running", None)
    assert not report("status", [(down, None)]).unseen


def test_the_metrics_have_it() -> None:
    lines = exposition([look(800 * MIB)], ["fast"]).splitlines()
    assert f'bathy_cache_resident_bytes{{cache="fast"}} {800 * MIB}' in lines
    assert f'bathy_cache_memory_budget_bytes{{cache="fast"}} {4096 * MIB}' in lines
    assert not any(
        line.startswith("bathy_cache_resident_bytes{") for line in exposition([look(None)], ["fast"]).splitlines()
    )
