"""Where objects lie and who has the images, on a real Ceph: what is computed is what the cluster says."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bathyscope.analysis.pg_mapping import seeds
from bathyscope.commands.analyze import finding_of_view
from bathyscope.host.local import LocalHost
from bathyscope.lab.spec import parse_ec
from bathyscope.recording.collect import collect
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.records import Attachment, PgPlacement, RawAnswer, from_table
from bathyscope.sources import SOURCES
from bathyscope.store import Workspace
from bathyscope.watch.caps import of_watch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

EC_POOL = "ec-2-1"
VOLUME = "volume-00ff159d-a95d-4d7e-877e-7dd69b7ea5c7"
KEY_ID = "457eb676-33da-42ec-9a8c-9293d545c337"
DOMAIN = """<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>64</memory>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
{disks}
  </devices>
</domain>
"""
DISK = """    <disk type='network' device='disk'>
      <driver name='qemu' type='raw' cache='none'/>
      <auth username='machines'><secret type='ceph' uuid='{secret}'/></auth>
      <source protocol='rbd' name='{image}'><host name='127.0.0.1' port='{port}'/></source>
      <target dev='vd{letter}' bus='virtio'/>
    </disk>"""


@pytest.fixture(scope="module")
def lab(borrowed_lab: Any) -> Iterator[Any]:
    with borrowed_lab("ssd=3", ec=parse_ec("2+1")) as cluster:
        with cluster.session() as session:
            # No power of two, so that some groups have twice the objects of others.
            coded = {"pool_type": "erasure", "erasure_code_profile": profile(session)}
            for pool, kind in (("odd", {}), ("odd-ec", coded)):
                session.json("mon", "osd pool create", pool=pool, pg_num=12, pgp_num=12, **kind)
        yield cluster


def profile(session: Any) -> str:
    """Return the profile of the lab's erasure-coded pool."""
    (pool,) = (each for each in session.json("mon", "osd dump")["pools"] if each["pool_name"] == EC_POOL)
    return str(pool["erasure_code_profile"])


def names(count: int) -> list[str]:
    """Return names of objects of all lengths, some as images have them, some with other letters."""
    dice = random.Random(211)
    of_images = [f"rbd_data.10ab.{number:016x}" for number in range(count // 4)]
    coded = [f"rbd_data.2.{dice.getrandbits(40):x}.{dice.getrandbits(30):016x}" for _ in range(count // 4)]
    lengths = ["x" * length for length in range(1, 40)]
    return [*of_images, *coded, *lengths, *(f"größe {number} %" for number in range(count - count // 4 * 2 - 39))]


def test_objects_lie_where_the_monitors_say(lab: Any, tools: Any) -> None:
    places = [("rbd", ""), ("odd", ""), ("odd", "tenant"), (EC_POOL, ""), ("odd-ec", "größe")]
    with lab.session() as session:
        tools.wait_for(lambda: not active(session), 60, "active groups")
        keeper = ScopeKeeper(LocalHost(), session, lab.target)
        keeper.refresh()
        source = SOURCES["pg_map"]
        answers = collect(LocalHost(), session, source.plan(keeper.scope))
        rows = from_table(PgPlacement, source.parse(answers, keeper.scope)[PgPlacement])
        said = []
        for pool, namespace in places:
            groups = {row.seed: row for row in rows if row.pool == pool}
            for name in names(100):
                seed = seeds(np.frombuffer(name.encode(), dtype=np.uint8)[None, :], namespace, len(groups))[0]
                answer = session.json("mon", "osd map", pool=pool, object=name, nspace=namespace)
                said.append(answer)
                group = groups[int(seed)]
                assert answer["pgid"] == f"{group.pool_id}.{group.seed:x}", answer
                acting = [osd for osd in answer["acting"] if osd != answer["acting_primary"]]
                assert group.acting.split() == [str(osd) for osd in (answer["acting_primary"], *acting)]
                assert group.osd == answer["acting_primary"]
    assert len(said) == 500
    kept = ("pool", "objname", "pgid", "acting", "acting_primary")
    keep("pg_map", answers, "osd_map.json", json.dumps([{key: each[key] for key in kept} for each in said]))


def active(session: Any) -> list[str]:
    """Return the groups that are not active."""
    groups = session.json("mgr", "pg dump", dumpcontents=["pgs_brief"])
    listed = groups["pg_stats"] if isinstance(groups, dict) else groups
    return [group["pgid"] for group in listed if "active" not in group["state"] or "unknown" in group["state"]]


@pytest.fixture
def libvirt(lab: Any, tools: Any) -> Iterator[Libvirt]:
    """A libvirtd of our own, without privileges, that touches nothing of this machine's; with a key of the lab."""
    missing = [name for name in ("libvirtd", "virsh", "qemu-system-x86_64") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="bathy-libvirt-", dir="/tmp") as name:
        home = Path(name)
        home.chmod(0o755)
        config = home / "config" / "libvirt"
        config.mkdir(parents=True)
        # Else another daemon is needed, for the console.
        (config / "qemu.conf").write_text('stdio_handler = "file"\n')
        subprocess.run(["chown", "-R", "nobody", str(home)], check=True)
        places = {f"XDG_{kind.upper()}": name + f"/{kind.partition('_')[0]}" for kind in (
            "config_home", "runtime_dir", "cache_home", "data_home",
        )}  # fmt: skip
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": name, **places}
        with (home / "said").open("wb") as said:
            daemon = subprocess.Popen(
                ["libvirtd"], user="nobody", group="nogroup", extra_groups=[], env=environment, cwd=name,
                stdout=said, stderr=said,
            )  # fmt: skip
        try:
            socket = home / "runtime" / "libvirt" / "libvirt-sock"
            tools.wait_for(socket.exists, 30, "libvirtd")
            found = Libvirt(f"qemu+unix:///session?socket={socket}", lab)
            found.add_key(home)
            yield found
            for machine in found.virsh("list", "--name").split():
                found.virsh("destroy", machine)
        finally:
            daemon.terminate()
            daemon.wait(30)


class Libvirt:
    """Commands for a libvirtd whose machines have disks in the lab."""

    def __init__(self, uri: str, lab: Any) -> None:
        self.uri, self._lab = uri, lab

    def virsh(self, *words: str) -> str:
        argv = ["virsh", "--quiet", "-c", self.uri, *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout

    def add_key(self, home: Path) -> None:
        """Give it a key of the lab, as OpenStack does."""
        caps = ("mon", "profile rbd", "osd", "profile rbd")
        key = ceph(self._lab, "ceph", "auth", "get-or-create-key", "client.machines", *caps).strip()
        (home / "secret.xml").write_text(
            f"<secret ephemeral='yes' private='yes'><uuid>{KEY_ID}</uuid>"
            "<usage type='ceph'><name>client.machines</name></usage></secret>"
        )
        self.virsh("secret-define", str(home / "secret.xml"))
        (home / "key").write_text(key)
        self.virsh("secret-set-value", KEY_ID, "--file", str(home / "key"))

    def define(self, home: Path, name: str, *images: str) -> None:
        """Define a machine."""
        with self._lab.session() as session:
            (monitor,) = session.json("mon", "mon dump")["mons"]
        (port,) = (
            each["addr"].rpartition(":")[2] for each in monitor["public_addrs"]["addrvec"] if each["type"] == "v1"
        )
        disks = [
            DISK.format(secret=KEY_ID, image=image, port=port, letter="abc"[place])
            for place, image in enumerate(images)
        ]
        (home / "domain.xml").write_text(DOMAIN.format(name=name, disks="\n".join(disks)))
        self.virsh("define", str(home / "domain.xml"))


def ceph(lab: Any, *words: str) -> str:
    """Run a client program of Ceph on the lab."""
    argv = [words[0], "--conf", str(lab.target.conf), *words[1:]]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout


def test_machines_of_a_real_libvirt_and_the_disks_that_they_have(lab: Any, libvirt: Libvirt, tmp_path: Path) -> None:
    for words in (("create", f"rbd/{VOLUME}"), ("create", "rbd/coded", "--data-pool", EC_POOL), ("create", "rbd/idle")):
        ceph(lab, "rbd", *words, "--size", "64M")
    libvirt.define(tmp_path, "instance-00000017", f"rbd/{VOLUME}", "rbd/coded")
    libvirt.define(tmp_path, "instance-00000018", "rbd/idle", "rbd/coded")
    libvirt.virsh("start", "instance-00000017")
    target = lab.target.model_copy(update={"libvirt": (libvirt.uri,)})
    source = SOURCES["libvirt"]

    def uses() -> tuple[list[RawAnswer], dict[str, str | None]]:
        scope = ScopeKeeper(LocalHost(), None, target).scope
        answers = collect(LocalHost(), None, source.plan(scope), source.timeout_s)
        assert [answer.exit_code for answer in answers] == [0], answers
        rows = from_table(Attachment, source.parse(answers, scope)[Attachment])
        assert {row.host for row in rows} <= {os.uname().nodename}
        return answers, {f"{row.pool}/{row.image}": row.vm for row in rows}

    answers, found = uses()
    # The disk of both is with the machine that runs.
    assert found == {
        f"rbd/{VOLUME}": "instance-00000017",
        "rbd/coded": "instance-00000017",
        "rbd/idle": "instance-00000018",
    }
    listed = libvirt.virsh("domblklist", "instance-00000017").split()[1::2]
    assert {image for image, machine in found.items() if machine == "instance-00000017"} == set(listed)
    assert b"client.machines" not in answers[0].stdout
    assert KEY_ID.encode() not in answers[0].stdout
    # QEMU has them open, as Ceph sees it.
    (watcher,) = json.loads(ceph(lab, "rbd", "status", f"rbd/{VOLUME}", "--format", "json"))["watchers"]
    assert watcher["address"].startswith("127.0.0.1:")
    said = [libvirt.virsh(word, "instance-00000017") for word in ("domblklist", "dumpxml", "domstats")]
    keep("libvirt", answers, "virsh.json", json.dumps(said))

    libvirt.virsh("destroy", "instance-00000017")
    assert uses()[1]["rbd/coded"] == "instance-00000018"
    libvirt.virsh("undefine", "instance-00000017")
    libvirt.virsh("undefine", "instance-00000018")
    assert uses()[1] == {}


def test_a_recording_names_who_has_each_image(lab: Any, libvirt: Libvirt, tmp_path: Path) -> None:
    """One is a machine's disk; one has only a client, which is asked for as it is busy; another libvirt is away.

    The key may do no more than `bathy caps collect` says.
    """
    caps = of_watch(tell=False)
    words = ("mon", caps.mon, "mgr", caps.mgr, "osd", caps.osd)
    keyring = Path(lab.target.keyring).with_name("client.watch.keyring")
    keyring.write_text(ceph(lab, "ceph", "auth", "get-or-create", "client.watch", *words))
    for image in ("of-machine", "of-client"):
        ceph(lab, "rbd", "create", f"rbd/{image}", "--size", "64M")
    libvirt.define(tmp_path, "web", "rbd/of-machine")
    libvirt.virsh("start", "web")
    bench = ("bench", "--io-type", "write", "--io-size", "4K", "--io-threads", "1", "--io-total", "10G")
    loads = [
        subprocess.Popen(["rbd", "--conf", str(lab.target.conf), *bench, f"rbd/{image}"], stdout=subprocess.DEVNULL)
        for image in ("of-machine", "of-client")
    ]
    away = "qemu+unix:///session?socket=/nonexistent"
    try:
        done = lab.bathy(
            *(
                "collect",
                "--lab",
                lab.name,
                "--client",
                "client.watch",
                "--libvirt",
                libvirt.uri,
                "--libvirt",
                away,
                "--duration",
                "35s",
            ),
            *("--workspace", str(tmp_path), "--output", "json"),
            timeout_s=200,
        )
    finally:
        for load in loads:
            load.kill()
            load.wait()
    assert done.returncode == 0, done.stderr
    found = finding_of_view(Workspace(tmp_path).open_run("last"), "devices")
    places = [column.heading for column in found.tables[0].columns]
    rows = {row[places.index("image")]: row[places.index("attached to")] for row in found.tables[0].rows}
    here = os.uname().nodename
    assert rows == {"rbd/of-machine": f"{here}:web", "rbd/of-client": f"{here}:-"}
    assert any(away in remark for remark in found.unseen), found.unseen
    spread = finding_of_view(Workspace(tmp_path).open_run("last"), "image", image="rbd/of-client")
    assert spread.tables[1].title == "all objects"
    assert sum(row[1] for row in spread.tables[1].rows) == 16


def keep(kind: str, answers: Any, name: str, text: str) -> None:
    """Keep the answers as tests/fixtures has them, where BATHY_RECORD says so."""
    if place := os.environ.get("BATHY_RECORD"):
        directory = Path(place) / kind
        directory.mkdir(parents=True, exist_ok=True)
        for answer in answers:
            about = {
                "label": answer.label, "argv": answer.argv, "environment": [], "exit_code": answer.exit_code,
                "started_ns": answer.started_ns, "ended_ns": answer.ended_ns, "files": [],
            }  # fmt: skip
            (directory / "answer.json").write_text(json.dumps(about, indent=1) + "\n")
            (directory / "answer.stdout").write_bytes(answer.stdout)
        (directory / name).write_text(text)
