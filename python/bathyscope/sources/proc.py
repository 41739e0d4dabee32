"""/proc on this machine: what the devices and processes did while a step ran.

A sampler reads a few small files several times a second and keeps them verbatim. Counters between two readings are
interpolated, so that rows lie exactly on the step's measured window and on the same grid as the load's intervals.

`busy_ratio` of an emulated device says little: the kernel's throttle holds requests back before the device counts
them as in flight. For those, `limit_ratio` tells how near the device was to its limit.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import operator
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from bathyscope.errors import ParseError
from bathyscope.host import Host
from bathyscope.records import DeviceSample, ProcessSample
from bathyscope.sources.base import RawAnswer
from bathyscope.sources.fields import as_int, parsing
from bathyscope.spec import DeviceLimit, Target

LABEL = "proc"
PERIOD_S = 0.2
_SECTOR_BYTES = 512
_PARTITION = re.compile(r"(?:[shv]d[a-z]+\d+|(?:nvme\d+n\d+|mmcblk\d+)p\d+)$")
_IGNORED = re.compile(r"(?:loop|ram|zram|sr|fd)\d+$")


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The measured window in ns since the epoch, and the length of a row's interval."""

    start_ns: int
    end_ns: int
    interval_ns: int = 1_000_000_000


class Sampler:
    """Reads /proc in a thread of its own, from `start` to `stop`. Use as a context manager.

    One reading takes well under a millisecond for ten processes; `busy_s` tells what all of them took.
    """

    def __init__(self, host: Host, target: Target, period_s: float = PERIOD_S) -> None:
        self._host = host
        self._period_s = period_s
        self._lock = threading.Lock()
        self._pids = {daemon.pid for daemon in target.daemons} | {os.getpid()}
        self._words = ["/proc", f"bathy={os.getpid()}"]
        self._pieces: list[bytes] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="bathy-sampler", daemon=True)
        self._started_ns = 0
        self.busy_s = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Take a first reading and begin."""
        self._started_ns = self._host.now_ns()
        self.sample()
        self._thread.start()

    def watch(self, pid: int) -> None:
        """Read this process too from now on: a load process that has just been started."""
        with self._lock:
            self._pids.add(pid)
            self._words.append(f"client={pid}")
        self.sample()

    def stop(self) -> RawAnswer:
        """Take a last reading, end, and return everything that was read. May be called again."""
        if not self._stop.is_set():
            self._stop.set()
            if self._thread.is_alive():
                self._thread.join()
            self.sample()
        with self._lock:
            text = b"".join(self._pieces)
        return RawAnswer(LABEL, tuple(self._words), (), 0, text, b"", self._started_ns, self._host.now_ns())

    def _loop(self) -> None:
        while not self._stop.wait(self._period_s):
            self.sample()

    def sample(self) -> None:
        """Take one reading now. A process that has ended is left out."""
        began_ns = self._host.monotonic_ns()
        with self._lock:
            pieces = [b"=== %d\n" % self._host.now_ns()]
            for path in ("/proc/stat", "/proc/diskstats", *(f"/proc/{pid}/stat" for pid in sorted(self._pids))):
                with contextlib.suppress(OSError):
                    content = self._host.read(path)
                    # Of /proc/stat only the totals: the line of interrupts is long and nobody's question.
                    content = content.partition(b"intr")[0] if path == "/proc/stat" else content
                    pieces += [b"--- %s\n" % path.encode(), content]
            self._pieces.append(b"".join(pieces))
            self.busy_s += (self._host.monotonic_ns() - began_ns) / 1e9


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """One reading: its time, and per path the file's text."""

    at_ns: int
    files: Mapping[str, str]


def readings(answer: RawAnswer) -> list[Reading]:
    """Return the readings of a sampler in order of time. Raises ParseError."""
    result: list[Reading] = []
    with parsing(answer.label):
        for block in re.split(r"^=== ", answer.stdout.decode("utf-8", "replace"), flags=re.MULTILINE)[1:]:
            stamp, _, rest = block.partition("\n")
            files = {}
            for part in re.split(r"^--- ", rest, flags=re.MULTILINE)[1:]:
                path, _, content = part.partition("\n")
                files[path] = content
            result.append(Reading(as_int(stamp), files))
    if len(result) < 2:
        raise ParseError(f"{answer.label} has {len(result)} readings; two are needed for a difference")
    return sorted(result, key=lambda reading: reading.at_ns)


# A counter's course: (time in ns, values) for each reading that has it
_Course = list[tuple[int, tuple[int, ...]]]


def _at(course: _Course, at_ns: int) -> tuple[float, ...]:
    """Return the values at a moment: linear between two readings, constant before the first and after the last."""
    if at_ns <= course[0][0]:
        return tuple(float(v) for v in course[0][1])
    place = bisect.bisect_left(course, at_ns, key=operator.itemgetter(0))
    if place == len(course):
        return tuple(float(v) for v in course[-1][1])
    (t0, v0), (t1, v1) = course[place - 1], course[place]
    share = (at_ns - t0) / (t1 - t0) if t1 > t0 else 1.0
    return tuple(a + (b - a) * share for a, b in zip(v0, v1, strict=True))


def _grid(window: Window) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the rows' intervals, as offsets; a last one shorter than half joins the one before."""
    length_ns = window.end_ns - window.start_ns
    count = max(1, round(length_ns / window.interval_ns))
    for index in range(count):
        yield index * window.interval_ns, (index + 1) * window.interval_ns if index < count - 1 else length_ns


def parse(
    run_id: str, step_index: int, answer: RawAnswer, target: Target, window: Window
) -> tuple[list[DeviceSample], list[ProcessSample]]:
    """Return the rows of the measured window. Raises ParseError."""
    if window.end_ns <= window.start_ns:
        raise ParseError("the measured window is empty")
    if (window.end_ns - window.start_ns) / window.interval_ns > 1_000_000:
        raise ParseError("the measured window has more than a million intervals")
    taken = readings(answer)
    with parsing(answer.label):
        devices = list(_device_rows(run_id, step_index, taken, target, window))
        processes = list(_process_rows(run_id, step_index, _courses(taken, answer, target), window, _processors(taken)))
    return devices, processes


# --- devices


@dataclasses.dataclass(frozen=True, slots=True)
class _Role:
    """What a device is to us."""

    name: str
    device_class: str = ""
    limit: DeviceLimit | None = None


def _roles(target: Target) -> dict[str, _Role]:
    """Return kernel name → role for the devices of the target's daemons and disks."""
    roles = {}
    for device_class, disk in target.disks.items():
        if disk.device:
            roles[_kernel_name(disk.device)] = _Role("disk", device_class, disk.limit)
    for daemon in target.daemons:
        if daemon.device:
            roles[_kernel_name(daemon.device)] = _Role(daemon.name, daemon.device_class or "", daemon.limit)
    return roles


def _kernel_name(device: str) -> str:
    return device.removeprefix("/dev/").replace("/", "!")


def _device_courses(taken: Sequence[Reading]) -> dict[str, _Course]:
    """Return per device (reads, writes, sectors read, sectors written, ms with I/O in flight)."""
    courses: dict[str, _Course] = {}
    for reading in taken:
        for line in reading.files.get("/proc/diskstats", "").splitlines():
            words = line.split()
            numbers = [as_int(word) for word in words[3:13]]
            values = (numbers[0], numbers[4], numbers[2], numbers[6], numbers[9])
            courses.setdefault(words[2], []).append((reading.at_ns, values))
    return courses


def _device_rows(
    run_id: str, step_index: int, taken: Sequence[Reading], target: Target, window: Window
) -> Iterator[DeviceSample]:
    """Yield the rows of every device that has a role, and of other whole disks that were used."""
    roles = _roles(target)
    hosts = {daemon.name: daemon.host for daemon in target.daemons}
    for device, course in _device_courses(taken).items():
        role = roles.get(device)
        if role is None:
            is_used = course[-1][1] != course[0][1]
            if not is_used or _PARTITION.match(device) or _IGNORED.match(device):
                continue
            role = _Role("other")
        for start_ns, end_ns in _grid(window):
            low, high = (_at(course, window.start_ns + offset_ns) for offset_ns in (start_ns, end_ns))
            # Rounding the running totals, not the differences, keeps the sum over the window exact.
            reads, writes, read_sectors, write_sectors, ticks = (
                round(b) - round(a) for a, b in zip(low, high, strict=True)
            )
            seconds = (end_ns - start_ns) / 1e9
            read_bytes, write_bytes = read_sectors * _SECTOR_BYTES, write_sectors * _SECTOR_BYTES
            yield DeviceSample(
                run_id=run_id,
                step_index=step_index,
                host=hosts.get(role.name, "localhost"),
                device=device,
                role=role.name,
                device_class=role.device_class,
                offset_ns=end_ns,
                duration_ns=end_ns - start_ns,
                read_count=reads,
                write_count=writes,
                read_bytes=read_bytes,
                write_bytes=write_bytes,
                busy_ratio=min(1.0, max(0.0, ticks / 1000 / seconds)),
                limit_ratio=_limit_ratio(role.limit, (reads, writes, read_bytes, write_bytes), seconds),
            )


def _limit_ratio(limit: DeviceLimit | None, done: tuple[int, int, int, int], seconds: float) -> float | None:
    """Return the greatest of what was done over what is allowed; None without a limit."""
    if limit is None:
        return None
    allowed = (limit.read_iops, limit.write_iops, limit.read_bytes_per_s, limit.write_bytes_per_s)
    ratios = [value / seconds / most for value, most in zip(done, allowed, strict=True) if most]
    return min(1.0, max(0.0, *ratios)) if ratios else None


# --- processes


@dataclasses.dataclass(frozen=True, slots=True)
class _Process:
    """What a row is about: one process, several added up, or the machine."""

    name: str
    host: str
    courses: tuple[_Course, ...]


def _courses(taken: Sequence[Reading], answer: RawAnswer, target: Target) -> Iterator[_Process]:
    """Yield the daemons, all load processes together, ourselves and the whole machine, as far as they were seen."""
    for daemon in target.daemons:
        yield _Process(daemon.name, daemon.host, (_process_course(taken, daemon.pid, daemon.start_ticks),))
    for name in ("client", "bathy"):
        pids = [as_int(word.partition("=")[2]) for word in answer.argv if word.startswith(f"{name}=")]
        yield _Process(name, "localhost", tuple(_process_course(taken, pid) for pid in pids))
    yield _Process("host", "localhost", (_machine_course(taken),))


def _process_rows(
    run_id: str, step_index: int, processes: Iterator[_Process], window: Window, processors: int
) -> Iterator[ProcessSample]:
    """Yield the rows of each process that was seen at all."""
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    for process in processes:
        name, host = process.name, process.host
        courses = [course for course in process.courses if course]
        if not courses:
            continue
        for start_ns, end_ns in _grid(window):
            low = [_at(course, window.start_ns + start_ns) for course in courses]
            high = [_at(course, window.start_ns + end_ns) for course in courses]
            user, system = (sum(b[i] - a[i] for a, b in zip(low, high, strict=True)) / ticks_per_s for i in (0, 1))
            yield ProcessSample(
                run_id=run_id,
                step_index=step_index,
                host=host,
                process=name,
                offset_ns=end_ns,
                duration_ns=end_ns - start_ns,
                cpu_user_s=max(0.0, user),
                cpu_system_s=max(0.0, system),
                memory_bytes=None if name == "host" else round(sum(values[2] for values in high)) * page_bytes,
                processors=processors,
            )


def _process_course(taken: Sequence[Reading], pid: int, start_ticks: int | None = None) -> _Course:
    """Return (user ticks, system ticks, resident pages) of a process; a later one with the same pid is left out."""
    course: _Course = []
    for reading in taken:
        text = reading.files.get(f"/proc/{pid}/stat")
        if text is None:
            continue
        # The name of the program stands in parentheses and may hold anything, also parentheses.
        words = text.rpartition(")")[2].split()
        if start_ticks is not None and as_int(words[19]) != start_ticks:
            continue
        course.append((reading.at_ns, (as_int(words[11]), as_int(words[12]), as_int(words[21]))))
    return course


def _machine_course(taken: Sequence[Reading]) -> _Course:
    """Return (user and nice, system and interrupts, 0) of the machine."""
    course: _Course = []
    for reading in taken:
        words = reading.files.get("/proc/stat", "").split("\n", 1)[0].split()
        if words[:1] == ["cpu"]:
            user, nice, system, _idle, _iowait, irq, softirq = (as_int(word) for word in words[1:8])
            course.append((reading.at_ns, (user + nice, system + irq + softirq, 0)))
    return course


def _processors(taken: Sequence[Reading]) -> int:
    """Return the number of processors that are on line."""
    return len(re.findall(r"^cpu\d+ ", taken[-1].files.get("/proc/stat", ""), flags=re.MULTILINE))
