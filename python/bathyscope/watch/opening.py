"""How every watch begins: a connection that lasts, the cluster's map, and its answers as the first collections."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from bathyscope.host import CephSession, Host
from bathyscope.host.ceph import connect
from bathyscope.recording.collect import as_collected
from bathyscope.recording.connection import LastingSession
from bathyscope.recording.look import look_at
from bathyscope.recording.scope import REFRESH_S, ScopeKeeper
from bathyscope.recording.sinks import Sink
from bathyscope.spec import Target


@contextlib.contextmanager
def opened(host: Host, target: Target, target_now: Callable[[], Target]) -> Iterator[tuple[CephSession, ScopeKeeper]]:
    """Give a connection to a cluster and its scope, which a recorder keeps fresh. Raises BathyscopeError."""
    session = LastingSession(lambda: connect(host, target))
    with contextlib.closing(session):
        keeper = look_at(host, session, target, target_now=target_now)
        keeper.narrow(asked_osds=None)
        keeper.refresh_s = REFRESH_S
        yield session, keeper


def keep_start(sink: Sink, keeper: ScopeKeeper) -> None:
    """Keep the answers that the scope was made from: they are the first collections."""
    for source in keeper.sources:
        if answers := keeper.answers.get(source.name):
            sink.take(source, as_collected(source.name, answers))
