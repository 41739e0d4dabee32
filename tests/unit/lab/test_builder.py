"""What the builder does before it touches the machine."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.signals import ended_by_a_signal

from bathyscope import interruption
from bathyscope.errors import EnvironmentError_, LabError
from bathyscope.host import CephSession
from bathyscope.host.fake import FakeHost
from bathyscope.lab import builder, osds, releases, requirements
from bathyscope.lab.bringup import Bringup
from bathyscope.lab.devices import Throttle
from bathyscope.lab.layout import Layout
from bathyscope.lab.spec import LabSpec, parse_device
from bathyscope.lab.state import LabDevice


def test_the_time_to_come_up_begins_when_the_release_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A root file system that takes longer to build than a lab may take to start must not fail the lab."""
    clock = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def build(*_: object) -> releases.Root:
        clock[0] += 2 * builder.UP_TIMEOUT_S
        return releases.Root(tmp_path / "root", 20)

    monkeypatch.setattr(releases, "ensure", build)
    monkeypatch.setattr(requirements, "installed_major", lambda: None)
    spec = LabSpec(name="slow", devices=(parse_device("ssd=1"),), release="tentacle", emulate=False)
    layout = Layout(tmp_path / "lab")
    layout.directory.mkdir()
    made = builder.prepare(spec, layout, lambda _: None, FakeHost(), choice_lock=contextlib.nullcontext, others=set)
    assert made.deadline == clock[0] + builder.UP_TIMEOUT_S

    made.allow(60)
    clock[0] += builder.UP_TIMEOUT_S + 59
    made.tick("not up", pause_s=0)
    clock[0] += 2
    with pytest.raises(LabError, match=f"not up after {builder.UP_TIMEOUT_S + 60:.0f} s"):
        made.tick("not up", pause_s=0)


def test_a_signal_that_is_held_off_comes_while_osds_are_made() -> None:
    bringup = SimpleNamespace(tick=lambda *_, **__: interruption.check())
    never: Future[list[LabDevice]] = Future()
    with ended_by_a_signal(), interruption.held():
        os.kill(os.getpid(), signal.SIGINT)
        osds.start(cast("Bringup", bringup), cast("CephSession", None), [never], cast("Throttle", None))


def test_a_kernel_without_room_for_the_asynchronous_requests_of_the_osds_is_said_before_any_is_made(
    tmp_path: Path,
) -> None:
    (tmp_path / "aio-max-nr").write_text("65536\n")
    (tmp_path / "aio-nr").write_text("64000\n")
    requirements.require_aio(1536, tmp_path)
    with pytest.raises(EnvironmentError_, match=r"need 1537 .* of its 65536 are 64000 taken") as refused:
        requirements.require_aio(1537, tmp_path)
    assert "fs.aio-max-nr" in (refused.value.hint or "")
    requirements.require_aio(1537, tmp_path / "a kernel that does not say")
