"""The checks before the first change, in their order: a run makes them, and a dry run says what they would refuse.

Nothing is changed by them. What a key may do is tried with names that nothing has (`bench.caps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bathyscope.bench import caps, phases, preflight
from bathyscope.bench.preflight import ClusterLook
from bathyscope.bench.resources import default_replicas, make_context
from bathyscope.errors import UsageError
from bathyscope.host import CephRequest, CephSession, Host
from bathyscope.host.ceph import send
from bathyscope.layers import LAYERS, LayerContext, needs_of
from bathyscope.spec import StepSpec
from bathyscope.spec.plan import Plan
from bathyscope.spec.scope import Scope

_SETTLE_S = 8.0


def check(
    host: Host,
    session: CephSession | None,
    scope: Scope,
    *,
    plan: Plan,
    steps: Sequence[StepSpec],
    context: LayerContext,
    look: Callable[[], ClusterLook],
    note: Callable[[str], None],
    begun: bool = False,
) -> None:
    """Raise BathyscopeError when the steps cannot or must not be run.

    `look` asks the cluster for its status. A run that has `begun` holds its data on the cluster already, so there is
    room for them.
    """
    preflight.check_tools(host, context.target, steps)
    preflight.check_layers(steps, context)
    phases.check(plan, context.target)
    warmed = {phase.name for phase in plan.phases if phase.warm}
    for step in steps:
        if step.phase in warmed and step.pattern.reads:
            LAYERS[step.layer].warm(step, context)
    preflight.check_disks(host, steps, context)
    if session is None:
        return
    preflight.check_cluster(scope, _settled(host, look), plan.limits)
    _check_permission(session, scope, steps, context, note=note, sleep=host.sleep)
    phases.check_options(session, plan.phases, context.target, note)
    if begun:
        return
    if context.target.pool is None:
        replicas = default_replicas(session)
    else:
        replicas = preflight.given_pool(session, context.target.pool).replicas
        stored_bytes = sum(need.cluster_bytes for need in needs_of(steps, context))
        preflight.check_quota(session, context.target.pool, stored_bytes)
    preflight.check_space(scope, steps, context, plan.limits, default_replicas=replicas)


def rehearse(session: CephSession, requests: Iterable[CephRequest]) -> None:
    """Send what will undo the run's switches: it changes nothing yet. Raises DeniedError when the key may not."""
    for request in requests:
        send(session, request)


def _settled(host: Host, look: Callable[[], ClusterLook]) -> ClusterLook:
    """Look at the cluster, again for a few seconds while placement groups are not clean.

    The manager's view lags: pools that were made or deleted a moment ago show in it as unknown or peering.
    """
    deadline = host.monotonic_ns() + int(_SETTLE_S * 1e9)
    status = look()
    while status.not_clean and host.monotonic_ns() < deadline:
        host.sleep(0.5)
        status = look()
    return status


def _check_permission(
    session: CephSession,
    scope: Scope,
    steps: Sequence[StepSpec],
    context: LayerContext,
    *,
    note: Callable[[str], None],
    sleep: Callable[[float], None],
) -> None:
    """Refuse what the key may not do, and what the cluster's settings forbid, before anything is made."""
    needs, trial, pool = needs_of(steps, context), f"{context.prefix}-trial", context.target.pool
    cold = any(step.temperature == "cold" for step in steps if LAYERS[step.layer].needs_cluster)
    lacks = caps.check(session, needs, trial, cold=cold)
    if lacks is not None:
        note(lacks)
    if pool is not None:
        if context.replicas is not None:
            raise UsageError(f"the replicas of the pool {pool} are its own", hint="leave out replicas, or --pool")
        caps.check_pool_access(session, pool, needs, trial, given=True)
    preflight.check_policies(session, needs, make_context(session, scope), note, sleep)
