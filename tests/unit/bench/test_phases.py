"""Phases of a plan: what is done before each, what stays for the next, and that all of it goes back."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from tests.unit.bench.conftest import FakeCluster
from tests.unit.signals import ended_by_a_signal

from bathyscope import interruption
from bathyscope.bench import cleanup, phases
from bathyscope.cache.daemon import START_LIMIT_S
from bathyscope.errors import BusyError, ClusterError, LabError, PlanError, UsageError
from bathyscope.host import CephSession
from bathyscope.host.fake import FakeHost
from bathyscope.host.local import LocalHost
from bathyscope.layers import traits
from bathyscope.recording.journal import Journal
from bathyscope.spec import Target
from bathyscope.spec.plan import Phase, Plan, expand

OPTION = "bluestore_default_buffered_read"
OFF = {OPTION: "false"}
OTHER_RUN = "20260102-000000-abcdef"
OSDS = ("osd.0", "osd.1")
GIB = 1 << 30


@pytest.fixture
def lab_log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
    """What was done to OSDs of a lab, in order; "broken" among them makes the next restart fail."""
    log: list[tuple[str, tuple[str, ...]]] = []

    def doing(what: str) -> Any:
        def do(_state: Any, _host: Any, *given: Any, **more: Any) -> None:
            osds: Sequence[str] = more.get("osds") or (given[-1] if given else ())
            log.append((what, tuple(osds)))
            if ("broken", ()) in log and what == "restart":
                raise LabError("they do not start")

        return do

    monkeypatch.setattr("bathyscope.lab.load", lambda _: None)
    for what, name in (("on", "put_on"), ("off", "take_off"), ("restart", "restart_osds")):
        monkeypatch.setattr(f"bathyscope.lab.caches.{name}", doing(what))
    return log


@pytest.fixture
def stage(fake_host: FakeHost, fake_session: CephSession, journal: Journal, lab_log: Any) -> phases.Stage:
    def warm() -> None:
        lab_log.append(("warm", ()))

    return phases.Stage(fake_host, fake_session, journal, lambda _: None, OSDS, warm)


def left(journal: Journal) -> list[str]:
    return [phases.describe(change) for change in Journal.load(journal.path).pending()]


def test_what_the_next_phase_wants_stays_and_the_rest_goes_back(
    stage: phases.Stage, fake_cluster: FakeCluster, journal: Journal, lab_log: list[Any]
) -> None:
    before = fake_cluster.state()
    phases.enter(Phase(name="none", osd_options=OFF, restart=True), stage)
    assert fake_cluster.osd_config == OFF
    assert lab_log == [("restart", OSDS)]
    assert left(journal) == [f"{OPTION} of the OSDs"]
    phases.enter(Phase(name="first", osd_options=OFF, cache=GIB, empty=True), stage)
    assert lab_log[1:] == [("on", OSDS)]
    # Both the option and the caches are there already.
    phases.enter(Phase(name="again", osd_options=OFF, cache=GIB, warm=True, restart=True), stage)
    assert lab_log[2:] == [("warm", ()), ("restart", OSDS)]
    # Empty caches, and a cache of another size, are put on anew.
    phases.enter(Phase(name="fresh", osd_options=OFF, cache=GIB, empty=True), stage)
    phases.enter(Phase(name="large", cache=2 * GIB, empty=True), stage)
    assert lab_log[4:] == [("off", OSDS), ("on", OSDS)] * 2
    assert fake_cluster.osd_config == {}
    assert left(journal) == ["the cache of osd.0", "the cache of osd.1"]
    assert cleanup.undo_all(stage.host, stage.session, journal, kinds=cleanup.SWITCHED_KINDS) == []
    assert lab_log[8:] == [("off", OSDS)]
    assert left(journal) == []
    assert fake_cluster.state() == before


@pytest.mark.parametrize("kind", ["lab", "cluster"])
def test_what_is_planned_is_what_is_done(
    kind: Literal["lab", "cluster"],
    stage: phases.Stage,
    fake_cluster: FakeCluster,
    journal: Journal,
    lab_log: list[Any],
) -> None:
    """The dry run has each thing as often as a run does it, whatever stays from one phase to the next."""
    journal.target = target = Target(name="x", kind=kind)
    none = Phase(name="none", osd_options=OFF, restart=True)
    first = Phase(name="first", osd_options=OFF, cache=GIB, empty=True)
    again = Phase(name="again", osd_options={OPTION: "yes"}, cache=GIB, warm=True, restart=True)
    other = Phase(name="other", osd_options={OPTION: "no"})
    order = [none, first, again, again, other, first, none, other]
    notes: list[str] = []
    for phase in order:
        phases.enter(phase, dataclasses.replace(stage, note=notes.append))
    assert cleanup.undo_all(stage.host, stage.session, journal) == []
    planned = phases.planned(order, OSDS, {"again": (3.0, 60.0)}, target)
    # A run says what it does in the words of the dry run.
    said = Counter({change.change.removeprefix("before "): change.count for change in planned})
    assert Counter(notes) == Counter({text: count for text, count in said.items() if "at the end" not in text})
    words = {"starts again": "on", "all start": "restart", "loses its cache": "off", "read once in full": "warm"}
    restarts = [change for change in planned if change.where != "mon"]
    told = Counter(dict.fromkeys(words.values(), 0))
    for change in restarts:
        told[next(name for text, name in reversed(words.items()) if text in change.change)] += change.count
    assert told == Counter(what for what, _ in lab_log)
    seconds = {(change.expected_s, change.worst_s) for change in restarts}
    restart_s, worst_s = phases.RESTART_S
    # The daemons of caches may take their time, one after the other.
    assert seconds == {phases.RESTART_S, (restart_s, worst_s + 2 * START_LIMIT_S), (3.0, 60.0)}
    # The clean-up does not know which OSDs were under test, and starts all of a lab.
    of_all = {change.change for change in planned if change.where == "all OSDs"}
    assert of_all == ({"at the end: all start again"} if ("restart", ()) in lab_log else set())
    switched = [(change.change, change.count) for change in planned if change.where == "mon"]
    off, on, no = (f"config set who=osd name={OPTION} value={value}" for value in ("false", "yes", "no"))
    back = f"config rm who=osd name={OPTION}, or config set to what it was"
    assert switched == [
        (f"before none: {off}", 1), (f"before again: {back}", 1), (f"before again: {on}", 1),
        (f"before other: {back}", 2), (f"before other: {no}", 2), (f"before first: {back}", 1),
        (f"before first: {off}", 1), (f"at the end: {back}", 1),
    ]  # fmt: skip


def test_osds_of_a_lab_start_again_when_options_change(
    stage: phases.Stage, fake_cluster: FakeCluster, journal: Journal, lab_log: list[Any]
) -> None:
    """Some options count from the start alone, whatever Ceph says: they must hold in their phase, and in no other."""
    journal.target = Target(name="x", kind="lab")
    started: list[dict[str, str]] = []
    for phase in (Phase(name="set", osd_options=OFF), Phase(name="same", osd_options=OFF), Phase(name="none")):
        phases.enter(phase, stage)
        if len(lab_log) > len(started):
            started.append(dict(fake_cluster.osd_config))
    assert (lab_log, started) == ([("restart", OSDS)] * 2, [OFF, {}])
    phases.enter(Phase(name="set", osd_options=OFF), stage)
    lab_log.append(("broken", ()))
    assert cleanup.undo_all(stage.host, stage.session, journal) == [f"{OPTION} of the OSDs: they do not start"]
    # Until they have started again it is not over.
    assert left(journal) == [f"{OPTION} of the OSDs"]
    lab_log.clear()
    assert cleanup.undo_all(stage.host, stage.session, journal) == []
    assert (lab_log, left(journal)) == ([("restart", ())], [])


def test_osds_start_once_where_caches_and_options_change_together(
    stage: phases.Stage, fake_cluster: FakeCluster, journal: Journal, lab_log: list[Any]
) -> None:
    """What starts them must come after the options; only what has been read since then needs another start."""
    journal.target = Target(name="x", kind="lab")
    cached = Phase(name="cached", osd_options=OFF, cache=GIB, empty=True, restart=True)
    phases.enter(cached, stage)
    phases.enter(Phase(name="none", restart=True), stage)
    assert (lab_log, fake_cluster.osd_config) == ([("on", OSDS), ("off", OSDS)], {})
    phases.enter(cached, stage)
    lab_log.clear()
    # Other options are set after the caches have gone.
    phases.enter(Phase(name="other", osd_options={OPTION: "yes"}), stage)
    assert lab_log == [("off", OSDS), ("restart", OSDS)]
    lab_log.clear()
    phases.enter(Phase(name="warm", osd_options=OFF, cache=GIB, warm=True, restart=True), stage)
    assert lab_log == [("on", OSDS), ("warm", ()), ("restart", OSDS)]
    lab_log.clear()
    assert cleanup.undo_all(stage.host, stage.session, journal) == []
    assert (lab_log, fake_cluster.osd_config) == ([("off", OSDS)], {})


def test_an_option_goes_back_to_what_it_was(stage: phases.Stage, fake_cluster: FakeCluster, journal: Journal) -> None:
    fake_cluster.osd_config[OPTION] = "true"
    phases.enter(Phase(name="off", osd_options=OFF), stage)
    phases.enter(Phase(name="on", osd_options={OPTION: "yes"}), stage)
    assert fake_cluster.osd_config == {OPTION: "yes"}
    assert cleanup.undo_all(stage.host, stage.session, journal) == []
    assert fake_cluster.osd_config == {OPTION: "true"}


def test_an_option_that_an_osd_has_of_its_own_is_refused_before_it_is_set(
    stage: phases.Stage, fake_cluster: FakeCluster, journal: Journal
) -> None:
    fake_cluster.other_config.append({"section": "osd.1", "mask": "", "name": OPTION, "value": "true"})
    with pytest.raises(ClusterError, match=r"is set for osd\.1 alone"):
        phases.enter(Phase(name="off", osd_options=OFF), stage)
    assert fake_cluster.osd_config == {}
    assert left(journal) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [({"osd_op_num_shards": "1"}, "osd_op_num_shards cannot be changed while an OSD runs"),
     ({"osd_max_backfils": "1"}, "no option osd_max_backfils")],
)  # fmt: skip
def test_only_options_that_can_be_changed_at_run_time_are_taken(
    stage: phases.Stage, fake_cluster: FakeCluster, options: dict[str, str], message: str
) -> None:
    fake_cluster.runtime = {OPTION: True, "osd_op_num_shards": False}
    target, notes = Target(name="c"), list[str]()
    phases.check_options(stage.session, [Phase(name="off", osd_options=OFF)], target, notes.append)
    assert [note.partition(":")[0] for note in notes] == [f"{OPTION} is set while the OSDs run"]
    both = [Phase(name="off", osd_options=OFF), Phase(name="x", osd_options=options)]
    with pytest.raises(UsageError, match=message):
        phases.check_options(stage.session, both, target)


def test_an_option_that_another_run_has_set_is_refused(
    stage: phases.Stage, fake_cluster: FakeCluster, journal: Journal, fake_host: FakeHost
) -> None:
    other = Journal.create(journal.path.parent, OTHER_RUN, "/ws/runs/y", journal.target, fake_host, fsid="f-s-i-d")
    change = other.will_change("osd_config", name=OPTION, value="true", before=None)
    # Before anything is made, and again when it is set.
    with pytest.raises(BusyError, match=f"run {OTHER_RUN} has changed {OPTION} of the OSDs"):
        phases.rehearsals(stage.session, journal, [Phase(name="off", osd_options=OFF)], OSDS)
    with pytest.raises(BusyError, match=f"run {OTHER_RUN} has changed {OPTION} of the OSDs"):
        phases.enter(Phase(name="off", osd_options=OFF), stage)
    assert fake_cluster.osd_config == {}
    assert left(journal) == []
    other.undone(change)
    phases.enter(Phase(name="off", osd_options=OFF), stage)
    assert fake_cluster.osd_config == OFF


def test_caches_of_another_run_are_left_alone(
    stage: phases.Stage, journal: Journal, fake_host: FakeHost, lab_log: list[Any]
) -> None:
    """What is in the journal is undone, so a cache that is another run's must not come into it."""
    other = Journal.create(journal.path.parent, OTHER_RUN, "/ws/runs/y", journal.target, fake_host, fsid="f-s-i-d")
    other.will_change("osd_cache", name="osd.1", size_bytes=GIB)
    cached = Phase(name="cached", cache=GIB, empty=True)
    with pytest.raises(BusyError, match=rf"run {OTHER_RUN} has changed the cache of osd\.1"):
        phases.rehearsals(stage.session, journal, [cached], OSDS)
    with pytest.raises(BusyError, match=rf"run {OTHER_RUN} has changed the cache of osd\.1"):
        phases.enter(cached, stage)
    assert (lab_log, left(journal)) == ([], [])


class _KilledError(BaseException):
    """Nothing that is done after it is done."""


def test_after_a_kill_anywhere_all_is_as_it_was(
    stage: phases.Stage, fake_cluster: FakeCluster, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two effects, for options that OSDs read at their start, and that the monitors write in their form."""
    journal.target = Target(name="x", kind="lab")
    large = {"osd_memory_target": "4G"}
    order = [
        Phase(name="set", osd_options=large),
        Phase(name="none"),
        Phase(name="again", osd_options={**large, **OFF}),
        Phase(name="cached", osd_options=OFF, cache=GIB, empty=True),
        Phase(name="plain"),
    ]
    before, begin = fake_cluster.state(), journal.path.read_bytes()
    started: dict[str, str] = {}
    effects_left = 0

    def counted(effect: Any) -> Any:
        def do(*given: Any) -> Any:
            nonlocal effects_left
            effects_left -= 1
            if effects_left < 0:
                raise _KilledError
            return effect(*given)

        return do

    def start(*_: Any, **__: Any) -> None:
        nonlocal started
        started = dict(fake_cluster.osd_config)

    for name in ("put_on", "take_off", "restart_osds"):
        monkeypatch.setattr(f"bathyscope.lab.caches.{name}", lambda *_, **__: counted(start)())
    monkeypatch.setattr(Journal, "_write", counted(Journal._write))
    monkeypatch.setattr(fake_cluster, "answer", counted(fake_cluster.answer))
    for effects in range(1000):
        journal.path.write_bytes(begin)
        loaded = Journal.load(journal.path)
        loaded.target, effects_left, is_killed = journal.target, effects, False
        try:
            for phase in order:
                phases.enter(phase, dataclasses.replace(stage, journal=loaded))
            cleanup.undo_all(stage.host, stage.session, loaded)
        except _KilledError:
            is_killed = True
        effects_left = 1000
        again = Journal.load(journal.path)
        again.target = journal.target
        assert cleanup.undo_all(stage.host, stage.session, again) == []
        assert (fake_cluster.state(), started, left(again), effects) == (before, {}, [], effects)
        if not is_killed:
            break
    assert effects > 30


def test_an_option_that_somebody_else_has_changed_meanwhile_stays(
    stage: phases.Stage, fake_cluster: FakeCluster, journal: Journal
) -> None:
    notes: list[str] = []
    phases.enter(Phase(name="set", osd_options={**OFF, "osd_memory_target": "4G"}), stage)
    fake_cluster.osd_config[OPTION] = "true"
    # OSDs with a value of their own keep nothing from being undone.
    fake_cluster.other_config += [
        {"section": "osd.1", "mask": "", "name": OPTION, "value": "true"},
        {"section": "osd", "mask": "class:hdd", "name": "osd_memory_target", "value": "5"},
    ]
    assert cleanup.undo_all(stage.host, stage.session, Journal.load(journal.path), note=notes.append) == []
    # The other option goes back, although the monitors wrote it in another form.
    assert fake_cluster.osd_config == {OPTION: "true"}
    assert any(f"{OPTION} of the OSDs is true now, not false as this run has set it" in note for note in notes)
    assert left(journal) == []


def test_a_signal_does_not_cut_a_clean_up_short(
    stage: phases.Stage, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def slow(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        LocalHost().sleep(0.01)
        done.append("off")

    monkeypatch.setattr("bathyscope.lab.caches.take_off", slow)
    journal.will_change("osd_cache", name="osd.0", size_bytes=GIB)
    with ended_by_a_signal(), interruption.held():
        assert cleanup.undo_all(stage.host, stage.session, journal) == []
        done.append("all of it")
        interruption.check()
        done.append("no more")
    assert done == ["off", "all of it"]
    assert left(journal) == []


def test_what_a_kill_has_left_between_stop_and_start_is_started(
    stage: phases.Stage, journal: Journal, lab_log: list[Any]
) -> None:
    journal.will_change_all("osd_down", [{"name": osd} for osd in OSDS])
    journal.will_change_all("osd_cache", [{"name": osd, "size_bytes": GIB} for osd in OSDS])
    assert cleanup.undo_all(stage.host, stage.session, journal) == []
    assert lab_log == [("restart", OSDS), ("off", OSDS)]


def test_osds_that_do_not_start_with_an_option_start_when_it_has_gone_back(
    stage: phases.Stage, fake_cluster: FakeCluster, journal: Journal, lab_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any) -> None:
        if fake_cluster.osd_config:
            raise LabError("osd.0 ended at its start")

    journal.target = Target(name="x", kind="lab")
    monkeypatch.setattr("bathyscope.lab.caches.restart_osds", start)
    with pytest.raises(LabError, match="ended at its start"):
        phases.enter(Phase(name="off", osd_options=OFF), stage)
    assert cleanup.undo_all(stage.host, stage.session, journal) == []
    assert (fake_cluster.osd_config, left(journal)) == ({}, [])


def test_one_thing_that_cannot_be_undone_keeps_no_other(
    stage: phases.Stage, fake_cluster: FakeCluster, journal: Journal, lab_log: list[Any]
) -> None:
    phases.enter(Phase(name="off", osd_options=OFF), stage)
    journal.will_change("osd_down", name="osd.0")
    lab_log.append(("broken", ()))
    assert cleanup.undo_all(stage.host, stage.session, journal) == ["osd.0: they do not start"]
    assert fake_cluster.osd_config == {}
    assert left(journal) == ["osd.0"]


def test_what_is_rehearsed_changes_nothing(stage: phases.Stage, fake_cluster: FakeCluster) -> None:
    fake_cluster.osd_config["osd_max_backfills"] = "3"
    wanted = [Phase(name="a", osd_options={**OFF, "osd_max_backfills": "1"}), Phase(name="b", osd_options=OFF)]
    requests = phases.rehearsals(stage.session, stage.journal, wanted, OSDS)
    assert len(requests) == 2
    stage.session.commands(requests)
    assert fake_cluster.osd_config == {"osd_max_backfills": "3"}
    assert phases.caps(wanted)[:2] == [
        f'allow command "config set" with who=osd name={OPTION}',
        f'allow command "config rm" with who=osd name={OPTION}',
    ]


def plan_of(**changes: Any) -> Plan:
    return Plan.model_validate({"name": "t", "layers": ["rbd"], "patterns": ["randread-4K-qd1"], **changes})


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"cache": GIB, "empty": True}, "caches over OSDs"), ({"restart": True}, "restarts of OSDs")],
)
def test_what_is_for_labs_is_refused_elsewhere(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=rf"c is not a lab: {what} \(x, y\) are for labs, where bathy") as refused:
        phases.check(plan_of(phases=[{"name": name, **changes} for name in ("x", "y")]), Target(name="c"))
    assert "bathy compare. On a cluster of yours phases can set options" in (refused.value.hint or "")
    phases.check(plan_of(phases=[{"name": "x", "osd_options": OFF}]), Target(name="c"))


def test_phases_are_refused_where_a_layer_needs_no_cluster() -> None:
    plan = plan_of(layers=["disk", "rbd"], phases=[{"name": "x"}])
    with pytest.raises(UsageError, match="which the layer disk does not use"):
        phases.check(plan, Target(name="c"))
    phases.check(plan.model_copy(update={"phases": ()}), Target(name="c"))


def test_a_phase_whose_name_makes_two_keys_the_same_is_named() -> None:
    names = [{"name": "a"}, {"name": "cold-a"}]
    plan = plan_of(layers=["rados"], axes={"temperature": ["any", "cold"]}, phases=names)
    with pytest.raises(PlanError, match="'cold-a' has the same key as another one: rados/hdd/randread-4K-qd1-cold-a"):
        expand(plan, ("hdd",), traits())


def test_phases_are_blocks_of_each_round_in_an_order_that_the_seed_gives() -> None:
    names = ("a", "b", "c")
    given = {"name": "t", "layers": ["rbd"], "patterns": ["randread-4K-qd1", "write-4K-qd1"], "repeats": 4}
    given |= {"phases": [{"name": name} for name in names]}
    plan = Plan.model_validate(given)
    steps = expand(plan, ("hdd",), traits())
    assert [step.phase for step in steps[:6]] == ["a", "a", "b", "b", "c", "c"]
    assert steps[2].key == "rbd/hdd/randread-4K-qd1-b"
    shuffled = Plan.model_validate({**given, "order": "shuffled", "seed": 3})
    drawn = expand(shuffled, ("hdd",), traits())
    assert drawn == expand(shuffled, ("hdd",), traits())
    assert sorted((s.key, s.repeat_index) for s in drawn) == sorted((s.key, s.repeat_index) for s in steps)
    rounds = [[s.phase for s in drawn if s.repeat_index == number] for number in range(4)]
    # Each phase is entered once in a round.
    assert all(phase == after for one in rounds for phase, after in zip(one[::2], one[1::2], strict=True))
    assert len({tuple(one) for one in rounds}) > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"phases": [{"name": "a"}, {"name": "a"}]}, "two phases"), ({"apart": True}, "'apart' needs"),
     ({"phases": [{"name": "a", "cache": "1G"}]}, "'cache' needs 'empty' or 'warm'"),
     ({"phases": [{"name": "a", "empty": True}]}, "'empty' needs 'cache'"),
     ({"precision": 0.1, "repeats": 3}, r"'precision' needs at least 4 repeats \(got 3\)"),
     ({"phases": [{"name": "A b"}]}, "pattern"), ({"phases": [{"name": "a", "osd_options": {"x y": "1"}}]}, "pattern")],
)  # fmt: skip
def test_phases_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan.model_validate({"name": "t", "patterns": ["read-4K-qd1"], **changes})
