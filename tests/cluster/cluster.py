"""A lab under test: how `bathy` is run on it, and what it is, so that what a test leaves is seen."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bathyscope.errors import UnreachableError
from bathyscope.host import CephSession
from bathyscope.host.ceph import connect
from bathyscope.host.local import LocalHost
from bathyscope.lab import state
from bathyscope.spec import Target

# It keeps what it likes in them.
_OF_THE_MANAGER = ("device_health_metrics", ".mgr")


class Background(subprocess.Popen[bytes]):
    """A `bathy` in the background. One that does not end when it should says what each of its threads does."""

    said: Path

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, as Popen does; what is late is ended, and the test with it."""
        try:
            return super().wait(timeout)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGABRT)
            super().wait(10)
            words = self.said.read_text(errors="replace")
            raise AssertionError(f"bathy did not end within {timeout} s:\n{words}") from None


@dataclasses.dataclass
class Cluster:
    """A lab under test and the ways to use it."""

    name: str
    home: Path

    @property
    def target(self) -> Target:
        return state.load(self.name).target()

    @contextlib.contextmanager
    def session(self) -> Iterator[CephSession]:
        session = connect(LocalHost(), self.target)
        try:
            yield session
        finally:
            session.close()

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.home), "NO_COLOR": "1", **more}

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "bathyscope.cli", *words]

    def bathy(
        self, *words: str, timeout_s: float = 120, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `bathy` to its end."""
        return subprocess.run(
            self.argv(*words), env=self.environment(**environment), capture_output=True, text=True,
            timeout=timeout_s, check=False, cwd=cwd,
        )  # fmt: skip

    def start(self, *words: str, stderr: Path, **environment: str) -> Background:
        """Start `bathy` in the background; what it says goes to a file that can be waited on.

        A signal that these tests ignore themselves (run by nohup or as a background job) would be ignored by it too.
        """
        argv = ["env", "--default-signal=INT,HUP,TERM", *self.argv(*words)]
        variables = self.environment(PYTHONFAULTHANDLER="1", **environment)
        with stderr.open("wb") as file:
            process = Background(argv, env=variables, stdout=subprocess.DEVNULL, stderr=file)
        process.said = stderr
        return process

    def snapshot(self) -> dict[str, Any]:
        """Return everything that a run could have changed: pools, rules, flags, options, overrides of OSDs."""
        return self._answered(lambda session: _snapshot(session, session.json("mon", "osd dump")))

    def journals(self) -> list[Path]:
        return sorted((self.home / "bathyscope" / "journal").glob("*"))

    def whole(self) -> dict[str, Any]:
        """Return all that the cluster is: what a run could have changed, and what only tests and operators change."""

        def everything(session: CephSession) -> dict[str, Any]:
            dump = session.json("mon", "osd dump")
            return _snapshot(session, dump) | {
                "weights": {osd["osd"]: [osd["weight"], osd["primary_affinity"], osd["up"]] for osd in dump["osds"]},
                "upmaps": dump["pg_upmap"] + dump["pg_upmap_items"],
                "crush": [
                    [node["name"], node.get("crush_weight"), node.get("device_class")]
                    for node in session.json("mon", "osd crush tree")["nodes"]
                ],
                "keys": sorted(str(key["entity"]) for key in session.json("mon", "auth ls")["auth_dump"]),
                "profiles": sorted(session.json("mon", "osd erasure-code-profile ls")),
                "modules": sorted(session.json("mon", "mgr module ls")["enabled_modules"]),
                "overrides": _overrides(session, "mon.a"),
                "objects": {
                    pool["name"]: pool["stats"]["objects"]
                    for pool in session.json("mon", "df")["pools"]
                    if pool["name"] not in _OF_THE_MANAGER
                },
            }

        # As it is read from a file: keys of objects are strings.
        return dict(json.loads(json.dumps(self._answered(everything))))

    def _answered(self, ask: Callable[[CephSession], dict[str, Any]]) -> dict[str, Any]:
        """Return what is answered: a manager that starts again, as it does for its modules, answers when it has."""
        deadline = time.monotonic() + 60
        with self.session() as session:
            while True:
                try:
                    return ask(session)
                except UnreachableError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.5)

    def tidy(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Remove what tests make as operators do: pools, keys, profiles, modules, options that were set by `tell`."""
        with self.session() as session:
            for module in set(now["modules"]) - set(before["modules"]):
                session.json("mon", "mgr module disable", module=module)
            for pool in set(now["pools"]) - set(before["pools"]):
                session.json("mon", "osd pool rm", pool=pool, pool2=pool, yes_i_really_really_mean_it=True)
            for rule in set(now["rules"]) - set(before["rules"]):
                session.json("mon", "osd crush rule rm", name=rule)
            for profile in set(now["profiles"]) - set(before["profiles"]):
                session.json("mon", "osd erasure-code-profile rm", name=profile)
            for entity in set(now["keys"]) - set(before["keys"]):
                session.json("mon", "auth rm", entity=entity)
            for osd, diff in now["osds"].items():
                for option in [name for name, values in diff.items() if "override" in values]:
                    if "override" not in before["osds"][osd].get(option, {}):
                        session.json(f"osd.{osd}", "config unset", var=option)
            for option in set(now["overrides"]) - set(before["overrides"]):
                session.json("mon.a", "config unset", var=option)


def _snapshot(session: CephSession, dump: Mapping[str, Any]) -> dict[str, Any]:
    osds = [int(osd["osd"]) for osd in dump["osds"] if osd["up"]]
    return {
        "pools": sorted(str(pool["pool_name"]) for pool in dump["pools"]),
        "rules": sorted(session.json("mon", "osd crush rule ls")),
        "flags": sorted(dump["flags"].split(",")),
        "ratios": [dump[f"{kind}_ratio"] for kind in ("full", "backfillfull", "nearfull")],
        "options": session.json("mon", "config dump"),
        "balancer": session.json("mgr", "balancer status")["active"],
        "osds": {osd: session.json(f"osd.{osd}", "config diff")["diff"] for osd in osds},
    }


def _overrides(session: CephSession, daemon: str) -> list[str]:
    """Return the options of a daemon that were set by `ceph tell`, by its own word: the manager hears of it later."""
    diff = session.json(daemon, "config diff")["diff"]
    return sorted(option for option, values in diff.items() if "override" in values)
