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
from bathyscope.bench.capture import StepCapture, history_osds
from bathyscope.bench.cluster import OsdNode
from bathyscope.bench.guard import Guard
from bathyscope.bench.journal import Journal
from bathyscope.bench.judging import Attempt, Judge
from bathyscope.bench.load import run_load
from bathyscope.bench.recorder import Recorder
from bathyscope.bench.resources import Resources, default_replicas, prefix_of
from bathyscope.bench.settings import SETTING_KINDS, Settings
from bathyscope.errors import BathyscopeError, ClusterError, ParseError, StoreError, ToolError
from bathyscope.host import CephRequest, CephSession, Host, ProcessRequest
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
    Interval,
    Step,
    to_table,
)
from bathyscope.sources import perf_dump
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
        self._recorder = Recorder(host, session, target, run, wanted=plan.capture.environment)
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
        # Before our own switches, which are none of the cluster's settings.
        self._recorder.environment("before", caveats, self._under_test(), fio_version)
        if self._session is not None:
            self._switch()
            # The cluster as our own filling has left it is what a load is compared with.
            seen = preflight.look(self._session)
            self._guard = Guard(self._session, self._plan.limits, seen)
            self._guard.start()

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
        blind = self._guard.blind if self._guard is not None else None
        caveats = []
        if blind is not None:
            text = f"the plan's limits could not be watched all the time: {blind}"
            caveats.append(Caveat(self._run.id, None, "guard_blind", "doubt", text, "guard"))
        self._recorder.environment("after", caveats, self._under_test())
        ended_ns = self._host.now_ns()
        self._run.update(status="done", ended_ns=ended_ns)
        self._recorder.run_row(ended_ns)
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
        under_test = self._under_test()
        if self._plan.capture.op_history and under_test:
            # The OSDs of each step's own class: the sample of all of them would miss most of a class.
            asked = {osd for step in self._steps for osd in history_osds(self._osds(step))}
            settings.enlarge_history(sorted(asked), self._plan.capture.op_history_ops)
        if under_test:
            self._schema = perf_dump.parse_schema(
                [_raw(c) for c in self._session.commands(perf_dump.plan_schema(under_test))]
            )
            self._cache_bytes = cluster.cache_sizes(self._session, under_test)

    # --- steps

    def _osds(self, step: StepSpec) -> list[int]:
        """Return the OSDs under test."""
        if not REGISTRY[step.layer].needs_cluster:
            return []
        return [n.osd for n in self._nodes if n.up and step.device_class in ("", n.device_class)]

    def _under_test(self) -> list[int]:
        """Return the OSDs under test by any step."""
        return sorted({osd for step in self._steps for osd in self._osds(step)})

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
            judge = Judge(
                self._run.id, self._target, self._plan, self._session, self._context, self._osds(step),
                self._cache_bytes, self._schema,
            )  # fmt: skip
            record, tables = judge.judge(index, step, attempt, rows, failures, written=written, prolonged=prolonged)
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
            # An object store that knows no such command refuses it; the counters tell the rest.
            self._session.commands(
                [
                    CephRequest(f"cache-drop-osd.{osd}", f"osd.{osd}", (("prefix", "cache drop"),), timeout_s=60.0)
                    for osd in self._osds(step)
                ]
            )
        try:
            Path("/proc/sys/vm/drop_caches").write_text("3")
        except OSError:
            self._watcher.note("this machine's page cache could not be dropped (not root)")

    def _attempt(self, step: StepSpec) -> Attempt:
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
        degraded = self._guard.take_trouble(look=True) if self._guard is not None else None
        return Attempt(load, [answer_of(self._host, end) for end in load.answers], captured, degraded)

    def _parse_load(self, index: int, step: StepSpec, attempt: Attempt) -> tuple[LayerRows, tuple[str, ...]]:
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
