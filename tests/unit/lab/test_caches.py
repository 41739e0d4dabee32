"""Caches over the OSDs of a lab: what is done when an OSD does not end."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bathyscope.errors import LabError
from bathyscope.host.fake import FakeHost
from bathyscope.lab import caches


def test_an_osd_that_does_not_end_leaves_no_other_down(monkeypatch: pytest.MonkeyPatch) -> None:
    osds = [SimpleNamespace(kind="osd", name=f"osd.{number}", identity=number) for number in range(3)]
    lab: Any = SimpleNamespace(name="x", layout=None, target=lambda: None, daemons=lambda: osds)
    ended: list[Any] = []
    started: list[str] = []

    def end(identities: Sequence[Any], what: str) -> None:
        ended.extend(identities[1:])
        raise LabError(f"{what}: still running")

    monkeypatch.setattr(caches, "locked", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(caches, "connect", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(caches, "load", lambda _: lab)
    monkeypatch.setattr(caches, "_end", end)
    monkeypatch.setattr(caches, "is_alive", lambda _host, identity: identity not in ended)
    monkeypatch.setattr(caches, "_start", lambda _state, osd: started.append(osd.name))
    with pytest.raises(LabError, match="still running"):
        caches.restart_osds(lab, FakeHost())
    assert sorted(started) == ["osd.1", "osd.2"]
