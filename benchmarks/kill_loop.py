"""Kills `bathy bench` with -9 at random moments, resumes it each time, and counts the steps of the final tables.

    python benchmarks/kill_loop.py [--lab NAME] [--verb bench|collect] [--kills 30] [--seed N]

Without --lab a lab of three ssd OSDs is started for it and taken down afterwards.

Every kill falls at a random moment after a start, preparation and clean-up included. When a run ends before its
moment, another run is begun, so that all kills hit. At the end of each run its tables must hold every step exactly
once and steps that were finished before a kill must be the very same afterwards. After the last clean-up the cluster
cluster must hold nothing of ours, nor this machine. Prints one line for each kill.

--verb collect kills `bathy collect --depth deep`, one recording after the other, while a load runs. The next start must
restore every option of every OSD, one that was set before included, and a killed run must be readable to its last
segment, which ends at most LOST_S before the kill. Prints for each kill how many options were changed at that moment:
most of the time that is none, so a half of the kills waits for a burst.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bathyscope import lab
from bathyscope.bench.session import stored_plan
from bathyscope.host import CephSession
from bathyscope.host.ceph import connect
from bathyscope.host.local import LocalHost
from bathyscope.layers import traits
from bathyscope.recording.journal import journal_directory
from bathyscope.recording.options import overrides
from bathyscope.records import Op, Step
from bathyscope.sources.op_history import OPTIONS
from bathyscope.spec.plan import expand
from bathyscope.store import RunDirectory, Workspace, duck
from bathyscope.store.segment import Segment
from bathyscope.window.recording import question_of, view_of

BATHY = (sys.executable, "-m", "bathyscope.cli")
# Of a recording with samples of every second: a segment has two intervals, and is written within seconds on a busy
# machine.
LOST_S = 8.0
PLAN = ("--preset", "smoke", "--set", "image_size=32M", "--layer", "rados", "--layer", "rbd", "--repeats", "2")


@dataclasses.dataclass
class Story:
    """What happened: kills that hit, those that hit while options were changed, complete runs, and what was wrong.

    `lost_s_max` is the longest time before a kill that a killed recording does not have.
    """

    kills: int = 0
    hits: int = 0
    runs: int = 0
    lost_s_max: float = 0.0
    problems: list[str] = dataclasses.field(default_factory=list)


def kill_loop(
    name: str, environment: dict[str, str], workspace: Path, *, kills: int, seed: int, longest_s: float = 14.0
) -> Story:
    """Kill and resume until `kills` kills have hit and the last run is complete."""
    generator = random.Random(seed)
    story = Story()
    while story.kills < kills:
        before: dict[int, int] = {}
        words: tuple[str, ...] = ("bench", "run", "--lab", name, *PLAN)
        while True:
            delay_s = generator.uniform(0.3, longest_s) if story.kills < kills else None
            killed = _start_and_kill((*words, "--workspace", str(workspace)), environment, delay_s, story)
            if not killed:
                break
            story.kills += 1
            print(f"kill {story.kills} after {delay_s:.1f} s", flush=True)
            run = _last(workspace)
            if run is None:
                break  # killed before the run existed: there is nothing to resume
            before = _check_kept(run, before, story)
            words = ("bench", "resume", run.id)
        run = _last(workspace)
        if run is not None and run.status == "done":
            story.runs += 1
            _check_complete(run, before, story)
        elif story.kills >= kills and run is not None:
            story.problems.append(f"run {run.id} ended as {run.status}")
    _start_and_kill(("bench", "cleanup"), environment, None, story)
    return story


def collect_kill_loop(
    name: str, environment: dict[str, str], workspace: Path, *, kills: int, seed: int, longest_s: float = 12.0
) -> Story:
    """Kill recordings until `kills` kills have hit; the next start of each has to restore what it left."""
    generator = random.Random(seed)
    story = Story()
    words = ("collect", "--lab", name, "--depth", "deep", "--interval", "1s", "-w", str(workspace), "--duration")
    with open_lab(name) as session:
        session.json("osd.1", "config set", var=OPTIONS[0], val=["77"])
        before = options(session)
        try:
            while story.kills < kills:
                in_burst = story.kills % 2 == 1
                process = subprocess.Popen(
                    [*BATHY, *words, "60s"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                began = time.monotonic()
                while in_burst and options(session) == before and process.poll() is None:
                    time.sleep(0.02)
                delay_s = generator.uniform(0.0, 6.0) if in_burst else generator.uniform(0.3, longest_s)
                time.sleep(delay_s)
                if process.poll() is not None:
                    story.problems.append(f"a recording ended by itself with {process.returncode}")
                killed_ns = time.time_ns()
                process.send_signal(signal.SIGKILL)
                process.communicate()
                story.kills += 1
                left = options(session)
                changed = sum(left[osd] != before[osd] for osd in before)
                after_s = time.monotonic() - began
                print(f"kill {story.kills} after {after_s:.1f} s: {changed} OSDs changed", flush=True)
                story.hits += changed > 0
                run = _last(workspace)
                if run is not None:
                    _check_readable(run, killed_ns, story)
                # The next start: a recording of any depth.
                depth = generator.choice(("light", "normal", "deep"))
                _start_and_kill((*words, "1s", "--depth", depth), environment, None, story)
                story.runs += 1
                if options(session) != before:
                    story.problems.append(f"kill {story.kills}: {options(session)} instead of {before}")
        finally:
            session.json("osd.1", "config unset", var=OPTIONS[0])
    return story


def options(session: CephSession) -> dict[str, dict[str, str | None]]:
    """Return the run-time overrides of every OSD's op history. Raises RuntimeError when one does not answer."""
    osds = [f"osd.{osd['osd']}" for osd in session.json("mon", "osd dump")["osds"]]
    # On a busy machine an OSD may not answer in time; that says nothing of its options.
    for _ in range(10):
        if len(found := overrides(session, osds, OPTIONS)) == len(osds):
            return found
    raise RuntimeError(f"only {sorted(found)} answer")


def _check_readable(run: RunDirectory, killed_ns: int, story: Story) -> None:
    """A run that was killed has every segment that stands in it, up to the kill, and its views can be asked."""
    rows = sum(segment.table(Op).num_rows for segment in run.segments().values())
    if duck.query([run], "SELECT count(*) AS count FROM op").to_pylist() != [{"count": rows}]:
        story.problems.append(f"run {run.id}: its operations are not those of its segments")
    if run.segments():
        question = question_of(run)
        view_of(run, "slow", question)
        lost_s = (killed_ns - question.end_ns) / 1e9
        story.lost_s_max = max(story.lost_s_max, lost_s)
        if lost_s > LOST_S:
            story.problems.append(f"run {run.id} ends {lost_s:.1f} s before it was killed")


@contextlib.contextmanager
def loaded(name: str) -> Iterator[None]:
    """Write objects into a pool of the lab as long as the context lasts."""
    target = lab.load(name).target()
    access = ["--conf", str(target.conf), "--keyring", str(target.keyring)]

    def ceph(*words: str) -> None:
        subprocess.run([words[0], *access, *words[1:]], check=True, capture_output=True, timeout=120)

    ceph("ceph", "osd", "pool", "create", "kill-load", "16", "16")
    try:
        load = ["rados", *access, "-p", "kill-load", "bench", "3600", "write", "-b", "4096", "-t", "4", "--no-cleanup"]
        process = subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.kill()
            process.wait(10)
    finally:
        ceph("ceph", "tell", "mon.*", "config", "set", "mon_allow_pool_delete", "true")
        ceph("ceph", "osd", "pool", "delete", "kill-load", "kill-load", "--yes-i-really-really-mean-it")


def _start_and_kill(words: tuple[str, ...], environment: dict[str, str], delay_s: float | None, story: Story) -> bool:
    """Run `bathy`; kill it after `delay_s`. Return whether it was killed before it ended by itself."""
    process = subprocess.Popen([*BATHY, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        _, talk = process.communicate(timeout=delay_s if delay_s is not None else 180)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return True
    if process.returncode != 0:
        story.problems.append(f"{words[:2]} ended with {process.returncode}: {talk.decode()[-500:]}")
    return False


def _last(workspace: Path) -> RunDirectory | None:
    entries = Workspace(workspace).runs()
    return RunDirectory(entries[-1].path) if entries else None


def _check_kept(run: RunDirectory, before: dict[int, int], story: Story) -> dict[int, int]:
    """A step that was finished before must be finished still, and be the same execution of it."""
    now = {index: _started_ns(segment) for index, segment in run.step_segments().items()}
    changed = [index for index, started_ns in before.items() if now.get(index) != started_ns]
    story.problems += [f"step {index} of {run.id} was lost or repeated" for index in changed]
    return now


def _started_ns(segment: Segment) -> int:
    return int(segment.table(Step)["started_ns"][0].as_py())


def _check_complete(run: RunDirectory, before: dict[int, int], story: Story) -> None:
    _check_kept(run, before, story)
    expected = [(step.key, step.repeat_index) for step in expand(stored_plan(run), ("ssd",), traits())]
    table = run.tables()["step"]
    found = list(zip(table["step_key"].to_pylist(), table["repeat_index"].to_pylist(), strict=True))
    if sorted(found) != sorted(expected):
        story.problems.append(f"run {run.id} holds {len(found)} steps instead of {len(expected)}, or others")


def remains(name: str, workspace: Path) -> list[str]:
    """Return what is left of the workspace's runs on the lab and on this machine."""
    with open_lab(name) as session:
        dump = session.json("mon", "osd dump")
        found = [f"pool {p['pool_name']}" for p in dump["pools"] if str(p["pool_name"]).startswith("bathy-")]
        found += [f"rule {rule}" for rule in session.json("mon", "osd crush rule ls") if rule.startswith("bathy-")]
        for osd in (int(o["osd"]) for o in dump["osds"]):
            changed = session.json(f"osd.{osd}", "config diff")["diff"]
            found += [f"{option} of osd.{osd}" for option in changed if option.startswith("osd_op_history")]
    found += [f"journal {path}" for path in journal_directory().glob("*")]
    scratch = [Path(tempfile.gettempdir(), f"bathy-{run.id}") for run in Workspace(workspace).runs()]
    return found + [f"scratch {path}" for path in scratch if path.exists()]


@contextlib.contextmanager
def open_lab(name: str) -> Iterator[CephSession]:
    """Give a connection to a lab."""
    with contextlib.closing(connect(LocalHost(), lab.load(name).target())) as session:
        yield session


@contextlib.contextmanager
def lab_for(name: str | None) -> Iterator[str]:
    """Give the name of a running lab; one that was started here has its own state directory and is taken down."""
    if name is not None:
        yield name
        return
    with tempfile.TemporaryDirectory(prefix="bathy-", dir="/var/tmp") as home:
        os.environ["XDG_STATE_HOME"] = home
        lab.up(lab.LabSpec(name="kill", devices=(lab.DeviceGroup(device_class="ssd", count=3),)))
        try:
            yield "kill"
        finally:
            lab.down("kill")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab")
    parser.add_argument("--verb", choices=("bench", "collect"), default="bench")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    began = time.monotonic()
    with lab_for(arguments.lab) as name, tempfile.TemporaryDirectory(prefix="bathy-kill-") as directory:
        how = {"kills": arguments.kills, "seed": arguments.seed}
        if arguments.verb == "collect":
            with loaded(name):
                story = collect_kill_loop(name, dict(os.environ), Path(directory), **how)
        else:
            story = kill_loop(name, dict(os.environ), Path(directory), **how)
        story.problems += [f"left behind: {what}" for what in remains(name, Path(directory))]
    took_s = time.monotonic() - began
    hits = lost = ""
    if arguments.verb == "collect":
        hits, lost = f" ({story.hits} with options changed)", f", at most {story.lost_s_max:.1f} s of each lost"
    print(f"{story.kills} kills{hits}, {story.runs} complete runs{lost}, {took_s:.0f} s, seed {arguments.seed}")
    for problem in story.problems:
        print(f"PROBLEM: {problem}")
    sys.exit(1 if story.problems else 0)


if __name__ == "__main__":
    main()
