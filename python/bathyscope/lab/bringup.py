"""One bring-up of a lab: what every step of it shares, and the few things that every step does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bathyscope import interruption
from bathyscope.errors import LabError
from bathyscope.host import CephRequest, CephSession, Host, outliving
from bathyscope.host.process import ProcessIdentity, identity_of
from bathyscope.lab import daemons, journal, nodes
from bathyscope.lab.guests import Machine
from bathyscope.lab.layout import Layout
from bathyscope.lab.releases import Root
from bathyscope.lab.run import Tools
from bathyscope.lab.spec import LabSpec
from bathyscope.lab.state import LabDevice, LabRecord, write_record

UP_TIMEOUT_S = 180.0
MANAGER = "mgr.x"
_CRASHES = (signal.SIGABRT, signal.SIGSEGV)


class Bringup:
    """A lab that is being made. `major` is that of its Ceph, `root` where that lies if it is not the installed one.

    `machine`: what guests run on, if there are any.

    `loops`: its devices are loop devices. `deadline` is of the monotonic clock.
    """

    def __init__(
        self,
        layout: Layout,
        record: LabRecord,
        *,
        major: int,
        root: Root | None,
        machine: Machine | None,
        host: Host,
        progress: Callable[[str], None],
        deadline: float,
    ) -> None:
        self.layout = layout
        self.record = record
        self.major = major
        self.root = root
        self.machine = machine
        self.host = host
        self.progress = progress
        self.journal = journal.Journal(layout.journal)
        self.tools = Tools(host, record.root, self._announce_helper)
        self.children: dict[str, outliving.Started] = {}
        self.loops = False
        self._manager_crashed = False
        self.deadline = deadline
        self._timeout_s = UP_TIMEOUT_S

    @property
    def spec(self) -> LabSpec:
        """What is wanted."""
        return self.record.spec

    def update(self, **fields: Any) -> None:
        """Change lab.json."""
        self.record = self.record.model_copy(update=fields)
        write_record(self.layout, self.record)

    def replace_devices(self, devices: Sequence[LabDevice]) -> None:
        """Write down what has become of the devices, in any order."""
        order = {device.backing: index for index, device in enumerate(self.record.devices)}
        self.update(devices=tuple(sorted(devices, key=lambda device: order[device.backing])))

    def start(self, name: str, before: Callable[[ProcessIdentity], None] = lambda _: None) -> None:
        """Start a daemon: an OSD in its node if it has one, the others on this machine itself."""
        self.layout.data(name).mkdir(parents=True, exist_ok=True)
        node = next((d.node for d in self.record.devices if name == f"osd.{d.osd_id}"), None)
        first = self.children.get(f"{nodes.PROCESS}.{node}")
        self.children[name] = daemons.start(
            name,
            self.layout,
            self.journal,
            root=self.record.root,
            node=first.identity if first else None,
            before=before,
        )

    def allow(self, seconds: float) -> None:
        """Give what follows more time."""
        self.deadline += seconds
        self._timeout_s += seconds

    def tick(self, problem: str, pause_s: float = 0.05) -> None:
        """Wait a little. Raises LabError when a daemon has ended or the time is up, and a signal that is held off."""
        interruption.check()
        for name, started in list(self.children.items()):
            code = started.child.poll()
            if code is None:
                continue
            how = f"was ended by {signal.strsignal(-code)}" if code < 0 else f"ended with exit code {code}"
            if name != MANAGER or -code not in _CRASHES or self._manager_crashed:
                raise LabError(f"{name} {how}")
            # One start of a manager in about a thousand aborts; systemd would start it again, too.
            self._manager_crashed = True
            self.progress(f"{name} {how}: starting it again")
            self.start(name)
        if time.monotonic() > self.deadline:
            raise LabError(f"{problem} after {self._timeout_s:.0f} s")
        time.sleep(pause_s)

    def _announce_helper(self, pid: int) -> None:
        if (identity := identity_of(self.host, pid)) is not None:
            self.journal.helper(identity)


def command_all(session: CephSession, commands: Sequence[dict[str, Any]]) -> None:
    """Send monitor commands side by side. Raises LabError with the first refusal."""
    requests = [CephRequest(c["prefix"], "mon", tuple(c.items()), timeout_s=60) for c in commands]
    for answer in session.commands(requests):
        if answer.exit_code != 0:
            what = answer.request.label
            raise LabError(f"'{what}' was refused: {answer.stderr.decode(errors='replace').strip()}")


def write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner can read. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
