"""What is recorded around a load besides what the load generator says, and the limits that it is watched by."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import pyarrow as pa

from bathyscope.analysis import limits
from bathyscope.analysis.limits import Baseline
from bathyscope.errors import BathyscopeError
from bathyscope.host import CephSession, Host
from bathyscope.recording.collect import Collected
from bathyscope.recording.recorder import Job, Recorder
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.recording.sinks import MemorySink
from bathyscope.records import Collection, PoolWait, RawAnswer
from bathyscope.sources import SOURCES
from bathyscope.spec.plan import Capture, Limits

# The longest sleep of the OSD's filing thread, and the rate above which it never gets that far.
_FILING_S = 0.26
_FILED_AT_ONCE_PER_S = 500.0

# Readings of /proc in a step at most: a step of an hour is sampled more rarely, so that it fits into memory.
_READINGS_MAX = 3000
# What is kept of the looks at other tenants: those at a large cluster are a megabyte each, one a second.
_TENANTS_BYTES = 64 << 20
# What machines and groups counted; counters go on, so a look that is left out loses nothing, or little.
_NODES_BYTES = 128 << 20
# A reading waits for a processor on a busy machine; that is no cost of its own, and gaps would blur the window's edges.
_PROC_BUDGET_RATIO = 0.25


class StepRecording:
    """Records from `with` to its end; `watch` adds a load process, `violation` judges what was seen of the cluster.

    `capture` None: nothing but the limits is watched (while images are filled). The recorder's threads write to the
    sink and to nothing else; what is judged and what came of it belong to the thread that calls `violation`.
    """

    def __init__(
        self,
        host: Host,
        session: CephSession | None,
        keeper: ScopeKeeper,
        *,
        capture: Capture | None,
        plan_limits: Limits,
        before: Baseline,
        expected_s: float = 0.0,
    ) -> None:
        self._host = host
        self._keeper = keeper
        self._limits = plan_limits
        self._before = before
        self._sink = MemorySink(
            thinned={
                "tenants": _TENANTS_BYTES,
                **dict.fromkeys(("cgroups", "node_proc", "node_exporter"), _NODES_BYTES),
            }
        )
        self._judged: dict[str, int] = {}
        self._answered = True
        self._waits: collections.deque[pa.Table] = collections.deque(maxlen=limits.WAIT_LOOKS)
        self._unreadable: dict[Collection, str] = {}
        self._violation: str | None = None
        # Load processes of the step before have ended; other processes may have their pids by now.
        keeper.narrow(processes=(("bathy", os.getpid()),), processes_there=())
        jobs = []
        if session is not None:
            # The limits protect the cluster: however long a look takes on a busy one, it is not taken more rarely.
            jobs += [Job(SOURCES[name], budget_ratio=math.inf) for name in ("cluster_status", "tenants")]
        if capture is not None and capture.processes:
            # Twice as often as the load's intervals, so that a window is cut between near readings.
            proc = SOURCES["proc"]
            period_s = max(min(proc.period_s, capture.sample_interval / 2), expected_s / _READINGS_MAX)
            sampled = (proc, SOURCES["simulated_disks"]) if keeper.scope.target.disk_control else (proc,)
            jobs += [Job(source, period_s=period_s, budget_ratio=_PROC_BUDGET_RATIO) for source in sampled]
            cgroups = SOURCES["cgroups"]
            jobs.append(Job(cgroups, period_s=max(cgroups.period_s, period_s), budget_ratio=_PROC_BUDGET_RATIO))
            if keeper.scope.target.cache_sockets:
                caches = SOURCES["caches"]
                jobs.append(Job(caches, period_s=max(caches.period_s, period_s), budget_ratio=_PROC_BUDGET_RATIO))
            if keeper.scope.nodes:
                # A reading waits for the network; that costs nobody anything.
                jobs.append(Job(SOURCES["node_proc"], period_s=period_s, budget_ratio=math.inf))
            if keeper.scope.exporters:
                jobs.append(Job(SOURCES["node_exporter"], budget_ratio=math.inf))
        if capture is not None and session is not None and keeper.scope.asked_osds:
            once = (("perf_counters", capture.perf_counters), ("op_history", capture.op_history))
            jobs += [Job(SOURCES[name], period_s=math.inf) for name, wanted in once if wanted]
        self._asked = {job.source.name for job in jobs}
        self._recorder = Recorder(host, session, keeper, jobs, self._sink)

    def __enter__(self) -> Self:
        """Look at the counters and begin to sample."""
        self._collect("perf_counters")
        self._recorder.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.__exit__(kind, error, trace)

    def _collect(self, *names: str) -> None:
        for name in names:
            if name in self._asked:
                self._recorder.collect_now(name)

    def watch(self, pid: int, *, there: bool = False) -> None:
        """Sample this load process too, from this moment on; 0 is the pid of one that did not start."""
        if pid > 0:
            self._keeper.watch("client", pid, there=there)
            self._collect("node_proc" if there else "proc", "cgroups")

    def violation(self) -> str | None:
        """Return the limit of the plan that is broken, as a sentence, or None; a broken limit stays broken."""
        if self._violation is None and self._recorder.failure is not None:
            self._violation = f"the cluster is not watched any more: {self._recorder.failure}"
        for name in ("cluster_status", "tenants"):
            # Every look: a thread that was held up must not miss the one that broke a limit.
            for number, look in self._sink.after(name, self._judged.get(name, 0)):
                self._judged[name] = number
                if self._violation is None:
                    self._violation = self._judge(name, look)
        return self._violation

    def _judge(self, name: str, look: Collected) -> str | None:
        """Return the limit that a look breaks, the looks before it considered."""
        if name == "cluster_status":
            # One late answer is what a heavy load does to a small machine; two in a row are a lost cluster.
            was_answered, self._answered = self._answered, bool(look.answers)
            if not was_answered and not self._answered:
                return look.cost.problem
        try:
            parsed = SOURCES[name].parse(look.answers, self._keeper.scope)
        except BathyscopeError as error:
            # A failed collection becomes a caveat of the run: the limits were not watched.
            self._unreadable[look.cost] = error.message
            return None
        tables = {record.TABLE: table for record, table in parsed.items()}
        if name == "cluster_status":
            return limits.violation(tables, self._before, self._limits)
        self._waits.append(tables[PoolWait.TABLE])
        return limits.tenant_violation(self._waits, self._before, self._limits)

    def finish(self) -> None:
        """Take the last looks, at once when the load has ended; a step of a second has no other look at the cluster."""
        self._collect("proc", "node_proc", "cgroups", "simulated_disks", "caches", "perf_counters")
        for name in ("cluster_status", "tenants"):
            with contextlib.suppress(BathyscopeError):
                self._collect(name)
        if "op_history" in self._asked:
            self._host.sleep(filing_s(self._sink.answers("perf_counters")))
            self._collect("op_history")
        # Counters of the past do not go away, but a server that is slow would keep the other sources waiting.
        self._collect("node_exporter")

    @property
    def answers(self) -> dict[str, list[RawAnswer]]:
        """The raw answers by source."""
        return {name: answers for name in SOURCES if (answers := self._sink.answers(name))}

    @property
    def costs(self) -> list[Collection]:
        """What the collections cost."""
        return [
            dataclasses.replace(cost, success=False, problem=self._unreadable[cost])
            if cost in self._unreadable
            else cost
            for cost in self._sink.costs
        ]


def filing_s(counters: Sequence[RawAnswer]) -> float:
    """Return how long to wait until the histories hold the last ops, in seconds; `counters` are two looks or none.

    The OSD's thread that files finished ops (OpHistoryServiceThread) sleeps 1, 4, 16, 64, then 256 ms while it finds
    none. So an OSD with long gaps between its ops, a disk at its limit, is behind by that much; one that is busy by a
    few ms.
    """
    looks: dict[str, list[tuple[int, int]]] = {}
    for answer in counters:
        served = _ops_served(answer)
        if served is not None:
            looks.setdefault(answer.label, []).append((answer.ended_ns, served))
    if not looks:
        return _FILING_S
    rates = []
    for (first_ns, first), *_, (last_ns, last) in (seen for seen in looks.values() if len(seen) > 1):
        if last > first and last_ns > first_ns:
            rates.append((last - first) / (last_ns - first_ns) * 1e9)
    return _FILING_S if rates and min(rates) <= _FILED_AT_ONCE_PER_S else 0.0


def _ops_served(answer: RawAnswer) -> int | None:
    """Return how many client ops an OSD has served since its start; None when it did not say."""
    try:
        return int(answer.json()["osd"]["op"])
    except (BathyscopeError, KeyError, TypeError, ValueError):
        return None
