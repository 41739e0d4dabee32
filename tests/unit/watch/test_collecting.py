"""A whole recording, and its end by a signal."""

from __future__ import annotations

import contextlib
import math
import threading
from pathlib import Path

import pytest
from tests.unit.recording.test_burst import Histories
from tests.unit.signals import Signalled
from tests.unit.waiting import until

from bathyscope.host.local import LocalHost
from bathyscope.interruption import interruptible
from bathyscope.recording.journal import journal_directory
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.spec import Target
from bathyscope.spec.collect import CollectSpec
from bathyscope.spec.scope import ScopeOsd
from bathyscope.store import Workspace
from bathyscope.watch import collecting

TARGET = Target(name="c", conf="/etc/ceph/ceph.conf")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("place", range(6))
def test_a_recording_ends_in_order_wherever_a_signal_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cluster = Histories()
    before = cluster.state()
    host = LocalHost()
    keeper = ScopeKeeper(host, cluster.session(), TARGET, sources=[], refresh_s=math.inf)
    keeper.narrow(fsid="f-s-i-d", asked_osds=(0, 1, 2), osds=tuple(ScopeOsd(osd=osd, up=True) for osd in range(3)))
    there = contextlib.nullcontext((cluster.session(), keeper))
    monkeypatch.setattr(collecting, "opened", lambda *_: there)
    # The first functions with locks that it enters and leaves while it waits for the end of a burst.
    signalled = Signalled(place, counts=lambda: cluster.state() != before)
    with interruptible(), signalled():
        run = collecting.collect(
            host, Workspace(tmp_path),
            CollectSpec(duration_s=60.0, interval_s=1.0, depth="deep"), TARGET,
            target_now=lambda: TARGET, tidy=lambda _: None, note=lambda _: None, tick=lambda _: None,
        )  # fmt: skip
    assert signalled.was_sent
    assert run.status == "done"
    assert cluster.enlarged_max == 3
    assert cluster.state() == before
    assert not list(journal_directory().iterdir())
    # Nobody waits for the threads of its pool: each ends when it finds that there is nothing more to do.
    until(lambda: not [each.name for each in threading.enumerate() if each.name.startswith("bathy-recorder")])
