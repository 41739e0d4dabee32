"""Keys of every strength on a real Ceph: what they may do is known before the first change, and said by name."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

PLAN = """name: keys
layers: [rados, rbd]
patterns: [randread-4K-qd4, randwrite-4K-qd4]
axes: {image_size: 32M}
repeats: 1
ramp: 0s
runtime: 1s
limits: {prolong: 0, baseline: 1s}
capture: {sample_interval: 0.2s}
"""
GUEST = "client.guest"


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    return file


class Guest:
    """A key on the shared lab, and `bathy` with it."""

    def __init__(self, cluster: Any, directory: Path, plan_file: Path) -> None:
        self.cluster = cluster
        self.keyring = directory / "guest.keyring"
        self.workspace = directory / "ws"
        self.plan_file = plan_file

    def ceph(self, *words: str) -> str:
        """Run `ceph` as the administrator."""
        target = self.cluster.target
        argv = ["ceph", "-c", target.conf, "-k", target.keyring, *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout

    def may(self, mon: str = "", mgr: str = "allow r", osd: str = "") -> None:
        """Give the key these caps; it is made when it does not exist."""
        caps = [word for kind, cap in (("mon", mon), ("mgr", mgr), ("osd", osd)) if cap for word in (kind, cap)]
        if self.keyring.exists():
            self.ceph("auth", "caps", GUEST, *caps)
        else:
            self.ceph("auth", "get-or-create", GUEST, *caps, "-o", str(self.keyring))

    def make_as_printed(self, *words: str) -> dict[str, str]:
        """Run what `bathy caps` prints, word for word but for the way to the cluster. Return the caps."""
        printed = self.cluster.bathy("caps", *words, "--client", GUEST).stdout
        argv = shlex.split(printed.replace("\\\n", " "))
        assert argv[0] == "ceph"
        assert argv[-2:] == ["-o", f"/etc/ceph/ceph.{GUEST}.keyring"]
        if self.keyring.exists():
            self.ceph("auth", "rm", GUEST)
        self.ceph(*argv[1:-1], str(self.keyring))
        assert argv[1:4] == ["auth", "get-or-create", GUEST]
        return dict(zip(argv[4:-2:2], argv[5:-2:2], strict=True))

    def words(self, *more: str) -> tuple[str, ...]:
        target = ("--conf", self.cluster.target.conf, "--client", GUEST, "--keyring", str(self.keyring))
        return ("bench", "run", str(self.plan_file), *target, "-w", str(self.workspace), *more)

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        return self.cluster.bathy(*self.words(*more))  # type: ignore[no-any-return]

    def epoch(self) -> int:
        """Return the epoch of the OSD map: it grows with every pool, rule and flag that is made, set or removed.

        It also grows for some seconds while placement groups peer, so it is waited until it does not.
        """
        with self.cluster.session() as session:
            epoch = -1
            while epoch != (epoch := int(session.json("mon", "osd dump")["epoch"])):
                time.sleep(1.5)
            return epoch

    def refused_unchanged(self, *words: str, hint: str = "", more: tuple[str, ...] = ()) -> str:
        """The run is refused in one line with every word, and nothing at all has been changed."""
        # Placement groups of a new lab may peer late; what a run changes it changes each time.
        for _ in range(3):
            before = self.epoch()
            ended = self.run(*more)
            if self.epoch() == before:
                return self.refused(ended, *words, hint=hint)
        raise AssertionError(ended.stderr)

    def refused(self, ended: subprocess.CompletedProcess[str], *words: str, hint: str = "") -> str:
        assert ended.returncode == 2, ended.stderr
        assert "Traceback" not in ended.stderr
        (line,) = [text for text in ended.stderr.splitlines() if text.startswith("bathy: ")]
        (said,) = [text for text in ended.stderr.splitlines() if text.startswith("hint: ")]
        for word in words:
            assert word in line
        assert hint in said
        return ended.stderr


@pytest.fixture
def guest(cluster: Any, tmp_path: Path, plan_file: Path) -> Iterator[Guest]:
    made = Guest(cluster, tmp_path, plan_file)
    yield made
    made.ceph("auth", "rm", GUEST)


def steps_done(guest: Guest, tools: Any) -> list[str]:
    return [row["status"] for row in tools.rows(tools.newest(guest.workspace), "step")]


# --- exactly what is printed


def test_a_key_with_the_printed_caps_runs_the_plan(guest: Guest, tools: Any) -> None:
    caps = guest.make_as_printed("bench", "--plan", str(guest.plan_file))
    assert "*'" not in caps["mon"]
    assert "allow *" not in (caps["mon"], caps["osd"])
    ended = guest.run()
    assert ended.returncode == 0, ended.stderr
    assert f"{GUEST} may not use `ceph tell osd.N`" in ended.stderr
    assert steps_done(guest, tools) == ["done"] * 4
    # Its caps end where our names end: another pool is neither read nor removed.
    guest.ceph("osd", "pool", "create", "theirs", "8")
    try:
        access = ["-c", guest.cluster.target.conf, "-k", str(guest.keyring), "-n", GUEST]
        for argv in (
            ["rados", *access, "-p", "theirs", "put", "x", "/etc/hostname"],
            ["ceph", *access, "osd", "pool", "delete", "theirs", "theirs", "--yes-i-really-really-mean-it"],
            ["ceph", *access, "osd", "pool", "create", "more", "8"],
        ):
            assert subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode != 0
    finally:
        guest.ceph("osd", "pool", "delete", "theirs", "theirs", "--yes-i-really-really-mean-it")


def test_every_printed_cap_is_needed_and_its_lack_is_said_before_the_first_change(guest: Guest) -> None:
    caps = guest.make_as_printed("bench", "--plan", str(guest.plan_file))
    parts = caps["mon"].split(", ")
    assert parts[0] == "allow r"
    for part in parts[1:]:
        command = part.split('"')[1]
        guest.may(", ".join(p for p in parts if p is not part), caps["mgr"], caps["osd"])
        if command == "osd pool op unmanaged-snap":
            # It cannot be tried; the pool that was made is removed again.
            ended = guest.run()
            guest.refused(ended, GUEST, "rbd", "not permitted", hint="bathy caps bench")
            assert guest.cluster.journals() == []
        else:
            guest.refused_unchanged(GUEST, command, hint=f"mon 'allow command \"{command}\"'")


def test_a_key_with_the_printed_caps_switches_and_captures(guest: Guest, tools: Any) -> None:
    words = ("--set", "quiesce.scrub=true", "--set", "quiesce.balancer=true")
    caps = guest.make_as_printed("bench", "--plan", str(guest.plan_file), "--tell", *words)
    with guest.cluster.session() as session:
        active = session.json("mgr", "balancer status")["active"]
    ended = guest.run(*words)
    assert ended.returncode == 0, ended.stderr
    assert "switched: noscrub" in ended.stderr
    assert active == ("switched: balancer off" in ended.stderr)
    assert "ceph tell" not in ended.stderr
    run = tools.newest(guest.workspace)
    assert tools.rows(run, "perf_counter")
    assert tools.rows(run, "op")
    # A key that may set a flag and not unset it must not set it.
    mon = ", ".join(part for part in caps["mon"].split(", ") if '"osd unset" with key=noscrub' not in part)
    guest.may(mon, caps["mgr"], caps["osd"])
    guest.refused_unchanged(GUEST, "osd unset", more=words)


# --- weak keys


def test_a_key_that_only_reads(guest: Guest) -> None:
    guest.may("allow r", osd="allow r")
    guest.refused_unchanged(GUEST, "osd pool delete", hint="bathy caps bench")


def test_a_key_that_creates_and_cannot_delete(guest: Guest) -> None:
    creating = ("osd crush rule create-replicated", "osd pool create", "osd pool set", "osd pool application enable")
    guest.may(", ".join(["allow r", *(f'allow command "{command}"' for command in creating)]), osd="allow rwx")
    guest.refused_unchanged(GUEST, "osd pool delete", hint="osd pool delete")


def test_a_key_without_caps_for_a_kind_of_daemon(guest: Guest) -> None:
    guest.may("allow *", mgr="", osd="allow *")
    guest.refused_unchanged(GUEST, "mgr", hint="mgr")
    guest.may("", osd="allow *")
    guest.refused_unchanged(GUEST, "no mon caps", hint=f"ceph auth get {GUEST}")


def test_a_key_that_may_not_use_the_data_is_refused_and_its_pool_is_removed(guest: Guest) -> None:
    guest.may("allow rw", osd="allow r tag bathyscope *=*")
    ended = guest.run()
    guest.refused(ended, GUEST, "write", hint="osd 'allow rwx tag bathyscope *=*'")
    assert guest.cluster.journals() == []


def test_cold_steps_need_a_key_that_tells_osds(guest: Guest) -> None:
    guest.may("allow rw", osd="allow rwx")
    guest.refused_unchanged(GUEST, "osd.", "cold", hint="osd 'allow *'", more=("--set", "temperature=cold"))


# --- what the cluster forbids


@contextlib.contextmanager
def option(guest: Guest, name: str, value: str) -> Iterator[None]:
    """Set an option of the running monitors for a while."""
    guest.ceph("tell", "mon.*", "config", "set", name, value)
    try:
        yield
    finally:
        guest.ceph("tell", "mon.*", "config", "unset", name)


def test_a_cluster_that_forbids_one_replica(guest: Guest) -> None:
    guest.may("allow *", osd="allow *")
    with option(guest, "mon_allow_pool_size_one", "false"):
        more = ("--set", "replicas=1")
        guest.refused_unchanged("mon_allow_pool_size_one", hint="mon_allow_pool_size_one true", more=more)


def test_a_cluster_that_forbids_to_delete_pools(guest: Guest, tools: Any) -> None:
    guest.make_as_printed("bench", "--plan", str(guest.plan_file))
    with option(guest, "mon_allow_pool_delete", "false"):
        # The manager hears of the new value with the monitor's next report.
        with guest.cluster.session() as session:
            from bathyscope.host import CephRequest  # noqa: PLC0415

            words = (("prefix", "config show"), ("who", "mon.a"), ("key", "mon_allow_pool_delete"))
            monitor = session.json("mon", "mon dump")["mons"][0]["name"]
            words = (words[0], ("who", f"mon.{monitor}"), words[2])
            tools.wait_for(
                lambda: session.command(CephRequest("show", "mgr", words)).stdout.strip() == b"false",
                what="the manager's knowledge of the option",
            )
        guest.refused_unchanged("mon_allow_pool_delete", GUEST, hint="--pool")
        # A key that may command the monitors switches it for a moment.
        guest.may("allow *", osd="allow *")
        ended = guest.run("--layer", "rbd")
        assert ended.returncode == 0, ended.stderr
        assert "mon_allow_pool_delete is false" in ended.stderr


def test_a_cluster_without_room_for_more_placement_groups(guest: Guest) -> None:
    guest.may("allow *", osd="allow *")
    with option(guest, "mon_max_pg_per_osd", "40"):
        guest.refused_unchanged("placement groups", "mon_max_pg_per_osd", hint="--pool")


# --- in the operator's pool


@pytest.fixture
def scratch(guest: Guest) -> Iterator[Callable[[], list[str]]]:
    """Make a pool with an operator's image and object in it; return what lists everything in it."""
    target = guest.cluster.target
    access = ["-c", target.conf, "-k", target.keyring]

    def run(*argv: str) -> str:
        return subprocess.run([argv[0], *access, *argv[1:]], check=True, capture_output=True, text=True).stdout

    guest.ceph("osd", "pool", "create", "scratch", "16")
    try:
        run("rbd", "pool", "init", "scratch")
        run("rbd", "create", "scratch/theirs", "--size", "8M")
        # The first image that is removed leaves RBD's own (empty) object rbd_trash.
        run("rbd", "create", "scratch/once", "--size", "8M")
        run("rbd", "rm", "scratch/once")
        run("rados", "-p", "scratch", "put", "theirs", "/etc/hostname")
        yield lambda: sorted(run("rados", "-p", "scratch", "ls", "--all").splitlines())
    finally:
        guest.ceph("osd", "pool", "delete", "scratch", "scratch", "--yes-i-really-really-mean-it")


def test_a_run_in_the_operators_pool_needs_caps_on_it_alone_and_leaves_nothing(
    guest: Guest, scratch: Callable[[], list[str]], tools: Any
) -> None:
    caps = guest.make_as_printed("bench", "--plan", str(guest.plan_file), "--pool", "scratch")
    assert caps == {"mon": "allow r", "mgr": "allow r", "osd": "allow rwx pool=scratch"}
    before, pool = scratch(), guest.ceph("osd", "pool", "get", "scratch", "all")
    ended = guest.run("--pool", "scratch")
    assert ended.returncode == 0, ended.stderr
    assert steps_done(guest, tools) == ["done"] * 4
    assert scratch() == before
    assert guest.ceph("osd", "pool", "get", "scratch", "all") == pool
    guest.refused_unchanged("no pool 'scrach'", hint="scratch", more=("--pool", "scrach"))
    guest.may("allow r", osd="allow r pool=scratch")
    guest.refused_unchanged(GUEST, "write", "scratch", hint="osd 'allow rwx pool=scratch'", more=("--pool", "scratch"))


def test_a_pool_that_is_not_prepared_for_images(guest: Guest) -> None:
    guest.ceph("osd", "pool", "create", "bare", "16")
    try:
        guest.may("allow r", osd="allow rwx pool=bare")
        guest.refused_unchanged("bare", "not prepared for RBD", hint="rbd pool init bare", more=("--pool", "bare"))
        ended = guest.run("--pool", "bare", "--layer", "rados")
        assert ended.returncode == 0, ended.stderr
        access = ["-c", guest.cluster.target.conf, "-k", guest.cluster.target.keyring]
        assert subprocess.check_output(["rados", *access, "-p", "bare", "ls", "--all"]) == b""
    finally:
        guest.ceph("osd", "pool", "delete", "bare", "bare", "--yes-i-really-really-mean-it")


def killed(guest: Guest, tmp_path: Path, tools: Any, *more: str) -> None:
    """Kill a run in its last step, so that everything it makes is left."""
    said = tmp_path / "killed"
    process = guest.cluster.start(*guest.words("--runtime", "60s", *more), stderr=said)
    try:
        tools.wait_for(lambda: tools.fio_of(process.pid) and "[1/" in said.read_text(), what="the first step")
    finally:
        process.kill()
        process.wait()


def test_remains_in_the_operators_pool_are_removed_with_another_key(
    guest: Guest, scratch: Callable[[], list[str]], tmp_path: Path, tools: Any
) -> None:
    guest.make_as_printed("bench", "--plan", str(guest.plan_file), "--pool", "scratch")
    before = scratch()
    killed(guest, tmp_path, tools, "--pool", "scratch")
    assert [name for name in scratch() if "bathy-" in name]
    guest.may("allow r", osd="allow r pool=scratch")
    ended = guest.cluster.bathy("bench", "cleanup")
    guest.refused(ended, GUEST, "scratch", hint="--client")
    admin = guest.cluster.target
    ended = guest.cluster.bathy("bench", "cleanup", "--client", admin.client, "--keyring", admin.keyring)
    assert ended.returncode == 0, ended.stderr
    assert "removing the image scratch/bathy-" in ended.stderr
    assert scratch() == before
    assert guest.cluster.journals() == []


# --- cleaning up


def test_cleanup_names_only_what_is_there_and_forgets_what_is_gone(guest: Guest, tmp_path: Path, tools: Any) -> None:
    caps = guest.make_as_printed("bench", "--plan", str(guest.plan_file))
    killed(guest, tmp_path, tools, "--layer", "rbd")
    (pool,) = [name for name in guest.cluster.snapshot()["pools"] if name.startswith("bathy-")]
    # A key that cannot delete says so by name, and what is left stays in the journal.
    parts = [part for part in caps["mon"].split(", ") if "osd pool delete" not in part]
    guest.may(", ".join(parts), caps["mgr"], caps["osd"])
    guest.refused(guest.cluster.bathy("bench", "cleanup"), pool, GUEST, "osd pool delete", hint="--client")
    # The operator removes the pool: only its rule is still named.
    guest.ceph("osd", "pool", "delete", pool, pool, "--yes-i-really-really-mean-it")
    guest.may(caps["mon"], caps["mgr"], caps["osd"])
    ended = guest.run("--dry-run")
    ended = guest.cluster.bathy(*guest.words("--layer", "rbd"), XDG_STATE_HOME=str(guest.cluster.home))
    assert ended.returncode == 0, ended.stderr
    assert f"left the CRUSH rule {pool}-rule:" in ended.stderr
    assert f"the pool {pool}" not in ended.stderr
    # And the rule: then nothing is named, and nothing is left to clean.
    guest.ceph("osd", "crush", "rule", "rm", f"{pool}-rule")
    ended = guest.run("--layer", "rbd")
    assert ended.returncode == 0, ended.stderr
    assert pool not in ended.stderr
    assert guest.cluster.journals() == []
    assert "nothing to clean up" in guest.cluster.bathy("bench", "cleanup").stderr


def test_the_printed_caps_of_cleanup_clean_up(guest: Guest, tmp_path: Path, tools: Any) -> None:
    guest.make_as_printed("bench", "--plan", str(guest.plan_file))
    killed(guest, tmp_path, tools)
    guest.make_as_printed("bench", "cleanup", "--plan", str(guest.plan_file))
    ended = guest.cluster.bathy("bench", "cleanup", "--client", GUEST, "--keyring", str(guest.keyring))
    assert ended.returncode == 0, ended.stderr
    assert guest.cluster.journals() == []


# --- who refuses, and why


def test_another_key_and_an_unknown_entity_are_not_let_in(guest: Guest) -> None:
    guest.may("allow *", osd="allow *")
    key = base64.b64encode(b"\x01\x00" + bytes(8) + b"\x10\x00" + os.urandom(16)).decode()
    guest.keyring.write_text(f"[{GUEST}]\n\tkey = {key}\n")
    guest.refused_unchanged(GUEST, str(guest.keyring), "another key", hint=f"ceph auth get {GUEST}")
    guest.keyring.write_text("[client.other]\n\tkey = " + key + "\n")
    guest.refused_unchanged(f"no key for {GUEST}", f"{guest.keyring} has none", hint="--client")


@contextlib.contextmanager
def listener(banner: bytes) -> Iterator[int]:
    """Listen, and say `banner` to everybody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.sendall(banner)
                    kept.append(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in kept:
            connection.close()


def test_a_dead_monitor_a_wrong_address_and_one_without_quorum_are_told_apart(guest: Guest, tmp_path: Path) -> None:
    guest.may("allow r")
    conf = tmp_path / "ceph.conf"

    def connect(mon_host: str) -> subprocess.CompletedProcess[str]:
        conf.write_text(f"[global]\nmon host = {mon_host}\nlog file = /dev/null\n")
        words = ("--conf", str(conf), "--client", GUEST, "--keyring", str(guest.keyring))
        return guest.cluster.bathy("bench", "run", str(guest.plan_file), *words, "-w", str(guest.workspace))  # type: ignore[no-any-return]

    with listener(b"ceph v2\n") as silent, listener(b"SSH-2.0-x\r\n") as ssh:
        addresses = f"[v2:127.0.0.1:9] [v2:127.0.0.1:{silent}/0] [v2:127.0.0.1:{ssh}]"
        ended = connect(addresses)
        guest.refused(
            ended,
            "nothing listens at 127.0.0.1:9 ",
            f"a monitor listens at 127.0.0.1:{silent} but lets nobody in",
            f"what listens at 127.0.0.1:{ssh} is not a Ceph monitor",
            hint="mon_status",
        )
    guest.refused(connect(""), "names no monitor", hint="mon_host =")
    assert json.loads(guest.ceph("auth", "get", GUEST, "--format", "json"))[0]["caps"]["mon"] == "allow r"
