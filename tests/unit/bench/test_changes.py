"""What a run makes and switches on a cluster, and that all of it goes back, whatever comes between."""

from __future__ import annotations

import dataclasses
import errno
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bathyscope.bench import cleanup
from bathyscope.bench.resources import Resources, default_replicas, make_context, prefix_of
from bathyscope.bench.settings import HISTORY_DURATION_S, Settings
from bathyscope.errors import BusyError, ClusterError, DeniedError, UnhealthyError, UnreachableError
from bathyscope.host import CephRequest
from bathyscope.host.fake import FakeAnswer, FakeHost
from bathyscope.layers.needs import ImageNeed, Need, PoolNeed
from bathyscope.recording.journal import Change, Journal
from bathyscope.records import ClusterStatus
from bathyscope.spec import Target
from bathyscope.spec.plan import Quiesce
from bathyscope.spec.scope import Scope, ScopeOsd

TARGET = Target(name="c", conf="/etc/ceph/ceph.conf")
POOL = PoolNeed(name="bathy-abcdef-rbd-ssd", device_class="ssd")


def scope(session: Any, count: int = 3, hosts: int = 1, device_class: str = "ssd") -> Scope:
    osds = [ScopeOsd(osd=i, host=f"node{i % hosts}", device_class=device_class) for i in range(count)]
    pools = {pool["poolname"]: pool["poolnum"] for pool in session.json("mon", "osd lspools")}
    return Scope(target=TARGET, osds=tuple(osds), pools=pools)


def make(host: Any, session: Any, journal: Journal, *needs: Need, **cluster: Any) -> None:
    clean = ClusterStatus(1, "HEALTH_OK", 0, 64, 64, 0, 0, None, None)
    Resources(host, session, journal).make(needs or [POOL], scope(session, **cluster), status=lambda: clean)


# --- pools


def test_a_pool_is_journaled_before_it_exists_and_is_tagged(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    make(fake_host, fake_session, journal, hosts=3)
    assert fake_cluster.pools[POOL.name] | {"pg_autoscale_mode": "off"} == {
        "rule": f"{POOL.name}-rule", "size": "3", "app": "bathyscope", "pg_autoscale_mode": "off",
    }  # fmt: skip
    assert fake_cluster.rules == {f"{POOL.name}-rule": {"root": "default", "type": "host"}}
    assert [(c.kind, c.details["name"]) for c in Journal.load(journal.path).pending()] == [
        ("crush_rule", f"{POOL.name}-rule"), ("pool", POOL.name),
    ]  # fmt: skip


def test_a_kill_between_any_two_commands_is_made_good_by_the_next_start(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    make(fake_host, fake_session, journal)
    fake_cluster.pools[POOL.name] |= {"app": "", "size": "9"}
    make(fake_host, fake_session, journal)
    assert fake_cluster.pools[POOL.name]["app"] == "bathyscope"
    assert fake_cluster.pools[POOL.name]["size"] == "3"
    assert len(journal.pending()) == 2


def test_a_pool_that_is_not_there_any_more_takes_the_memory_of_its_content_with_it(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    make(fake_host, fake_session, journal)
    image = ImageNeed(POOL.name, "image", 1 << 20, 1 << 20)
    journal.remember(f"prefilled {image.key}", value=True)
    journal.remember("prefilled other", value=True)
    make(fake_host, fake_session, journal)
    assert journal.recall(f"prefilled {image.key}") is True
    del fake_cluster.pools[POOL.name]
    make(fake_host, fake_session, journal)
    assert Journal.load(journal.path).recall(f"prefilled {image.key}") is None
    assert journal.recall("prefilled other") is True


def test_too_few_osds_for_the_replicas_is_told_before_anything_is_made(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    with pytest.raises(ClusterError, match="needs 3 OSDs of class 'ssd', there are 2") as error:
        make(fake_host, fake_session, journal, count=2)
    assert "replicas" in (error.value.hint or "")
    with pytest.raises(ClusterError, match="no OSD of the device class"):
        make(fake_host, fake_session, journal, device_class="hdd")
    assert fake_cluster.rules == {}
    assert journal.pending() == []


def test_the_replicas_of_a_plan_that_names_none_are_the_monitors(fake_cluster: Any, fake_session: Any) -> None:
    fake_cluster.default_size = 2
    assert default_replicas(fake_session) == 2
    fake_cluster.down = {"mon.a"}
    assert default_replicas(fake_session) == 2


def test_a_pool_is_used_when_its_placement_groups_are_clean(
    fake_cluster: Any, fake_session: Any, journal: Journal
) -> None:
    image = ImageNeed(POOL.name, "image", 1 << 20, 1 << 20)
    host = FakeHost({"rbd": FakeAnswer()})
    # The manager knows no group of the new pool yet, then some of them, then all.
    looks = [ClusterStatus(1, "HEALTH_OK", 0, *counts, 0, "8 PGs peering", None) for counts in
             ((0, 0, 0), (8, 0, 0), (16, 16, 0), (32, 32, 0))]  # fmt: skip
    asked: list[int] = []

    def status() -> ClusterStatus:
        assert host.requests == []
        asked.append(len(asked))
        return looks[len(asked) - 1]

    fake_cluster.pg_num = 32
    said: list[str] = []
    Resources(host, fake_session, journal).make([image, POOL], scope(fake_session), status=status, note=said.append)
    assert len(asked) == 4
    assert said == ["waiting until all placement groups are active and clean"]
    assert len(host.requests) == 2
    with pytest.raises(UnhealthyError, match="8 PGs peering"):
        Resources(host, fake_session, journal).make([POOL], scope(fake_session), status=lambda: looks[1])


def test_an_image_that_exists_is_no_failure_and_another_failure_is(fake_session: Any, journal: Journal) -> None:
    image = ImageNeed(POOL.name, "image", 1 << 20, 1 << 20)
    broken = FakeAnswer(stderr=b"x\nrbd: error opening pool\n", exit_code=2)
    with pytest.raises(Exception, match="error opening pool"):
        make(FakeHost({"rbd": broken}), fake_session, journal, image)
    exists = FakeAnswer(stderr=b"rbd: create error: (17) File exists\n", exit_code=17)
    host = FakeHost({"rbd": lambda request: exists if "create" in request.argv else FakeAnswer()})
    make(host, fake_session, journal, image)
    assert [request.label for request in host.requests] == ["create-image", "cache-image"]
    # A resumed run does not make it again, unless its pool was lost.
    make(host, fake_session, Journal.load(journal.path), image)
    assert len(host.requests) == 2
    make(host, fake_session, Journal.load(journal.path), POOL, image)
    assert len(host.requests) == 4


def test_what_will_be_changed_is_known_before_it_is(fake_host: Any, fake_session: Any, journal: Journal) -> None:
    context = make_context(fake_session, scope(fake_session))
    assert context.roots == {"default": frozenset({0, 1, 2}), "empty": frozenset()}
    requests = [action.request for action in POOL.make(context)]
    assert [dict(request.command)["prefix"] for request in requests if isinstance(request, CephRequest)] == [
        "osd crush rule create-replicated", "osd pool create", "osd pool set", "osd pool set",
        "osd pool application enable",
    ]  # fmt: skip
    assert journal.pending() == []


def test_a_change_of_a_kind_that_is_not_known_stays(fake_host: Any, fake_session: Any, journal: Journal) -> None:
    journal.will_change("file_system", name="bathy-abcdef-cephfs")
    (failed,) = cleanup.undo_all(fake_host, fake_session, journal)
    assert "does not know how to remove a file_system" in failed
    assert len(journal.pending()) == 1


def test_only_what_carries_our_prefix_is_ever_removed(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    fake_cluster.pools["theirs"] = {"rule": "replicated_rule"}
    with pytest.raises(ClusterError, match="left alone"):
        Resources(fake_host, fake_session, journal).undo(Change(1, "pool", {"name": "theirs"}))
    assert "theirs" in fake_cluster.pools
    assert prefix_of("20260101-000000-abcdef") == "bathy-abcdef"


# --- all of it, and back


def do_everything(fake_host: Any, session: Any, journal: Journal, osds: int = 3) -> None:
    make(fake_host, session, journal, count=osds)
    switch = Settings(session, journal)
    switch.quiesce(Quiesce(scrub=True, balancer=True))
    switch.enlarge_history(fake_host, range(osds), 1000)


@pytest.mark.parametrize("deletable", [True, False])
@pytest.mark.parametrize("stored", [{}, {"mgr/balancer/active": "true"}])
def test_everything_is_undone_exactly(
    fake_cluster: Any, fake_host: Any, journal: Journal, deletable: bool, stored: dict[str, str]
) -> None:
    fake_session = fake_cluster.session()
    fake_cluster.flags.add("noscrub")
    fake_cluster.overrides = {"osd.1": {"osd_op_history_size": "77"}, "mon.b": {"mon_allow_pool_delete": "false"}}
    fake_cluster.config, fake_cluster.deletable = dict(stored), deletable
    before = fake_cluster.state()
    do_everything(fake_host, fake_session, journal)
    during = fake_cluster.state()
    assert during != before
    assert fake_cluster.overrides["osd.1"] == {
        "osd_op_history_size": "1000",
        "osd_op_history_duration": str(HISTORY_DURATION_S),
    }
    assert cleanup.undo_all(fake_host, fake_session, Journal.load(journal.path)) == []
    assert fake_cluster.state() == before
    assert Journal.load(journal.path).pending() == []


def test_undoing_twice_or_after_somebody_else_did_it_is_harmless(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    do_everything(fake_host, fake_session, journal)
    fake_cluster.pools.clear()
    fake_cluster.rules.clear()
    assert cleanup.undo_all(fake_host, fake_session, journal) == []
    again = Journal.load(journal.path)
    assert cleanup.undo_all(fake_host, fake_session, again) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_kill_at_any_command_leaves_a_journal_that_restores_the_cluster(tmp_path_factory: Any, data: Any) -> None:
    """The conductor dies at the n-th command, before or after its effect; the next start undoes from the file."""
    from .conftest import RUN, FakeCluster  # noqa: PLC0415

    cluster = FakeCluster()
    host = FakeHost(ceph=cluster.session())
    journal = Journal.create(tmp_path_factory.mktemp("journal"), RUN, "/x", TARGET, host)
    before = cluster.state()
    dies_at, after_effect = data.draw(st.integers(0, 40)), data.draw(st.booleans())
    answer, count = cluster.answer, 0

    def dying(request: Any) -> Any:
        nonlocal count
        count += 1
        if count == dies_at and not after_effect:
            raise KeyboardInterrupt
        found = answer(request)
        if count == dies_at:
            raise KeyboardInterrupt
        return found

    cluster.answer = dying  # type: ignore[method-assign]
    try:
        do_everything(host, cluster.session(), journal)
        cleanup.undo_all(host, cluster.session(), journal)
    except KeyboardInterrupt:
        pass
    cluster.answer = answer  # type: ignore[method-assign]
    if data.draw(st.booleans()):
        # The run goes on: it finds its own switches set, and must not take them for the operator's.
        do_everything(host, cluster.session(), Journal.load(journal.path))
    assert cleanup.undo_all(host, cluster.session(), Journal.load(journal.path)) == []
    assert cluster.state() == before


@pytest.mark.parametrize("stored", [{}, {"mgr/balancer/active": "true"}])
def test_a_switch_that_was_refused_counts_as_undone_also_by_a_key_that_may_not_undo_it(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal, stored: dict[str, str]
) -> None:
    fake_cluster.config = dict(stored)
    fake_cluster.denied = {"balancer off", "balancer on", "osd set", "osd unset"}
    before = fake_cluster.state()
    for wanted in (Quiesce(scrub=True), Quiesce(balancer=True)):
        with pytest.raises(DeniedError):
            Settings(fake_session, journal).quiesce(wanted)
    assert {change.kind for change in journal.pending()} == {"osd_flag", "balancer"}
    assert cleanup.undo_all(fake_host, fake_session, journal) == []
    assert Journal.load(journal.path).pending() == []
    assert fake_cluster.state() == before


def test_an_option_that_was_never_set_counts_as_undone_also_by_a_key_that_may_not_set_it(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    fake_cluster.overrides = {"osd.1": {"osd_op_history_size": "77"}}
    fake_cluster.denied = {"config set", "config unset"}
    Settings(fake_session, journal).enlarge_history(fake_host, [0, 1], 1000)
    assert len(journal.pending()) == 4
    # One of them is another one than it was: that is not undone.
    fake_cluster.overrides["osd.0"] = {"osd_op_history_size": "1000"}
    assert len(cleanup.undo_all(fake_host, fake_session, journal)) == 1
    assert [change.details["daemon"] for change in Journal.load(journal.path).pending()] == ["osd.0"]
    # Nor is one that cannot be looked at.
    fake_cluster.overrides["osd.0"] = {}
    fake_cluster.denied |= {"config diff get"}
    assert len(cleanup.undo_all(fake_host, fake_session, journal)) == 1
    fake_cluster.denied = {"config set", "config unset"}
    assert cleanup.undo_all(fake_host, fake_session, journal) == []


def test_a_switch_that_is_still_off_or_cannot_be_looked_at_stays_in_the_journal(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    Settings(fake_session, journal).quiesce(Quiesce(scrub=True, balancer=True))
    fake_cluster.denied = {"balancer on", "osd unset"}
    assert len(cleanup.undo_all(fake_host, fake_session, journal)) == 3
    # Somebody switches the balancer on, which leaves a stored value where there was none.
    fake_cluster.do_balancer_on("mgr", {})
    assert len(cleanup.undo_all(fake_host, fake_session, journal)) == 3
    fake_cluster.flags -= {"noscrub", "nodeep-scrub"}
    fake_cluster.denied |= {"osd dump", "balancer status"}
    assert len(cleanup.undo_all(fake_host, fake_session, journal)) == 3
    fake_cluster.denied -= {"osd dump"}
    assert len(cleanup.undo_all(fake_host, fake_session, journal)) == 1
    fake_cluster.denied.clear()
    assert cleanup.undo_all(fake_host, fake_session, journal) == []
    assert fake_cluster.config == {}


@pytest.mark.parametrize("lasts_s", [7, 100])
def test_a_burst_of_a_recording_is_waited_for(
    fake_cluster: Any, fake_session: Any, journal: Journal, monkeypatch: pytest.MonkeyPatch, lasts_s: float
) -> None:
    """A burst ends by itself; what is held for longer is another bench."""
    host = FakeHost()
    run = "20260101-000000-fedcba"
    other = Journal.create(journal.path.parent, run, "/x", Target(name="c"), host, fsid=journal.fsid)
    other.will_change("osd_option", daemon="osd.1", option="osd_op_history_size", value=None)
    fake_cluster.overrides = {"osd.1": {"osd_op_history_size": "5000"}}
    began_ns, sleep = host.monotonic_ns(), host.sleep

    def sleeping(seconds: float) -> None:
        sleep(seconds)
        if host.monotonic_ns() - began_ns >= lasts_s * 1e9 and other.pending():
            fake_cluster.overrides["osd.1"].clear()
            other.undone(*other.pending())

    monkeypatch.setattr(host, "sleep", sleeping)
    settings_ = Settings(fake_session, journal)
    if lasts_s > 15:
        with pytest.raises(BusyError, match=rf"run {run} .* osd\.1, and has not put it back in 15 s") as caught:
            settings_.enlarge_history(host, range(3), 1000)
        assert f"bathy bench cleanup {run}" in str(caught.value.hint)
        assert {str(change.details["daemon"]) for change in journal.pending()} == {"osd.0", "osd.2"}
    else:
        settings_.enlarge_history(host, range(3), 1000)
        assert {values["osd_op_history_size"] for values in fake_cluster.overrides.values()} == {"1000"}
        assert host.monotonic_ns() - began_ns < 8e9
        # What is put back is what was there before the burst.
        assert {change.details["value"] for change in journal.pending()} == {None}
    assert (host.monotonic_ns() - began_ns) / 1e9 >= min(lasts_s, 15)


def test_of_two_entries_for_one_option_the_older_tells_what_was_there(
    fake_cluster: Any, fake_session: Any, journal: Journal
) -> None:
    fake_cluster.overrides = {"osd.0": {"osd_op_history_size": "9"}}
    for value in ("77", "9"):
        journal.will_change("osd_option", daemon="osd.0", option="osd_op_history_size", value=value)
    assert Settings(fake_session, journal).undo(list(reversed(journal.pending()))) == {}
    assert fake_cluster.overrides == {"osd.0": {"osd_op_history_size": "77"}}


def test_settings_go_first_and_a_pool_before_its_rule(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    do_everything(fake_host, fake_session, journal)
    fake_cluster.log.clear()
    cleanup.undo_all(fake_host, fake_session, journal)
    prefixes = [prefix for _, prefix in fake_cluster.log]
    assert prefixes.index("config unset") < prefixes.index("osd pool delete") < prefixes.index("osd crush rule rm")


def test_a_setting_alone_can_be_restored_and_the_pool_stays(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    do_everything(fake_host, fake_session, journal)
    assert cleanup.undo_all(fake_host, fake_session, journal, kinds=("osd_option", "osd_flag", "balancer")) == []
    assert not any(fake_cluster.overrides.values())
    assert POOL.name in fake_cluster.pools
    assert {change.kind for change in journal.pending()} == {"pool", "crush_rule"}


def test_an_osd_that_died_has_lost_its_override_and_does_not_hold_the_rest_up(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    do_everything(fake_host, fake_session, journal)
    fake_cluster.down = {"osd.2"}
    assert cleanup.undo_all(fake_host, fake_session, journal) == []
    assert journal.pending() == []


@pytest.mark.parametrize(("up", "left"), [(1, 2), (0, 0)])
def test_an_osd_that_hangs_keeps_its_override_pending_until_it_is_down(  # noqa: PLR0917 - fixtures
    fake_cluster: Any, fake_session: Any, journal: Journal, monkeypatch: pytest.MonkeyPatch, up: int, left: int
) -> None:
    """No answer is not the same as no process: a daemon that hangs still has the option that was set."""
    settings_ = Settings(fake_session, journal)
    settings_.enlarge_history(FakeHost(), [1], 1000)
    real = fake_session.commands

    def hangs(requests: Any) -> Any:
        answers = real(requests)
        return [dataclasses.replace(a, exit_code=-errno.ETIMEDOUT, timed_out=True) for a in answers]

    monkeypatch.setattr(fake_session, "commands", hangs)
    monkeypatch.setattr(fake_cluster, "do_osd_dump", lambda *_: {"osds": [{"osd": 1, "up": up}]}, raising=False)
    assert len(settings_.undo(journal.pending())) == left


def test_an_osd_that_does_not_answer_is_not_switched_and_not_restored(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    fake_cluster.down = {"osd.0"}
    Settings(fake_session, journal).enlarge_history(fake_host, range(3), 1000)
    assert {str(change.details["daemon"]) for change in journal.pending()} == {"osd.1", "osd.2"}


def test_what_cannot_be_undone_is_named_and_stays_in_the_journal(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_everything(fake_host, fake_session, journal)
    monkeypatch.setattr(fake_cluster, "do_osd_pool_delete", lambda *_: -16, raising=False)
    failed = cleanup.undo_all(fake_host, fake_session, journal)
    assert len(failed) == 2  # the pool, and the rule that it still uses
    assert POOL.name in failed[0]
    assert {change.kind for change in journal.pending()} == {"pool", "crush_rule"}
    journal.close()
    assert journal.path.exists()


def test_a_lost_cluster_keeps_the_journal(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal
) -> None:
    do_everything(fake_host, fake_session, journal)
    pending = len(journal.pending())
    fake_cluster.lost = True
    with pytest.raises(UnreachableError):
        cleanup.undo_all(fake_host, fake_session, journal)
    assert len(Journal.load(journal.path).pending()) == pending


def test_a_thousand_osds_are_switched_and_restored_with_few_flushes(
    fake_cluster: Any, fake_host: Any, fake_session: Any, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr("os.fsync", flushed.append)
    fake_cluster.osds = 1000
    before = fake_cluster.state()
    do_everything(fake_host, fake_session, journal, 1000)
    said: list[str] = []
    assert cleanup.undo_all(fake_host, fake_session, journal, note=said.append) == []
    assert 0 < len(flushed) < 20
    # A question and a change for each option, and what puts it back.
    assert len([daemon for daemon, _ in fake_cluster.log if daemon.startswith("osd.")]) == 1000 * 2 * 3
    assert fake_cluster.state() == before
    assert len(said) == 3  # not a line for each OSD
    assert "osd_op_history_size of 1000 daemons" in said[0]
