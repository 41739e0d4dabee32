"""Begins, resumes and cleans up runs: what the command line, the demo and tests call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from pydantic import ValidationError

from bathyscope import __version__
from bathyscope.bench import cleanup, cluster
from bathyscope.bench.conductor import Conductor, Watcher
from bathyscope.bench.journal import Journal, journal_directory
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
            tidy(host, session, target, note=watcher.note)
        classes = device_classes(session, target)
        steps = expand(plan, classes)
        started_ns = host.now_ns()
        run = workspace.create_run(
            plan_name=plan.name,
            plan_text=dump_plan(plan),
            started_ns=started_ns,
            target=target.model_dump(mode="json"),
            versions={"bathy": __version__},
            environment={_CLASSES: ",".join(classes)},
            step_count=len(steps),
        )
        with run:
            journal = Journal.create(journal_directory(), run.id, str(run.path), target, host)
            conductor = Conductor(
                host, session, target=target, plan=plan, device_classes=classes, run=run, journal=journal,
                watcher=watcher,
            )  # fmt: skip
            try:
                conductor.execute(keep=keep)
            except BaseException:
                _drop_if_nothing_happened(run, journal, workspace)
                raise
    return workspace.open_run(str(run.path))


def _drop_if_nothing_happened(run: RunDirectory, journal: Journal, workspace: Workspace) -> None:
    """A run that failed its preflight is no run: without steps and without changes it is removed again."""
    if not run.finished_steps() and not journal.pending():
        journal.close()
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
        plan, target = stored_plan(run), refresh(stored_target(run))
        path = journal_directory() / f"{run.id}.jsonl"
        if path.exists():
            journal = Journal.load(path)
            journal.take_over(host)
        elif run.info.status == "done":
            watcher.note(f"run {run.id} is done already")
            return workspace.open_run(str(run.path))
        else:
            journal = Journal.create(journal_directory(), run.id, str(run.path), target, host)
        with open_session(host, target, plan) as session:
            classes = tuple(name for name in run.info.environment.get(_CLASSES, "").split(",") if name)
            conductor = Conductor(
                host, session, target=target, plan=plan, device_classes=classes, run=run, journal=journal,
                watcher=watcher,
            )  # fmt: skip
            if run.info.status == "done":
                conductor.clean_up()
            else:
                conductor.execute(keep=keep)
    return workspace.open_run(str(run.path))


def stored_plan(run: RunDirectory) -> Plan:
    """Return the plan of a run. Raises StoreError, PlanError."""
    return parse_plan(run.info.plan_text, name=f"the plan of run {run.id}", layers=list(REGISTRY))


def stored_target(run: RunDirectory) -> Target:
    """Return the target of a run. Raises StoreError."""
    try:
        return Target.model_validate(run.info.target)
    except ValidationError as error:
        raise StoreError(f"the target in run.json of {run.id} is damaged") from error


def tidy(host: Host, session: CephSession, target: Target, *, note: Callable[[str], None]) -> None:
    """Restore the settings that dead runs left on this cluster, and name what else is theirs.

    Switches go back at once, because nobody wants them; pools stay, because the run may be resumed.
    """
    for journal in cleanup.abandoned(host, journal_directory()):
        if (journal.target.conf, journal.target.name) != (target.conf, target.name):
            note(
                f"run {journal.run_id} has left something on {journal.target.name}: "
                f"bathy bench resume {journal.run_id}, or bathy bench cleanup"
            )
            continue
        try:
            journal.take_over(host)
            cleanup.undo_all(host, session, journal, kinds=SETTING_KINDS, note=note)
            journal.close()
        except BathyscopeError as error:
            note(f"run {journal.run_id} could not be tidied up: {error.message}")
        if journal.pending():
            note(
                f"run {journal.run_id} was interrupted and its pools are still there: "
                f"bathy bench resume {journal.run_id} goes on, bathy bench cleanup removes them"
            )


def clean_abandoned(
    host: Host, *, refresh: Callable[[Target], Target], note: Callable[[str], None], only: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Undo everything that dead runs left on any cluster; return (runs cleaned, sentences about what failed)."""
    done, failed = [], []
    for journal in cleanup.abandoned(host, journal_directory()):
        if only and not any(journal.run_id.startswith(name) for name in only):
            continue
        try:
            target = refresh(journal.target)
            session = connect(host, target)
            try:
                journal.take_over(host)
                problems = cleanup.undo_all(host, session, journal, note=note)
            finally:
                session.close()
        except BathyscopeError as error:
            failed.append(f"{journal.run_id}: {error.message}")
            continue
        failed += [f"{journal.run_id}: {problem}" for problem in problems]
        if not problems:
            journal.close()
            done.append(journal.run_id)
    return done, failed
