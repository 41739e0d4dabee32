"""What measuring costs, measured on a real cluster: five checks, each with its figure and its limit.

    python -m benchmarks.overhead [--lab NAME] [--check time|capture|plain|collect|bursts] [--pairs 5] [--runtime 10]

Without --lab a lab of three ssd OSDs is started for it and taken down afterwards. Other load on the machine is
measured along: run it on a quiet one.

time      A plan of 12 steps takes at most 1.25 times the sum of its fio runtimes (ramp counted as runtime).
capture   IOPS with full capture and with none, interleaved pairs: the medians differ by at most 3 %. Needs a
          machine that does nothing else: where single pairs scatter by 20 %, more pairs (--pairs 21) are needed.
          Beside it the processor time that capturing and parsing cost this program, which scatters far less.
plain     Our figures for a job equal those of plain fio on the same command line, run in turns, within the
          run-to-run interval (95 % bootstrap interval of the ratio of the medians holds 1).
collect   IOPS and the OSDs' processor time of an operation while `bathy collect` records and while it does not,
          interleaved pairs: at most 1 % of IOPS and 1 µs, the interval within 2 %. One percent is below the noise of
          most machines: --recordings 10 has ten at once, and what one costs is a tenth. Queries that are in the OSDs
          are the same for all of them; `benchmarks.overhead.queries` has these by a dose of its own.
bursts    The same while the OSDs have one burst of their op history after the other, without the pauses that
          `bathy collect --depth deep` makes: at most 3 % of IOPS. `bursts` says how many there were, `ops` how many
          operations the last answers held: below 5,000 of each OSD it was not full.

Prints one JSON line for each check; exits 1 when a limit is broken.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bathyscope import lab
from bathyscope.analysis.step_figures import StepFigures
from bathyscope.bench import session
from bathyscope.bench.conductor import Watcher
from bathyscope.bench.load import run_load
from bathyscope.bench.resources import prefix_of
from bathyscope.host import ProcessRequest
from bathyscope.host.ceph import connect
from bathyscope.host.local import LocalHost
from bathyscope.layers import LAYERS, LayerContext, traits
from bathyscope.recording.burst import OSDS_MAX, Burst
from bathyscope.recording.collect import Collected
from bathyscope.recording.journal import Journal, journal_directory
from bathyscope.recording.look import look_at
from bathyscope.recording.sinks import MemorySink, Sink
from bathyscope.records import Step
from bathyscope.sources.shape import Source
from bathyscope.spec import StepSpec, Target
from bathyscope.spec.plan_file import parse_plan
from bathyscope.store import RunDirectory, Workspace
from bathyscope.watch.bursts import SECONDS

HOST = LocalHost()
TIME_LIMIT, CAPTURE_LIMIT = 1.25, 0.03
COLLECT_LIMIT, COLLECT_INTERVAL_LIMIT, COLLECT_CPU_LIMIT_US = 0.01, 0.02, 1.0
BURSTS_LIMIT = 0.03
SAMPLED = ("perf_counter", "op", "process_sample")
OFF = tuple(f"capture.{part}=false" for part in ("perf_counters", "op_history", "processes"))


class Talk(Watcher):
    """One line for each step on stderr."""

    def step_ended(self, step: Step, figures: StepFigures) -> None:
        print(f"  {step.step_key}: {figures.iops:.0f} IOPS ({step.status})", file=sys.stderr)


def measure(
    target: Target, workspace: Path, text: str, *overrides: str, watcher: Watcher | None = None
) -> RunDirectory:
    plan = parse_plan(text, name="overhead", layers=traits(), overrides=list(overrides))
    return session.begin(HOST, Workspace(workspace), plan, target, watcher or Talk())


def plan_text(
    name: str, layers: str, patterns: str, *, repeats: int, runtime_s: float, ramp_s: float, image_size: str = "512M"
) -> str:
    return (
        f"name: {name}\nlayers: [{layers}]\npatterns: [{patterns}]\naxes: {{image_size: {image_size}}}\n"
        f"repeats: {repeats}\nruntime: {runtime_s}s\nramp: {ramp_s}s\nlimits: {{prolong: 0, baseline: 1s}}\n"
    )


def iops(run: RunDirectory) -> list[float]:
    """Return the IOPS of each step, in order."""
    table = run.tables()["result"].sort_by("step_index")
    return [float(v or 0.0) for v in table["iops"].to_pylist()]


def check_time(target: Target, workspace: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Twelve steps of RADOS and RBD; everything from the start of the program's work to its end counts."""
    text = plan_text(
        "time", "rados, rbd", "randread-4K-qd16, randwrite-4K-qd16, read-64K-qd16", repeats=2,
        runtime_s=options.runtime, ramp_s=1, image_size=options.image_size,
    )  # fmt: skip
    began = time.monotonic()
    run = measure(target, workspace, text, "device_classes=ssd")
    took_s = time.monotonic() - began
    steps = run.tables()["step"].num_rows
    loads_s = steps * (options.runtime + 1)
    ratio = took_s / loads_s
    return {"steps": steps, "took_s": round(took_s, 1), "loads_s": loads_s, "ratio": round(ratio, 3),
            "limit": TIME_LIMIT, "ok": steps == 12 and ratio <= TIME_LIMIT}  # fmt: skip


def check_capture(target: Target, workspace: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Pairs of a run with everything captured and one with nothing; which goes first alternates."""
    text = plan_text("capture", "rbd", options.pattern, repeats=1, runtime_s=options.runtime, ramp_s=1,
                     image_size=options.image_size)  # fmt: skip
    ratios, extra_cpu_s, samples = [], [], {}
    for pair in range(options.pairs):
        found: dict[str, float] = {}
        cpu_s: dict[str, float] = {}
        for name in ("on", "off") if pair % 2 == 0 else ("off", "on"):
            began_s = time.process_time()
            run = measure(target, workspace, text, "device_classes=ssd", *(OFF if name == "off" else ()))
            cpu_s[name] = time.process_time() - began_s
            found[name] = iops(run)[0]
            samples[name] = sum(run.tables()[record].num_rows for record in SAMPLED)
        ratios.append(found["on"] / found["off"])
        extra_cpu_s.append(cpu_s["on"] - cpu_s["off"])
    loss = 1 - statistics.median(ratios)
    low, high = ratio_interval(ratios, [1.0] * len(ratios))
    return {
        "pattern": options.pattern,
        "ratios": [round(r, 4) for r in ratios],
        "median_loss": round(loss, 4),
        "ratio_interval_95": [round(low, 4), round(high, 4)],
        "samples": samples,
        "extra_cpu_s_of_a_run": round(statistics.median(extra_cpu_s), 3),
        "limit": CAPTURE_LIMIT,
        "ok": abs(loss) <= CAPTURE_LIMIT,
    }


class PlainTurns(Watcher):
    """After each of our steps, the same fio command line by itself, on the same images."""

    def __init__(self, target: Target, workspace: Path) -> None:
        self.plain: list[float] = []
        self.ours: list[float] = []
        self._target = target
        self._workspace = Workspace(workspace)
        self._spec: StepSpec | None = None

    def step_begins(self, number: int, total: int, step: StepSpec) -> None:
        self._spec = step

    def step_ended(self, step: Step, figures: StepFigures) -> None:
        assert self._spec is not None
        prefix = prefix_of(self._workspace.runs()[-1].id)
        with tempfile.TemporaryDirectory(prefix="bathy-plain-") as scratch:
            context = LayerContext(self._target, prefix, scratch)
            requests = [without_logs(r) for r in LAYERS[self._spec.layer].plan(self._spec, context)]
            ended = run_load(HOST, requests)
        jobs = [json.loads(completed.stdout)["jobs"][0] for completed in ended]
        side = "read" if self._spec.pattern.reads else "write"
        self.plain.append(sum(float(job[side]["iops"]) for job in jobs))
        self.ours.append(figures.iops)
        print(f"  ours {self.ours[-1]:.0f}, plain fio {self.plain[-1]:.0f} IOPS", file=sys.stderr)


def without_logs(request: ProcessRequest) -> ProcessRequest:
    """Return the command as a person would type it: without our logs, and with another seed.

    With the same seed it would read the very blocks that our step has just read, some of them from a cache.
    """
    ours = ("--write_", "--log_", "--per_job_logs", "--randseed")
    return dataclasses.replace(request, argv=tuple(w for w in request.argv if not w.startswith(ours)))


def check_plain(target: Target, workspace: Path, options: argparse.Namespace) -> dict[str, Any]:
    text = plan_text("plain", "rbd", options.pattern, repeats=options.pairs, runtime_s=options.runtime, ramp_s=1,
                     image_size=options.image_size)  # fmt: skip
    turns = PlainTurns(target, workspace)
    measure(target, workspace, text, "device_classes=ssd", watcher=turns)
    low, high = ratio_interval(turns.ours, turns.plain)
    ours, plain = [round(v) for v in turns.ours], [round(v) for v in turns.plain]
    return {"pattern": options.pattern, "ours": ours, "plain": plain,
            "ratio": round(statistics.median(turns.ours) / statistics.median(turns.plain), 4),
            "interval_95": [round(low, 4), round(high, 4)], "ok": low <= 1 <= high}  # fmt: skip


def check_collect(target: Target, workspace: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Pairs of a load while a recording runs in a process of its own, and the same load alone."""
    found = pairs(target, options, lambda: recordings(target, workspace, options.recordings), dose=options.recordings)
    loss, low, extra = found["median_loss"], found["ratio_interval_95"][0], found["extra_osd_cpu_us_of_an_op"]
    return {
        "recordings": options.recordings,
        **found,
        "limit": [COLLECT_LIMIT, COLLECT_INTERVAL_LIMIT, COLLECT_CPU_LIMIT_US],
        "ok": loss <= COLLECT_LIMIT and 1 - low <= COLLECT_INTERVAL_LIMIT and extra <= COLLECT_CPU_LIMIT_US,
    }


def check_bursts(target: Target, workspace: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Pairs of a load while bursts run, and the same load alone."""
    taken = Taken(limit=1)
    found = pairs(target, options, lambda: bursting(target, workspace, taken))
    held = {answer.label: answer.stdout.count(b'"description"') for answer in taken.answers("op_history")}
    return {
        **found,
        "bursts": taken.bursts,
        "ops": held,
        "limit": BURSTS_LIMIT,
        "ok": found["median_loss"] <= BURSTS_LIMIT and taken.bursts > 0,
    }


def pairs(
    target: Target,
    options: argparse.Namespace,
    beside: Callable[[], contextlib.AbstractContextManager[None]],
    *,
    dose: int = 1,
) -> dict[str, Any]:
    """Return what a load loses while something runs `beside` it: interleaved pairs, each with it and without.

    What runs is `dose` of the same at once; the figures are those of one.
    """
    ratios, extra_us = [], []
    with loaded_image(target, options.image_size) as fio:
        for pair in range(options.pairs):
            found: dict[str, tuple[float, float]] = {}
            for name in ("on", "off") if pair % 2 == 0 else ("off", "on"):
                with beside() if name == "on" else contextlib.nullcontext():
                    found[name] = load(target, fio, options)
            ratios.append(1 - (1 - found["on"][0] / found["off"][0]) / dose)
            extra_us.append((found["on"][1] - found["off"][1]) / dose)
            print(
                f"  {found['on'][0]:.0f} of {found['off'][0]:.0f} IOPS, {extra_us[-1]:+.2f} µs of one", file=sys.stderr
            )
    low, high = ratio_interval(ratios, [1.0] * len(ratios))
    return {
        "pattern": options.pattern,
        "ratios": [round(r, 4) for r in ratios],
        "median_loss": round(1 - statistics.median(ratios), 4),
        "ratio_interval_95": [round(low, 4), round(high, 4)],
        "extra_osd_cpu_us_of_an_op": round(statistics.median(extra_us), 2),
    }


class Taken(MemorySink):
    """Counts the bursts that gave answers, and keeps the last."""

    bursts = 0

    def take(self, source: Source, collected: Collected) -> None:
        self.bursts += collected.good
        super().take(source, collected)


@contextlib.contextmanager
def bursting(target: Target, workspace: Path, sink: Sink) -> Iterator[None]:
    """Take one burst of all OSDs after the other, in a thread; options are restored at the end."""
    stopping = threading.Event()
    with contextlib.closing(connect(HOST, target)) as connection:
        keeper = look_at(HOST, connection, target)
        keeper.narrow(asked_osds=None)
        scope = keeper.scope
        with Workspace(workspace).create_run(kind="collect", started_ns=HOST.now_ns()) as run:
            journal = Journal.create(journal_directory(), run.id, str(run.path), target, HOST, fsid=scope.fsid)
        burst = Burst(HOST, connection, journal, sink)

        def take() -> None:
            while not stopping.is_set():
                burst.take(scope, scope.asked_osds[:OSDS_MAX], SECONDS, wait=lambda seconds: not stopping.wait(seconds))

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            done = pool.submit(take)
            # The first burst has begun.
            time.sleep(1)
            try:
                yield
            finally:
                stopping.set()
                done.result()
                journal.close()


@contextlib.contextmanager
def loaded_image(target: Target, size: str) -> Iterator[list[str]]:
    """Make a pool and an image that is written once, and give fio's command line for it; both are removed again."""
    pool = "overhead-collect"

    def ceph(*words: str) -> None:
        argv = [words[0], "--conf", str(target.conf), "--keyring", str(target.keyring), *words[1:]]
        subprocess.run(argv, check=True, capture_output=True, timeout=120)

    ceph("ceph", "osd", "pool", "create", pool, "32", "32")
    ceph("ceph", "osd", "pool", "application", "enable", pool, "rbd")
    try:
        ceph("rbd", "create", f"{pool}/image", "--size", size)
        fio = [
            *("env", f"CEPH_CONF={target.conf}", f"CEPH_ARGS=--keyring={target.keyring} --rbd_cache=false"),
            *("fio", "--name=load", "--ioengine=rbd", "--clientname=admin", f"--pool={pool}", "--rbdname=image"),
            *("--output-format=json", f"--size={size}"),
        ]
        subprocess.run([*fio, "--rw=write", "--bs=1M", "--iodepth=4"], check=True, capture_output=True, timeout=600)
        yield fio
    finally:
        ceph("ceph", "tell", "mon.*", "config", "set", "mon_allow_pool_delete", "true")
        ceph("ceph", "osd", "pool", "delete", pool, pool, "--yes-i-really-really-mean-it")


@contextlib.contextmanager
def recordings(target: Target, workspace: Path, count: int) -> Iterator[None]:
    """Record with `bathy collect` in other processes, `count` of them at once."""
    with contextlib.ExitStack() as stack:
        for number in range(count):
            stack.enter_context(recording(target, workspace / str(number)))
        # What asks the OSDs for images has told them so by then.
        time.sleep(8)
        yield


@contextlib.contextmanager
def recording(target: Target, workspace: Path) -> Iterator[None]:
    """Record with `bathy collect` in another process."""
    argv = [sys.executable, "-m", "bathyscope.cli", "collect", "--follow", "-w", str(workspace), "--conf"]
    argv += [str(target.conf), "--keyring", str(target.keyring)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        while b"recording" not in (line := process.stderr.readline()):
            if not line:
                raise RuntimeError("the recording has ended")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def load(target: Target, fio: list[str], options: argparse.Namespace) -> tuple[float, float]:
    """Return the IOPS of a load, and the OSDs' processor time in µs of an operation."""
    kind, size, depth = options.pattern.split("-")
    argv = [*fio, f"--rw={kind}", f"--bs={size}", f"--iodepth={depth.removeprefix('qd')}"]
    before_s = osd_cpu_s(target)
    argv += ["--time_based", f"--runtime={options.runtime}"]
    done = subprocess.run(argv, check=True, capture_output=True, timeout=options.runtime + 120)
    job = json.loads(done.stdout)["jobs"][0]
    ops = job["read"]["total_ios"] + job["write"]["total_ios"]
    return job["read"]["iops"] + job["write"]["iops"], (osd_cpu_s(target) - before_s) / ops * 1e6


def osd_cpu_s(target: Target) -> float:
    """Return the processor time of all OSDs of the target on this machine, in seconds."""
    ticks = 0
    for daemon in target.daemons:
        if daemon.name.startswith("osd."):
            fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def ratio_interval(a: list[float], b: list[float], rounds: int = 20_000) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of median(a)/median(b) from paired turns."""
    generator = np.random.default_rng(1)
    picks = generator.integers(0, len(a), size=(rounds, len(a)))
    ratios = np.median(np.array(a)[picks], axis=1) / np.median(np.array(b)[picks], axis=1)
    return float(np.quantile(ratios, 0.025)), float(np.quantile(ratios, 0.975))


CHECKS: dict[str, Callable[[Target, Path, argparse.Namespace], dict[str, Any]]] = {
    "time": check_time,
    "capture": check_capture,
    "plain": check_plain,
    "collect": check_collect,
    "bursts": check_bursts,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", help="a running lab with ssd OSDs; none: one is started")
    parser.add_argument("--image-size", default="512M")
    parser.add_argument("--check", choices=list(CHECKS), action="append")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--runtime", type=float, default=10.0, help="seconds of a step")
    parser.add_argument("--recordings", type=int, default=1, help="recordings at once in the check of collect")
    parser.add_argument("--pattern", default="randread-4K-qd16")
    options = parser.parse_args()
    all_ok = True
    with lab_for(options.lab) as target:
        for name in options.check or list(CHECKS):
            with tempfile.TemporaryDirectory(prefix="bathy-overhead-") as workspace:
                result = CHECKS[name](target, Path(workspace), options)
            load = os.getloadavg()[0]
            print(json.dumps({"check": name, **result, "load_average": round(load, 1)}), flush=True)
            all_ok = all_ok and bool(result["ok"])
    sys.exit(0 if all_ok else 1)


@contextlib.contextmanager
def lab_for(name: str | None) -> Iterator[Target]:
    """Give the target of a running lab; one that was started here has its own state directory and is taken down."""
    if name is not None:
        yield lab.load(name).target()
        return
    with tempfile.TemporaryDirectory(prefix="bathy-", dir="/var/tmp") as home:
        os.environ["XDG_STATE_HOME"] = home
        state = lab.up(lab.LabSpec(name="overhead", devices=(lab.DeviceGroup(device_class="ssd", count=3),)))
        try:
            yield state.target()
        finally:
            lab.down("overhead")


if __name__ == "__main__":
    main()
