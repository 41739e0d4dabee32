"""Start the FUSE daemons of this repository, ask them for their counters, and load them with fio."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bathyscope.lab.simdisk import ask

ROOT = Path(__file__).parents[1]
#: Where files are by default: in memory, so that what is compared is the work of the daemons.
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - the name of the file system


class NotBuiltError(Exception):
    """A program or example of the workspace has not been built."""


def program(name: str) -> Path:
    """Return the newest build of a program or example (`examples/NAME`); a release build goes first."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    for profile in ("release", "debug"):
        path = target / profile / name
        if path.exists():
            return path
    raise NotBuiltError(
        f"{name} is not in {target}: cargo build --release -p bathyd -p bathy-fuse -p bathy-cache --bins --examples"
    )


def end_at_sigterm() -> None:
    """Let SIGTERM end this program by SystemExit, so that what it started ends too. A second one changes nothing."""

    def end(number: int, _frame: object) -> None:
        signal.signal(number, lambda *_: None)
        sys.exit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)


@contextlib.contextmanager
def serving(arguments: Sequence[object], mount: Path) -> Iterator[int]:
    """Run a daemon until the end of the block and give its process id."""
    end_at_sigterm()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([str(it) for it in arguments], stderr=said)
        try:
            while not os.path.ismount(mount):
                if process.poll() is not None:
                    said.seek(0)
                    raise RuntimeError(f"{arguments[0]} did not start: {said.read()}")
                time.sleep(0.01)
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


class SimulatedDisks:
    """A running bathy-simdisk."""

    def __init__(self, directory: Path, pid: int) -> None:
        """Remember where it mounts and which process it is."""
        self.directory = directory
        self.pid = pid

    def path(self, disk: str) -> Path:
        return self.directory / "mnt" / disk

    def command(self, **request: Any) -> dict[str, Any]:
        return ask(self.directory / "control", **request)

    def stats(self, disk: str) -> Any:
        return self.command(op="stats", disk=disk)["disks"][0]


@contextlib.contextmanager
def simulated_disks(*disks: str, threads: int = 2) -> Iterator[SimulatedDisks]:
    """Serve disks in a directory of their own."""
    with tempfile.TemporaryDirectory(prefix="bathy-simdisk-") as place:
        directory = Path(place)
        (directory / "mnt").mkdir()
        arguments = [sys.executable, "-m", "bathyscope.simdisk", "--threads", threads]
        arguments += ["--mount", directory / "mnt", "--control", directory / "control"]
        for disk in disks:
            arguments += ["--disk", disk]
        with serving(arguments, directory / "mnt") as pid:
            yield SimulatedDisks(directory, pid)


@contextlib.contextmanager
def passthrough(
    size_bytes: int, threads: int = 2, *, real_time: bool = True, where: Path = IN_MEMORY
) -> Iterator[tuple[Path, int]]:
    """Serve a file with the least daemon; give the file's path and the process id."""
    with tempfile.TemporaryDirectory(prefix="bathy-", dir=where) as place:
        directory = Path(place)
        (directory / "mnt").mkdir()
        with (directory / "data").open("wb") as file:
            file.truncate(size_bytes)
        arguments = [program("examples/passthrough"), directory / "mnt", directory / "data", str(threads)]
        arguments += [] if real_time else ["normal"]
        with serving(arguments, directory / "mnt") as pid:
            yield directory / "mnt" / "disk", pid


def fio(path: Path, *options: str, seconds: float | None = None) -> Any:
    """Run one fio job with direct I/O, for a time or once over the file, and return its part of the JSON answer."""
    # fio takes 0.8 for no time at all.
    runtime = [] if seconds is None else ["--time_based", f"--runtime={round(seconds * 1000)}ms"]
    arguments = [
        "fio",
        "--name=job",
        f"--filename={path}",
        "--direct=1",
        "--thread",
        "--output-format=json",
        *runtime,
        *options,
    ]
    ended = subprocess.run(arguments, check=True, capture_output=True, text=True, cwd=tempfile.gettempdir())
    answer = ended.stdout[ended.stdout.index("{") :]
    return json.loads(answer)["jobs"][0]


def waited_for_processors_s() -> float:
    """Return for how long so far some task of this machine waited for a processor (pressure stall information)."""
    path = Path("/proc/pressure/cpu")
    return int(path.read_text().split("total=")[1].split()[0]) / 1e6 if path.exists() else 0.0


def stolen_s() -> float:
    """Return for how long so far the processors had work and waited for the hypervisor (steal), all together."""
    return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")


def processor_s(pid: int) -> float:
    """Return the processor time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
