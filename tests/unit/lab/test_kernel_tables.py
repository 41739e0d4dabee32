"""Reading what the kernel says of mounts, loop devices and control groups; with trees that stand in for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bathyscope.errors import BathyscopeError
from bathyscope.lab import loop, mount, throttle
from bathyscope.lab.profile import BUILT_IN
from bathyscope.spec import DeviceLimit

MOUNTINFO = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 254:0 /cache /labs/a/root rw - ext4 /dev/vda rw
31 30 0:4 / /labs/a/root/proc rw - proc proc rw
32 22 254:0 /x /labs/ab rw - ext4 /dev/vda rw
33 22 254:0 /x /labs/a/with\\040space rw - ext4 /dev/vda rw
"""


def test_mounts_below_a_directory_deepest_first(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTINFO, encoding="ascii")
    below = mount.below(Path("/labs/a"), table)
    assert below == [Path("/labs/a/with space"), Path("/labs/a/root/proc"), Path("/labs/a/root")]
    assert mount.below(Path("/labs/ab"), table) == [Path("/labs/ab")]
    assert mount.below(Path("/labs/b"), table) == []


def test_loop_devices_are_found_by_their_backing_file(tmp_path: Path) -> None:
    for name, backing in {"loop0": "/a/osd.0\n", "loop11": "/a/osd.0 (deleted)\n", "loop2": "/a/osd.01\n"}.items():
        (tmp_path / name / "loop").mkdir(parents=True)
        (tmp_path / name / "loop/backing_file").write_text(backing, encoding="utf-8")
    (tmp_path / "loop3").mkdir()  # not attached
    assert sorted(loop.find("/a/osd.0", tmp_path)) == ["/dev/loop0", "/dev/loop11"]
    assert loop.find("/a/osd", tmp_path) == []


def test_a_loop_device_that_is_anothers_by_now_stays_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number was given back after the kernel's table was read, and given to another lab."""
    own, other = tmp_path / "own", tmp_path / "other"
    loop.create_file(other, 1 << 20, preallocate=False)
    try:
        device = loop.attach(other)
    except BathyscopeError:
        pytest.skip("no loop devices here")
    looks = iter([[device], [], []])
    with monkeypatch.context() as patch:
        patch.setattr(loop, "find", lambda _backing: next(looks))
        assert loop.detach(str(own)) == []
    assert loop.find(str(other)) == [device]
    assert loop.detach(str(other)) == []
    assert loop.find(str(other)) == []


def test_sparse_and_preallocated_files(tmp_path: Path) -> None:
    loop.create_file(tmp_path / "sparse", 1 << 20, preallocate=False)
    loop.create_file(tmp_path / "full", 1 << 20, preallocate=True)
    assert (tmp_path / "sparse").stat().st_size == (tmp_path / "full").stat().st_size == 1 << 20
    assert (tmp_path / "sparse").stat().st_blocks == 0
    assert (tmp_path / "full").stat().st_blocks * 512 >= 1 << 20
    with pytest.raises(FileExistsError):
        loop.create_file(tmp_path / "full", 1, preallocate=False)


def version_1(root: Path) -> Path:
    (root / "blkio").mkdir()
    (root / "blkio/blkio.throttle.read_iops_device").touch()
    return root


def test_version_1_rules(tmp_path: Path) -> None:
    root = version_1(tmp_path)
    assert throttle.available(root) == "cgroup1"
    group = throttle.group_path("bathyscope-x", "cgroup1", root)
    throttle.create(group, "cgroup1")
    throttle.limit(group, "cgroup1", "7:3", BUILT_IN["hdd"].limit)
    assert group == root / "blkio/bathyscope-x"
    written = {file.name: file.read_text(encoding="ascii") for file in group.iterdir()}
    assert written == {
        "blkio.throttle.read_iops_device": "7:3 232\n",
        "blkio.throttle.write_iops_device": "7:3 232\n",
        "blkio.throttle.read_bps_device": "7:3 200000000\n",
        "blkio.throttle.write_bps_device": "7:3 200000000\n",
    }
    throttle.clear(group)
    assert {file.read_text(encoding="ascii") for file in group.iterdir()} == {"7:3 0\n"}


def test_version_2_rules(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io memory\n", encoding="ascii")
    (tmp_path / "cgroup.subtree_control").write_text("cpu\n", encoding="ascii")
    assert throttle.available(tmp_path) == "cgroup2"
    group = throttle.group_path("bathyscope-x", "cgroup2", tmp_path)
    throttle.create(group, "cgroup2")
    assert (tmp_path / "cgroup.subtree_control").read_text(encoding="ascii") == "+io"
    throttle.limit(group, "cgroup2", "7:3", DeviceLimit(read_iops=232, write_bytes_per_s=1e6))
    assert (group / "io.max").read_text(encoding="ascii") == "7:3 riops=232 wiops=max rbps=max wbps=1000000\n"
    throttle.clear(group)
    assert (group / "io.max").read_text(encoding="ascii") == "7:3 rbps=max wbps=max riops=max wiops=max\n"


def test_no_controller_means_no_throttle(tmp_path: Path) -> None:
    assert throttle.available(tmp_path) is None
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n", encoding="ascii")
    assert throttle.available(tmp_path) is None


def test_a_group_that_is_gone_is_removed(tmp_path: Path) -> None:
    assert throttle.remove(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    assert throttle.remove(tmp_path / "empty")
    assert not (tmp_path / "empty").exists()
