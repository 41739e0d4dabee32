"""Runs a plan: prepares what the steps need, runs each step, judges it, keeps it, and leaves nothing behind.

A step's index is its identity: the same plan and the same device classes always give the same steps in the same
order, so a resumed run knows what is done. A step is kept with one rename; what a kill interrupts is done again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from bathyscope import lab
from bathyscope.analysis import steady_state, trust
from bathyscope.bench import cleanup, cluster, preflight
from bathyscope.bench.capture import Captured, CaptureRows, Parsing, StepCapture, history_osds, parse
from bathyscope.bench.cluster import OsdNode
from bathyscope.bench.guard import Guard
from bathyscope.bench.journal import Journal
from bathyscope.bench.load import LoadEnd, run_load
from bathyscope.bench.resources import Resources, default_replicas, prefix_of
from bathyscope.bench.settings import SETTING_KINDS, Settings
from bathyscope.errors import BathyscopeError, ClusterError, ParseError, StoreError, ToolError, UnreachableError
from bathyscope.host import CephRequest, CephSession, Host, ProcessRequest
from bathyscope.host.ceph import answer_json
from bathyscope.layers import (
    REGISTRY,
    ImageNeed,
    LayerContext,
    LayerRows,
    Need,
    PoolNeed,
    answer_of,
    check_prefill,
)
from bathyscope.records import (
    Caveat,
    DeviceSample,
    EnvironmentFact,
    Histogram,
    Interval,
    Op,
    PerfCounter,
    Placement,
    ProcessSample,
    Record,
    Result,
    Run,
    Step,
    to_table,
)
from bathyscope.sources import environment, perf_dump
from bathyscope.sources.base import RawAnswer, save_raw
from bathyscope.spec import StepSpec, Target
from bathyscope.spec.plan import Plan, expand
from bathyscope.store import RunDirectory

_FILL_AT_ONCE = 4
_SETTLE_S = 8.0


class Watcher:
    """What a run tells while it goes on; the command line draws it. Methods are called from the conductor's thread."""

    def note(self, text: str) -> None:
        """Something is being done that is not a step."""

    def step_begins(self, number: int, total: int, step: StepSpec) -> None:
        """A step begins; `number` counts from 1."""

    def step_ticks(self, seconds: float, expected_s: float) -> None:
        """The load of the present step has been running for `seconds`."""

    def step_ended(self, step: Step, rows: LayerRows) -> None:
        """A step has been kept."""


@dataclasses.dataclass(slots=True)
class _Attempt:
    """One execution of a step's load and what was recorded around it."""

    load: LoadEnd
    answers: list[RawAnswer]
    captured: Captured
    degraded: str | None


class Conductor:
    """Carries one run to its end. Use `execute`; it may be called again on a run that was interrupted."""

    def __init__(
        self,
        host: Host,
        session: CephSession | None,
        *,
        target: Target,
        plan: Plan,
        device_classes: Sequence[str],
        run: RunDirectory,
        journal: Journal,
        watcher: Watcher | None = None,
    ) -> None:
        self._host = host
        self._session = session
        self._target = target
        self._plan = plan
        self._run = run
        self._journal = journal
        self._watcher = watcher or Watcher()
        self._steps = expand(plan, device_classes)
        self._context = LayerContext(target, prefix_of(run.id), scratch_path(target, run.id))
        self._nodes: tuple[OsdNode, ...] = ()
        self._schema: perf_dump.Schema | None = None
        self._guard: Guard | None = None
        self._cache_bytes: dict[int, int] = {}
        self.begun = False
        """Whether the checks before the run have passed: only then is anything changed or measured."""

    def execute(self, *, keep: bool = False) -> None:
        """Run every step that is not finished, then clean up and finalize.

        `keep` leaves pools and images for another run. Raises BathyscopeError; the run can then be resumed.
        """
        self._run.update(status="running")
        self._prepare_scratch()
        try:
            finished = self._run.finished_steps()
            self.begun = bool(finished)
            left = [(index, step) for index, step in enumerate(self._steps) if index not in finished]
            if left:
                self._before()
            for index, step in left:
                self._run_step(index, step)
            self._after()
        except BathyscopeError as error:
            self._stop_guard()
            self._give_up(error)
            raise
        except BaseException:
            # Ctrl-C: switches go back at once, but what was filled stays for the run that goes on.
            self._stop_guard()
            self._run.update(status="interrupted")
            self._restore_settings()
            raise
        finally:
            self._stop_guard()
            shutil.rmtree(self._outside(self._context.scratch), ignore_errors=True)
        if not keep:
            self.clean_up()

    def clean_up(self) -> None:
        """Remove what the run made and restore what it switched. Raises what the cluster raises."""
        if self._session is None:
            self._journal.close()
            return
        failed = cleanup.undo_all(self._host, self._session, self._journal, note=self._watcher.note)
        if failed:
            raise ToolError(
                f"{len(failed)} changes could not be undone: {failed[0]}", hint="try again: bathy bench cleanup"
            )
        self._journal.close()

    def _give_up(self, error: BathyscopeError) -> None:
        """After trouble nothing stays on the cluster; the finished steps stay in the run."""
        # A full disk under the workspace must not keep the cluster from being cleaned.
        with contextlib.suppress(StoreError):
            self._run.update(status="interrupted", note=error.message)
        try:
            self.clean_up()
        except BathyscopeError as second:
            self._watcher.note(f"{second.message}; what is left is removed by: bathy bench cleanup")

    def _restore_settings(self) -> None:
        if self._session is not None:
            with contextlib.suppress(BathyscopeError):
                cleanup.undo_all(self._host, self._session, self._journal, kinds=SETTING_KINDS)

    # --- before and after

    def _prepare_scratch(self) -> None:
        scratch = self._outside(self._context.scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir(parents=True)
        except OSError as error:
            raise ToolError(f"cannot make the scratch directory {scratch}: {error.strerror}") from error

    def _outside(self, path: str) -> Path:
        return Path((self._target.root or "") + path)

    def _before(self) -> None:
        """Check, record what the run stands on, make pools, switch what the plan wants switched."""
        caveats = trust.target_caveats(self._run.id, self._target.caveats)
        fio_version = preflight.check_tools(self._host, self._target, self._steps)
        preflight.check_layers(self._steps, self._context)
        preflight.check_disks(self._host, self._target, self._steps)
        caveats += preflight.host_caveats(self._run.id, self._host)
        if self._session is not None:
            seen = self._settled_look(self._session)
            preflight.check_cluster(seen, self._plan.limits)
            if not self._run.finished_steps():
                replicas = self._plan.replicas or default_replicas(self._session)
                preflight.check_space(seen, self._steps, replicas, self._plan.limits)
            caveats += preflight.cluster_caveats(self._run.id, seen, self._session)
            self._nodes = seen.nodes
        self.begun = True
        if self._session is not None:
            self._make_pools()
        self._fill()
        if self._session is not None:
            self._switch()
            # The cluster as our own filling has left it is what a load is compared with.
            seen = preflight.look(self._session)
            self._guard = Guard(self._session, self._plan.limits, seen, [node.osd for node in self._nodes])
            self._guard.start()
        self._record_environment("before", caveats, fio_version)

    def _settled_look(self, session: CephSession) -> preflight.ClusterLook:
        """Look at the cluster, again for a few seconds while placement groups are not whole.

        The manager's view lags: pools that were made or deleted a moment ago show in it as unknown or peering.
        """
        deadline = self._host.monotonic_ns() + int(_SETTLE_S * 1e9)
        seen = preflight.look(session)
        while seen.states.troubled and self._host.monotonic_ns() < deadline:
            self._host.sleep(0.5)
            seen = preflight.look(session)
        return seen

    def _after(self) -> None:
        self._stop_guard()
        self._record_environment("after", [], None)
        ended_ns = self._host.now_ns()
        self._run.update(status="done", ended_ns=ended_ns)
        self._write_run_row(ended_ns)
        self._run.finalize()

    def _stop_guard(self) -> None:
        if self._guard is not None:
            self._guard.stop()

    def _make_pools(self) -> None:
        assert self._session is not None  # noqa: S101 - callers check
        resources = Resources(self._host, self._session, self._target, self._journal)
        pools = [need for need in self._all_needs() if isinstance(need, PoolNeed)]
        for need in pools:
            resources.make_pool(dataclasses.replace(need, replicas=self._plan.replicas), self._nodes)
        if pools:
            resources.wait_until_settled(self._watcher.note)

    def _fill(self) -> None:
        """Make images, and write everything in full that reads of the steps to come rely on."""
        finished = self._run.finished_steps()
        wanted: dict[Need, StepSpec] = {}
        for index, step in enumerate(self._steps):
            if index not in finished:
                for need in REGISTRY[step.layer].needs(step, self._context):
                    wanted.setdefault(need, step)
        images = [need for need in wanted if isinstance(need, ImageNeed)]
        if self._session is not None:
            resources = Resources(self._host, self._session, self._target, self._journal)
            for image in images:
                if not self._journal.recall(f"made {image}"):
                    resources.make_image(image, client_cache=self._plan.client_cache)
                    self._journal.remember(f"made {image}", value=True)
        if self._plan.prefill:
            empty = [(need, step) for need, step in wanted.items() if not self._journal.recall(f"prefilled {need}")]
            with self._full_speed():
                self._prefill([(need, step) for need, step in empty if not isinstance(need, PoolNeed)])

    def _prefill(self, empty: Sequence[tuple[Need, StepSpec]]) -> None:
        """Write `empty` in full, _FILL_AT_ONCE at a time; what is done is remembered one by one."""
        jobs = [(n, r) for n, step in empty for r in REGISTRY[step.layer].prefill(n, step, self._context)]
        for first in range(0, len(jobs), _FILL_AT_ONCE):
            batch = jobs[first : first + _FILL_AT_ONCE]
            names = ", ".join(request.label.removeprefix("prefill-") for _, request in batch)
            self._watcher.note(f"writing in full: {names}")
            end = run_load(self._host, [request for _, request in batch], violation=self._violation)
            for (need, _), answer in zip(batch, end.answers, strict=True):
                check_prefill(need, answer_of(self._host, answer))
                self._journal.remember(f"prefilled {need}", value=True)

    def _full_speed(self) -> contextlib.AbstractContextManager[None]:
        """Lift a lab's device limits: filling is not what is measured."""
        if self._target.kind != "lab":
            return contextlib.nullcontext()
        return lab.unthrottled(lab.load(self._target.name))

    def _all_needs(self) -> list[Need]:
        needs = (need for step in self._steps for need in REGISTRY[step.layer].needs(step, self._context))
        return list(dict.fromkeys(needs))

    def _switch(self) -> None:
        """Quiesce if the plan asks for it, and enlarge the op history where it is captured."""
        assert self._session is not None  # noqa: S101 - callers check
        settings = Settings(self._session, self._journal)
        for what in settings.quiesce(self._plan.quiesce):
            self._watcher.note(f"switched: {what}")
        under_test = sorted({osd for step in self._steps for osd in self._osds(step)})
        if self._plan.capture.op_history and under_test:
            # The OSDs of each step's own class: the sample of all of them would miss most of a class.
            asked = {osd for step in self._steps for osd in history_osds(self._osds(step))}
            settings.enlarge_history(sorted(asked), self._plan.capture.op_history_ops)
        if under_test:
            self._schema = perf_dump.parse_schema(
                [_raw(c) for c in self._session.commands(perf_dump.plan_schema(under_test))]
            )
            self._cache_bytes = _cache_sizes(self._session, under_test)

    def _record_environment(self, moment: str, caveats: list[Caveat], fio_version: str | None) -> None:
        """Write what the run stands on; what cannot be read is a caveat of the run."""
        run_id = self._run.id
        rows: dict[type[Record], list[Record]] = {}
        if self._plan.capture.environment:
            try:
                under_test = sorted({osd for step in self._steps for osd in self._osds(step)})
                # One OSD of each class speaks for its settings on a large cluster.
                asked = under_test if len(under_test) <= 16 else under_test[:8] + under_test[-8:]
                answers = environment.collect(self._host, self._session, self._target, asked)
                save_raw(self._run.path / "environment" / moment, answers)
                rows[EnvironmentFact] = list(environment.parse(run_id, moment, answers))
                if moment == "before" and self._session is not None:
                    rows[Placement] = list(environment.parse_placement(run_id, answers, self._target))
            except UnreachableError:
                raise
            except BathyscopeError as error:
                caveats.append(Caveat(run_id, None, "environment", "note", error.message, "environment"))
        rows[Caveat] = list(caveats)
        self._run.write_run_tables(rows, part=moment)
        if moment == "before":
            facts = {
                (f.subject, f.name): f.value for f in rows.get(EnvironmentFact, []) if isinstance(f, EnvironmentFact)
            }
            self._run.update(versions={**self._run.info.versions, **_versions(facts, fio_version)})
            self._write_run_row(None)

    def _write_run_row(self, ended_ns: int | None) -> None:
        info = self._run.info
        versions = info.versions
        row = Run(
            run_id=info.id,
            plan_name=info.plan_name,
            status=info.status,
            target=self._target.name,
            bathy_version=versions.get("bathy", ""),
            started_ns=info.started_ns,
            ended_ns=ended_ns,
            cluster_fsid=versions.get("fsid"),
            ceph_version=versions.get("ceph"),
            fio_version=versions.get("fio"),
            host_name=versions.get("host"),
            kernel=versions.get("kernel"),
            cpu_count=int(versions["cpu_count"]) if versions.get("cpu_count", "").isdigit() else None,
        )
        self._run.write_run_tables({Run: [row]}, part="run")

    # --- steps

    def _osds(self, step: StepSpec) -> list[int]:
        """Return the OSDs under test."""
        if not REGISTRY[step.layer].needs_cluster:
            return []
        return [n.osd for n in self._nodes if n.up and step.device_class in ("", n.device_class)]

    def _run_step(self, index: int, step: StepSpec) -> None:
        """Prepare, load (again, while it is not steady and the plan allows it), judge and keep one step."""
        self._watcher.step_begins(index + 1, len(self._steps), step)
        layer = REGISTRY[step.layer]
        written = self._written(step)
        with self._run.begin_step(index) as writer:
            prolonged = 0
            while True:
                if step.temperature == "cold":
                    self._make_cold(step)
                attempt = self._attempt(step)
                rows, failures = self._parse_load(index, step, attempt)
                if failures:
                    self._check_pools(step)
                steady = steady_state.judge(_rates(rows))
                if failures or steady.verdict != "unsteady" or prolonged >= self._plan.limits.prolong:
                    break
                # Run on at once: what the first part has warmed up or filled stays as it is.
                prolonged += 1
                self._watcher.note(f"not steady, prolonged ({prolonged} of {self._plan.limits.prolong})")
                step = step.model_copy(update={"ramp_s": 0.0})
            save_raw(writer.raw_directory / layer.name, attempt.answers)
            for source, answers in attempt.captured.raw.items():
                save_raw(writer.raw_directory / source, answers)
            record, tables = self._judge(index, step, attempt, rows, failures, written=written, prolonged=prolonged)
            writer.commit(tables)
        self._clear_scratch()
        self._watcher.step_ended(record, rows)

    def _check_pools(self, step: StepSpec) -> None:
        """Raise ClusterError when the step failed because a pool of ours was taken away under it."""
        if self._session is None:
            return
        wanted = {n.name for n in REGISTRY[step.layer].needs(step, self._context) if isinstance(n, PoolNeed)}
        missing = sorted(wanted - set(cluster.pools(self._session)))
        if missing:
            raise ClusterError(
                f"the pool {missing[0]} was deleted by somebody else while it was measured",
                hint="bathy bench resume makes it anew and goes on",
            )

    def _written(self, step: StepSpec) -> bool | None:
        """Return whether the images that the step reads are written in full; None when it reads none."""
        images = [n for n in REGISTRY[step.layer].needs(step, self._context) if isinstance(n, ImageNeed)]
        if not images or not step.pattern.reads:
            return None
        for image in images:
            if self._journal.recall(f"written {image}") is None:
                found = preflight.rbd_written(self._host, self._target, [(image.pool, image.name)])
                self._journal.remember(f"written {image}", value=found[image.pool, image.name])
        return all(self._journal.recall(f"written {image}") for image in images)

    def _violation(self) -> str | None:
        return self._guard.violation if self._guard is not None else None

    def _make_cold(self, step: StepSpec) -> None:
        """Drop the OSDs' caches and this machine's page cache; whether it worked is told by the counters."""
        if self._session is not None:
            for osd in self._osds(step):
                cluster.send(self._session, "cache-drop", f"osd.{osd}", "cache drop")
        try:
            Path("/proc/sys/vm/drop_caches").write_text("3")
        except OSError:
            self._watcher.note("this machine's page cache could not be dropped (not root)")

    def _attempt(self, step: StepSpec) -> _Attempt:
        """Run the load once with everything around it."""
        requests = REGISTRY[step.layer].plan(step, self._context)
        capture = StepCapture(self._host, self._session, self._target, self._plan.capture, self._osds(step))
        expected_s = step.ramp_s + step.runtime_s
        if self._guard is not None:
            self._guard.take_trouble()
        capture.begin()
        try:
            load = run_load(
                self._host,
                requests,
                started=capture.watch,
                tick=lambda seconds: self._watcher.step_ticks(seconds, expected_s),
                violation=self._violation,
            )
            captured = capture.end()
        except BaseException:
            capture.abandon()
            raise
        degraded = self._guard.take_trouble() if self._guard is not None else None
        return _Attempt(load, [answer_of(self._host, end) for end in load.answers], captured, degraded)

    def _parse_load(self, index: int, step: StepSpec, attempt: _Attempt) -> tuple[LayerRows, tuple[str, ...]]:
        """Return the load's rows, or none and why it failed."""
        failures = tuple(
            f"{answer.label} ended with exit code {answer.exit_code}: {_last_words(answer)}"
            for answer in attempt.answers
            if answer.exit_code != 0
        )
        if failures:
            return LayerRows((), (), ()), failures
        try:
            return REGISTRY[step.layer].parse(self._run.id, index, step, attempt.answers), ()
        except (ParseError, ToolError) as error:
            return LayerRows((), (), ()), (error.message,)

    def _judge(
        self,
        index: int,
        step: StepSpec,
        attempt: _Attempt,
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
            run_id=self._run.id,
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
        if self._session is not None and self._plan.capture.op_history:
            known = cluster.pools(self._session)
            needs = REGISTRY[step.layer].needs(step, self._context)
            pool_ids = frozenset(known[n.name] for n in needs if isinstance(n, PoolNeed) and n.name in known)
        return Parsing(
            run_id=self._run.id,
            step_index=index,
            target=self._target,
            capture=self._plan.capture,
            start_ns=start_ns,
            end_ns=end_ns,
            pool_ids=pool_ids,
            schema=self._schema,
        )

    def _capture_caveats(self, index: int, around: CaptureRows) -> list[Caveat]:
        return [Caveat(self._run.id, index, "capture", "note", text, "capture") for text in around.problems]

    def _trust_context(
        self, index: int, step: StepSpec, attempt: _Attempt, failures: tuple[str, ...], *, written: bool | None
    ) -> trust.StepContext:
        osds = self._osds(step)
        caches = [self._cache_bytes[osd] for osd in osds if osd in self._cache_bytes]
        here = {daemon.name for daemon in self._target.daemons}
        return trust.StepContext(
            run_id=self._run.id,
            step_index=index,
            layer=step.layer,
            op=step.pattern.op,
            runtime_s=step.runtime_s,
            ramp_s=step.ramp_s,
            device_class=step.device_class,
            temperature=step.temperature,
            working_set_bytes=self._working_set(step),
            osds=frozenset(osds) if osds else None,
            replicas=self._plan.replicas,
            cache_bytes=sum(caches) if caches and len(caches) == len(osds) else None,
            degraded=attempt.degraded,
            failures=failures,
            image_written=written,
            shared_host=any(f"osd.{osd}" in here for osd in osds) and not self._target.clients,
            counted_s=attempt.captured.counted_s,
            io_count_limited=step.io_count_limit is not None,
        )

    def _working_set(self, step: StepSpec) -> int | None:
        if step.working_set_bytes is not None:
            return step.working_set_bytes
        if step.layer == "rbd" and step.image_size_bytes is not None:
            return step.image_size_bytes * step.jobs
        return None

    def _clear_scratch(self) -> None:
        for path in self._outside(self._context.scratch).glob("*"):
            path.unlink(missing_ok=True)


def scratch_path(target: Target, run_id: str) -> str:
    """Return the scratch directory of a run, as the tools inside the target's root see it."""
    base = "/tmp" if target.root else _temporary_directory()  # noqa: S108 - inside the lab's own root
    return f"{base}/bathy-{run_id}"


def _temporary_directory() -> str:
    import tempfile  # noqa: PLC0415 - its module reads the environment when it is imported

    return tempfile.gettempdir()


def planned_commands(
    plan: Plan, target: Target, device_classes: Sequence[str], run_id: str
) -> list[tuple[str, ProcessRequest]]:
    """Return (step key, process) for everything that a run of the plan would start, prefills first. Pure."""
    context = LayerContext(target, prefix_of(run_id), scratch_path(target, run_id))
    steps = expand(plan, device_classes)
    preflight.check_layers(steps, context)
    found: list[tuple[str, ProcessRequest]] = []
    seen: set[Need] = set()
    for step in steps:
        layer = REGISTRY[step.layer]
        for need in layer.needs(step, context):
            if plan.prefill and need not in seen:
                seen.add(need)
                found += [("prefill", request) for request in layer.prefill(need, step, context)]
        found += [(f"{step.key}#{step.repeat_index}", request) for request in layer.plan(step, context)]
    return found


def _rates(rows: LayerRows) -> list[float]:
    """Return the I/Os per second of each interval, all clients and directions together."""
    _, rates = steady_state.rate_series(to_table(Interval, rows.intervals))
    return [float(rate) for rate in rates]


def _last_words(answer: RawAnswer) -> str:
    text = (answer.stderr or answer.stdout).decode(errors="replace").strip().splitlines()
    return text[-1][:300] if text else "no message"


def _raw(completed) -> RawAnswer:  # type: ignore[no-untyped-def]
    from bathyscope.sources.base import to_raw  # noqa: PLC0415

    return to_raw(completed)


def _versions(facts: dict[tuple[str, str], str], fio_version: str | None) -> dict[str, str]:
    """Return the versions that run.json names, as far as they are known."""
    from bathyscope import __version__  # noqa: PLC0415 - the package's root knows the version

    found = {"bathy": __version__, "fio": fio_version or ""}
    for (subject, name), value in facts.items():
        if subject == "cluster" and name in ("fsid", "osd_version"):
            found["ceph" if name == "osd_version" else name] = value
        elif subject.startswith("host "):
            found["host"] = subject.removeprefix("host ")
            if name in ("kernel", "cpu_count"):
                found[name] = value
    return {name: value for name, value in found.items() if value}


def _cache_sizes(session: CephSession, osds: Sequence[int]) -> dict[int, int]:
    """Return osd → bytes that its BlueStore cache may hold, where the OSD tells."""
    names = ("bluestore_cache_autotune", "bluestore_cache_size", "osd_memory_target")
    asked = [(osd, name) for osd in osds for name in names]
    words = [(("prefix", "config get"), ("var", name), ("format", "json")) for _, name in asked]
    requests = [
        CephRequest(f"{name}-osd.{osd}", f"osd.{osd}", command, timeout_s=30.0)
        for (osd, name), command in zip(asked, words, strict=True)
    ]
    values: dict[int, dict[str, str]] = {}
    for (osd, name), answer in zip(asked, session.commands(requests), strict=True):
        with contextlib.suppress(ClusterError, ParseError, AttributeError):
            values.setdefault(osd, {})[name] = str((answer_json(answer) or {}).get(name, ""))
    found = {}
    for osd, options in values.items():
        if len(options) == len(names):
            fixed = options["bluestore_cache_autotune"] == "false" and options["bluestore_cache_size"] not in ("", "0")
            text = options["bluestore_cache_size"] if fixed else options["osd_memory_target"]
            if text.isdigit():
                found[osd] = int(text)
    return found
