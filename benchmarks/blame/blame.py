"""Runs the cases: of each a short recording of a lab under a steady load, whose views are held against the truth."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from bed import LABS, Bed, LabGroup, running
from injectors import Injector, UnsupportedError, disk_fault, each, nothing, primary_affinity, scrub

from bathyscope import lab
from bathyscope.commands.analyze import finding_of_view
from bathyscope.errors import BathyscopeError
from bathyscope.store import Workspace

POOL, GROUPS, IMAGE_SIZE = "vms", 64, "128M"
# Five virtual machines that do the same all the time, and one that does nothing unless it is the noisy one.
STEADY, NOISY = tuple(f"vm{number}" for number in range(1, 6)), "vm6"
# Reads and writes a second of one of them: a quarter of what hard disks can do, and little for the processors.
RATES: Mapping[str, tuple[int, int]] = {"hdd": (6, 3), "hdd-nodes": (6, 3), "ssd": (40, 20)}
SETTLE_S = 4.0
RECORDED_S: Mapping[str, float] = {"before": 40.0, "middle": 75.0}

GROUPS_OF_LABS = (LABS["ssd"], LABS["hdd"], LabGroup("hdd-nodes", ("hdd=6",), nodes=3))

VIEWS = ("devices", "osds", "nodes", "balance", "timeline")
"""Judged. All clients of a lab have one address, and there is one pool with images: these two views name no culprit."""

# Sentences that name nobody: also that something changed at some time, and nothing with it.
_NOBODY = re.compile(r"No |Nothing |Too little |One |After (?!.* and with it )")


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One injection. It is in force during the whole recording (`begins` before) or its second half (middle).

    `view` must name `names` (a regular expression) in its first sentence; what else a view may name is `also`, because
    it is true as well. A case without a view injects nothing: no view may name anybody.
    """

    name: str
    lab: str
    inject: Injector = nothing
    view: str = ""
    names: str = "(?!)"
    also: str = "(?!)"
    begins: Literal["before", "middle"] = "before"


def noisy(reads_per_s: int, writes_per_s: int) -> Injector:
    """Let one more virtual machine do I/O."""

    @contextlib.contextmanager
    def inject(bed: Bed) -> Iterator[None]:
        with bed.background(*load(NOISY, (reads_per_s, writes_per_s))):
            yield

    return inject


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case("slow-disk", "hdd", disk_fault("osd.1", "slow=10x"), "balance", r"^osd\.1 is slow"),
        Case("scrub", "hdd", scrub(), "timeline", r"scrub", begins="middle"),
        Case("uniform-hdd", "hdd"),
        Case(
            "noisy-vm", "ssd", noisy(500, 100), "devices", rf"^{POOL}/{NOISY} does",
            also=rf"^After [^;]* and with it image {POOL}/{NOISY} ", begins="middle",
        ),
        Case(
            # That the two others do all of it is just as true.
            "affinity", "ssd", primary_affinity("osd.1", 0.0), "balance", r"osd\.1 serves 0",
            also=r"^(osd\.[02] and osd\.[02]|node[13] and node[13]) do 100 %",
        ),
        Case("uniform-ssd", "ssd"),
        Case(
            "slow-node", "hdd-nodes", each(lambda osd: disk_fault(osd, "slow=5x"), "osd.1", "osd.4"),
            "balance", r"^Node node2 is slow",
        ),
        Case("uniform-nodes", "hdd-nodes"),
    )
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """What was said of one recording: view → first sentence."""

    case: str
    sentences: Mapping[str, str]

    @property
    def outcome(self) -> str:
        """Return right, silent (nobody was named where somebody should be), wrong (somebody else was), or quiet."""
        case = CASES[self.case]
        named = {view: words for view, words in self.sentences.items() if not _NOBODY.match(words)}
        if any(not re.search(f"{case.names}|{case.also}", words) for words in named.values()):
            return "wrong"
        if not case.view:
            return "quiet"
        return "right" if re.search(case.names, self.sentences[case.view]) else "silent"


def load(image: str, rates: tuple[int, int]) -> list[str]:
    """Return the load of a virtual machine: reads and writes of 4 KiB that arrive by chance, at a steady rate."""
    reads, writes = rates
    return [
        "fio", "--name=vm", "--ioengine=rbd", "--clientname=admin", f"--pool={POOL}", f"--rbdname={image}",
        "--rw=randrw", f"--rwmixread={round(100 * reads / (reads + writes))}", f"--rate_iops={reads},{writes}",
        "--rate_process=poisson", "--bs=4k", "--iodepth=16", "--time_based", "--runtime=3600",
    ]  # fmt: skip


def prepare(bed: Bed) -> None:
    """Make the images and write all of each once."""
    bed.make_pool(POOL, GROUPS)
    with lab.unthrottled(bed.state):
        for image in (*STEADY, NOISY):
            bed.run("rbd", "create", f"{POOL}/{image}", "--size", IMAGE_SIZE)
            # What a virtual machine does is seen by the OSDs, not by librbd's cache.
            bed.run("rbd", "config", "image", "set", f"{POOL}/{image}", "rbd_cache", "false")
            bed.run(
                "fio", "--name=fill", "--ioengine=rbd", "--clientname=admin", f"--pool={POOL}",
                f"--rbdname={image}", "--rw=write", "--bs=1M", "--iodepth=8",
            )  # fmt: skip
    if bed.name.endswith("-hdd"):
        # Something to scrub, which is not to be written while a case is recorded.
        bed.archive()
    bed.settle()


def run_case(bed: Bed, case: Case, workspace: Path) -> None:
    """Record a case once; what was injected is undone, however it ends."""
    seconds = RECORDED_S[case.begins]
    try:
        with contextlib.ExitStack() as stack:
            if case.begins == "before":
                stack.enter_context(case.inject(bed))
            for image in STEADY:
                stack.enter_context(bed.background(*load(image, RATES[case.lab])))
            time.sleep(SETTLE_S)
            recording = subprocess.Popen(
                [
                    sys.executable, "-m", "bathyscope.cli", "collect", "--lab", bed.name, "-w", str(workspace),
                    "--duration", f"{seconds:g}s",
                ],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
            stack.callback(recording.kill)
            if case.begins == "middle":
                time.sleep(seconds / 2)
                stack.enter_context(case.inject(bed))
            _, said = recording.communicate(timeout=seconds + 300)
            if recording.returncode:
                raise RuntimeError(f"the recording failed: {said[-500:]!r}")
    finally:
        bed.settle()


def judge(case: str, workspace: Path, run_id: str) -> Judged:
    """Return what the views say of a kept recording today."""
    run = Workspace(workspace).open_run(run_id)
    return Judged(case, {view: finding_of_view(run, view).sentence for view in VIEWS})


def run_all(cases: Sequence[Case], repeats: int, keep: Path) -> Iterator[Judged]:
    """Run the cases of each lab together, in rounds, and yield what was said of each recording."""
    for group in GROUPS_OF_LABS:
        own = [case for case in cases if case.lab == group.name]
        if not own:
            continue
        print(f"lab {group.name}: {', '.join(group.devices)}", file=sys.stderr)
        with running(group) as bed:
            prepare(bed)
            for case in [case for _ in range(repeats) for case in own]:
                print(f"{time.strftime('%H:%M:%S')} {case.name}", file=sys.stderr)
                try:
                    run_case(bed, case, keep / case.name)
                except UnsupportedError as error:
                    print(f"  skipped: {error}", file=sys.stderr)
                    continue
                except (BathyscopeError, OSError, RuntimeError, subprocess.SubprocessError) as error:
                    print(f"  failed: {type(error).__name__}: {error}", file=sys.stderr)
                    continue
                yield judge(case.name, keep / case.name, "last")


def judge_all(cases: Sequence[Case], keep: Path) -> Iterator[Judged]:
    """Yield what is said today of the recordings that were kept, without a cluster."""
    for case in cases:
        if (keep / case.name).is_dir():
            for entry in Workspace(keep / case.name).runs():
                if entry.status == "done":
                    yield judge(case.name, keep / case.name, entry.id)


def result(judged: Iterable[Judged], asked: Sequence[Case], output: str) -> bool:
    """Print what was said of each recording, and the counts; return whether the bounds are reached.

    A case that was asked for and has no recording that could be judged has not reached them.
    """
    found: list[Judged] = []
    for one in judged:
        found.append(one)
        if output == "table":
            print(
                f"{one.case}: {one.outcome}", *(f"  {view:<9}{said}" for view, said in one.sentences.items()), sep="\n"
            )
    counts: dict[str, dict[str, int]] = {}
    for one in found:
        outcomes = counts.setdefault(one.case, {})
        outcomes[one.outcome] = outcomes.get(one.outcome, 0) + 1
    false_alarms = sum(one.outcome == "wrong" for one in found if not CASES[one.case].view)
    missing = [case.name for case in asked if case.name not in counts]
    ok = not missing and false_alarms <= 1 and all(one.outcome == "right" for one in found if CASES[one.case].view)
    if output == "json":
        rows = [{"case": one.case, "outcome": one.outcome, "sentences": dict(one.sentences)} for one in found]
        print(json.dumps({"recordings": rows, "counts": counts, "ok": ok}, indent=1))
    else:
        for case, outcomes in counts.items():
            print(f"{case:<16}{', '.join(f'{count} {outcome}' for outcome, count in sorted(outcomes.items()))}")
        for name in missing:
            print(f"{name:<16}no recording")
    return ok


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blame", description=__doc__)
    parser.add_argument(
        "--case", nargs="+", default=list(CASES), choices=list(CASES), metavar="NAME", help="only these"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="directory in which the recordings are kept")
    parser.add_argument("--judge", type=Path, metavar="DIR", help="judge the recordings kept there; records nothing")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--list", action="store_true", help="list the cases")
    options = parser.parse_args()
    # Whoever ends this program wants the lab as it was, and then gone.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    cases = [case for case in CASES.values() if case.name in options.case]
    if options.list:
        print("\n".join(f"{case.name:<16}{case.lab:<8}{case.view or 'nobody is to be named'}" for case in cases))
        return
    with contextlib.ExitStack() as stack:
        if options.judge is not None:
            judged = judge_all(cases, options.judge)
        else:
            if os.geteuid() != 0:
                parser.error("control groups, loop devices and nodes need root")
            keep = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bathy-")))
            judged = run_all(cases, options.repeats, keep)
        ok = result(judged, cases, options.output)
    sys.exit(0 if ok else 1)
