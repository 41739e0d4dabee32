"""The test of the daemon that needs quotas of users, on a kernel that has them for ext4: that of Debian, in a guest.

A kernel has them with CONFIG_QFMT_V2; elsewhere the test says that it is skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from benchmarks.cache import guest

from bathyscope.lab import guest_image

ROOT = Path(__file__).parents[3]
TEST = "rights::a_user_takes_no_more_than_his_quota"
MODULES = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "fuse", "loop", "quota_v2")
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /dev /proc /sys /tmp
/bin/busybox --install -s /bin
export PATH=/programs:/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
exec >/dev/ttyS0 2>&1
chmod +x /programs/*
for module in $(cat /modules/order); do insmod "/modules/$module"; done
until [ -b /dev/vda ]; do sleep 0.2; done
mount -t ext4 /dev/vda /tmp
TEST --exact --nocapture 2>&1 | while read -r line; do echo "@ said $line"; done
echo '@ done'
poweroff -f
"""


def built() -> dict[str, Path]:
    """Build the program and its tests; return the executables by name."""
    argv = ["cargo", "test", "--locked", "-p", "bathyd", "--test", "mounted", "--no-run", "--message-format=json"]
    lines = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    artifacts = [one for one in map(json.loads, lines) if one.get("executable")]
    return {one["target"]["name"]: Path(one["executable"]) for one in artifacts}


@pytest.mark.slow
@pytest.mark.machine
@pytest.mark.timeout(1800)
def test_a_user_takes_no_more_than_his_quota(tmp_path: Path) -> None:
    programs = built()
    # The test starts the daemon where cargo has it.
    places = {str(path).lstrip("/"): path for path in (programs["mounted"], programs["bathyd"])}
    for name in ("losetup", "mkfs.ext4"):
        found = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
        assert found is not None
        places[f"programs/{name}"] = Path(found).resolve()
    linked = subprocess.run(["ldd", *map(str, places.values())], check=True, capture_output=True, text=True).stdout
    places |= {path.lstrip("/"): Path(path) for path in guest_image.shared_libraries(linked)}
    init = INIT.replace("TEST", f"/{next(iter(places))} {TEST}").encode()
    image = guest.image_of(guest.packages() / "tree", places, MODULES, init)
    (tmp_path / "empty").mkdir()
    disk = guest.file_system(tmp_path / "tmp.img", 512 << 20, tmp_path / "empty")
    said: list[str] = []
    with guest.booted(image, [disk], {}, tmp_path, 1500, memory_mib=1536) as words:
        for word, *line in words:
            if word == "done":
                break
            said.append(" ".join(line))
    assert any(line.startswith("test result: ok. 1 passed") for line in said), said
    assert not [line for line in said if "SKIPPED" in line]
