"""What runs at each boot of the machine of test_machine.py: a cluster of one OSD behind a cache, made, loaded, checked.

It needs nothing but the machine's own Python. Lines of the console that begin with "@ " are for the test.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import time
from pathlib import Path

DIRECTORY = "/var/lib/ceph/osd/ceph-0"
CACHE, OSD = "bathyd@fast", "ceph-osd@0"
BATHY = "/usr/local/bin/bathy"
BOOTS = Path("/boots")
#: After so many objects of the first boot the daemon is killed.
KILLED_AFTER = 8
#: An emulated processor takes minutes for what takes seconds.
LIMIT_S = 600


def say(*words: object) -> None:
    with Path("/dev/ttyS0").open("w") as console:
        console.write("@ " + " ".join(map(str, words)).replace("\n", " | ") + "\n")


def run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr[-2000:]}")
    return done.stdout


def kinds_mounted() -> list[str]:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return [words[2] for words in mounts if words[1] == DIRECTORY]


def wait_until_up() -> None:
    begun = time.monotonic()
    while "1 up" not in run("ceph", "osd", "stat") or run("systemctl", "show", "-P", "ActiveState", OSD) != "active\n":
        if time.monotonic() - begun > LIMIT_S:
            raise RuntimeError(f"{OSD} is not up: " + run("journalctl", "-b", "-u", OSD, "-u", CACHE, "-n", "30"))
        time.sleep(1)


def make_cluster() -> None:
    """A monitor, and an OSD by ceph-volume on the third disk."""
    keyring, admin = "/tmp/mon.keyring", "/etc/ceph/ceph.client.admin.keyring"
    fsid = next(line.split()[-1] for line in Path("/etc/ceph/ceph.conf").read_text().splitlines() if "fsid" in line)
    caps = [word for daemon in ("mon", "osd", "mgr") for word in ("--cap", daemon, "allow *")]
    run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    run("ceph-authtool", "--create-keyring", admin, "--gen-key", "-n", "client.admin", *caps)
    run("ceph-authtool", keyring, "--import-keyring", admin)
    run("monmaptool", "--create", "--add", "machine", "127.0.0.1", "--fsid", fsid, "/tmp/monmap")
    run("chown", "-R", "ceph:ceph", keyring, "/tmp/monmap", "/var/lib/ceph")
    make = ("ceph-mon", "--mkfs", "-i", "machine", "--monmap", "/tmp/monmap", "--keyring", keyring)
    run("runuser", "-u", "ceph", "--", *make)
    run("systemctl", "enable", "--now", "ceph-mon@machine")
    run("ceph", "auth", "get", "client.bootstrap-osd", "-o", "/var/lib/ceph/bootstrap-osd/ceph.keyring")
    run("ceph-volume", "lvm", "create", "--bluestore", "--data", "/dev/vdc")
    wait_until_up()
    run("ceph", "osd", "pool", "create", "p", "8")
    run("ceph", "osd", "pool", "application", "enable", "p", "rados")


def make_cache() -> None:
    """A cache on the second disk, in front of the OSD, as the guide has it."""
    run("systemctl", "stop", OSD)
    run(BATHY, "cache", "create", "fast", "/dev/vdb")
    run(BATHY, "cache", "source", "create", "osd-0", DIRECTORY, "--cache", "fast", "--yes")
    run("systemctl", "enable", CACHE)
    run(BATHY, "cache", "start", "fast")
    run("systemctl", "start", OSD)
    wait_until_up()
    say("mounted", *kinds_mounted())


def content(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest() * 4096


def load() -> None:
    """Write objects, one after the other, until the test kills QEMU. Meanwhile the daemon is killed."""
    for number in itertools.count():
        Path("/tmp/object").write_bytes(content(number))
        run("rados", "-p", "p", "put", str(number), "/tmp/object")
        say("ack", number)
        if number == KILLED_AFTER:
            kill_the_daemon()


def kill_the_daemon() -> None:
    before = processes()
    run("systemctl", "kill", "--signal=KILL", CACHE)
    begun = time.monotonic()
    while any(new in ("0", old) for new, old in zip(processes(), before, strict=True)):
        if time.monotonic() - begun > LIMIT_S:
            raise RuntimeError(
                "cache and OSD are not started again: " + run("journalctl", "-b", "-u", CACHE, "-u", OSD)
            )
        time.sleep(1)
    wait_until_up()
    say("restarted", *kinds_mounted())


def processes() -> list[str]:
    return [run("systemctl", "show", "-P", "MainPID", unit).strip() for unit in (CACHE, OSD)]


def report(name: str) -> None:
    say(name, json.dumps(json.loads(run(BATHY, "cache", name, "fast", "-o", "json"))))


def check() -> None:
    """What a boot after that finds; then without the cache."""
    wait_until_up()
    say("mounted", *kinds_mounted())
    began = [int(run("systemctl", "show", "-P", "ActiveEnterTimestampMonotonic", unit)) for unit in (CACHE, OSD)]
    say("began", *began)
    report("status")
    report("io")
    names = run("rados", "-p", "p", "ls").split()
    for name in names:
        run("rados", "-p", "p", "get", name, "/tmp/object")
        say("object", name, Path("/tmp/object").read_bytes() == content(int(name)))
    run("systemctl", "stop", OSD)
    run("ceph-bluestore-tool", "fsck", "--deep", "1", "--path", DIRECTORY)
    run("systemctl", "stop", CACHE)
    say("mounted", *kinds_mounted())
    run("ceph-bluestore-tool", "fsck", "--deep", "1", "--path", DIRECTORY)
    # Who starts the OSD starts the cache, until it is said that there is none.
    run("systemctl", "start", OSD)
    wait_until_up()
    say("mounted", *kinds_mounted())
    run("systemctl", "stop", CACHE)
    say("osd", run("systemctl", "show", "-P", "ActiveState", OSD).strip())
    run(BATHY, "cache", "source", "delete", "osd-0", "--cache", "fast")
    run("systemctl", "start", OSD)
    wait_until_up()
    say("mounted", *kinds_mounted())
    say("done")


def main() -> None:
    boot = int(BOOTS.read_text()) + 1 if BOOTS.exists() else 1
    BOOTS.write_text(str(boot))
    run("sync")
    try:
        if boot == 1:
            make_cluster()
            make_cache()
            load()
        else:
            check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the test says it
        say("failed", repr(error))
        # Else the test would wait for more until its time is over.
        run("systemctl", "poweroff", "--force", "--force")


if __name__ == "__main__":
    main()
