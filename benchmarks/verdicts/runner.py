"""Runs the cases: for each a short real `bathy bench`, whose printed verdicts are held against what was injected."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bed import LABS, Bed, running
from cases import CASES, Case
from injectors import UnsupportedError
from recordings import can_be_recorded, record_case
from ruamel.yaml import YAML
from truth import Judged, judge, table, totals, totals_text

from bathyscope.analysis.step_figures import StepFigures
from bathyscope.bench import session
from bathyscope.bench.conductor import Watcher
from bathyscope.errors import BathyscopeError
from bathyscope.host.local import LocalHost
from bathyscope.layers import traits
from bathyscope.records import Step
from bathyscope.run_kinds import kind_of
from bathyscope.spec import StepSpec
from bathyscope.spec.plan import Plan
from bathyscope.spec.plan_file import parse_plan
from bathyscope.store import RunDirectory, Workspace

RUNTIME_S, RAMP_S = 5.0, 1.0
IMAGE_SIZE = "512M"
"""More than three times what the caches of three OSDs hold."""


def plan_of(case: Case, runtime_s: float = RUNTIME_S) -> Plan:
    """Return the plan of a case. Nothing stops its loads: what an injection makes slow is what is to be measured."""
    common: dict[str, Any] = {
        "layers": ["rbd"],
        "patterns": list(case.loads),
        "repeats": 1,
        "ramp": f"{RAMP_S}s",
        "runtime": f"{runtime_s}s",
        "limits": {
            "prolong": 0,
            "baseline": "1s",
            "max_client_latency": "600s",
            "max_tenant_wait": "600s",
            "max_tenant_share": 1000,
            "max_slow_ops": 100_000,
        },
    }
    own = dict(case.plan)
    axes = {"image_size": IMAGE_SIZE, **own.pop("axes", {})}
    with tempfile.TemporaryFile("w+") as text:
        YAML(typ="safe").dump({**common, "axes": axes, **own, "name": case.name}, text)
        text.seek(0)
        return parse_plan(text.read(), name=case.name, layers=traits())


class Injecting(Watcher):
    """Injects around each load, if the case does so, and says what goes on."""

    def __init__(self, bed: Bed, case: Case) -> None:
        self._bed = bed
        self._case = case
        self.stack = contextlib.ExitStack()

    def step_begins(self, number: int, total: int, step: StepSpec) -> None:
        if self._case.begins == "load":
            self.stack.enter_context(self._case.inject(self._bed))

    def step_ended(self, step: Step, figures: StepFigures) -> None:
        print(f"  {step.step_key}: {figures.iops:.0f} IOPS ({step.status})", file=sys.stderr)
        self.stack.close()


def run_case(bed: Bed, case: Case, workspace: Path, runtime_s: float = RUNTIME_S) -> RunDirectory:
    """Run a case once and return its run; what was injected is undone, however it ends."""
    watcher = Injecting(bed, case)
    try:
        with contextlib.ExitStack() as stack, watcher.stack:
            if case.begins == "run":
                stack.enter_context(case.inject(bed))
            return session.begin(LocalHost(), Workspace(workspace), plan_of(case, runtime_s), bed.target, watcher)
    finally:
        bed.settle()


def judge_run(run: RunDirectory) -> list[Judged]:
    """Return the verdicts of a run, as `bathy report` finds them now. A run of no case, or one under way, has none."""
    case = CASES.get(run.info.name)
    if case is None or run.status == "running":
        return []
    if run.status != "done":
        return lost(case)
    return judge(case.name, dict(case.loads), kind_of(run).finding(run), injected=not case.clean)


def lost(case: Case) -> list[Judged]:
    """Return the loads of a run that came to nothing."""
    return [
        Judged(case.name, not case.clean, pattern, "", "", "", expect, "no figure", None)
        for pattern, expect in case.loads.items()
    ]


def run_all(
    cases: Sequence[Case], repeats: int, workspace: Path, runtime_s: float, *, recorded: bool = False
) -> Iterator[list[Judged]]:
    """Run the cases of each lab together, in rounds, and yield the verdicts of each run."""
    for group in LABS.values():
        own = [case for case in cases if case.lab == group.name]
        if not own:
            continue
        print(f"lab {group.name}: {', '.join(group.devices)}", file=sys.stderr)
        skipped: set[str] = set()
        with running(group) as bed:
            for case in [case for _ in range(repeats) for case in own]:
                if case.name not in skipped:
                    yield _try(bed, case, workspace, runtime_s, skipped, recorded=recorded)


def _try(bed: Bed, case: Case, workspace: Path, runtime_s: float, skipped: set[str], *, recorded: bool) -> list[Judged]:
    """Run a case; one that fails must not keep the others from being run."""
    print(f"{time.strftime('%H:%M:%S')} {case.name}", file=sys.stderr)
    try:
        if recorded:
            return [judged for _, judged in record_case(bed, case, workspace)]
        return judge_run(run_case(bed, case, workspace, runtime_s))
    except UnsupportedError as error:
        print(f"  skipped: {error}", file=sys.stderr)
        skipped.add(case.name)
        return []
    except (BathyscopeError, OSError, RuntimeError, TimeoutError, ValueError) as error:
        print(f"  failed: {type(error).__name__}: {error}", file=sys.stderr)
        return lost(case)


def judge_all(directory: Path, names: Sequence[str]) -> Iterator[list[Judged]]:
    """Yield the verdicts of the runs that were kept in a workspace, without a cluster."""
    workspace = Workspace(directory)
    for entry in workspace.runs():
        run = workspace.open_run(entry.id)
        if not names or run.info.name in names:
            yield judge_run(run)


def result(judged_runs: Iterable[list[Judged]], output: str) -> bool:
    """Print the truth table and the totals; return whether the bounds are reached."""
    runs = [run for run in judged_runs if run]
    judged = [one for run in runs for one in run]
    found, clean_runs = totals(judged), sum(not run[0].injected for run in runs)
    if output == "json":
        rows = [{**dataclasses.asdict(one), "expect": _plain(one)} for one in judged]
        totals_ = {"injected": found.counts, "clean": found.clean_counts, "clean_runs": clean_runs}
        print(json.dumps({"loads": rows, "totals": totals_, "ok": found.within_bounds}, indent=1))
    else:
        print(table(judged) + "\n" + totals_text(found, clean_runs), end="")
    return found.within_bounds


def _plain(one: Judged) -> dict[str, Any]:
    return {"limits": sorted(one.expect.limits), "subject": one.expect.subject}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", default=[], choices=list(CASES), metavar="NAME", help="only these")
    parser.add_argument("--lab", nargs="+", default=list(LABS), choices=list(LABS), help="only the cases of these")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runtime", type=float, default=RUNTIME_S, help="seconds of a load")
    parser.add_argument("--recordings", action="store_true", help="record the loads of clients, in place of benchmarks")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="workspace in which the runs are kept")
    parser.add_argument("--judge", type=Path, metavar="DIR", help="judge the runs that were kept there; runs nothing")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--list", action="store_true", help="list the cases")
    options = parser.parse_args()
    # Whoever ends this program wants the lab as it was, and then gone.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    cases = [case for case in CASES.values() if case.lab in options.lab and case.name in (options.case or CASES)]
    if options.list:
        print("\n".join(f"{case.name:<24}{case.lab:<8}{', '.join(case.loads)}" for case in cases))
        return
    with contextlib.ExitStack() as stack:
        if options.judge is not None:
            runs = judge_all(options.judge, [case.name for case in cases])
        else:
            if os.geteuid() != 0:
                parser.error("control groups, loop devices and nodes need root")
            keep = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bathy-")))
            if options.recordings:
                cases = [case for case in cases if can_be_recorded(case)]
            runs = run_all(cases, options.repeats, keep, options.runtime, recorded=options.recordings)
        ok = result(runs, options.output)
    sys.exit(0 if ok else 1)
