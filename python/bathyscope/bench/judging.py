"""Judges a step: the load's rows and everything captured around it become records, a status and caveats."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from bathyscope.analysis import trust
from bathyscope.bench import cluster
from bathyscope.bench.capture import Captured, CaptureRows, Parsing, parse
from bathyscope.bench.load import LoadEnd
from bathyscope.host import CephSession
from bathyscope.layers import REGISTRY, LayerContext, LayerRows, PoolNeed
from bathyscope.records import (
    Caveat,
    DeviceSample,
    Histogram,
    Interval,
    Op,
    PerfCounter,
    ProcessSample,
    Record,
    Result,
    Step,
    to_table,
)
from bathyscope.sources import perf_dump
from bathyscope.sources.base import RawAnswer
from bathyscope.spec import StepSpec, Target
from bathyscope.spec.plan import Plan


@dataclasses.dataclass(slots=True)
class Attempt:
    """One execution of a step's load and what was recorded around it."""

    load: LoadEnd
    answers: list[RawAnswer]
    captured: Captured
    degraded: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Judge:
    """What is needed to judge the steps of a run; `osds` are those under test by the step."""

    run_id: str
    target: Target
    plan: Plan
    session: CephSession | None
    context: LayerContext
    osds: Sequence[int]
    cache_bytes: Mapping[int, int]
    schema: perf_dump.Schema | None

    def judge(
        self,
        index: int,
        step: StepSpec,
        attempt: Attempt,
        rows: LayerRows,
        failures: tuple[str, ...],
        *,
        written: bool | None,
        prolonged: int,
    ) -> tuple[Step, dict[type[Record], list[Record]]]:
        """Return the step's row and all of its records."""
        load = attempt.load
        start_ns = rows.measured_start_ns or load.started_ns + int(step.ramp_s * 1e9)
        end_ns = max(rows.measured_end_ns or load.ended_ns, start_ns + 1)
        around = parse(attempt.captured.raw, self._parsing(index, step, start_ns, end_ns))
        tables: dict[type[Record], list[Record]] = {
            Result: list(rows.results),
            Interval: list(rows.intervals),
            Histogram: list(rows.histograms),
            PerfCounter: list(around.perf_counters),
            Op: list(around.ops),
            DeviceSample: list(around.devices),
            ProcessSample: list(around.processes),
        }
        judgement = trust.judge_step(
            {record.TABLE: to_table(record, values) for record, values in tables.items()},
            self._trust_context(index, step, attempt, failures, written=written),
        )
        record = Step(
            run_id=self.run_id,
            step_index=index,
            step_key=step.key,
            repeat_index=step.repeat_index,
            layer=step.layer,
            witness=step.witness,
            device_class=step.device_class,
            op=step.pattern.op,
            block_size_bytes=step.pattern.block_size_bytes,
            queue_depth=step.pattern.queue_depth,
            jobs=step.jobs,
            object_size_bytes=step.object_size_bytes,
            working_set_bytes=self._working_set(step),
            temperature=step.temperature,
            ramp_s=step.ramp_s,
            runtime_s=step.runtime_s,
            started_ns=load.started_ns,
            ended_ns=load.ended_ns,
            measured_start_ns=start_ns,
            prolonged_count=prolonged,
            status=judgement.status,
            reason=judgement.reason,
        )
        tables[Step] = [record]
        tables[Caveat] = [*judgement.caveats, *self._capture_caveats(index, around)]
        return record, tables

    def _parsing(self, index: int, step: StepSpec, start_ns: int, end_ns: int) -> Parsing:
        pool_ids: frozenset[int] | None = None
        if self.session is not None and self.plan.capture.op_history:
            known = cluster.pools(self.session)
            needs = REGISTRY[step.layer].needs(step, self.context)
            pool_ids = frozenset(known[n.name] for n in needs if isinstance(n, PoolNeed) and n.name in known)
        return Parsing(
            run_id=self.run_id,
            step_index=index,
            target=self.target,
            capture=self.plan.capture,
            start_ns=start_ns,
            end_ns=end_ns,
            pool_ids=pool_ids,
            schema=self.schema,
        )

    def _capture_caveats(self, index: int, around: CaptureRows) -> list[Caveat]:
        return [Caveat(self.run_id, index, "capture", "note", text, "capture") for text in around.problems]

    def _trust_context(
        self, index: int, step: StepSpec, attempt: Attempt, failures: tuple[str, ...], *, written: bool | None
    ) -> trust.StepContext:
        osds = self.osds
        caches = [self.cache_bytes[osd] for osd in osds if osd in self.cache_bytes]
        here = {daemon.name for daemon in self.target.daemons}
        return trust.StepContext(
            run_id=self.run_id,
            step_index=index,
            layer=step.layer,
            op=step.pattern.op,
            runtime_s=step.runtime_s,
            ramp_s=step.ramp_s,
            device_class=step.device_class,
            temperature=step.temperature,
            working_set_bytes=self._working_set(step),
            osds=frozenset(osds) if osds else None,
            replicas=self.plan.replicas,
            cache_bytes=sum(caches) if caches and len(caches) == len(osds) else None,
            degraded=attempt.degraded,
            failures=failures,
            image_written=written,
            shared_host=any(f"osd.{osd}" in here for osd in osds) and not self.target.clients,
            counted_s=attempt.captured.counted_s,
            io_count_limited=step.io_count_limit is not None,
        )

    def _working_set(self, step: StepSpec) -> int | None:
        if step.working_set_bytes is not None:
            return step.working_set_bytes
        if step.layer == "rbd" and step.image_size_bytes is not None:
            return step.image_size_bytes * step.jobs
        return None
