"""What a key may do and what a cluster forbids: known before the first change, and said by name."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bathyscope.bench import caps, checks, preflight
from bathyscope.bench.resources import Resources
from bathyscope.bench.settings import switches
from bathyscope.commands.targets import entity_name, pool_name
from bathyscope.errors import ClusterError, DeniedError, PolicyError, UnhealthyError, UsageError
from bathyscope.host import CephRequest
from bathyscope.host.base import denied
from bathyscope.layers import LAYERS, LayerContext, MakeContext, needs_of, traits
from bathyscope.layers.needs import REMOVALS, GivenPoolNeed, ImageNeed, ObjectsNeed, PoolNeed
from bathyscope.recording.journal import Journal
from bathyscope.recording.look import check_reading
from bathyscope.spec import StepSpec, Target
from bathyscope.spec.plan import Plan, Quiesce, expand
from bathyscope.spec.plan_file import parse_plan
from bathyscope.spec.scope import Scope, ScopeOsd

TARGET = Target(name="c", conf="/etc/ceph/ceph.conf", client="client.guest")
IN_POOL = TARGET.model_copy(update={"pool": "scratch"})
POOL = PoolNeed(name="bathy-abcdef-rbd-ssd", device_class="ssd")
IMAGE = ImageNeed(POOL.name, "image", 1 << 20, 1 << 20)
TRIAL = "bathy-abcdef-trial"


def plan(*changes: str) -> Plan:
    text = "name: t\nlayers: [rados, rbd]\npatterns: [randread-4K-qd4]\naxes: {image_size: 8M}\n"
    return parse_plan(text, name="t", layers=traits(), overrides=list(changes))


def made_on(target: Target = TARGET, replicas: int = 3) -> MakeContext:
    osds = tuple(ScopeOsd(osd=i, host=f"node{i}", device_class="ssd", size_bytes=1 << 30) for i in range(3))
    return MakeContext(Scope(target=target, osds=osds), {"default": frozenset(range(3))}, replicas)


def all_needs(target: Target = TARGET) -> tuple[Any, ...]:
    return needs_of(expand(plan(), ("ssd",), traits()), LayerContext(target, "bathy-abcdef", "/tmp/x"))


# --- the caps that are printed


def test_the_least_caps_of_a_run_name_every_command_on_names_of_ours_alone() -> None:
    found = caps.of_bench(plan(), pool=None, tell=False)
    assert found.mon.split(", ") == [
        "allow r",
        'allow command "osd crush rule create-replicated" with name prefix bathy-',
        'allow command "osd pool create" with pool prefix bathy-',
        'allow command "osd pool set" with pool prefix bathy-',
        'allow command "osd pool application enable" with pool prefix bathy-',
        'allow command "osd pool delete" with pool prefix bathy- pool2 prefix bathy-',
        'allow command "osd crush rule rm" with name prefix bathy-',
        'allow command "osd pool op unmanaged-snap" with poolname prefix bathy-',
    ]
    assert (found.mgr, found.osd) == ("allow r", "allow rwx tag bathyscope *=*")
    assert caps.of_bench(plan("layers=rados"), pool=None, tell=False).mon.count("unmanaged-snap") == 0
    assert caps.of_bench(plan(), pool=None, tell=True).osd == "allow *"
    assert caps.of_bench(plan(), pool="scratch", tell=False) == caps.Caps(
        "allow r", "allow r", "allow rwx pool=scratch"
    )


def test_a_pool_whose_name_needs_it_is_quoted_in_its_cap() -> None:
    for pool, cap in (("a.b-c_1", "a.b-c_1"), ("my pool", '"my pool"'), ("x, allow *", '"x, allow *"')):
        assert caps.of_bench(plan(), pool=pool, tell=False).osd == f"allow rwx pool={cap}"
        assert caps.of_cleanup(plan(), pool=pool, tell=False).osd == f"allow rwx pool={cap}"
    for wrong in ("", '"', 'x" allow *', "a\nb", "\x1b"):
        with pytest.raises(UsageError, match="--pool"):
            pool_name(wrong)
    for wrong in ("", "admin", "client.", "osd.3", "client.a/b", "client.a b", "client.a\n"):
        with pytest.raises(UsageError, match=r"client\.NAME"):
            entity_name(wrong)
    assert entity_name("client.bench-2") == "client.bench-2"


def test_the_caps_of_what_is_switched_and_of_cleaning_up() -> None:
    switched = plan("quiesce.scrub=true", "quiesce.balancer=true")
    found = caps.of_bench(switched, pool="scratch", tell=False)
    assert 'allow command "osd unset" with key=nodeep-scrub' in found.mon
    assert 'allow command "config rm" with who=mgr name=mgr/balancer/active' in found.mon
    assert found.mgr == 'allow r, allow command "balancer off", allow command "balancer on"'
    assert caps.of_cleanup(plan(), pool=None, tell=False) == caps.Caps(
        'allow r, allow command "osd pool delete" with pool prefix bathy- pool2 prefix bathy-, '
        'allow command "osd crush rule rm" with name prefix bathy-',
        "allow r",
        "",
    )


@pytest.mark.parametrize("target", [TARGET, IN_POOL])
def test_no_layer_sends_the_monitors_a_change_that_no_printed_cap_allows(target: Target) -> None:
    needs = all_needs(target)
    sent = [action.request for need in needs for action in need.make(made_on(target))]
    given = {"name": "bathy-x", "pool": "scratch", "count": 1}
    sent += [removal.request(given) for need in needs for removal in need.removals]
    changes = {
        str(dict(request.command)["prefix"]) for request in sent
        if isinstance(request, CephRequest) and request.daemon == "mon"
    }  # fmt: skip
    if target.pool is not None:
        # The removals of its images and objects are the objects' own commands.
        changes -= {"osd pool delete", "osd crush rule rm"}
    allowed = caps.of_bench(plan(), pool=target.pool, tell=False).mon
    assert {command for command in changes if f'"{command}"' not in allowed} == set()


# --- the check


def test_a_trial_of_every_command_changes_nothing(fake_cluster: Any, fake_session: Any) -> None:
    fake_cluster.pools["theirs"], fake_cluster.rules["replicated_rule"] = {"rule": "replicated_rule"}, {}
    before = copy.deepcopy(fake_cluster.state())
    assert caps.check(fake_session, all_needs(), TRIAL, cold=True) is None
    assert fake_cluster.state() == before
    tried = [prefix for _, prefix in fake_cluster.log]
    assert tried[0] == "osd pool delete"
    assert set(tried) >= {permission.prefix for permission in POOL.permissions} | {"osd crush rule rm"}


@pytest.mark.parametrize("command", [p.prefix for p in (*POOL.permissions, REMOVALS["pool"].permission) if p])
def test_a_command_that_the_caps_lack_is_named_with_the_entity_and_the_cap(
    fake_cluster: Any, fake_session: Any, command: str
) -> None:
    fake_session.client, fake_cluster.denied = "client.guest", {command}
    with pytest.raises(DeniedError, match=f"client.guest may not use '{command}'") as error:
        caps.check(fake_session, all_needs(), TRIAL, cold=False)
    assert f"mon 'allow command \"{command}\"'" in (error.value.hint or "")


def test_a_key_that_cannot_tell_osds_lacks_figures_and_cannot_make_caches_cold(
    fake_cluster: Any, fake_session: Any
) -> None:
    fake_cluster.denied = {"osd."}
    assert "no counters, no op stages" in (caps.check(fake_session, all_needs(), TRIAL, cold=False) or "")
    with pytest.raises(DeniedError, match="cold") as error:
        caps.check(fake_session, all_needs(), TRIAL, cold=True)
    assert "osd 'allow *'" in (error.value.hint or "")


@pytest.mark.parametrize(("denied_", "words"), [("osd df", "mgr 'allow r'"), ("osd dump", "mon 'allow r'")])
def test_a_key_that_cannot_read_is_refused_first(
    fake_cluster: Any, fake_session: Any, denied_: str, words: str
) -> None:
    fake_cluster.denied = {denied_}
    with pytest.raises(DeniedError) as error:
        check_reading(fake_session)
    assert words in (error.value.hint or "")


def test_what_undoes_the_switches_is_tried_before_anything_is_switched(fake_cluster: Any, fake_session: Any) -> None:
    both, before = Quiesce(scrub=True, balancer=True), copy.deepcopy(fake_cluster.state())

    def rehearse(wanted: Quiesce) -> None:
        for switch in switches(fake_session, wanted):
            checks.rehearse(fake_session, switch.back)

    rehearse(both)
    assert fake_cluster.state() == before
    for command in ("osd unset", "balancer on", "config rm"):
        fake_cluster.denied = {command}
        with pytest.raises(DeniedError, match=command):
            rehearse(both)
    fake_cluster.flags |= {"noscrub", "nodeep-scrub"}
    fake_cluster.log.clear()
    rehearse(Quiesce(scrub=True))
    assert ("mon", "osd unset") not in fake_cluster.log


# --- what the cluster forbids


def test_a_cluster_that_forbids_to_delete_pools(fake_cluster: Any, fake_session: Any) -> None:
    fake_cluster.deletable = False
    said: list[str] = []
    preflight.check_policies(fake_session, [POOL], made_on(), said.append)
    assert "mon_allow_pool_delete" in said[0]
    # Without mon 'allow *' the manager says what the monitors have.
    fake_cluster.denied = {"mon."}
    with pytest.raises(PolicyError, match="mon_allow_pool_delete is false") as error:
        preflight.check_policies(fake_session, [POOL], made_on())
    assert "--pool" in (error.value.hint or "")
    preflight.check_policies(fake_session, [GivenPoolNeed("scratch")], made_on())


def test_a_cluster_that_forbids_one_replica(fake_cluster: Any, fake_session: Any) -> None:
    fake_cluster.options["mon_allow_pool_size_one"] = "false"
    preflight.check_policies(fake_session, [POOL], made_on())
    one = PoolNeed(POOL.name, "ssd", replicas=1)
    with pytest.raises(PolicyError, match="mon_allow_pool_size_one is false") as error:
        preflight.check_policies(fake_session, [one], made_on())
    assert "mon_allow_pool_size_one true" in (error.value.hint or "")
    with pytest.raises(PolicyError):
        preflight.check_policies(fake_session, [POOL], made_on(replicas=1))


def test_placement_groups_beyond_the_clusters_limit(fake_cluster: Any, fake_session: Any) -> None:
    fake_cluster.options["mon_max_pg_per_osd"], fake_cluster.held = "100", 64
    preflight.check_policies(fake_session, [POOL], made_on())
    second = PoolNeed("bathy-abcdef-rados-ssd", "ssd")
    with pytest.raises(UnhealthyError, match=r"would hold \d+ placement groups; mon_max_pg_per_osd is 100"):
        preflight.check_policies(fake_session, [POOL, second], made_on())


# --- in the operator's pool


def test_the_operators_pool_is_found_or_named(fake_cluster: Any, fake_session: Any) -> None:
    fake_cluster.objects["scratch"] = set()
    pool = {"pool_name": "scratch", "type": 1, "size": 2, "crush_rule": 4}
    erasure = {"pool_name": "wide", "type": 3, "size": 6, "crush_rule": 4}
    rule = {"rule_id": 4, "steps": [{"op": "take", "item_name": "default~hdd"}, {"op": "emit"}]}
    fake_cluster.do_osd_dump = lambda *_: {"pools": [pool, erasure]}
    fake_cluster.do_osd_crush_rule_dump = lambda *_: [rule]
    assert preflight.given_pool(fake_session, "scratch") == preflight.GivenPool(2, "hdd")
    with pytest.raises(UsageError, match="no pool 'scrach'") as error:
        preflight.given_pool(fake_session, "scrach")
    assert "scratch" in (error.value.hint or "")
    with pytest.raises(UsageError, match="erasure-coded"):
        preflight.given_pool(fake_session, "wide")


def test_a_quota_that_the_run_would_break(fake_cluster: Any, fake_session: Any) -> None:
    limited = {"pool_name": "scratch", "quota_max_bytes": 1 << 30}
    fake_cluster.do_osd_dump = lambda *_: {"pools": [{"pg_num": 8}, limited]}
    fake_cluster.do_df = lambda *_: {"pools": [{"name": "scratch", "stats": {"stored": 900 << 20}}]}
    preflight.check_quota(fake_session, "scratch", 100 << 20)
    with pytest.raises(UnhealthyError, match="its quota"):
        preflight.check_quota(fake_session, "scratch", 200 << 20)


def test_in_the_operators_pool_all_names_are_the_runs_and_each_thing_is_journaled(
    fake_cluster: Any, fake_session: Any, fake_host: Any, journal: Journal
) -> None:
    from bathyscope.host.fake import FakeAnswer  # noqa: PLC0415

    fake_cluster.objects["scratch"] = {"theirs", "bathy-other-image"}
    fake_host.programs["rbd"] = FakeAnswer()
    needs = all_needs(IN_POOL)
    names = [need.name if isinstance(need, ImageNeed) else need.prefix for need in needs
             if isinstance(need, (ImageNeed, ObjectsNeed))]  # fmt: skip
    assert names == ["bathy-abcdef-objects-8M-obj4M-0", "bathy-abcdef-image-8M-obj4M-0"]
    assert not any(isinstance(need, PoolNeed) for need in needs)
    resources = Resources(fake_host, fake_session, journal)
    resources.make(needs, made_on(IN_POOL).scope, status=lambda: pytest.fail("nothing settles"))
    objects, image = Journal.load(journal.path).pending()
    assert (objects.kind, dict(objects.details)) == ("objects", {"name": names[0], "pool": "scratch", "count": 2})
    assert (image.kind, dict(image.details)) == ("image", {"name": names[1], "pool": "scratch"})
    assert not resources.exists(objects)
    assert not resources.exists(image)
    fake_cluster.objects["scratch"] |= {names[1], f"{names[0]}.1"}
    assert resources.exists(objects)
    assert resources.exists(image)
    resources.undo(objects)
    resources.undo(image)
    assert fake_cluster.objects["scratch"] == {"theirs", "bathy-other-image"}
    # With the pool, all of it is gone.
    fake_cluster.objects.clear()
    assert not resources.exists(image)


def test_what_a_journal_does_not_say_of_ours_is_left_alone(fake_session: Any, fake_host: Any, journal: Journal) -> None:
    theirs = journal.will_change("image", name="theirs", pool="scratch")
    with pytest.raises(ClusterError, match="cannot have made theirs"):
        Resources(fake_host, fake_session, journal).undo(theirs)


def test_rados_bench_is_refused_in_the_operators_pool() -> None:
    step = StepSpec.model_validate({
        "layer": "rados", "load_generator": "rados_bench", "ramp_s": 0, "runtime_s": 1,
        "pattern": {"op": "randwrite", "block_size_bytes": 4096, "queue_depth": 1},
    })  # fmt: skip
    LAYERS["rados"].check(step, LayerContext(TARGET, "bathy-x", "/tmp/x"))
    with pytest.raises(UsageError, match="operator's pool"):
        LAYERS["rados"].check(step, LayerContext(IN_POOL, "bathy-x", "/tmp/x"))


@pytest.mark.parametrize(
    ("daemon", "prefix", "cap"),
    [
        ("mon", "osd pool create", "mon 'allow command \"osd pool create\"'"),
        ("mon.a", "config set", "mon 'allow *'"),
        ("osd.3", "perf dump", "osd 'allow *'"),
        ("mgr", "osd df", "mgr 'allow r'"),
        ("pool.scratch", "access", "osd 'allow rwx pool=scratch'"),
    ],
)
def test_a_refusal_names_the_cap(daemon: str, prefix: str, cap: str) -> None:
    error = denied(CephRequest(prefix, daemon, (("prefix", prefix),)), "client.guest", "access denied")
    assert "client.guest" in error.message
    assert cap in (error.hint or "")
