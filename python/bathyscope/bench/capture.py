"""Everything that is recorded around a step besides what the load generator says; each part can be switched off."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

from bathyscope.bench.settings import HISTORY_WINDOW_S
from bathyscope.errors import BathyscopeError
from bathyscope.host import CephSession, Host
from bathyscope.records import DeviceSample, Op, PerfCounter, ProcessSample
from bathyscope.sources import base, op_history, perf_dump, proc
from bathyscope.sources.base import RawAnswer
from bathyscope.spec import Target
from bathyscope.spec.plan import Capture

PERF_BEFORE, PERF_AFTER, HISTORY, PROC = "perf_before", "perf_after", "op_history", "proc"


# A thousand operations of one OSD are some 2 MB of JSON; those of a thousand OSDs would be another load.
HISTORY_OSDS_MAX = 32


def history_osds(osds: Sequence[int]) -> list[int]:
    """Return the OSDs that are asked for their op history: all, or HISTORY_OSDS_MAX evenly from a large cluster."""
    ordered = sorted(osds)
    if len(ordered) <= HISTORY_OSDS_MAX:
        return ordered
    return [ordered[index * len(ordered) // HISTORY_OSDS_MAX] for index in range(HISTORY_OSDS_MAX)]


# The longest sleep of the OSD's filing thread, and the rate above which it never gets that far.
_FILING_S = 0.26
_FILED_AT_ONCE_PER_S = 500.0


@dataclasses.dataclass(slots=True)
class Captured:
    """The raw answers of one step by source, and the time between the two looks at the counters."""

    raw: dict[str, list[RawAnswer]] = dataclasses.field(default_factory=dict)
    counted_s: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CaptureRows:
    """What the raw answers say. `problems` are sentences about parts that could not be read."""

    perf_counters: tuple[PerfCounter, ...] = ()
    ops: tuple[Op, ...] = ()
    devices: tuple[DeviceSample, ...] = ()
    processes: tuple[ProcessSample, ...] = ()
    problems: tuple[str, ...] = ()


class StepCapture:
    """Captures one step: `begin` before the load starts, `end` when it has ended."""

    def __init__(
        self, host: Host, session: CephSession | None, target: Target, wanted: Capture, osds: Sequence[int]
    ) -> None:
        self._host = host
        self._session = session
        self._wanted = wanted
        self._osds = list(osds) if session is not None else []
        self._captured = Captured()
        # Twice as often as the rows' interval, so that the interpolation is between near readings.
        period_s = min(proc.PERIOD_S, wanted.sample_interval / 2)
        self.sampler = proc.Sampler(host, target, period_s) if wanted.processes else None
        self._counted_from_ns = 0

    def begin(self) -> None:
        """Look at the counters and begin to sample."""
        if self._wanted.perf_counters and self._osds:
            self._counted_from_ns = self._host.monotonic_ns()
            self._captured.raw[PERF_BEFORE] = base.collect(self._host, self._session, perf_dump.plan(self._osds))
        if self.sampler is not None:
            self.sampler.start()

    def watch(self, pid: int) -> None:
        """Sample this load process too."""
        if self.sampler is not None:
            self.sampler.watch(pid)

    def end(self) -> Captured:
        """Take the last looks and return everything."""
        if self.sampler is not None:
            self._captured.raw[PROC] = [self.sampler.stop()]
        requests = op_history.plan_dump(history_osds(self._osds)) if self._wanted.op_history else []
        counters = perf_dump.plan(self._osds) if self._wanted.perf_counters else []
        if counters and self._osds:
            after = base.collect(self._host, self._session, counters)
            self._captured.counted_s = (self._host.monotonic_ns() - self._counted_from_ns) / 1e9
            self._captured.raw[PERF_AFTER] = after
        if requests:
            self._host.sleep(self._filing_s())
            self._captured.raw[HISTORY] = base.collect(self._host, self._session, requests)
        return self._captured

    def _filing_s(self) -> float:
        """Return how long to wait until the histories hold the last ops, in seconds.

        The OSD's thread that files finished ops (OpHistoryServiceThread) sleeps 1, 4, 16, 64, then 256 ms while it
        finds none. So an OSD with long gaps between its ops, a disk at its limit, is behind by that much; one that
        is busy by a few ms.
        """
        before, after = (
            [_ops_served(answer) for answer in self._captured.raw.get(which, ())] for which in (PERF_BEFORE, PERF_AFTER)
        )
        served = [b - a for a, b in zip(before, after, strict=True) if a is not None and b is not None and b > a]
        if before and not served:
            return 0.0
        slowest_per_s = min(served, default=0) / (self._captured.counted_s or 1.0)
        return 0.0 if slowest_per_s > _FILED_AT_ONCE_PER_S else _FILING_S

    def abandon(self) -> None:
        """Stop sampling after a failure."""
        if self.sampler is not None:
            self.sampler.stop()


def _ops_served(answer: RawAnswer) -> int | None:
    """Return how many client ops an OSD has served since its start; None when it did not tell."""
    try:
        return int(answer.json()["osd"]["op"])
    except (BathyscopeError, KeyError, TypeError, ValueError):
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Parsing:
    """What the parsers need to know of a step."""

    run_id: str
    step_index: int
    target: Target
    capture: Capture
    start_ns: int
    end_ns: int
    pool_ids: frozenset[int] | None = None
    schema: perf_dump.Schema | None = None


def parse(raw: dict[str, list[RawAnswer]], about: Parsing) -> CaptureRows:
    """Return the rows of a step's raw answers. A part that cannot be read becomes a problem, never an error."""
    problems: list[str] = []
    rows = CaptureRows()

    @contextlib.contextmanager
    def part(name: str):  # type: ignore[no-untyped-def]
        try:
            yield
        except BathyscopeError as error:
            problems.append(f"{name}: {error.message}")

    if PERF_BEFORE in raw and PERF_AFTER in raw:
        with part("perf counters"):
            found = perf_dump.parse(
                about.run_id, about.step_index, raw[PERF_BEFORE], raw[PERF_AFTER], schema=about.schema
            )
            rows = dataclasses.replace(rows, perf_counters=tuple(found))
            restarted = perf_dump.restarted(raw[PERF_BEFORE], raw[PERF_AFTER])
            if restarted:
                problems.append(f"{', '.join(restarted)} restarted during the step")
    if HISTORY in raw:
        with part("op history"):
            # The OSDs keep this much; an older operation that is missing was not lost but never asked for.
            since_ns = max(about.start_ns, about.end_ns - int(HISTORY_WINDOW_S * 1e9))
            ops = op_history.parse(
                about.run_id, about.step_index, raw[HISTORY], since_ns, about.end_ns,
                size_limit=about.capture.op_history_ops, pool_ids=about.pool_ids,
            )  # fmt: skip
            rows = dataclasses.replace(rows, ops=tuple(ops))
    if PROC in raw:
        with part("/proc"):
            window = proc.Window(about.start_ns, about.end_ns, int(about.capture.sample_interval * 1e9))
            devices, processes = proc.parse(about.run_id, about.step_index, raw[PROC][0], about.target, window)
            rows = dataclasses.replace(rows, devices=tuple(devices), processes=tuple(processes))
    return dataclasses.replace(rows, problems=tuple(problems))
