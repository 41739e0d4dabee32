"""What leads a cluster from one phase of a plan to the next, and what undoes it: a class for each thing to be done.

To add one, add a key to `spec.plan.Phase` and a class here. Each change is in the run's journal before it is made; its
kind says which class undoes it. What the next phase wants as well stays as it is.
"""

from __future__ import annotations

import dataclasses
import errno
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from bathyscope import interruption, lab
from bathyscope.cache.daemon import START_LIMIT_S
from bathyscope.errors import BathyscopeError, ClusterError, ToolError, UnreachableError, UsageError
from bathyscope.host import CephRequest, CephSession, Host, answer_json
from bathyscope.host.ceph import send
from bathyscope.lab import LabState, caches
from bathyscope.lab.bringup import UP_TIMEOUT_S
from bathyscope.layers import LAYERS, needs
from bathyscope.recording.journal import Change, Journal, changed_by
from bathyscope.records.prediction_finding import PlannedChange
from bathyscope.spec import Target
from bathyscope.spec.plan import Phase, Plan
from bathyscope.units import format_bytes

RESTART_S = (8.0, 2 * UP_TIMEOUT_S)
"""What it takes to stop a lab's OSDs and start them until all is active+clean, and after how long that has failed.

The first is assumed: three OSDs of a busy machine took 8 to 9 s, and 10 to 13 s where caches came or went.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """What a phase is made on. `osds`: those under test ("osd.3"); `warm` reads once in full what the phase reads."""

    host: Host
    session: CephSession
    journal: Journal
    note: Callable[[str], None]
    osds: tuple[str, ...] = ()
    warm: Callable[[], None] = lambda: None

    @property
    def lab(self) -> LabState:
        """The lab as it is now. Raises LabError."""
        return lab.load(self.journal.target.name)


class Action:
    """One thing that a phase can ask for. `kind` is that of its changes in the journal; empty: it leaves none.

    `where` it is done. `restarts`: the OSDs under test start again for it, and again when it is undone; `limit_s` more
    at most for each of them. `on_labs`: what it makes, where that is for labs alone.
    """

    kind: ClassVar[str] = ""
    where: ClassVar[str] = "OSDs under test"
    restarts: ClassVar[bool] = False
    limit_s: ClassVar[float] = 0.0
    on_labs: ClassVar[str] = ""

    def asked(self, phase: Phase, osds: Sequence[str]) -> list[dict[str, Any]]:
        """Return what the phase asks for of these OSDs: the details of each change, with its `name`."""
        raise NotImplementedError

    def words(self, details: Mapping[str, Any]) -> tuple[str, str]:
        """Return how a change is made, and how it is undone; "": it does not stay. Those of many OSDs are the same."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise EnvironmentError_ when it cannot be done on this machine."""

    def keeps(self, phase: Phase, change: Change) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether the phase wants a change that has been made already."""
        return False

    def do(self, missing: Sequence[Mapping[str, Any]], stage: Stage) -> None:
        """Do what is missing. Raises BathyscopeError."""
        raise NotImplementedError

    def undo(self, changes: Sequence[Change], stage: Stage) -> None:
        """Undo changes; those that were not carried out, or have been undone, do no harm. Raises BathyscopeError."""

    def describe(self, change: Change) -> str:
        """Return a change in words."""
        return f"{change.details.get('name')}"


class OsdOptions(Action):
    """Options of all OSDs in the cluster's configuration."""

    kind = "osd_config"
    where = "mon"

    def asked(self, phase: Phase, osds: Sequence[str]) -> list[dict[str, Any]]:  # noqa: ARG002 - it is of all OSDs
        """Return the options."""
        return [{"name": name, "value": value} for name, value in phase.osd_options.items()]

    def words(self, details: Mapping[str, Any]) -> tuple[str, str]:
        """Return the commands."""
        option = f"who=osd name={details['name']}"
        return f"config set {option} value={details['value']}", f"config rm {option}, or config set to what it was"

    def keeps(self, phase: Phase, change: Change) -> bool:
        """Return whether it is the same value."""
        return phase.osd_options.get(str(change.details["name"])) == str(change.details["value"])

    def do(self, missing: Sequence[Mapping[str, Any]], stage: Stage) -> None:
        """Set them."""
        for details in missing:
            option, value = details["name"], details["value"]
            with stage.journal.alone():
                _must_be_free(self.kind, option, stage.journal)
                before = _stored(stage.session, option)
                stage.journal.will_change(self.kind, name=option, value=value, before=before)
            send(stage.session, _setting(option, value))
            # The monitors write values in a form of their own: 4G is 4294967296.
            stage.journal.remember(_fact(option, value), _stored(stage.session, option, everywhere=False))

    def undo(self, changes: Sequence[Change], stage: Stage) -> None:
        """Set what was there before, or nothing. What somebody else has set meanwhile stays."""
        for change in changes:
            option, before, value = _option(change), change.details["before"], change.details["value"]
            stored = stage.journal.recall(_fact(option, value))
            now = _stored(stage.session, option, everywhere=False)
            # A kill came before it was known in which form the monitors store the value: then what is there is ours.
            if now != before and (stored is None or now in (value, stored)):
                send(stage.session, _setting(option, before))
            elif now != before:
                stage.note(
                    f"{option} of the OSDs is {_shown(now)} now, not {value} as this run has set it: somebody else "
                    f"has changed it, so it is left as it is; before the run it was {_shown(before)}"
                )

    def describe(self, change: Change) -> str:
        """Return the option."""
        return f"{change.details.get('name')} of the OSDs"


def _option(change: Change) -> str:
    name = str(change.details["name"])
    if re.fullmatch("[a-z][a-z0-9_]*", name) is None:
        raise ClusterError(f"no run changes the option '{name}'; it is left alone")
    return name


def _fact(option: str, value: str) -> str:
    """Return the name of the fact that holds what the cluster stored when an option was set to a value."""
    return f"stored {option}={value}"


def _shown(value: str | None) -> str:
    return "not set" if value is None else value


def _must_be_free(kind: str, name: str, journal: Journal) -> None:
    """Raise BusyError when another run has made a change of this kind and name and has not put it back."""
    for other in journal.others():
        for change in other.pending():
            if change.kind == kind and change.details["name"] == name:
                raise changed_by(other.run_id, f"changed {describe(change)}")


def check_options(
    session: CephSession, phases: Sequence[Phase], target: Target, note: Callable[[str], None] = lambda _: None
) -> None:
    """Raise UsageError for an option that the cluster does not know, or that an OSD reads at its start only.

    Where OSDs are not started again, such an option would hold in no phase, or in other phases too and after the run.
    """
    for option in dict.fromkeys(option for phase in phases for option in phase.osd_options):
        answer = session.command(needs.question("config help", key=option))
        if answer.exit_code == -errno.ENOENT:
            raise UsageError(f"the cluster has no option {option}", hint="ceph config ls lists all options")
        if target.kind == "lab":
            continue
        if not answer_json(answer, session.client)["can_update_at_runtime"]:
            raise UsageError(
                f"{option} cannot be changed while an OSD runs, so it would also hold in other phases",
                hint="measure it in two runs, with the OSDs started again before each, and compare them: bathy compare",
            )
        note(
            f"{option} is set while the OSDs run: Ceph says that it counts at once; if they read it at their start "
            "alone, it changes nothing here (a lab starts them again)"
        )


def _setting(option: str, value: str | None) -> CephRequest:
    """Return the command that sets an option of all OSDs; None: that removes it."""
    if value is None:
        return needs.change(f"unset {option}", "config rm", who="osd", name=option)
    return needs.change(f"set {option}", "config set", who="osd", name=option, value=value)


def _stored(session: CephSession, option: str, *, everywhere: bool = True) -> str | None:
    """Return what the cluster's configuration has for all OSDs.

    Raises ClusterError where some OSDs have a value of their own, if it is to hold `everywhere`.
    """
    rows = [row for row in session.json("mon", "config dump") or [] if row.get("name") == option]
    for row in rows:
        where = "/".join(filter(None, (str(row.get("section", "")), str(row.get("mask", "")))))
        if everywhere and where.startswith("osd") and where != "osd":
            raise ClusterError(
                f"{option} is set for {where} alone, so a value for all OSDs does not hold there",
                hint=f"ceph config rm {where} {option}",
            )
    # With a mask it is of some OSDs.
    return next((str(row["value"]) for row in rows if row.get("section") == "osd" and not row.get("mask")), None)


def rehearsals(
    session: CephSession, journal: Journal, phases: Sequence[Phase], osds: Sequence[str]
) -> list[CephRequest]:
    """Return the commands that will undo what the phases set, as things are now: they change nothing yet.

    Raises BusyError when another run has set one of the options, or has caches over these OSDs.
    """
    for action in (_OPTIONS, _CACHES):
        for name in dict.fromkeys(details["name"] for phase in phases for details in action.asked(phase, osds)):
            _must_be_free(action.kind, name, journal)
    options = dict.fromkeys(option for phase in phases for option in phase.osd_options)
    return [_setting(option, _stored(session, option)) for option in options]


def caps(phases: Sequence[Phase]) -> list[str]:
    """Return the caps for the monitors that setting options, and putting them back, needs."""
    options = dict.fromkeys(option for phase in phases for option in phase.osd_options)
    return [
        f'allow command "{command}" with who=osd name={option}'
        for option in options
        for command in ("config set", "config rm")
    ]


class Caches(Action):
    """A cache over the data of each OSD under test."""

    kind = "osd_cache"
    restarts = True
    limit_s = START_LIMIT_S
    on_labs = "caches over OSDs"

    def asked(self, phase: Phase, osds: Sequence[str]) -> list[dict[str, Any]]:
        """Return a cache for each."""
        return [{"name": osd, "size_bytes": phase.cache} for osd in osds if phase.cache is not None]

    def words(self, details: Mapping[str, Any]) -> tuple[str, str]:
        """Return what happens to all of them."""
        size = format_bytes(int(details["size_bytes"]))
        return f"each gets a cache of {size} and starts again", "each loses its cache and starts again"

    def check(self) -> None:
        """Raise where there is no FUSE."""
        caches.check_machine()

    def keeps(self, phase: Phase, change: Change) -> bool:
        """Return whether a cache of this size is on that may hold something."""
        return not phase.empty and phase.cache == int(change.details["size_bytes"])

    def do(self, missing: Sequence[Mapping[str, Any]], stage: Stage) -> None:
        """Put them on."""
        with stage.journal.alone():
            for details in missing:
                _must_be_free(self.kind, details["name"], stage.journal)
            changes = stage.journal.will_change_all(self.kind, missing)
        caches.put_on(stage.lab, stage.host, int(missing[0]["size_bytes"]), osds=_names(changes))

    def undo(self, changes: Sequence[Change], stage: Stage) -> None:
        """Take them off, and remove what they held."""
        caches.take_off(stage.lab, stage.host, _names(changes), remove=True)

    def describe(self, change: Change) -> str:
        """Return the cache."""
        return f"the cache of {change.details.get('name')}"


class Warming(Action):
    """Reads once in full what the phase reads."""

    def asked(self, phase: Phase, osds: Sequence[str]) -> list[dict[str, Any]]:  # noqa: ARG002 - one for all
        """Return whether it is asked for."""
        return [{"name": ""}] if phase.warm else []

    def words(self, details: Mapping[str, Any]) -> tuple[str, str]:  # noqa: ARG002 - one for all
        """Return what it does."""
        return "all that the phase reads is read once in full", ""

    def do(self, missing: Sequence[Mapping[str, Any]], stage: Stage) -> None:  # noqa: ARG002 - one for all
        """Read it."""
        stage.warm()


class Restart(Action):
    """Starts the OSDs under test again."""

    kind = "osd_down"
    restarts = True
    on_labs = "restarts of OSDs"

    def asked(self, phase: Phase, osds: Sequence[str]) -> list[dict[str, Any]]:
        """Return all of them."""
        return [{"name": osd} for osd in osds if phase.restart]

    def words(self, details: Mapping[str, Any]) -> tuple[str, str]:  # noqa: ARG002 - all do the same
        """Return what they do."""
        return "all start again", ""

    def do(self, missing: Sequence[Mapping[str, Any]], stage: Stage) -> None:
        """Stop them, and start them: what a kill leaves between the two is in the journal."""
        changes = stage.journal.will_change_all(self.kind, missing)
        caches.restart_osds(stage.lab, stage.host, _names(changes))
        stage.journal.undone(*changes)

    def undo(self, changes: Sequence[Change], stage: Stage) -> None:
        """Start those that are down, and the others again."""
        caches.restart_osds(stage.lab, stage.host, _names(changes))


def _names(changes: Sequence[Change]) -> list[str]:
    return [str(change.details["name"]) for change in changes]


_RESTART, _OPTIONS, _CACHES, _WARMING = Restart(), OsdOptions(), Caches(), Warming()
ACTIONS: tuple[Action, ...] = (_OPTIONS, _CACHES, _WARMING, _RESTART)
"""What phases can ask for, in the order in which it is done."""
# Whatever starts OSDs again comes after the options: with those of a phase they may not start. Before a cache is taken
# off, which waits until all OSDs are there, those that are down come back.
_UNDONE: tuple[Action, ...] = (_OPTIONS, _RESTART, _CACHES)
_END = Phase.model_construct(name="")
ELSEWHERE = "On a cluster of yours phases can set options that OSDs take while they run, and read data in full (warm)"
PHASE_KINDS = tuple(action.kind for action in _UNDONE)


def check(plan: Plan, target: Target) -> None:
    """Raise UsageError or EnvironmentError_ when what the phases ask for cannot be done on this target."""
    without = [layer for layer in plan.layers if not LAYERS[layer].needs_cluster]
    if plan.phases and without:
        raise UsageError(
            f"phases are states of a cluster, which the layer {without[0]} does not use",
            hint=f"leave {without[0]} out of the plan's layers: layers: [rados, rbd]",
        )
    if target.kind != "lab" and (words := for_labs(plan)):
        raise UsageError(
            f"{target.name} is not a lab: {words}",
            hint="name a lab: --lab NAME (without one a study makes its own), or make the change yourself and compare "
            f"a run before it with one after it: bathy compare. {ELSEWHERE}",
        )
    for action in _asking(plan):
        action.check()


def _asking(plan: Plan) -> dict[Action, list[str]]:
    """Return the actions that phases ask for, each with the names of these."""
    asking = {action: [phase.name for phase in plan.phases if action.asked(phase, ("osd.0",))] for action in ACTIONS}
    return {action: names for action, names in asking.items() if names}


def for_labs(plan: Plan) -> str:
    """Return what the phases ask for that is for labs, and why; "" for nothing."""
    actions = [f"{action.on_labs} ({', '.join(names)})" for action, names in _asking(plan).items() if action.on_labs]
    why = "are for labs, where bathy has started the OSDs itself and can start them again"
    return f"{' and '.join(actions)} {why}" if actions else ""


def _missing(action: Action, phase: Phase, made: Sequence[Change], osds: Sequence[str]) -> list[dict[str, Any]]:
    """Return what a phase asks for and has not been made."""
    names = {change.details["name"] for change in made if change.kind == action.kind}
    return [details for details in action.asked(phase, osds) if details["name"] not in names]


def _restarted(
    phase: Phase, left: Sequence[Change], made: Sequence[Change], osds: Sequence[str], target: Target
) -> Phase:
    """Return the phase, with a restart where options change on a lab: some are read at the start, whatever Ceph says.

    Caches that come on start the OSDs again anyway, and so do those that go, unless options are set after that. Only
    what has been read since then (`warm`) needs another start.
    """
    kinds = {change.kind for change in left}
    is_set = bool(_missing(_OPTIONS, phase, made, osds))
    starts = bool(_missing(_CACHES, phase, made, osds)) or (_CACHES.kind in kinds and not is_set)
    is_other = target.kind == "lab" and (is_set or _OPTIONS.kind in kinds)
    restart = (is_other and not starts) or (phase.restart and (phase.warm or not starts))
    return phase.model_copy(update={"restart": restart})


def planned(
    phases: Iterable[Phase], osds: Sequence[str], warm: Mapping[str, tuple[float, float]], target: Target
) -> list[PlannedChange]:
    """Return what is done before each of `phases`, which follow one another, and at the end; the same is one change.

    `warm`: phase → the seconds of its warming, expected and at most.
    """
    made: list[Change] = []
    counts: Counter[PlannedChange] = Counter()

    def add(phase: Phase, action: Action, words: Iterable[tuple[str, str]]) -> None:
        moment = f"before {phase.name}" if phase.name else "at the end"
        restart_s = RESTART_S[0], RESTART_S[1] + len(osds) * action.limit_s
        for done, undone_by in dict.fromkeys(words):
            seconds = warm[phase.name] if action is _WARMING else restart_s if action.restarts else (0.0, 0.0)
            # Whoever cleans up after a kill does not know which OSDs were under test.
            where = "all OSDs" if action is _RESTART and phase is _END else action.where
            counts[PlannedChange(where, f"{moment}: {done}", undone_by, 1, *seconds)] += 1

    for phase in (*phases, _END):
        left = [change for change in made if not _of(change).keeps(phase, change)]
        for action in _UNDONE:
            add(phase, action, ((action.words(c.details)[1], "") for c in left if c.kind == action.kind))
        made = [change for change in made if change not in left]
        entered = _restarted(phase, left, made, osds, target)
        for action in ACTIONS:
            missing = _missing(action, entered, made, osds)
            add(phase, action, map(action.words, missing))
            made += [Change(0, action.kind, details) for details in missing if action.words(details)[1]]
    return [dataclasses.replace(change, count=count) for change, count in counts.items()]


def enter(phase: Phase, stage: Stage) -> None:
    """Undo what the phase does not want, and do what it asks for. Raises BathyscopeError."""
    made = [change for change in stage.journal.pending() if change.kind in PHASE_KINDS]
    left = [change for change in made if not _of(change).keeps(phase, change)]
    due: list[Change] = []
    if stage.journal.target.kind == "lab" and any(change.kind == _OPTIONS.kind for change in left):
        # Until they start again below, OSDs may have read at their start what goes back now.
        due = stage.journal.will_change_all(_RESTART.kind, [{"name": osd} for osd in stage.osds])
    for words in dict.fromkeys(_of(change).words(change.details)[1] for change in left):
        stage.note(f"{phase.name}: {words}")
    failed = undo(stage, left, at_end=False)
    if failed:
        raise ToolError(f"the phase before {phase.name} cannot be undone: {next(iter(failed.values()))}")
    made = [change for change in stage.journal.pending() if change not in due]
    phase = _restarted(phase, left, made, stage.osds, stage.journal.target)
    for action in ACTIONS:
        missing = _missing(action, phase, made, stage.osds)
        for words, _ in dict.fromkeys(map(action.words, missing)):
            stage.note(f"{phase.name}: {words}")
        if missing:
            action.do(missing, stage)
    stage.journal.undone(*due)


@interruption.put_off()
def undo(stage: Stage, changes: Sequence[Change], *, at_end: bool = True) -> dict[int, str]:
    """Undo changes of PHASE_KINDS and write that down. Returns change number → why, for those that could not be undone.

    `at_end`: no phase follows, which starts the OSDs of a lab again when options go back. Raises UnreachableError.
    """
    restarts = at_end and _restarted(_END, changes, (), (), stage.journal.target).restart
    failed: dict[int, str] = {}
    for action in _UNDONE:
        of_action = [change for change in changes if change.kind == action.kind]
        try:
            if of_action:
                action.undo(of_action, stage)
                if action is _OPTIONS and restarts:
                    caches.restart_osds(stage.lab, stage.host)
        except UnreachableError:
            raise
        except BathyscopeError as error:
            failed |= dict.fromkeys((change.number for change in of_action), error.message)
        else:
            stage.journal.undone(*of_action)
    return failed


def describe(change: Change) -> str:
    """Return a change of PHASE_KINDS in words."""
    return _of(change).describe(change)


def _of(change: Change) -> Action:
    return next(action for action in _UNDONE if action.kind == change.kind)
