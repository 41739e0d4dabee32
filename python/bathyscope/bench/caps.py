"""What a cephx key must be allowed to do: the caps that `bathy caps` prints, and their check before the first change.

Both are made of the same permissions, which stand beside what they are for (`layers.needs`, `bench.settings`). The
check sends each command with a name that nothing has: the cluster looks at the caps before it looks for the name, so
its answer shows what the key may do, and nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bathyscope.bench.phases import caps as phase_caps
from bathyscope.bench.resources import PREFIX
from bathyscope.bench.settings import caps as switch_caps
from bathyscope.errors import DeniedError, UsageError
from bathyscope.host import CephSession, answer_json, is_denied
from bathyscope.host.base import denied
from bathyscope.layers import LayerContext, Need, needs_of, traits
from bathyscope.layers.needs import APPLICATION, REMOVALS, ImageNeed, Permission, in_pool
from bathyscope.recording.look import may_tell
from bathyscope.spec import Target
from bathyscope.spec.caps import Caps
from bathyscope.spec.plan import Plan, expand


def of_bench(plan: Plan, *, pool: str | None, tell: bool) -> Caps:
    """Return the least that a run of `plan` needs, in pools that it makes or in the operator's `pool`.

    `tell`: with the OSDs' own counters and op histories, which Ceph gives only to a key that may do everything on OSDs.
    """
    context = LayerContext(Target(name="", pool=pool), PREFIX, "")
    sent = permissions(needs_of(expand(plan, ("any",), traits()), context))
    return _caps(plan, sent, pool, "allow *" if tell else _data_cap(pool))


def of_cleanup(plan: Plan, *, pool: str | None, tell: bool) -> Caps:
    """Return the least that removing the remains of any run of `plan` needs."""
    sent = [removal.permission for removal in REMOVALS.values() if removal.permission is not None]
    return _caps(plan, sent, pool, "allow *" if tell else _data_cap(pool) if pool else "")


VERBS = {"bench": of_bench, "bench cleanup": of_cleanup}
"""What to call for the caps of a verb."""


def permissions(needs: Iterable[Need]) -> list[Permission]:
    """Return what a key must be allowed to send to the monitors for `needs` to be made and removed."""
    needed = [permission for need in needs for permission in (*need.permissions, *_removing(need))]
    return list({permission.prefix: permission for permission in needed}.values())


def _removing(need: Need) -> list[Permission]:
    return [removal.permission for removal in need.removals if removal.permission is not None]


def _data_cap(pool: str | None) -> str:
    """Return the cap for the data of one pool, or of all pools that carry our application: those are ours alone."""
    if pool and re.fullmatch(r"[A-Za-z0-9_./-]+", pool) is None:
        pool = f'"{pool}"'
    return f"allow rwx pool={pool}" if pool else f"allow rwx tag {APPLICATION} *=*"


def _caps(plan: Plan, sent: Sequence[Permission], pool: str | None, osd: str) -> Caps:
    mon, mgr = switch_caps(plan.quiesce)
    mon += phase_caps(plan.phases)
    caps = [] if pool else [permission.cap(PREFIX) for permission in sent]
    return Caps(", ".join(["allow r", *caps, *mon]), ", ".join(["allow r", *mgr]), osd)


def check(session: CephSession, needs: Sequence[Need], trial_name: str, *, cold: bool) -> str | None:
    """Try what the run will do with a name that nothing has. Return what the key lacks for all figures, or None.

    Raises DeniedError when the key may not make or remove what is needed, or not make caches `cold`.
    """
    # What removes is tried first: a key that creates and cannot delete is the dangerous one.
    wanted = sorted(permissions(needs), key=lambda permission: permission.prefix not in _REMOVING)
    trials = [request for permission in wanted if (request := permission.trial(trial_name)) is not None]
    for request, answer in zip(trials, session.commands(trials), strict=True):
        if is_denied(answer):
            raise denied(request, session.client, "nothing has been changed")
    return _check_tell(session, cold=cold)


_REMOVING = {removal.permission.prefix for removal in REMOVALS.values() if removal.permission is not None}


def _check_tell(session: CephSession, *, cold: bool) -> str | None:
    refused = may_tell(session)
    if refused is None:
        return None
    if cold:
        raise DeniedError(
            f"{refused}: steps with temperature: cold drop the OSDs' caches",
            hint="it needs osd 'allow *'; `bathy caps bench --tell` prints all that a run needs",
        )
    return (
        f"{refused}: no counters, no op stages, no waits of other tenants "
        "(`bathy caps bench --tell` prints the caps for them)"
    )


def check_pool_access(session: CephSession, pool: str, needs: Sequence[Need], trial_name: str, *, given: bool) -> None:
    """Raise DeniedError unless the key may read, write and execute in a pool, UsageError for an unprepared one."""
    request = in_pool(pool, "access", name=trial_name)
    allowed = answer_json(session.command(request), session.client)
    missing = [what for what in ("read", "write", "execute") if not allowed.get(what)]
    if missing:
        cap, verb = _data_cap(pool if given else None), f"bathy caps bench{f' --pool {pool}' if given else ''}"
        raise DeniedError(
            f"{session.client} may not {' and '.join(missing)} objects of the pool {pool}",
            hint=f"it needs osd '{cap}'; `{verb}` prints all that a run needs",
        )
    if given and any(isinstance(need, ImageNeed) for need in needs) and not allowed.get("initialised"):
        # The first image would set a flag of the pool that cannot be taken back.
        raise UsageError(
            f"the pool {pool} is not prepared for RBD images", hint=f"rbd pool init {pool}, or take --layer rados"
        )
