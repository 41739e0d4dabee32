"""What a bring-up does when a daemon ends while it waits."""

from __future__ import annotations

import signal
import time
from types import SimpleNamespace
from typing import Any

import pytest

from bathyscope.errors import LabError
from bathyscope.host.fake import FakeHost
from bathyscope.lab import daemons, startup
from bathyscope.lab.bringup import MANAGER, Bringup
from bathyscope.lab.layout import Layout
from bathyscope.lab.spec import LabSpec


@pytest.fixture
def bringup(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Bringup:
    """A bring-up whose daemons run when they are started again."""
    running = SimpleNamespace(child=SimpleNamespace(poll=lambda: None))
    monkeypatch.setattr(daemons, "start", lambda *_, **__: running)
    record: Any = SimpleNamespace(spec=LabSpec(), root=None, devices=())
    return Bringup(
        Layout(tmp_path), record, major=16, root=None, machine=None, host=FakeHost(), progress=said.append,
        deadline=time.monotonic() + 60,
    )  # fmt: skip


said: list[str] = []


def ends(bringup: Bringup, name: str, code: int) -> None:
    started: Any = SimpleNamespace(child=SimpleNamespace(poll=lambda: code))
    bringup.children[name] = started


def test_a_manager_that_aborts_is_started_again_but_not_twice(bringup: Bringup) -> None:
    said.clear()
    ends(bringup, MANAGER, -signal.SIGABRT)
    bringup.tick("it is not up")
    assert said == ["mgr.x was ended by Aborted: starting it again"]
    bringup.tick("it is not up")
    ends(bringup, MANAGER, -signal.SIGABRT)
    with pytest.raises(LabError, match=r"mgr\.x was ended by Aborted"):
        bringup.tick("it is not up")


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        (MANAGER, 1, r"mgr\.x ended with exit code 1"),
        (MANAGER, -signal.SIGKILL, r"mgr\.x was ended by Killed"),
        ("osd.0", -signal.SIGSEGV, r"osd\.0 was ended by Segmentation fault"),
    ],
)
def test_nothing_else_is_started_again(bringup: Bringup, name: str, code: int, message: str) -> None:
    ends(bringup, name, code)
    with pytest.raises(LabError, match=message):
        bringup.tick("it is not up")


def test_the_reason_of_an_abort_stands_above_its_stack(tmp_path: Any) -> None:
    layout = Layout(tmp_path)
    layout.log.mkdir()
    log = layout.log / "mgr.x.out"
    log.write_text("starting\nMgr.cc: 12: FAILED ceph_assert(ok)\n 1: (main()+0x1)\n 2: [0x7f]\n")
    assert startup._reason(layout) == "from the log of mgr.x: Mgr.cc: 12: FAILED ceph_assert(ok)"
    (layout.log / "osd.0.out").write_text("later, of another daemon\n")
    assert startup._reason(layout) == "from the log of mgr.x: Mgr.cc: 12: FAILED ceph_assert(ok)"
    (layout.log / "osd.0.out").unlink()
    log.write_text("starting\nno permission\n")
    assert startup._reason(layout) == "from the log of mgr.x: no permission"
