"""A guest on somebody else's cluster: whatever `bathy` does there, and however it ends, the cluster is as it was.

The cluster is built by foreign/cluster.sh, which has nothing of this project's: pools cannot be deleted, an operator
has set flags and options of their own (in the configuration, by `tell`, on single daemons), and a customer reads and
writes all the time. Commands run as on a client machine: its /etc/ceph is the cluster's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import bathyscope

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="daemons, mounts and name spaces need root"),
]

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "foreign" / "cluster.sh"
GUIDE = ROOT / "docs" / "guide" / "bench-a-real-cluster.md"
# `BATHY_FULL_GUIDE=1` runs the guide's loads as long as printed: half an hour and more.
SHORT = "" if os.environ.get("BATHY_FULL_GUIDE") else (
    "--set image_size=32M --set runtime=0.5s --set ramp=0s --set repeats=1 --set limits.prolong=0"
    # The customer has agreed to wait: all of it is one busy machine.
    " --set limits.baseline=1s --set limits.max_tenant_wait=10s --set limits.max_tenant_share=1000"
)  # fmt: skip
PLAN = """name: guest
layers: [rados, rbd]
patterns: [randread-4K-qd4, randwrite-4K-qd4]
axes: {image_size: 32M}
repeats: 1
ramp: 0s
runtime: 1s
limits: {prolong: 0, baseline: 1s, max_tenant_wait: 10s, max_tenant_share: 1000}
quiesce: {scrub: true, balancer: true}
capture: {sample_interval: 0.2s}
"""
ALL_CAPS = ("mon", "allow *", "mgr", "allow *", "osd", "allow *")
# What moves on its own on a cluster that nobody changes, and counters that never go back.
MOVING = {"epoch", "modified", "pool_max", "crush_version", "pg_temp", "primary_temp"}
# `rbd pool init` makes a snapshot and removes it; the OSDs trim it, and forget the queue, when they come to it.
MOVING |= {"new_removed_snaps", "removed_snaps_queue", "new_purged_snaps"}
MOVING_OF_OSD = {"up_from", "up_thru", "down_at", "last_clean_begin", "last_clean_end", "lost_at"}


@dataclasses.dataclass
class Foreign:
    """The cluster and a client machine of it. `home` is the client's: its state directory and working directory."""

    directory: Path
    home: Path

    def client(self, *words: str) -> list[str]:
        return [str(SCRIPT), "client", str(self.directory), *words]

    @property
    def environment(self) -> dict[str, str]:
        own = {"XDG_STATE_HOME": str(self.home / "state"), "NO_COLOR": "1", "TMPDIR": str(self.home / "tmp")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CEPH_", "BATHY_"))}
        code = str(Path(bathyscope.__file__).parents[1])
        return {**kept, **own, "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": code}

    def run(self, *words: str, timeout_s: float = 300, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.client(*words), env=self.environment, cwd=self.home, capture_output=True, text=True, input=text,
            timeout=timeout_s, check=False,
        )  # fmt: skip

    def bathy(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "bathyscope.cli", *words)

    def ask(self, *words: str) -> Any:
        """Return what a command of the administrator's answers in JSON."""
        return self.ask_all(" ".join(words))[0]

    def ask_all(self, *commands: str) -> list[Any]:
        """Return what commands of the administrator's answer in JSON: one program asks them all."""
        ended = self.run("ceph", "--format", "json", text="".join(f"{command}\n" for command in commands))
        assert ended.returncode == 0, (commands, ended.stderr)
        decoder, answers, rest = json.JSONDecoder(), [], ended.stdout
        while len(answers) < len(commands):
            # Before an answer may stand a prompt, or a line of `balancer status`.
            begin = min(at for at in (rest.find("{"), rest.find("[")) if at >= 0)
            answer, end = decoder.raw_decode(rest[begin:])
            answers.append(answer)
            rest = rest[begin + end :]
        return answers

    def key(self, name: str, *caps: str) -> tuple[str, ...]:
        """Make a key and return the options that use it."""
        keyring = self.home / f"{name}.keyring"
        ended = self.run("ceph", "auth", "get-or-create", name, *caps, "-o", str(keyring))
        assert ended.returncode == 0, ended.stderr
        return ("--client", name, "--keyring", str(keyring))

    def dump(self) -> str:
        """Return everything that the cluster is once it has settled, as text: one line for each value."""
        for _ in range(60):
            states = self.ask("status")["pgmap"]["pgs_by_state"]
            if [state["state_name"] for state in states] == ["active+clean"]:
                break
            time.sleep(1)
        names = {
            "osd dump": "osd dump", "crush": "osd crush dump", "config": "config dump", "config-key": "config-key ls",
            "auth": "auth ls", "profiles": "osd erasure-code-profile ls", "modules": "mgr module ls",
            "balancer": "balancer status", "health": "health", "file systems": "fs ls",
        }  # fmt: skip
        whole = dict(zip(names, self.ask_all(*names.values()), strict=True))
        for osd in whole["osd dump"]["osds"]:
            for name in MOVING_OF_OSD:
                osd.pop(name, None)
        whole["osd dump"] = {name: value for name, value in whole["osd dump"].items() if name not in MOVING}
        # Its history of the configuration is a log: it names every change and its undoing.
        whole["config-key"] = [name for name in whole["config-key"] if not name.startswith("config-history/")]
        whole["modules"] = whole["modules"]["enabled_modules"]
        whole["balancer"] = {name: whole["balancer"][name] for name in ("active", "mode")}
        whole["health"] = sorted(whole["health"]["checks"])
        whole["images"] = self.run("rbd", "ls", "--long", "customers").stdout.splitlines()
        sockets = sorted((self.directory / "run").glob("*.asok"))
        whole["daemons"] = {
            path.stem: asked(path, "config diff")["diff"]
            for path in sockets
            if re.fullmatch(r"(mon|mgr|osd)\.\w+", path.stem)
        }
        assert len(whole["daemons"]) == 5, sockets
        return json.dumps(whole, indent=1, sort_keys=True)

    def left_behind(self) -> list[str]:
        """Return what `bathy` has left on the client machine: journals and scratch directories."""
        journals = self.home.glob("state/bathyscope/journal/*")
        return [str(path) for path in (*journals, *(self.home / "tmp").iterdir())]

    def sweep(self) -> None:
        """Remove what a test has left, with the administrator's own commands."""
        made = [name for name in self.ask("osd", "pool", "ls") if name.startswith("bathy-")]
        if made:
            self.run("ceph", "tell", "mon.alpha", "config", "set", "mon_allow_pool_delete", "true")
            for name in made:
                self.run("ceph", "osd", "pool", "rm", name, name, "--yes-i-really-really-mean-it")
            self.run("ceph", "tell", "mon.alpha", "config", "unset", "mon_allow_pool_delete")
        for rule in self.ask("osd", "crush", "rule", "ls"):
            if rule.startswith("bathy-"):
                self.run("ceph", "osd", "crush", "rule", "rm", rule)
        for path in self.left_behind():
            shutil.rmtree(path) if Path(path).is_dir() else Path(path).unlink()


def asked(path: Path, prefix: str) -> Any:
    """Return what a daemon answers on its admin socket: a command in JSON and a zero; a length and the answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(60)
        connection.connect(str(path))
        connection.sendall(json.dumps({"prefix": prefix}).encode() + b"\0")
        with connection.makefile("rb") as stream:
            (length,) = struct.unpack(">I", stream.read(4))
            return json.loads(stream.read(length))


def difference(before: str, after: str) -> str:
    found = "\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", "", "", 3))
    # pytest shows the beginning of a long text only.
    print(found)
    return found


def free_ports() -> int:
    """Return a port that is free together with the next one."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", port))
            two.bind(("127.0.0.1", port + 1))
            return port


@pytest.fixture(scope="module")
def theirs() -> Iterator[Foreign]:
    # Short paths: sockets lie below them.
    with (
        tempfile.TemporaryDirectory(prefix="theirs-", dir="/var/tmp") as cluster,
        tempfile.TemporaryDirectory(prefix="guest-", dir="/var/tmp") as home,
    ):
        foreign = Foreign(Path(cluster), Path(home))
        (foreign.home / "bin").mkdir()
        (foreign.home / "tmp").mkdir()
        try:
            built = subprocess.run(
                [SCRIPT, "up", cluster, str(free_ports())], capture_output=True, text=True, timeout=300, check=False
            )
            assert built.returncode == 0, built.stdout + built.stderr
            yield foreign
        finally:
            subprocess.run([SCRIPT, "down", cluster], timeout=120, check=True)
        # fio says before its JSON that it was told to end.
        said = (foreign.directory / "log" / "customer.json").read_text()
        (job,) = json.loads(said[said.index("{") :])["jobs"]
        seconds = job["job_runtime"] / 1000
        print(f"the customer: {(job['read']['total_ios'] + job['write']['total_ios']) / seconds:.1f} IOPS")
        assert job["error"] == 0


@pytest.fixture
def foreign(theirs: Foreign) -> Iterator[Foreign]:
    """The cluster; a test that leaves it, or the client machine, other than it was fails."""
    before = theirs.dump()
    yield theirs
    left = theirs.left_behind()
    after = theirs.dump()
    # One test's remains must not be the next one's failure.
    theirs.sweep()
    assert difference(without_keys(before), without_keys(after)) == ""
    assert left == []


def without_keys(dump: str) -> str:
    """Return a dump without keys: tests make some, as an operator does."""
    whole = json.loads(dump)
    whole["auth"] = [e for e in whole["auth"]["auth_dump"] if not e["entity"].startswith(("client.bench", "client.t-"))]
    return json.dumps(whole, indent=1, sort_keys=True)


@pytest.fixture
def plan(foreign: Foreign) -> str:
    (foreign.home / "plan.yaml").write_text(PLAN)
    return "plan.yaml"


def refused(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the one line that says what is wrong: exit code 2, with a hint, without a traceback."""
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    (line,) = [text for text in ended.stderr.splitlines() if text.startswith("bathy: ")]
    assert [text for text in ended.stderr.splitlines() if text.startswith("hint: ")]
    return line


# --- the guide


def printed_commands(page: Path) -> list[str]:
    """Return the `sh` blocks of a page, in order, as they are printed."""
    found = re.findall(r"^([ ]*)```sh\n(.*?)^\1```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(text) for _, text in found]


@contextlib.contextmanager
def fio_servers(foreign: Foreign, block: str) -> Iterator[None]:
    """`fio --server` on each client machine that a block names, which are addresses of this one."""
    servers = []
    for name in re.findall(r"--fio-server[ =](\S+)", block):
        host, _, port = name.partition(":")
        words = foreign.client("fio", f"--server={host},{port or 8765}")
        servers.append(
            subprocess.Popen(
                words, env=foreign.environment, cwd=foreign.home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
    time.sleep(1.0 if servers else 0)
    try:
        yield
    finally:
        for server in servers:
            server.terminate()
            server.wait(20)


# Options for machines or programs that this cluster has not; test_prefix, test_prometheus and test_nodes run them.
_ELSEWHERE = ("--ceph-prefix", "--prometheus", "--client-host")


def test_the_guide_runs_as_printed_and_nothing_is_left(theirs: Foreign, tools: Any) -> None:
    """Its blocks in order, each in a shell. What a block with `bathy bench` did must be gone when it ends.

    The other blocks are the operator's own: a key is meant to stay. Before `resume` a run is killed, so that there is
    something to resume. Of blocks for other clusters than this one the options must be there.
    """
    foreign = theirs
    bathy = foreign.home / "bin" / "bathy"
    python = f"{shlex.quote(sys.executable)} -m bathyscope.cli"
    bathy.write_text(
        f'#!/bin/sh\ncase "$1 $2" in\n"bench run") exec {python} "$@" {SHORT} ;;\n*) exec {python} "$@" ;;\nesac\n'
    )
    bathy.chmod(0o755)
    blocks = printed_commands(GUIDE)
    (run,) = [b for b in blocks if "bench run" in b and "--dry-run" not in b and "--fio-server" not in b][:1]
    assert any("--dry-run" in block for block in blocks)
    known = foreign.run(str(bathy), "bench", "run", "--help").stdout
    before = foreign.dump()
    for block in blocks:
        print(block)
        if any(option in block for option in _ELSEWHERE):
            assert [word for word in re.findall(r"(?<=\s)--[a-z-]+", block) if word not in known] == []
            continue
        if "bench resume" in block:
            _kill_in_the_middle(foreign, run, tools)
        with fio_servers(foreign, block):
            ended = foreign.run("sh", "-euc", block, timeout_s=1000 if SHORT else 7200)
        print(ended.stdout[-4000:], ended.stderr[-4000:])
        assert ended.returncode == 0, f"{block}\n{ended.stderr}"
        after = foreign.dump()
        if "bathy bench" in block:
            assert difference(before, after) == "", block
            assert foreign.left_behind() == [], block
        before = after


def _kill_in_the_middle(foreign: Foreign, block: str, tools: Any) -> None:
    """Run a block of the guide until a load of it runs, and kill it."""
    said = foreign.home / "killed.txt"
    with said.open("wb") as file:
        process = subprocess.Popen(
            foreign.client("sh", "-euc", f"exec {block}"), env=foreign.environment, cwd=foreign.home,
            stdout=subprocess.DEVNULL, stderr=file,
        )  # fmt: skip
    tools.wait_for(lambda: "[3/" in said.read_text() or process.poll() is not None, 200, "the third step")
    assert process.poll() is None, said.read_text()
    process.kill()
    process.wait()


# --- keys


@pytest.mark.parametrize(
    ("name", "caps"),
    [
        ("client.t-reads", ("mon", "allow r", "mgr", "allow r", "osd", "allow r")),
        ("client.t-rbd", ("mon", "profile rbd", "osd", "profile rbd pool=customers")),
    ],
)
def test_a_weak_key_is_refused(foreign: Foreign, plan: str, name: str, caps: Sequence[str]) -> None:
    ended = foreign.bathy("bench", "run", plan, "-w", "weak", *foreign.key(name, *caps))
    refused(ended)
    assert not list((foreign.home / "weak").glob("runs/*/segments/step-*"))


def test_a_key_that_cannot_delete_is_refused(foreign: Foreign, plan: str) -> None:
    """It may make everything that a run makes. Nothing is made with it, because nothing could be removed."""
    making = ("osd pool create", "osd pool set", "osd pool application enable", "osd crush rule create-replicated")
    mon = ", ".join(["allow r", *(f'allow command "{command}"' for command in making)])
    ended = foreign.bathy(
        "bench", "run", plan, "-w", "no-delete", *foreign.key("client.t-makes", "mon", mon, *ALL_CAPS[2:])
    )
    refused(ended)
    assert [pool for pool in foreign.ask("osd", "pool", "ls") if pool.startswith("bathy-")] == []


# --- kills


def test_kills_at_random_moments_leave_nothing(foreign: Foreign, plan: str) -> None:
    """Killed with -9 in preparation, filling, loads and removal; then resumed, and in the end cleaned up."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    generator = random.Random(seed)
    options = foreign.key("client.bench-kills", *ALL_CAPS)
    words: tuple[str, ...] = ("bench", "run", plan, "-w", "kills", *options)
    for _ in range(5):
        process = subprocess.Popen(
            foreign.client(sys.executable, "-m", "bathyscope.cli", *words), env=foreign.environment, cwd=foreign.home,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        delay_s = generator.uniform(0.5, 20)
        try:
            _, said = process.communicate(timeout=delay_s)
            assert process.returncode == 0, said.decode()
            words = ("bench", "run", plan, "-w", "kills", *options)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            print(f"killed after {delay_s:.1f} s")
            begun = list((foreign.home / "kills" / "runs").glob("*/run.json"))
            words = ("bench", "resume", "last", "-w", "kills") if begun else words
    ended = foreign.bathy("bench", "cleanup")
    assert ended.returncode == 0, ended.stderr


def test_options_of_a_phase_go_back_after_a_kill(foreign: Foreign, tools: Any) -> None:
    """One that the operator has set to another value, and one that nobody has set."""
    options = "{osd_max_backfills: 3, osd_scrub_sleep: 0.5}"
    phases = f"phases: [{{name: as-it-is}}, {{name: other, osd_options: {options}}}]\n"
    (foreign.home / "phases.yaml").write_text(PLAN + phases)
    words = ("bench", "run", "phases.yaml", "--layer", "rados", "-w", "p", *foreign.key("client.bench-p", *ALL_CAPS))
    _kill_in_the_middle(foreign, shlex.join([sys.executable, "-m", "bathyscope.cli", *words]), tools)
    found = {row["name"]: row["value"] for row in foreign.ask("config", "dump") if row["section"] == "osd"}
    assert (found["osd_max_backfills"], float(found["osd_scrub_sleep"])) == ("3", 0.5)
    ended = foreign.bathy("bench", "cleanup")
    assert ended.returncode == 0, ended.stderr
