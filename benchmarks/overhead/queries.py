"""What the queries of the manager module cost an OSD, in processor time of an operation and in IOPS.

    python -m benchmarks.overhead.queries [--pairs 15] [--dose 20] [--runtime 8]

One microsecond is below the noise of a shared machine. So the queries that are always on are registered `--dose` times,
each copy with expressions of its own as an OSD tells queries apart by them, and the difference is divided by the dose.
Interleaved pairs of a load with and without; beside it, on an idle lab, what the commands of a recording cost. Prints
one JSON line; exits 1 when an operation costs more than 1 µs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
from benchmarks.overhead.overhead import COLLECT_CPU_LIMIT_US, HOST, lab_for, load, loaded_image, osd_cpu_s

from bathyscope.host import CephRequest, CephSession, mgr_install
from bathyscope.host.ceph import connect
from bathyscope.spec import Target

# Appended to the module's text: copies of its queries, which it forgets soon after nobody asks any more.
_COPIES = """
ASKED_S = 2.0
for _name in list(ALWAYS):
    for _copy in range(1, %d):
        _parts = [(part["type"], part["regex"] + "(?:)" * _copy) for part in ALWAYS[_name]["key_descriptor"]]
        ALWAYS[_name + str(_copy)] = query(*_parts)
        KEY_OF[_name + str(_copy)], OTHER_KEY[_name + str(_copy)] = KEY_OF[_name], OTHER_KEY[_name]
"""
_SETTLE_S = 12.0
_COMMANDS = {
    "perf dump": (("prefix", "perf dump"), ("format", "json")),
    "perf histogram dump": (("prefix", "perf histogram dump"), ("format", "json")),
}
_COMMANDS_EACH = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", help="a running lab with ssd OSDs, without the module; none: one is started")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--dose", type=int, default=20)
    parser.add_argument("--runtime", type=float, default=8.0, help="seconds of a load")
    parser.add_argument("--pattern", default="randread-4K-qd16")
    parser.add_argument("--image-size", default="512M")
    options = parser.parse_args()
    text = mgr_install.module_source()
    mgr_install.module_source = lambda: text + (_COPIES % options.dose).encode()
    with lab_for(options.lab) as target:
        session = connect(HOST, target)
        commands = {name: cost_of(target, session, name) for name in _COMMANDS}
        seen = mgr_install.look(session, target)
        mgr_install.install(HOST, session, target, seen)
        try:
            asked, unasked = pairs(target, session, options)
        finally:
            mgr_install.remove(HOST, session, target, mgr_install.look(session, target))
    costs_us = [(a[1] - b[1]) / options.dose for a, b in zip(asked, unasked, strict=True)]
    losses = [(1 - a[0] / b[0]) / options.dose for a, b in zip(asked, unasked, strict=True)]
    cost_us = statistics.median(costs_us)
    found = {
        "check": "queries",
        "dose": options.dose,
        "osd_cpu_us_of_an_op": round(cost_us, 2),
        "interval_95": interval_of_median(costs_us, digits=2),
        "osd_cpu_us_of_an_op_without": round(statistics.median(cpu_us for _iops, cpu_us in unasked), 1),
        "loss_of_iops": round(statistics.median(losses), 4),
        "loss_interval_95": interval_of_median(losses, digits=4),
        "osd_cpu_ms_of_a_command": commands,
        "limit": COLLECT_CPU_LIMIT_US,
        "ok": cost_us <= COLLECT_CPU_LIMIT_US,
        "load_average": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(found))
    sys.exit(0 if found["ok"] else 1)


def interval_of_median(values: list[float], *, digits: int) -> list[float]:
    """Return the 95 % bootstrap interval of the median."""
    picks = np.random.default_rng(1).integers(0, len(values), size=(20_000, len(values)))
    medians = np.median(np.array(values)[picks], axis=1)
    return [round(float(np.quantile(medians, q)), digits) for q in (0.025, 0.975)]


Loads = list[tuple[float, float]]


def pairs(target: Target, session: CephSession, options: argparse.Namespace) -> tuple[Loads, Loads]:
    """Return IOPS and the OSDs' processor time of an operation in µs, with the queries and without, pair by pair."""
    found: dict[str, Loads] = {"on": [], "off": []}
    with loaded_image(target, options.image_size) as fio:
        for pair in range(options.pairs):
            for name in ("on", "off") if pair % 2 == 0 else ("off", "on"):
                with asking(session) if name == "on" else contextlib.nullcontext():
                    time.sleep(_SETTLE_S)
                    found[name].append(load(target, fio, options))
            on, off = found["on"][-1], found["off"][-1]
            print(f"  {on[1]:.1f} and {off[1]:.1f} µs without, {on[0]:.0f} of {off[0]:.0f} IOPS", file=sys.stderr)
    return found["on"], found["off"]


@contextlib.contextmanager
def asking(session: CephSession) -> Iterator[None]:
    """Ask the module now and then, so that it keeps its queries."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(1.0):
            session.json("mgr", "bathyscope counters")

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def cost_of(target: Target, session: CephSession, name: str) -> float:
    """Return the processor time that a command to an OSD takes it, in ms."""
    request = CephRequest("cost", "osd.0", _COMMANDS[name])
    before_s = osd_cpu_s(target)
    for _ in range(_COMMANDS_EACH):
        session.commands([request])
    return round((osd_cpu_s(target) - before_s) / _COMMANDS_EACH * 1e3, 2)


if __name__ == "__main__":
    main()
