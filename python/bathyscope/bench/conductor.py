"""Runs a plan, from its checks to the last restored setting.

    check     refuse what is impossible or dangerous, before anything is changed
    make      pools, images and objects that the steps need, each in the journal first
    watch     the cluster before any load: what other tenants do, and how long they wait
    fill      write in full what will be read
    phase     lead the cluster to the next phase of the plan, each change in the journal first; a plan may have none
    look      record what the steps stand on
    switch    what the plan wants switched, each in the journal first
    step      load, record, judge, keep: once for each configuration and repeat
    look      again
    undo      remove what was made and restore what was switched, however the run ends

A step's index is its identity: the same plan and the same device classes always give the same steps in the same order,
so a resumed run knows what is done. A step is kept with one rename; what a kill interrupts is done again.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from bathyscope import interruption, lab
from bathyscope.analysis import limits
from bathyscope.analysis.repeats import Repeats
from bathyscope.analysis.step_figures import StepFigures, iops_of
from bathyscope.bench import caps, checks, cleanup, client_host, phases, prediction, preflight
from bathyscope.bench.cleanup import SWITCHED_KINDS
from bathyscope.bench.judging import LOAD, StepAnswers, is_unsteady, judge, parse_load
from bathyscope.bench.load import answer_of, raise_if_broken, run_load
from bathyscope.bench.preflight import ClusterLook
from bathyscope.bench.resources import Resources, existing, prefix_of
from bathyscope.bench.run_records import write_end, write_run_row, write_start, write_step
from bathyscope.bench.settings import Settings, switches
from bathyscope.bench.step_recording import StepRecording
from bathyscope.errors import BathyscopeError, ClusterError, ParseError, StoreError, ToolError
from bathyscope.fields import last_line
from bathyscope.host import CephRequest, CephSession, Host
from bathyscope.layers import LAYERS, LayerContext, Need, batches, needs_of, traits, under_test, warming
from bathyscope.layers.needs import REMOVALS
from bathyscope.recording.collect import collect
from bathyscope.recording.journal import Journal
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.records import RawAnswer, Result, Step, from_table
from bathyscope.sources import SOURCES, machine, op_history
from bathyscope.spec import StepSpec, Target
from bathyscope.spec.plan import Phase, Plan, expand
from bathyscope.spec.scope import Scope
from bathyscope.store import RunDirectory
from bathyscope.units import format_seconds


class Watcher:
    """What a run says while it goes on; the command line draws it. Methods are called from the conductor's thread."""

    def note(self, text: str) -> None:
        """Something is being done that is not a step."""

    def time_left(self, seconds: float) -> None:
        """The next step begins, and the last one should end in `seconds`."""

    def step_begins(self, number: int, total: int, step: StepSpec) -> None:
        """A step begins; `number` counts from 1."""

    def step_ticks(self, seconds: float, expected_s: float) -> None:
        """The load of the present step has been running for `seconds`."""

    def step_ended(self, step: Step, figures: StepFigures) -> None:
        """A step has been kept."""


class Conductor:
    """Carries one run to its end. Use `execute`; it may be called again on a run that was interrupted."""

    def __init__(
        self,
        host: Host,
        session: CephSession | None,
        keeper: ScopeKeeper,
        *,
        plan: Plan,
        device_classes: Sequence[str],
        run: RunDirectory,
        journal: Journal,
        watcher: Watcher,
    ) -> None:
        self._host = host
        self._session = session
        self._keeper = keeper
        self._target = target = keeper.scope.target
        self._plan = plan
        self._run = run
        self._journal = journal
        self._watcher = watcher
        self._steps = expand(plan, device_classes, traits())
        self._phases = {phase.name: phase for phase in plan.phases}
        self._block: tuple[int, str] | None = None
        self._repeats = Repeats(plan.precision, self._steps)
        self._context = context_of(plan, target, run.id)
        self._before = limits.Baseline()
        self._usage_of: dict[tuple[str, str], list[RawAnswer]] = {}
        self._looked: list[RawAnswer] = []
        self._before_filling: list[RawAnswer] = []
        self._machine = keeper.answers.get(machine.SOURCE.name, [])
        self._idle: dict[str, list[RawAnswer]] = {}
        self._start = ""
        self.begun = False
        """Whether the checks before the run have passed: only then is anything changed or measured."""

    @interruption.held()
    def execute(self, *, keep: bool = False) -> None:
        """Run every step that is not finished, then clean up.

        `keep` leaves pools and images for another run. Raises BathyscopeError; the run can then be resumed.
        A signal is held off until a load or a pause; the clean-up at the end is not interrupted.
        """
        self._run.update(status="running")
        finished = self._run.step_segments()
        self.begun = bool(finished)
        left = [(index, step) for index, step in enumerate(self._steps) if index not in finished]
        for segment in finished.values():
            (row,) = from_table(Step, segment.table(Step))
            self._repeats.add(row, iops_of(segment.table(Result)))
        with self._scratch(), self._undone_on_trouble():
            if left:
                if self._journal.pending():
                    # A kill may have come between two phases, or while OSDs started again.
                    self._restore_settings()
                self._check()
                needs = needs_of([step for _, step in left], self._context)
                self._say_cost([step for _, step in left], needs)
                self._make(needs)
                self._watch_idle()
                self._fill(needs)
            pace = prediction.pace(self._plan, [step for _, step in left], self._keeper.scope, self._context)
            for index, step in left:
                if self._repeats.are_enough(step):
                    pace.skipped()
                    continue
                self._enter(step)
                self._watcher.time_left(pace.left_s)
                began_ns = self._host.monotonic_ns()
                self._run_step(index, step)
                pace.ended((self._host.monotonic_ns() - began_ns) / 1e9)
            self._look_after()
        if keep:
            self._restore_settings()
        else:
            self.clean_up()

    def clean_up(self) -> None:
        """Remove what the run made and restore what it switched. Raises what the cluster raises."""
        self._undo()
        self._journal.close()

    def _undo(self, kinds: Collection[str] | None = None) -> None:
        """Undo all changes, or those of `kinds`. Raises ToolError when some could not be undone; all are noted."""
        if self._session is None:
            return
        note = self._watcher.note
        failed = cleanup.undo_all(self._host, self._session, self._journal, kinds=kinds, note=note)
        for problem in failed:
            note(f"not undone: {problem}")
        if failed:
            raise ToolError(
                f"{len(failed)} changes could not be undone: {failed[0]}", hint="try again: bathy bench cleanup"
            )

    @contextlib.contextmanager
    def _undone_on_trouble(self) -> Iterator[None]:
        """After an error nothing stays on the cluster. After Ctrl-C only what was filled stays, for a resumed run."""
        try:
            yield
        except BathyscopeError:
            # A full disk under the workspace must not keep the cluster from being cleaned.
            with contextlib.suppress(StoreError):
                self._note_interruption()
            try:
                self.clean_up()
            except BathyscopeError as second:
                self._watcher.note(f"{second.message}; what is left is removed by: bathy bench cleanup")
            raise
        except BaseException:
            try:
                self._restore_settings()
            except BathyscopeError as second:
                self._watcher.note(f"{second.message}; what is left is restored by: bathy bench cleanup")
            with contextlib.suppress(StoreError):
                self._note_interruption()
            raise

    def _restore_settings(self) -> None:
        """Restore what the run switched. Raises as `_undo` does."""
        self._undo(SWITCHED_KINDS)

    def _note_interruption(self) -> None:
        self._run.update(status="interrupted")
        write_run_row(self._run)

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[None]:
        """The directory for files that load generators write, empty at the beginning and gone at the end."""
        scratch = Path(self._target.outside(self._context.scratch))
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise ToolError(f"cannot make the scratch directory {scratch}: {error.strerror}") from error
        try:
            yield
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    # --- before and after the steps

    def _check(self) -> None:
        client_host.check(self._host, self._target, self._steps, self._watcher.note)
        checks.check(
            self._host,
            self._session,
            self._keeper.scope,
            plan=self._plan,
            steps=self._steps,
            context=self._context,
            look=self._look_at_cluster,
            note=self._watcher.note,
            begun=self.begun,
        )
        if self._session is not None:
            self._before_filling = self._looked
            for switch in switches(self._session, self._plan.quiesce):
                checks.rehearse(self._session, switch.back)
            back = phases.rehearsals(self._session, self._journal, self._plan.phases, self._osds())
            checks.rehearse(self._session, back)
        self.begun = True

    def _say_cost(self, steps: Sequence[StepSpec], needs: Sequence[Need]) -> None:
        """Say what is left of the run takes and writes."""
        replicas = preflight.replicas_of(self._session, self._target, self._plan) if self._session is not None else 1
        empty = self._empty(needs)
        cost = prediction.cost(self._plan, steps, empty, self._keeper.scope, self._context, replicas=replicas)
        self._watcher.note(prediction.sentence(cost))

    def _empty(self, needs: Sequence[Need]) -> list[Need]:
        """Return the needs that the journal does not remember as filled."""
        return [need for need in needs if not self._journal.recall(f"filled {need.key}")]

    def _look_at_cluster(self) -> ClusterLook:
        self._looked = self._cluster_status()
        return ClusterLook.of(SOURCES["cluster_status"].parse(self._looked, self._keeper.scope))

    def _cluster_status(self) -> list[RawAnswer]:
        if self._session is None:
            return []
        return collect(self._host, self._session, SOURCES["cluster_status"].plan(self._keeper.scope))

    def _make(self, needs: Sequence[Need]) -> None:
        if self._session is None:
            return
        resources = Resources(self._host, self._session, self._journal)
        scope, note = self._keeper.scope, self._watcher.note
        pools = [need for need in needs if need.settles]
        resources.make(pools, scope, status=lambda: self._look_at_cluster().status, note=note)
        # Only a pool that exists shows whether the key may use it.
        for pool in dict.fromkeys(pool for need in pools for pool in need.pools):
            caps.check_pool_access(self._session, pool, needs, f"{self._context.prefix}-trial", given=False)
        others = [need for need in needs if not need.settles]
        resources.make(others, scope, status=lambda: self._look_at_cluster().status, note=note)
        self._keeper.refresh()

    def _watch_idle(self) -> None:
        """Watch the cluster for a while before the first load: the limits of other tenants are relative to that."""
        self._keeper.narrow(
            asked_osds=self._under_test(self._steps),
            own_pools=tuple(pool for need in needs_of(self._steps, self._context) for pool in need.pools),
            op_history_ops=self._plan.capture.op_history_ops,
        )
        if self._session is None:
            return
        seconds = self._plan.limits.baseline
        self._watcher.note(f"watching the cluster before the load: {format_seconds(seconds)}")
        with self._recording(capture=False) as recording:
            self._host.sleep(seconds)
            recording.finish()
        self._idle = recording.answers
        tables: dict[str, pa.Table] = {}
        for name, answers in self._idle.items():
            with contextlib.suppress(ParseError):
                parsed = SOURCES[name].parse(answers, self._keeper.scope)
                tables |= {record.TABLE: table for record, table in parsed.items()}
        self._before = limits.baseline(tables)

    def _fill(self, needs: Sequence[Need]) -> None:
        """Write in full what is not filled yet, a batch at a time."""
        if not self._plan.prefill:
            return
        recording = self._recording(capture=False)
        with self._unthrottled(), recording:
            for batch in batches([(need, r) for need in self._empty(needs) for r in need.fill(self._context)]):
                names = ", ".join(request.label.removeprefix("prefill-") for _, request in batch)
                self._watcher.note(f"writing in full: {names}")
                answers = run_load(self._host, [request for _, request in batch], violation=recording.violation)
                # The first to end is the one that failed; the others were stopped because of it.
                ended = sorted(zip(batch, answers, strict=True), key=lambda pair: pair[1].ended_ns)
                for (need, _), completed in ended:
                    need.check_fill(answer_of(self._host, completed))
                    self._journal.remember(f"filled {need.key}", value=True)

    def _unthrottled(self) -> contextlib.AbstractContextManager[None]:
        """Lift a lab's device limits for a while: filling is not what is measured."""
        if self._target.kind != "lab":
            return contextlib.nullcontext()
        return lab.unthrottled(lab.load(self._target.name))

    def _warm(self, phase: Phase) -> None:
        """Read once in full what the steps of a phase read. Raises ToolError."""
        requests = warming((step for step in self._steps if step.phase == phase.name), self._context)
        recording = self._recording(capture=False)
        with self._unthrottled(), recording:
            for batch in batches(list(requests)):
                for end in run_load(self._host, batch, violation=recording.violation):
                    if end.exit_code != 0:
                        text = last_line(end.stderr or end.stdout)
                        raise ToolError(f"{end.request.label} ended with exit code {end.exit_code}: {text}")

    def _enter(self, step: StepSpec) -> None:
        """Lead the cluster to the phase of a step, unless it is there, and record what the phase stands on."""
        block = (step.repeat_index, step.phase) if step.phase else (0, "")
        if block == self._block:
            return
        if self._session is not None and step.phase:
            phase = self._phases[step.phase]
            stage = phases.Stage(
                self._host, self._session, self._journal, self._watcher.note, self._osds(), lambda: self._warm(phase)
            )
            phases.enter(phase, stage)
            # What started again is another process, and a cache has another socket.
            self._keeper.narrow(target=lab.fresh_target(self._keeper.scope.target))
        self._look_before()
        self._switch()
        self._block = block

    def _look_before(self) -> None:
        """Record what steps stand on, before our own switches: they are none of the cluster's settings."""
        self._keeper.refresh()
        answers = self._look()
        # The caveats of the run are those of cluster and machine before we wrote anything: the first look counts.
        answers["cluster_status"] = [*self._before_filling, *answers["cluster_status"]]
        answers[machine.SOURCE.name] = self._machine
        answers["tenants"] = self._idle.get("tenants", [])
        self._start, tables = write_start(self._run, answers, self._keeper.scope)
        # The cluster as our own filling has left it is what a load is compared with.
        self._before = limits.baseline({record.TABLE: table for record, table in tables.items()})

    def _look(self) -> dict[str, list[RawAnswer]]:
        """Return the raw answers that the scope was made of, and those of a look at the cluster's state."""
        return {**self._keeper.answers, "cluster_status": self._cluster_status()}

    def _look_after(self) -> None:
        with contextlib.suppress(ClusterError):
            self._keeper.refresh()
        write_end(self._run, self._look(), self._keeper.scope)
        self._run.update(status="done", ended_ns=self._host.now_ns())
        write_run_row(self._run)
        self._run.compact()

    def _switch(self) -> None:
        """Quiesce if the plan asks for it, and enlarge the op history where it is captured."""
        if self._session is None:
            return
        settings = Settings(self._session, self._journal)
        for what in settings.quiesce(self._plan.quiesce):
            self._watcher.note(f"switched: {what}")
        if self._plan.capture.op_history:
            osds, size = enlarged_history(self._keeper.scope, self._steps, self._plan.capture.op_history_ops)
            if osds:
                settings.enlarge_history(self._host, osds, size)

    # --- steps

    def _under_test(self, steps: Sequence[StepSpec]) -> tuple[int, ...]:
        return under_test(self._keeper.scope, steps)

    def _osds(self) -> tuple[str, ...]:
        """Return the names of the OSDs under test in the run."""
        return tuple(f"osd.{osd}" for osd in self._under_test(self._steps))

    def _recording(self, *, capture: bool, expected_s: float = 0.0) -> StepRecording:
        return StepRecording(
            self._host,
            self._session,
            self._keeper,
            capture=self._plan.capture if capture else None,
            plan_limits=self._plan.limits,
            before=self._before,
            expected_s=expected_s,
        )

    def _run_step(self, index: int, step: StepSpec) -> None:
        """Load (again, while it is not steady and the plan allows it), judge and keep one step."""
        self._watcher.step_begins(index + 1, len(self._steps), step)
        self._keeper.narrow(asked_osds=self._under_test([step]), images=self._images(step))
        usage = self._usage()
        prolonged = 0
        while True:
            if step.temperature == "cold":
                self._make_cold()
            attempt, recording = self._attempt(index, step, prolonged, usage)
            rows, failures = parse_load(attempt)
            if failures:
                self._check_pools(step)
            if failures or not is_unsteady(rows) or prolonged >= self._plan.limits.prolong:
                break
            # Run on at once: what the first part has warmed up or filled stays as it is.
            prolonged += 1
            self._watcher.note(f"not steady, prolonged ({prolonged} of {self._plan.limits.prolong})")
            step = step.model_copy(update={"ramp_s": 0.0})
        judged = judge(attempt)
        write_step(self._run, attempt, judged, recording.costs, self._start)
        self._clear_scratch()
        self._repeats.add(judged.row, judged.figures.iops)
        self._watcher.step_ended(judged.row, judged.figures)

    def _attempt(
        self, index: int, step: StepSpec, prolonged: int, usage: Sequence[RawAnswer]
    ) -> tuple[StepAnswers, StepRecording]:
        """Run the load once, with everything recorded around it."""
        requests = LAYERS[step.layer].plan(step, self._context)
        expected_s = step.ramp_s + step.runtime_s
        with self._recording(capture=True, expected_s=expected_s) as recording:
            load = run_load(
                self._host,
                requests,
                started=functools.partial(recording.watch, there=any(r.elsewhere is not None for r in requests)),
                tick=lambda seconds: self._watcher.step_ticks(seconds, expected_s),
                violation=recording.violation,
            )
            recording.finish()
            # What happened in the last seconds of the load is seen by the look after it.
            raise_if_broken(recording.violation())
        answers = {LOAD: [answer_of(self._host, completed) for completed in load], **recording.answers}
        if usage:
            answers["image_usage"] = list(usage)
        share, precision = self._plan.limits.max_tenant_share, self._plan.precision
        return StepAnswers(index, step, self._keeper.scope, prolonged, answers, share, precision), recording

    def _images(self, step: StepSpec) -> tuple[tuple[str, str], ...]:
        """Return the images that the step reads."""
        if not step.pattern.reads:
            return ()
        return tuple(image for need in LAYERS[step.layer].needs(step, self._context) for image in need.images)

    def _usage(self) -> list[RawAnswer]:
        """Return how much of the images that the present step reads is written; each is asked once in a run."""
        answers = []
        for image in self._keeper.scope.images:
            if image not in self._usage_of:
                scope = self._keeper.scope.model_copy(update={"images": (image,)})
                self._usage_of[image] = collect(self._host, self._session, SOURCES["image_usage"].plan(scope))
            answers += self._usage_of[image]
        return answers

    def _check_pools(self, step: StepSpec) -> None:
        """Raise ClusterError when the step failed because a pool of ours was taken away under it."""
        if self._session is None:
            return
        # Not by the scope: that of a step is the one that its start of the run has kept.
        there = existing(self._session, REMOVALS["pool"], {})
        wanted = {pool for need in LAYERS[step.layer].needs(step, self._context) for pool in need.pools}
        missing = sorted(wanted.difference(there))
        if missing:
            raise ClusterError(
                f"the pool {missing[0]} was deleted by somebody else while it was measured",
                hint="bathy bench resume makes it anew and goes on",
            )

    def _make_cold(self) -> None:
        """Drop the OSDs' caches and this machine's page cache; the counters show whether it worked."""
        if self._session is not None:
            # An object store that knows no such command refuses it.
            self._session.commands(
                [
                    CephRequest(f"cache-drop-osd.{osd}", f"osd.{osd}", (("prefix", "cache drop"),), timeout_s=60.0)
                    for osd in self._keeper.scope.asked_osds
                ]
            )
        try:
            Path("/proc/sys/vm/drop_caches").write_text("3")
        except OSError:
            self._watcher.note("this machine's page cache could not be dropped (not root)")

    def _clear_scratch(self) -> None:
        for path in Path(self._target.outside(self._context.scratch)).glob("*"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def enlarged_history(scope: Scope, steps: Sequence[StepSpec], ops: int) -> tuple[list[int], int]:
    """Return the OSDs whose op history is read, and how many operations each is to keep.

    They are those of each step's own class: the sample of all of them would miss most of a class.
    """
    asked = {tuple(op_history.asked(under_test(scope, [step]))) for step in steps}
    return sorted(set().union(*asked)), op_history.ops_each(ops, max(map(len, asked), default=0))


def scratch_path(target: Target, run_id: str) -> str:
    """Return the scratch directory of a run, as the tools inside the target's root see it."""
    base = "/tmp" if target.root else tempfile.gettempdir()  # noqa: S108 - inside the lab's own root
    return f"{base}/bathy-{run_id}"


def context_of(plan: Plan, target: Target, run_id: str) -> LayerContext:
    """Return what the layers may know of a run."""
    return LayerContext(
        target,
        prefix_of(run_id),
        scratch_path(target, run_id),
        replicas=plan.replicas,
        client_cache=plan.client_cache,
    )
