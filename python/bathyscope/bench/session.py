"""Begins, resumes and cleans up runs: what the command line, the demo and tests call."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bathyscope import __version__, lab
from bathyscope.bench import checks, cleanup, phases, prediction, preflight
from bathyscope.bench.cleanup import SWITCHED_KINDS
from bathyscope.bench.conductor import Conductor, Watcher, context_of, enlarged_history, scratch_path
from bathyscope.bench.preflight import ClusterLook
from bathyscope.bench.resources import make_context
from bathyscope.bench.settings import enlarging, switches
from bathyscope.errors import BathyscopeError, EnvironmentError_, StoreError, UnreachableError, UsageError
from bathyscope.host import CephSession, Host
from bathyscope.host.ceph import connect
from bathyscope.lab import LabSpec
from bathyscope.lab.layout import Layout
from bathyscope.lab.state import directory_of
from bathyscope.layers import LAYERS, MakeContext, traits
from bathyscope.recording.collect import collect
from bathyscope.recording.journal import Journal, journal_directory, journal_path, journals
from bathyscope.recording.look import fsid_of, look_at
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.records.prediction_finding import PredictionFinding
from bathyscope.sources import SOURCES, cluster_map, exporters
from bathyscope.spec import Target
from bathyscope.spec.plan import Plan, expand
from bathyscope.spec.plan_file import dump_plan, parse_plan
from bathyscope.spec.scope import Scope, ScopeOsd
from bathyscope.store import RunDirectory, Workspace

_CLASSES = "device_classes"
OWN_LAB = "own_lab"
"""Key of a run's context: the lab that was brought up for it, and is taken down when it ends."""
_NO_RUN = "00000000-000000-000000"


def needs_cluster(plan: Plan) -> bool:
    """Return whether any layer of the plan does."""
    return any(LAYERS[layer].needs_cluster for layer in plan.layers)


@contextlib.contextmanager
def open_session(host: Host, target: Target, plan: Plan) -> Iterator[CephSession | None]:
    """Connect where the plan needs a cluster. Raises UsageError, DeniedError, UnreachableError."""
    if not needs_cluster(plan):
        yield None
        return
    if target.kind == "disk":
        raise UsageError(
            f"the plan '{plan.name}' has layers that need a cluster, and only a disk was named",
            hint="add --layer disk, or name a cluster with --lab or --conf",
        )
    with contextlib.closing(connect(host, target)) as session:
        try:
            yield session
        finally:
            host.leave_nodes()


def device_classes(keeper: ScopeKeeper, session: CephSession | None) -> tuple[str, ...]:
    """Return the device classes to measure: the cluster's, or without one those of the target's disks.

    In the operator's pool it is the one that its rule takes. Raises UsageError when there is no such pool.
    """
    scope = keeper.scope
    if scope.target.pool is not None and session is not None:
        device_class = preflight.given_pool(session, scope.target.pool).device_class
        return (device_class,) if device_class else ()
    if scope.fsid is None:
        return tuple(sorted(scope.target.disks))
    return cluster_map.device_classes(scope)


def predict(host: Host, plan: Plan, target: Target) -> PredictionFinding:
    """Return what a run of the plan would take, change and start, and what would refuse it; nothing is changed.

    The run's random suffix is 000000. Raises BathyscopeError.
    """
    # Nothing is started, on other machines neither.
    asked = target.model_copy(update={"ssh": None, "client_host": None})
    with open_session(host, asked, plan) as session:
        keeper = look_at(host, session, asked)
        context = context_of(plan, target, _NO_RUN)
        steps = expand(plan, device_classes(keeper, session), traits())
        preflight.check_layers(steps, context)
        finding = prediction.predict(plan, steps, keeper.scope, context, None)
        if session is not None:
            osds, size = enlarged_history(keeper.scope, steps, plan.capture.op_history_ops)
            finding = prediction.predict(
                plan,
                steps,
                keeper.scope,
                context,
                make_context(session, keeper.scope),
                replicas=preflight.replicas_of(session, target, plan),
                switches=switches(session, plan.quiesce),
                history=enlarging(osds, size) if plan.capture.op_history else (),
            )
        # Whether the key may undo the switches is not tried: that sends the very commands that undo them.
        notes = list(finding.notes)
        refused = _refusal(host, session, keeper, plan=plan, steps=steps, context=context, note=notes.append)
    hint = (refused.hint or "") if refused else ""
    return dataclasses.replace(
        finding, refusal=refused.message if refused else "", refusal_hint=hint, notes=tuple(notes)
    )


def predict_on(spec: LabSpec, plan: Plan) -> PredictionFinding:
    """Return what a run of the plan would take and change on a lab that is not up yet. Raises BathyscopeError."""
    layout = Layout(directory_of(spec.name))
    target = Target(name=spec.name, kind="lab", conf=str(layout.conf), keyring=str(layout.admin_keyring))
    osds = tuple(ScopeOsd(osd=osd, device_class=name, host=node) for osd, name, node in spec.osds())
    scope, context = Scope(target=target, osds=osds), context_of(plan, target, _NO_RUN)
    steps = expand(plan, cluster_map.device_classes(scope), traits())
    preflight.check_layers(steps, context)
    phases.check(plan, target)
    make = MakeContext(scope, {"default": frozenset(osd.osd for osd in osds)}, spec.replica_count)
    asked, size = enlarged_history(scope, steps, plan.capture.op_history_ops)
    return prediction.on_lab_of_its_own(
        spec,
        prediction.predict(
            plan, steps, scope, context, make,
            replicas=plan.replicas or spec.replica_count,
            history=enlarging(asked, size) if plan.capture.op_history else (),
        ),
    )  # fmt: skip


def _unread(keeper: ScopeKeeper) -> EnvironmentError_ | None:
    """Return the error for a Prometheus that is named and cannot be read; a run that has begun goes on without it."""
    access, why = keeper.scope.target.prometheus, exporters.problem(keeper.answers.get(exporters.SOURCE.name, ()))
    if access is None or why is None:
        return None
    url = access.url.rstrip("/")
    hint = f"try it: curl '{url}/api/v1/query?query=up'; a credential is named with --prometheus-auth"
    return EnvironmentError_(f"the Prometheus {access.url} cannot be used: {why}", hint=hint)


def _refusal(
    host: Host, session: CephSession | None, keeper: ScopeKeeper, *, note: Callable[[str], None], **what: Any
) -> BathyscopeError | None:
    """Return what the checks before a run would end it with now, or None. Raises UnreachableError."""
    source = SOURCES["cluster_status"]

    def look() -> ClusterLook:
        return ClusterLook.of(source.parse(collect(host, session, source.plan(keeper.scope)), keeper.scope))

    if (unread := _unread(keeper)) is not None:
        return unread
    try:
        checks.check(host, session, keeper.scope, look=look, note=note, **what)
    except UnreachableError:
        raise
    except BathyscopeError as error:
        return error
    return None


def begin(
    host: Host,
    workspace: Workspace,
    plan: Plan,
    target: Target,
    watcher: Watcher,
    *,
    keep: bool = False,
    kind: str = "bench",
    own_lab: bool = False,
) -> RunDirectory:
    """Run a plan from the start and return the finished run, closed. `own_lab`: the lab was brought up for it.

    Raises BathyscopeError, KeyboardInterrupt; then the run exists and can be resumed, unless nothing was begun.
    """
    with open_session(host, target, plan) as session:
        if session is not None:
            tidy(host, session, note=watcher.note)
        keeper = look_at(host, session, target)
        if (unread := _unread(keeper)) is not None:
            raise unread
        classes = device_classes(keeper, session)
        fsid = keeper.scope.fsid
        run = workspace.create_run(
            kind=kind,
            name=plan.name,
            spec_text=dump_plan(plan),
            started_ns=host.now_ns(),
            target=target.model_dump(mode="json"),
            versions={"bathy": __version__, **({"fsid": fsid} if fsid else {})},
            context={_CLASSES: list(classes), **({OWN_LAB: target.name} if own_lab else {})},
            step_count=len(expand(plan, classes, traits())),
        )
        with run:
            conductor: Conductor | None = None
            try:
                conductor = _conductor(host, session, keeper, run, watcher)
                conductor.execute(keep=keep)
            except BaseException:
                if conductor is None or not conductor.begun:
                    _forget_run(run, workspace)
                elif not own_lab:
                    _tell_how_to_go_on(run, watcher)
                raise
    return workspace.open_run(str(run.path))


def _conductor(
    host: Host, session: CephSession | None, keeper: ScopeKeeper, run: RunDirectory, watcher: Watcher
) -> Conductor:
    """Return what carries a run to its end, with the journal that the run has left or a new one.

    Raises UsageError when the run was begun on another cluster.
    """
    fsid, path = _same_cluster(run, keeper.scope.fsid), journal_path(journal_directory(), run.id)
    if path.exists():
        journal = Journal.load(path)
        journal.take_over(host)
    else:
        target = keeper.scope.target
        journal = Journal.create(journal_directory(), run.id, str(run.path), target, host, fsid=fsid)
    classes = tuple(str(name) for name in run.info.context.get(_CLASSES, ()))
    return Conductor(
        host, session, keeper, plan=stored_plan(run), device_classes=classes, run=run, journal=journal, watcher=watcher
    )


def _tell_how_to_go_on(run: RunDirectory, watcher: Watcher) -> None:
    watcher.note(f"{len(run.step_segments())} of {run.info.step_count} steps are kept")
    left = "; or remove what is left of it with: bathy bench cleanup " + run.id
    path = journal_path(journal_directory(), run.id)
    remains = path.exists() and Journal.load(path).pending()
    watcher.note(f"continue with: bathy bench resume {run.id}{left if remains else ''}")


def _forget_run(run: RunDirectory, workspace: Workspace) -> None:
    """A run that failed its preflight is no run: nothing was changed and nothing was measured; it is removed again."""
    path = journal_path(journal_directory(), run.id)
    if path.exists():
        Journal.load(path).close()
    run.close()
    with contextlib.suppress(StoreError):
        workspace.remove_run(run.path)


def resume(
    host: Host,
    workspace: Workspace,
    reference: str,
    watcher: Watcher,
    *,
    refresh: Callable[[Target], Target] = lambda target: target,
    keep: bool = False,
    destroy_disk_content: bool = False,
) -> RunDirectory:
    """Carry an interrupted run to its end and return it, closed. A run that is done is only cleaned up.

    `refresh` gives the target as it is now (a lab's daemons may have been restarted). The consent to overwrite disks
    counts for one start: without `destroy_disk_content` a run that had it is refused. Raises BathyscopeError.
    """
    with workspace.open_run(reference, exclusive=True) as run:
        plan = stored_plan(run)
        if run.info.status == "done" and not journal_path(journal_directory(), run.id).exists():
            watcher.note(f"run {run.id} is done already")
            return workspace.open_run(str(run.path))
        target = refresh(stored_target(run))
        if run.info.status != "done" and not destroy_disk_content:
            _must_destroy_nothing(run, target)
        with open_session(host, target, plan) as session:
            conductor = _conductor(host, session, look_at(host, session, target), run, watcher)
            if run.info.status == "done":
                conductor.clean_up()
                return workspace.open_run(str(run.path))
            try:
                conductor.execute(keep=keep)
            except BaseException:
                _tell_how_to_go_on(run, watcher)
                raise
    return workspace.open_run(str(run.path))


def _must_destroy_nothing(run: RunDirectory, target: Target) -> None:
    """Raise UsageError when the run may overwrite disks: what is on them may be another thing than at its start.

    A lab's own disks hold nothing of anybody.
    """
    is_lab = target.kind == "lab"
    disks = [disk.path for disk in target.disks.values() if disk.destructive and (disk.named or not is_lab)]
    if disks:
        raise UsageError(
            f"run {run.id} overwrites {', '.join(disks)}; going on with it needs your consent again",
            hint=f"if what is on it may be lost: bathy bench resume {run.id} --destroy-disk-content",
        )


def _same_cluster(run: RunDirectory, fsid: str | None) -> str | None:
    """Return the cluster's fsid. Raises UsageError when the run was begun on another cluster."""
    begun_on = run.info.versions.get("fsid")
    if fsid is not None and begun_on not in (None, fsid):
        raise UsageError(
            f"run {run.id} was begun on the cluster {begun_on}, and this is the cluster {fsid}",
            hint="steps of two clusters must not be in one run; begin a new one: bathy bench run",
        )
    return fsid


def stored_plan(run: RunDirectory) -> Plan:
    """Return the plan of a run. Raises StoreError, PlanError."""
    return parse_plan(run.info.spec_text, name=f"the plan of run {run.id}", layers=traits())


def stored_target(run: RunDirectory) -> Target:
    """Return the target of a run. Raises StoreError."""
    try:
        return Target.model_validate(run.info.target)
    except ValidationError as error:
        raise StoreError(f"the target in run.json of {run.id} is damaged") from error


def tidy(host: Host, session: CephSession, *, note: Callable[[str], None]) -> None:
    """Restore the settings that dead runs left on this cluster, and name the pools that they left.

    Settings are restored at once; pools stay, because the run may be resumed.
    """
    abandoned, damaged = _abandoned(host)
    for path in damaged:
        note(f"the journal {path} cannot be read; it lists what may still be on a cluster")
    if not abandoned:
        return
    here = fsid_of(session)
    for journal in abandoned:
        if journal.fsid != here:
            if not _is_gone(journal):
                is_recording = all(change.kind in SWITCHED_KINDS for change in journal.pending())
                way = "" if is_recording else f"bathy bench resume {journal.run_id}, or "
                note(f"run {journal.run_id} has left changes on {journal.target.name}: {way}bathy bench cleanup")
            continue
        try:
            journal.take_over(host)
            problems = cleanup.undo_all(host, session, journal, kinds=SWITCHED_KINDS, note=note)
            left, unknown = cleanup.still_there(host, session, journal)
            journal.give_up()
            journal.close()
        except BathyscopeError as error:
            left, unknown, problems = [], [], [error.message]
        for problem in (*problems, *unknown):
            note(f"run {journal.run_id} could not be tidied up: {problem}")
        if left:
            note(
                f"run {journal.run_id} was interrupted and has left {', '.join(map(cleanup.describe, left))}: "
                f"bathy bench resume {journal.run_id} continues it, bathy bench cleanup {journal.run_id} removes them"
            )


def _is_gone(journal: Journal) -> bool:
    """Whether the journal is about a lab that was taken down: then nothing can be left on it."""
    if journal.target.kind != "lab":
        return False
    if journal.target.name not in lab.list_labs():
        return True
    try:
        return journal.fsid not in (None, lab.load(journal.target.name).record.fsid)
    except BathyscopeError:
        # One that is not finished, or damaged.
        return False


def forget_gone() -> None:
    """Discard the journals of runs on labs that were taken down."""
    for journal in journals(journal_directory())[0]:
        if _is_gone(journal):
            journal.discard()


def clean_abandoned(
    host: Host,
    *,
    refresh: Callable[[Target], Target],
    note: Callable[[str], None],
    only: Sequence[str] = (),
    forget: bool = False,
) -> tuple[list[str], list[str]]:
    """Undo everything that dead runs left on any cluster; return (runs cleaned, sentences about what failed).

    `forget` drops the journals of `only` without asking their cluster: for a cluster that is gone for good.
    """
    abandoned, damaged = _abandoned(host)
    if forget:
        _must_name_one_each(only, [*(journal.run_id for journal in abandoned), *(path.stem for path in damaged)])
    done: list[str] = []
    failed = []
    for path in damaged:
        if forget and any(path.stem.startswith(name) for name in only):
            note(f"the journal {path} cannot be read; it is forgotten, and with it whatever it lists")
            path.unlink(missing_ok=True)
            done.append(path.stem)
        else:
            failed.append(f"the journal {path} cannot be read; it lists what may still be on a cluster")
    for journal in abandoned:
        if only and not any(journal.run_id.startswith(name) for name in only):
            continue
        _clear_scratch(journal)
        if forget or _is_gone(journal):
            changes = len(journal.pending())
            gone = f"ran on the lab '{journal.target.name}', which is gone with all that the run changed"
            note(f"run {journal.run_id} {f'is forgotten: {changes} changes are not undone' if forget else gone}")
            journal.discard()
            done.append(journal.run_id)
            continue
        try:
            problems = _clean_one(host, refresh(journal.target), journal, note)
        except BathyscopeError as error:
            problems = [error.message]
        failed += [f"{journal.run_id}: {problem}" for problem in problems]
        if not problems:
            done.append(journal.run_id)
    return done, failed


def _must_name_one_each(names: Sequence[str], runs: Sequence[str]) -> None:
    """Raise UsageError for a name that is the beginning of no run's id, or of several: forgetting cannot be undone."""
    for name in names:
        named = [run for run in runs if run.startswith(name)]
        if len(named) != 1:
            what = f"names {len(named)} runs with changes: {', '.join(named)}" if named else "names no run with changes"
            raise UsageError(f"'{name}' {what}", hint="name one run: bathy bench cleanup --forget RUN")


def _clean_one(host: Host, target: Target, journal: Journal, note: Callable[[str], None]) -> list[str]:
    """Undo what one dead run left, unless it left it on another cluster. Raises BathyscopeError."""
    with contextlib.closing(connect(host, target)) as session:
        if journal.fsid is not None and fsid_of(session) != journal.fsid:
            where = f"{target.name} now leads to another cluster than {journal.fsid}, on which the run was"
            return [f"{where}; if that one is gone: bathy bench cleanup --forget {journal.run_id}"]
        journal.take_over(host)
        problems = cleanup.undo_all(host, session, journal, note=note)
        if not problems:
            journal.close()
            note(f"run {journal.run_id}: nothing of it is left on the cluster")
        else:
            journal.give_up()
        return problems


def _abandoned(host: Host) -> tuple[list[Journal], list[Path]]:
    """Return the journals of dead runs that have something to undo, and those that cannot be read.

    What runs that were killed before or after their changes left on this machine is removed.
    """
    readable, damaged = journals(journal_directory())
    dead = [journal for journal in readable if not journal.owner_alive(host)]
    for journal in dead:
        if not journal.pending():
            _clear_scratch(journal)
            journal.discard()
    return [journal for journal in dead if journal.pending()], damaged


def _clear_scratch(journal: Journal) -> None:
    """Remove the load's log files that a killed run left on this machine."""
    target = journal.target
    shutil.rmtree(target.outside(scratch_path(target, journal.run_id)), ignore_errors=True)
