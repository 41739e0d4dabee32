"""The benchmarks of the cache at a size that runs in seconds, so that they do not rot. No time is judged."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ("bathyd", "examples/passthrough", "examples/open_rate")

Load = Callable[[str], ModuleType]


@pytest.fixture
def load() -> Iterator[Load]:
    """Give a function that imports a benchmark, where it can run."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists() or shutil.which("fio") is None:
        pytest.skip("mounting a cached directory needs root, /dev/fuse and fio")
    # Benchmarks end by SystemExit at SIGTERM, which a test would take for its own failure.
    at_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        daemons = importlib.import_module("benchmarks.daemons")
        try:
            for name in PROGRAMS:
                daemons.program(name)
        except daemons.NotBuiltError as error:
            pytest.skip(str(error))
        yield lambda name: importlib.import_module(f"benchmarks.{name}")
    finally:
        signal.signal(signal.SIGTERM, at_sigterm)
        for name in [name for name in sys.modules if name.startswith("benchmarks")]:
            sys.modules.pop(name)


def test_sides_take_turns_at_being_first_and_are_compared_turn_by_turn(load: Load) -> None:
    pairs = load("pairs")
    order: list[str] = []

    def side(name: str) -> Callable[[], int]:
        def measure() -> int:
            order.append(name)
            return len(order)

        return measure

    found = pairs.in_turns({"a": side("a"), "b": side("b")}, 2)
    assert order == ["a", "b", "b", "a"]
    assert found == {"a": [1, 4], "b": [2, 3]}
    # Each turn is twice as fast as the one before, of both sides alike: their ratio does not know it.
    ratio = pairs.ratio([3.0, 6.0, 12.0], [2.0, 4.0, 8.0])
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.5, 1.5, 1.5))
    assert pairs.difference([3.0, 6.0, 12.0], [2.0, 4.0, 8.0]).value == 2.0
    assert pairs.text(ratio, 1) == "1.5 (1.5 to 1.5)"


_SERVES = """
import time
from benchmarks.cache.bed import bathyd, place
with place() as directory, bathyd(directory, "write-through", ssd_bytes=16 << 20, size_bytes=1 << 20) as ours:
    print(ours.pid, ours.file.parent, flush=True)
    time.sleep(600)
"""


def test_a_benchmark_that_is_terminated_leaves_nothing_behind(load: Load) -> None:
    load("cache.bed")
    with subprocess.Popen([sys.executable, "-c", _SERVES], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, source = process.stdout.readline().split()
        assert os.path.ismount(source)
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM
    assert not Path("/proc", pid).exists()
    assert not Path(source).parent.exists()


def test_hits_are_hits_on_every_side(load: Load) -> None:
    (result,) = load("cache.hits").run(1, 0.3, loads=((1, 2),), size_bytes=16 << 20)
    names = {"bathyd", "bathyd, 2 threads", "passthrough", "passthrough, 32 threads", "raw"}
    assert names <= set(result.sides)
    assert all(runs[0].iops > 0 and runs[0].latency_us > 0 for runs in result.sides.values())


def test_what_a_cache_costs_where_it_cannot_help(load: Load) -> None:
    if not Path("/dev/loop-control").exists():
        pytest.skip("a device over a simulated disk needs loop devices")
    results = load("cache.without_cache").run(
        1, 0.5, profiles=("zero",), loads=(("randread", 1), ("randwrite", 4)), disk_bytes=256 << 20,
        hot_bytes=16 << 20, ssd_bytes=16 << 20,
    )  # fmt: skip
    assert [it.load for it in results] == ["randread", "randwrite"]
    assert all(runs[0] > 0 for it in results for runs in it.iops.values())


def test_nbdkit_and_bathyd_get_the_same_trace(load: Load) -> None:
    if shutil.which("nbdkit") is None:
        pytest.skip("nbdkit is not installed")
    replay = load("cache.replay")
    # A line is read, read again, written, read; then two that nobody had.
    places = [(True, 0), (True, 0), (False, 1), (True, 1), (True, 2), (True, 3)]
    requests = [replay.Request(is_read, place << 16, 65_536) for is_read, place in places]
    ours, theirs = replay.run(requests, 64 << 20)
    assert [(it.reads, it.reads_hit) for it in (ours, theirs)] == [(5, 2), (5, 2)]
    # What lies in memory yet is not on our SSD; a record may be.
    assert ours.ssd_write_bytes < theirs.ssd_write_bytes
    # nbdkit writes the line that is written a second time, and three that are read.
    assert theirs.ssd_write_bytes == 4 << 16
    assert len(replay.load_trace(replay.EXCERPT)) == 8000


def test_a_start_reads_every_line_of_a_full_table(load: Load, tmp_path: Path) -> None:
    empty, full = load("cache.start").run(1, 1, tmp_path)
    assert (empty.table, empty.lines, full.table) == ("empty", 0, "full")
    # A GiB has 16,384 lines of 64 KiB, of which the table, and the stage in memory, take a few.
    assert 15_000 < full.lines < 16_384
    assert full.table_bytes >= full.lines * 128


def test_files_are_made_used_and_removed_on_each_side(load: Load) -> None:
    found = load("cache.files").run(1, files=4, size_bytes=1 << 20, ssd_bytes=16 << 20)
    assert list(found) == ["create", "open", "remove", "write", "read"]
    for took_us in found.values():
        assert list(took_us) == ["bare directory", "cache", "pass-through"]
        assert all(len(turns) == 1 and turns[0] > 0 for turns in took_us.values())
