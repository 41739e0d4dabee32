"""The scope is read in rounds, stays as it was on a failure, and keeps what was set from outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.recording.world import TARGET, Map, Readings, World, keeper_of, scope_of

from bathyscope.errors import ClusterError, ParseError, UnreachableError
from bathyscope.host.fake import FakeCephSession, FakeHost
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.records import RawAnswer
from bathyscope.sources import cluster_map, mgr_counters
from bathyscope.spec.scope import Scope
from bathyscope.spec.target import DaemonTarget


def test_the_map_is_read_in_rounds() -> None:
    world = World()
    host = world.host()
    keeper = keeper_of(host)
    # The second round asks the OSD that the first one has found.
    assert [request.label for request in host.ceph.requests] == ["map", "schema-osd.0"]
    assert [osd.osd for osd in keeper.scope.osds] == [0, 1, 2]
    assert keeper.scope.counter_kinds == {"osd": {"op": "counter"}}
    assert keeper.scope.processes == (("bathy", os.getpid()),)
    assert [answer.label for answer in keeper.answers["map"]] == ["map", "schema-osd.0"]
    before = keeper.scope
    assert len(keeper.look()) == 1
    assert keeper.scope is before


def test_osds_that_are_down_are_not_asked() -> None:
    world = World(down=lambda osd, at_s: osd == 1 and at_s < 10)
    host = world.host()
    keeper = keeper_of(host)
    assert (keeper.scope.asked_osds, keeper.incomplete) == ((0, 2), True)
    host.sleep(10)
    keeper.refresh()
    assert (keeper.scope.asked_osds, keeper.incomplete) == ((0, 1, 2), False)


def test_what_was_narrowed_stays() -> None:
    host = World().host()
    keeper = keeper_of(host, asked_osds=(2, 7))
    assert keeper.scope.asked_osds == (2, 7)
    keeper.narrow(asked_osds=(1,), own_pools=("mine",), images=(("p", "i"),))
    keeper.watch("client", 77)
    keeper.refresh()
    scope = keeper.scope
    assert (scope.asked_osds, scope.images, scope.own_pools) == ((1,), (("p", "i"),), ("mine",))
    assert scope.processes[1:] == (("client", 77),)
    with pytest.raises(KeyError, match="nothing"):
        keeper.narrow(nothing=1)


def test_a_failure_leaves_the_scope_as_it_was() -> None:
    world = World()
    host = world.host()
    keeper = keeper_of(host)
    before = keeper.scope
    world.lost = lambda at_s: True
    with pytest.raises(UnreachableError):
        keeper.refresh()
    (failed,) = keeper.look()
    assert (failed.cost.source, failed.cost.success) == ("map", False)
    world.lost = lambda at_s: False
    # The manager fails over: it answers, and its map is empty.
    world.osds = ()
    with pytest.raises(ClusterError, match="map of OSDs"):
        keeper.refresh()
    host.ceph.answers["osd df"] = -11
    with pytest.raises(ParseError, match="no map"):
        keeper.refresh()
    assert keeper.scope is before


def test_an_osd_that_does_not_answer_the_second_round_does_not_matter() -> None:
    host = World().host()
    host.ceph.answers["status"] = UnreachableError("no answer")
    assert keeper_of(host).scope.asked_osds == (0, 1, 2)


def test_the_target_is_found_again() -> None:
    pids = iter((10, 10, 20))

    def now() -> Any:
        daemon = DaemonTarget(name="osd.0", pid=next(pids), start_ticks=1)
        return TARGET.model_copy(update={"daemons": (daemon,)})

    keeper = keeper_of(World().host(), target_now=now)
    assert keeper.scope.target.daemons[0].pid == 10
    before = keeper.scope
    keeper.refresh()
    assert keeper.scope is before
    keeper.refresh()
    assert keeper.scope.target.daemons[0].pid == 20


def test_this_machine_is_only_asked_again_by_a_refresh() -> None:
    host = World().host()
    sources = [Map(), Readings()]
    keeper = ScopeKeeper(host, host.ceph, TARGET, sources=sources, scope_of=scope_of)
    assert [collected.cost.source for collected in keeper.look()] == ["map", "readings", "map"]
    first = keeper.answers["readings"]
    host.sleep(1)
    assert [collected.cost.source for collected in keeper.look()] == ["map"]
    assert keeper.answers["readings"] == first
    keeper.refresh()
    assert keeper.answers["readings"] != first


def test_a_target_that_is_gone_is_a_failure() -> None:
    def gone() -> Any:
        raise ClusterError("the lab is not up")

    keeper = ScopeKeeper(
        FakeHost(), None, TARGET, sources=[Map()], scope_of=lambda *_: Scope(target=TARGET), target_now=gone
    )
    (failed,) = keeper.look()
    assert (failed.cost.request_count, failed.cost.problem) == (0, "the lab is not up")
    with pytest.raises(ClusterError):
        keeper.refresh()


def test_an_osd_is_asked_for_its_settings_once_per_start(recorded: Callable[[str], list[RawAnswer]]) -> None:
    session = FakeCephSession()
    prefixes = {
        request.label: dict(request.command)["prefix"] for request in cluster_map.SOURCE.plan(Scope(target=TARGET))
    }
    for answer in recorded("environment/20.2.4/answers"):
        if answer.label in prefixes:
            session.answers[prefixes[answer.label]] = answer.json()
    memory = {"osd_memory_target": "4294967296", "bluestore_cache_autotune": "true", "bluestore_cache_size": "0"}
    session.answers["config get"] = lambda request: {dict(request.command)["var"]: memory[dict(request.command)["var"]]}
    keeper = ScopeKeeper(FakeHost(), session, TARGET, sources=[cluster_map.SOURCE])

    def asked() -> list[str]:
        """Return the OSDs that a look asked for their cache."""
        session.requests.clear()
        assert keeper.look()[0].error is None
        assert {osd.cache_bytes for osd in keeper.scope.osds} == {4 << 30}
        return [request.daemon for request in session.requests if request.label.startswith("osd_memory_target-")]

    assert asked() == ["osd.0", "osd.1", "osd.2"]
    assert asked() == []
    session.answers["osd dump"]["osds"][1]["up_from"] += 9
    assert asked() == ["osd.1"]
    # One that did not answer is asked again.
    good = session.answers.pop("config get")
    session.answers["osd dump"]["osds"][2]["up_from"] += 9
    keeper.look()
    assert [osd.cache_bytes for osd in keeper.scope.osds] == [4 << 30, 4 << 30, None]
    session.answers["config get"] = good
    assert asked() == ["osd.2"]
    session.answers["config dump"].append({"section": "osd", "name": "osd_memory_target", "value": "4294967296"})
    assert asked() == ["osd.0", "osd.1", "osd.2"]
    # What is to be known of a run before and after it is asked for anew.
    session.requests.clear()
    keeper.refresh()
    assert len([request for request in session.requests if dict(request.command)["prefix"] == "config get"]) == 9


def test_the_manager_s_module_is_asked_which_version_it_has_as_soon_as_it_is_enabled() -> None:
    node = {"id": 0, "name": "osd.0", "type": "osd"}
    modules: dict[str, Any] = {"enabled_modules": []}
    answers: dict[str | tuple[str, str], Any] = {
        "osd dump": {"fsid": "f", "pools": [], "osds": [{"osd": 0, "up": 1, "up_from": 1}]},
        "osd df": {"nodes": [{"id": -1, "name": "a", "type": "host", "children": [0]}, node]},
        "mgr module ls": lambda _: modules,
        "bathyscope status": {"version": 2},
    }
    session = FakeCephSession(answers)
    keeper = ScopeKeeper(FakeHost(), session, TARGET, asked_osds=(), sources=[cluster_map.SOURCE])

    def version() -> int | None:
        keeper.look()
        return keeper.scope.mgr_module_version

    assert version() is None
    assert all(dict(request.command)["prefix"] != "bathyscope status" for request in session.requests)
    modules["enabled_modules"] = ["bathyscope"]
    assert version() == 2
    assert not mgr_counters.may_count(keeper.scope)
    # Once that is known, a manager that does not answer makes nobody forget it.
    answers["bathyscope status"] = -110
    assert version() == 2
    # `bathy mgr install` has replaced it.
    answers["bathyscope status"] = {"version": 3}
    assert version() == 3
    assert mgr_counters.may_count(keeper.scope)
    # It was removed, and another one was installed.
    modules["enabled_modules"] = []
    keeper.look()
    assert not mgr_counters.may_count(keeper.scope)
    modules["enabled_modules"], answers["bathyscope status"] = ["bathyscope"], {"version": 1}
    assert version() == 1
    # One that says no version of its own is none of ours.
    answers["bathyscope status"] = {"else": 1}
    assert version() == 0
