"""Begins, resumes and cleans up runs: what the command line, the demo and tests call."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from bathyscope import __version__, lab
from bathyscope.bench import cleanup, cluster
from bathyscope.bench.conductor import Conductor, Watcher, scratch_path
from bathyscope.bench.journal import Journal, damaged_journals, journal_directory
from bathyscope.bench.settings import SETTING_KINDS
from bathyscope.errors import BathyscopeError, StoreError, UsageError
from bathyscope.host import CephSession, Host
from bathyscope.host.ceph import connect
from bathyscope.layers import REGISTRY
from bathyscope.spec import Target
from bathyscope.spec.plan import Plan, expand
from bathyscope.spec.plan_file import dump_plan, parse_plan
from bathyscope.store import RunDirectory, Workspace

_CLASSES = "device_classes"


def needs_cluster(plan: Plan) -> bool:
    """Return whether any layer of the plan does."""
    return any(REGISTRY[layer].needs_cluster for layer in plan.layers)


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
    session = connect(host, target)
    try:
        yield session
    finally:
        session.close()


def device_classes(session: CephSession | None, target: Target) -> tuple[str, ...]:
    """Return the device classes to measure: the cluster's, or those of the target's disks."""
    if session is None:
        return tuple(sorted(target.disks))
    return cluster.classes_of(cluster.osd_nodes(session))


def begin(
    host: Host, workspace: Workspace, plan: Plan, target: Target, watcher: Watcher, *, keep: bool = False
) -> RunDirectory:
    """Run a plan from the start and return the finished run, closed.

    Raises BathyscopeError, KeyboardInterrupt; then the run exists and can be resumed, unless nothing was begun.
    """
    with open_session(host, target, plan) as session:
        if session is not None:
            tidy(host, session, note=watcher.note)
        classes = device_classes(session, target)
        steps = expand(plan, classes)
        started_ns = host.now_ns()
        fsid = cluster.fsid(session) if session is not None else None
        run = workspace.create_run(
            plan_name=plan.name,
            plan_text=dump_plan(plan),
            started_ns=started_ns,
            target=target.model_dump(mode="json"),
            versions={"bathy": __version__, **({"fsid": fsid} if fsid else {})},
            environment={_CLASSES: ",".join(classes)},
            step_count=len(steps),
        )
        with run:
            conductor: Conductor | None = None
            try:
                journal = Journal.create(journal_directory(), run.id, str(run.path), target, host, fsid=fsid)
                conductor = Conductor(
                    host, session, target=target, plan=plan, device_classes=classes, run=run, journal=journal,
                    watcher=watcher,
                )  # fmt: skip
                conductor.execute(keep=keep)
            except BaseException:
                if conductor is None or not conductor.begun:
                    _forget_run(run, workspace)
                else:
                    _tell_how_to_go_on(run, watcher)
                raise
    return workspace.open_run(str(run.path))


def _tell_how_to_go_on(run: RunDirectory, watcher: Watcher) -> None:
    watcher.note(f"{len(run.finished_steps())} of {run.info.step_count} steps are kept")
    watcher.note(f"go on with: bathy bench resume {run.id}; or remove what is left of it with: bathy bench cleanup")


def _forget_run(run: RunDirectory, workspace: Workspace) -> None:
    """A run that failed its preflight is no run: nothing was changed and nothing was measured; it is removed again."""
    path = journal_directory() / f"{run.id}.jsonl"
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
) -> RunDirectory:
    """Carry an interrupted run to its end and return it, closed. A run that is done is only cleaned up.

    `refresh` gives the target as it is now (a lab's daemons may have been restarted). Raises BathyscopeError.
    """
    run = workspace.open_run(reference, exclusive=True)
    with run:
        plan = stored_plan(run)
        path = journal_directory() / f"{run.id}.jsonl"
        if not path.exists() and run.info.status == "done":
            watcher.note(f"run {run.id} is done already")
            return workspace.open_run(str(run.path))
        target = refresh(stored_target(run))
        with open_session(host, target, plan) as session:
            fsid = _same_cluster(run, session)
            if path.exists():
                journal = Journal.load(path)
                journal.take_over(host)
            else:
                journal = Journal.create(journal_directory(), run.id, str(run.path), target, host, fsid=fsid)
            classes = tuple(name for name in run.info.environment.get(_CLASSES, "").split(",") if name)
            conductor = Conductor(
                host, session, target=target, plan=plan, device_classes=classes, run=run, journal=journal,
                watcher=watcher,
            )  # fmt: skip
            if run.info.status == "done":
                conductor.clean_up()
                return workspace.open_run(str(run.path))
            try:
                conductor.execute(keep=keep)
            except BaseException:
                _tell_how_to_go_on(run, watcher)
                raise
    return workspace.open_run(str(run.path))


def _same_cluster(run: RunDirectory, session: CephSession | None) -> str | None:
    """Return the cluster's fsid. Raises UsageError when the run was begun on another cluster."""
    if session is None:
        return None
    found, begun_on = cluster.fsid(session), run.info.versions.get("fsid")
    if begun_on not in (None, found):
        raise UsageError(
            f"run {run.id} was begun on the cluster {begun_on}, and this is the cluster {found}",
            hint="steps of two clusters must not be mixed in one run: begin a new one with `bathy bench run`",
        )
    return found


def stored_plan(run: RunDirectory) -> Plan:
    """Return the plan of a run. Raises StoreError, PlanError."""
    return parse_plan(run.info.plan_text, name=f"the plan of run {run.id}", layers=list(REGISTRY))


def stored_target(run: RunDirectory) -> Target:
    """Return the target of a run. Raises StoreError."""
    try:
        return Target.model_validate(run.info.target)
    except ValidationError as error:
        raise StoreError(f"the target in run.json of {run.id} is damaged") from error


def tidy(host: Host, session: CephSession, *, note: Callable[[str], None]) -> None:
    """Restore the settings that dead runs left on this cluster, and name what else is theirs.

    Switches go back at once, because nobody wants them; pools stay, because the run may be resumed.
    """
    for path in damaged_journals(journal_directory()):
        note(f"the journal {path} cannot be read; look in it for what is still on a cluster")
    _sweep_idle(host)
    here = cluster.fsid(session)
    for journal in cleanup.abandoned(host, journal_directory()):
        if journal.fsid != here:
            if not _is_gone(journal):
                note(
                    f"run {journal.run_id} has left something on {journal.target.name}: "
                    f"bathy bench resume {journal.run_id}, or bathy bench cleanup"
                )
            continue
        try:
            journal.take_over(host)
            problems = cleanup.undo_all(host, session, journal, kinds=SETTING_KINDS, note=note)
            journal.give_up()
            journal.close()
        except BathyscopeError as error:
            problems = [error.message]
        for problem in problems:
            note(f"run {journal.run_id} could not be tidied up: {problem}")
        if any(change.kind not in SETTING_KINDS for change in journal.pending()):
            note(
                f"run {journal.run_id} was interrupted and its pools are still there: "
                f"bathy bench resume {journal.run_id} goes on, bathy bench cleanup removes them"
            )


def _is_gone(journal: Journal) -> bool:
    """Whether the journal is about a lab that was taken down: then nothing can be left on it."""
    return journal.target.kind == "lab" and journal.target.name not in lab.list_labs()


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
    done: list[str] = []
    failed = [
        f"the journal {path} cannot be read; look in it for what is still on a cluster, then remove it"
        for path in damaged_journals(journal_directory())
    ]
    _sweep_idle(host)
    for journal in cleanup.abandoned(host, journal_directory()):
        if only and not any(journal.run_id.startswith(name) for name in only):
            continue
        _clear_scratch(journal)
        if forget or _is_gone(journal):
            why = "is forgotten" if forget else f"ran on the lab '{journal.target.name}', which is gone"
            note(f"run {journal.run_id} {why}: {len(journal.pending())} changes are not looked for")
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


def _clean_one(host: Host, target: Target, journal: Journal, note: Callable[[str], None]) -> list[str]:
    """Undo what one dead run left, unless it left it on another cluster. Raises BathyscopeError."""
    session = connect(host, target)
    try:
        if journal.fsid is not None and cluster.fsid(session) != journal.fsid:
            if target.kind == "lab":
                note(f"run {journal.run_id} ran on an earlier lab of the name '{target.name}', which is gone")
                journal.discard()
                return []
            where = f"{target.name} now leads to another cluster than {journal.fsid}, on which the run was"
            return [f"{where}; if that one is gone: bathy bench cleanup --forget {journal.run_id}"]
        journal.take_over(host)
        problems = cleanup.undo_all(host, session, journal, note=note)
        if not problems:
            journal.close()
            note(f"run {journal.run_id}: nothing of it is left on the cluster")
        return problems
    finally:
        session.close()


def _sweep_idle(host: Host) -> None:
    """Remove what runs that were killed before or after their changes left on this machine."""
    for journal in cleanup.idle(host, journal_directory()):
        _clear_scratch(journal)
        journal.close()


def _clear_scratch(journal: Journal) -> None:
    """Remove the load's log files that a killed run left on this machine."""
    target = journal.target
    shutil.rmtree(Path((target.root or "") + scratch_path(target, journal.run_id)), ignore_errors=True)
