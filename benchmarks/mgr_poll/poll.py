"""What the manager's module costs the manager: time for each poll, by how many keys the OSDs have counted.

    python benchmarks/mgr_poll/poll.py [--keys 1000,10000,20000,40000] [--polls 20]
    python benchmarks/mgr_poll/poll.py --lab NAME [--keys 1000,10000,20000]

Without a lab the module runs here on a scripted manager: measured is its own Python, all of which runs under the
manager's interpreter lock. What the manager itself does to answer `get_osd_perf_counters` is missing from that; with
--lab, objects are read on a real cluster, and what is measured is the real drain and the processor time of the
real ceph-mgr. The lab must have the module (`bathy mgr install --lab NAME`).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import itertools
import json
import logging
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bathyscope.host
from bathyscope import lab
from bathyscope.host import CephRequest, CephSession
from bathyscope.host.ceph import connect
from bathyscope.host.local import LocalHost

MODULE = Path(bathyscope.host.__file__).with_name("mgr_module.py")
VERSION = "ceph version 20.2.4 (0) tentacle (stable)"
# On the lab: so long that all keys are counted between two reports, and how many polls are looked at.
PERIOD_S, LOOKS = 20.0, 3
# Reads, or writes at first, one object of each of many images that are known by their id alone.
_CLIENT = """
import rados, sys
conf, keyring, count, work = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
cluster = rados.Rados(conffile=conf, name="client.admin", conf={"keyring": keyring, "admin_socket": ""})
cluster.connect()
pool, waiting = cluster.open_ioctx("rbd"), []
for number in range(count):
    name = "rbd_data.%x.%016x" % (0x1037B7D03B94 + number, 0)
    if work == "write":
        waiting.append(pool.aio_write_full(name, b"x"))
    else:
        waiting.append(pool.aio_read(name, 1, 0, lambda *_: None))
    if len(waiting) > 128:
        waiting.pop(0).wait_for_complete()
for each in waiting:
    each.wait_for_complete()
pool.close()
cluster.shutdown()
"""


class Manager:
    """The manager as a module sees it: every get answers with `report`, as objects of its own as the real one does."""

    def __init__(self, *_: Any) -> None:
        self.version = VERSION
        self.log = logging.getLogger("module")
        self.report: dict[int, list[Any]] = {}
        self._numbers = itertools.count()

    def get(self, name: str) -> Any:
        return {"osd_metadata": {}}[name]

    def get_ceph_option(self, name: str) -> str:
        return {"mgr_stats_period": "5"}[name]

    def add_osd_perf_query(self, _query: dict[str, Any]) -> int:
        number = next(self._numbers)
        self.report[number] = []
        return number

    def remove_osd_perf_query(self, number: int) -> None:
        self.report.pop(number, None)

    def get_osd_perf_counters(self, number: int) -> dict[str, Any]:
        report, self.report[number] = self.report.get(number, []), []
        return {"counters": report}


def loaded() -> Any:
    """Return the module, as a manager of our own has loaded it, asked once."""
    sys.modules["mgr_module"] = types.ModuleType("mgr_module")
    vars(sys.modules["mgr_module"])["MgrModule"] = Manager
    spec = importlib.util.spec_from_file_location("mgr_module_under_test", MODULE)
    assert spec is not None
    assert spec.loader is not None
    text = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(text)
    finally:
        del sys.modules["mgr_module"]
    module = text.Module("bathyscope", 0, 0)
    module.handle_command("", {"prefix": "bathyscope counters"})
    return module


def images(count: int, first: int = 0) -> list[Any]:
    """Return what the OSDs have counted of so many clients with an image each."""
    return [
        {
            "k": [["", str(4000 + key)], ["10.20.30.40"], ["2"], [""], ["", f"{0x1037B7D03B94 + key:x}"]],
            "c": [[9, 0], [17, 0], [36864, 0], [32768, 0], [16_725_715, 9], [18_314_376, 17]],
        }
        for key in range(first, first + count)
    ]


def measure(keys: int, polls: int) -> dict[str, float]:
    """Return ms of processor time of a drain and of an answer, MB of the answer, and MB of memory: held, and grown."""
    module = loaded()
    held, grown = 0.0, 0.0
    tracemalloc.start()
    try:
        for poll in range(polls):
            module.report[0] = images(keys)
            module.drain()
            module.handle_command("", {"prefix": "bathyscope counters"})
            gc.collect()
            now = tracemalloc.get_traced_memory()[0] / 1e6
            held, grown = (now, 0.0) if poll == 0 else (held, now - held)
    finally:
        tracemalloc.stop()
    # Counting memory makes everything some times slower, so that time is measured without it.
    module, drains, answers, said = loaded(), [], [], []
    for _ in range(polls):
        module.report[0] = images(keys)
        drains.append(_cpu_ms(module.drain))
        answers.append(_cpu_ms(lambda: said.append(module.handle_command("", {"prefix": "bathyscope counters"})[1])))
    found = json.loads(said[-1])
    return {
        "keys": keys,
        "rows": len(found["queries"]["image_client"]["rows"]),
        "drain_ms": statistics.median(drains),
        "answer_ms": statistics.median(answers),
        "answer_mb": len(said[-1]) / 1e6,
        "held_mb": held,
        "grown_mb": grown,
    }


def _cpu_ms(work: Any) -> float:
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1e3


def measure_lab(name: str, keys: list[int]) -> Iterator[dict[str, float]]:
    """Yield for each count of keys: the longest drain, and processor time of the real manager for each period."""
    target = lab.load(name).target()
    (pid,) = (daemon.pid for daemon in target.daemons if daemon.name.startswith("mgr."))

    def client(count: int, work: str) -> None:
        argv = ["/usr/bin/python3", "-c", _CLIENT, str(target.conf), str(target.keyring), str(count), work]
        subprocess.run(argv, check=True, timeout=600)

    with contextlib.closing(connect(LocalHost(), target)) as session:
        session.json("mgr", "bathyscope counters")
        _option(session, "set", PERIOD_S)
        try:
            time.sleep(PERIOD_S)
            for count in (0, *keys):
                if count:
                    client(count, "write")
                    time.sleep(2 * PERIOD_S)
                began_s, cpu_s, longest_s = time.monotonic(), _cpu_s(pid), 0.0
                while time.monotonic() - began_s < LOOKS * PERIOD_S:
                    turn_s = time.monotonic()
                    if count:
                        client(count, "read")
                    # Whom nobody asks counts nothing; a status does not ask.
                    session.command(CephRequest("counters", "mgr", (("prefix", "bathyscope counters"),), 60.0))
                    # Looked at once at least, however long the reads took.
                    while True:
                        time.sleep(1)
                        longest_s = max(longest_s, session.json("mgr", "bathyscope status")["get_duration_s"])
                        if time.monotonic() - turn_s > PERIOD_S:
                            break
                spent_s = (_cpu_s(pid) - cpu_s) / (time.monotonic() - began_s) * PERIOD_S
                request = CephRequest("counters", "mgr", (("prefix", "bathyscope counters"),), 60.0)
                asked_s = time.monotonic()
                answer = session.command(request)
                answered_s = time.monotonic()
                yield {
                    "keys": count,
                    "rows": len(json.loads(answer.stdout)["queries"]["image_client"]["rows"]),
                    "drain_ms": longest_s * 1e3,
                    "mgr_cpu_ms": spent_s * 1e3,
                    "answer_wall_ms": (answered_s - asked_s) * 1e3,
                    "answer_mb": len(answer.stdout) / 1e6,
                    "rss_mb": _rss_mb(pid),
                }
        finally:
            _option(session, "rm", None)


def _option(session: CephSession, action: str, value: float | None) -> None:
    words = (("prefix", f"config {action}"), ("who", "global"), ("name", "mgr_stats_period"))
    given = () if value is None else (("value", f"{value:.0f}"),)
    assert session.command(CephRequest("mgr_stats_period", "mon", (*words, *given))).exit_code == 0


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", default="1000,10000,20000,40000")
    parser.add_argument("--polls", type=int, default=20)
    parser.add_argument("--lab")
    arguments = parser.parse_args()
    counts = [int(text) for text in arguments.keys.split(",")]
    found = measure_lab(arguments.lab, counts) if arguments.lab else (measure(n, arguments.polls) for n in counts)
    for row in found:
        print("  ".join(f"{name} {value:,.1f}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
