from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bathyscope import lab
from bathyscope.commands.targets import find_target
from bathyscope.errors import BusyError, FormatVersionError, LabError, UsageError
from bathyscope.host.local import LocalHost
from bathyscope.host.process import ProcessIdentity, identity_of
from bathyscope.lab import journal, state
from bathyscope.lab.layout import Layout, labs_directory
from bathyscope.lab.profile import BUILT_IN
from bathyscope.lab.spec import LabSpec, parse_device
from bathyscope.lab.state import LabDevice, LabRecord
from bathyscope.spec import FioClient, Target


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    labs_directory().mkdir(parents=True)
    return tmp_path


def make_lab(name: str = "x", *, root: bool = False, status_: state.Status = "running") -> Layout:
    layout = Layout(labs_directory() / name)
    for directory in [layout.directory, *layout.made()]:
        directory.mkdir()
    layout.mark(name).touch()
    spec = LabSpec(name=name, devices=(parse_device("hdd=1"),))
    devices = []
    for osd_id, backing in ((0, layout.devices / "osd.0.hdd"), (None, layout.devices / "spare.hdd")):
        backing.write_bytes(b"\0" * 4096)
        devices.append(
            LabDevice(
                osd_id=osd_id, device_class="hdd", node="node1" if osd_id == 0 else None, backing=str(backing),
                uuid="u", device="/dev/loop90" if osd_id == 0 else "/dev/loop91", limit=BUILT_IN["hdd"].limit,
            )
        )  # fmt: skip
    record = LabRecord(
        name=name, directory=str(layout.directory), created_ns=1, status=status_, spec=spec, fsid="f",
        ports=(21000, 21001), release="pacific", root=str(layout.root) if root else None, devices=tuple(devices),
        cgroup="/sys/fs/cgroup/blkio/g", cgroup_version="cgroup1", caveats=(("throttle_profile", "Emulated."),),
    )  # fmt: skip
    state.write_record(layout, record)
    book = journal.Journal(layout.journal)
    own = identity_of(LocalHost(), os.getpid())
    assert own is not None
    book.process("osd.0", ProcessIdentity(own.pid, 1, own.boot_id))
    book.process("osd.0", own)
    book.process("mon.a", ProcessIdentity(own.pid, 1, own.boot_id))
    return layout


def test_a_resumed_run_keeps_what_the_user_named_and_takes_the_lab_as_it_is_now(home: Path) -> None:
    make_lab()
    other = home / "disk"
    other.write_bytes(bytes(4096))
    begun = find_target(lab="x", disks=[f"nvme={other}"], client="client.weak")
    begun = begun.model_copy(update={"pool": "scratch", "clients": (FioClient(host="h"),)})
    # A restarted lab has other loop devices and processes.
    stale = begun.disks["hdd"].model_copy(update={"path": "/dev/loop5"})
    begun = begun.model_copy(update={"disks": {**begun.disks, "hdd": stale}, "daemons": ()})
    found = lab.fresh_target(Target.model_validate(begun.model_dump(mode="json")))
    assert {name: disk.path for name, disk in found.disks.items()} == {"hdd": "/dev/loop91", "nvme": str(other)}
    assert (found.pool, found.clients, found.client, found.keyring) == (
        "scratch", (FioClient(host="h"),), "client.weak", None,
    )  # fmt: skip
    assert found.daemons == lab.load("x").target().daemons != ()
    cluster = Target(name="c")
    assert lab.fresh_target(cluster) is cluster


def test_a_lab_is_measured_with_the_key_that_was_named(home: Path) -> None:
    layout = make_lab()
    assert find_target(lab="x") == lab.load("x").target()
    found = find_target(lab="x", client="client.weak", keyring="/k")
    assert (found.client, found.keyring) == ("client.weak", "/k")
    assert find_target(lab="x", client="client.weak").keyring is None
    assert find_target(lab="x", client=None, keyring=None).keyring == str(layout.admin_keyring)


def test_target_names_disks_daemons_and_caveats(home: Path) -> None:
    layout = make_lab()
    target = lab.load("x").target()
    assert (target.kind, target.conf, target.root) == ("lab", str(layout.conf), None)
    assert target.caveats == (("throttle_profile", "Emulated."),)
    disk = target.disks["hdd"]
    assert (disk.path, disk.device, disk.destructive, disk.size_bytes) == ("/dev/loop91", "loop91", True, 4096)
    assert disk.cgroup == "/sys/fs/cgroup/blkio/g"
    assert disk.limit == BUILT_IN["hdd"].limit
    mon, osd = target.daemons
    assert (mon.name, mon.device) == ("mon.a", None)
    own = identity_of(LocalHost(), os.getpid())
    assert own is not None
    assert (osd.name, osd.pid, osd.start_ticks) == ("osd.0", own.pid, own.start_ticks)
    assert (osd.host, osd.device, osd.device_class) == ("node1", "loop90", "hdd")


def test_daemons_tell_who_is_alive(home: Path) -> None:
    make_lab()
    assert [(d.name, d.alive) for d in lab.load("x").daemons()] == [("mon.a", False), ("osd.0", True)]


def test_a_lab_that_is_not_up_is_no_target(home: Path) -> None:
    make_lab(status_="starting")
    with pytest.raises(LabError, match="not up"):
        lab.load("x").target()


def test_absent_lab_names_those_that_exist(home: Path) -> None:
    make_lab("one")
    with pytest.raises(LabError) as caught:
        lab.load("two")
    assert "one" in (caught.value.hint or "")
    with pytest.raises(UsageError):
        lab.load("../one")


def test_record_of_a_newer_version_or_damaged(home: Path) -> None:
    layout = make_lab()
    document = json.loads(layout.record.read_text(encoding="utf-8"))
    layout.record.write_text(json.dumps({**document, "format_version": 99}), encoding="utf-8")
    with pytest.raises(FormatVersionError):
        lab.load("x")
    for text in ("", "{", "[]", "null", '{"format_version": "x"}', json.dumps({**document, "ports": 1})):
        layout.record.write_text(text, encoding="utf-8")
        with pytest.raises(LabError, match="damaged"):
            lab.load("x")


def test_a_lab_without_its_record_is_not_called_absent(home: Path) -> None:
    make_lab().record.unlink()
    with pytest.raises(LabError, match=r"the lab 'x' has no lab\.json") as caught:
        lab.load("x")
    assert caught.value.hint == "bathy lab down --name x"


def test_a_damaged_lab_can_still_be_taken_down(home: Path) -> None:
    layout = make_lab()
    layout.record.write_text("{", encoding="utf-8")
    journal_lines = layout.journal.read_bytes().splitlines()
    # This very process stands for a daemon in the fixture; it must not be ended here.
    layout.journal.write_bytes(b"\n".join(line for line in journal_lines if b'"start_ticks":1,' in line) + b"\n")
    lab.down("x")
    assert lab.list_labs() == []
    assert not layout.directory.exists()


def test_foreign_files_survive(home: Path) -> None:
    layout = Layout(labs_directory() / "x")
    layout.directory.mkdir()
    layout.mark("x").touch()
    (layout.directory / "thesis.txt").write_text("mine", encoding="utf-8")
    lab.down("x")
    assert (layout.directory / "thesis.txt").read_text(encoding="utf-8") == "mine"


def test_only_one_process_changes_a_lab(home: Path) -> None:
    layout = make_lab()
    script = (
        "import sys\nfrom pathlib import Path\nfrom bathyscope.lab import state, layout\n"
        "with state.locked(layout.Layout(Path(sys.argv[1]))):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(layout.directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(BusyError, match=f"process {holder.pid}"):
        lab.down("x")
    holder.kill()
    holder.communicate()
    with state.locked(layout):
        pass


def test_exports_reach_only_this_lab(home: Path) -> None:
    layout = make_lab()
    text = lab.shell_exports(lab.load("x"))
    shell = subprocess.run(
        ["/bin/sh", "-c", text + 'printf "%s\\n" "$CEPH_CONF" "$CEPH_KEYRING" "$CEPH_ARGS" "$BATHY_LAB"'],
        capture_output=True, check=True, env={"CEPH_ARGS": "--cluster other"},
    )  # fmt: skip
    conf, keyring, arguments, name = shell.stdout.decode().splitlines()
    assert (conf, keyring, name) == (str(layout.conf), str(layout.admin_keyring), "x")
    assert "other" not in arguments
    assert "PATH" not in text


def test_exports_of_another_release_put_its_programs_first(home: Path) -> None:
    layout = make_lab(root=True)
    assert f"export PATH={layout.bin}:" in lab.shell_exports(lab.load("x"))


def test_too_long_a_directory_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too long"):
        Layout(tmp_path / ("x" * 80)).check()
    Layout(Path("/root/.local/state/bathyscope/labs") / ("x" * 24)).check()


@pytest.mark.parametrize("name", ["a b", "a$name", "a#b", "a;b", "a'b", 'a"b', "a\nb", "a%b", "a,b", "a\\b"])
def test_directories_that_ceph_conf_would_misread_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="characters"):
        Layout(Path("/tmp") / name).check()
