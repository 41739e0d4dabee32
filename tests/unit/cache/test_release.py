"""`bathy cache release`: plain directories and running OSDs where the daemon of a cache cannot run."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bathyscope import files
from bathyscope.cache.config import Places, Source
from bathyscope.cache.directory import release
from bathyscope.cache.osd_units import drop_in
from bathyscope.errors import CacheError
from bathyscope.host import Completed, ProcessRequest
from bathyscope.host.fake import FakeAnswer, FakeHost
from bathyscope.host.local import LocalHost

from .daemons import FakeDaemon
from .verbs import Bathy, install_unit, programs_run, refused

pytestmark = pytest.mark.usefixtures("found")


def test_a_cache_that_cannot_run_leaves_plain_directories_and_running_osds(
    bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory, detached = "/var/lib/ceph/osd/ceph-12", tmp_path / "detached"
    mounts = [b"36 35 0:44 / %s rw - tmpfs tmpfs rw\n", b"37 36 0:45 / %s rw - fuse.bathyd bathyd rw\n"]

    def read(*_: object) -> bytes:
        return b"".join(mounts[:1] if detached.exists() else mounts).replace(b"%s", directory.encode())

    monkeypatch.setattr(LocalHost, "read", read)
    calls = programs_run(monkeypatch)
    detach = f"import sys; open({str(detached)!r}, 'w').write(sys.argv[1]); sys.exit({errno.ENOTCONN})"
    monkeypatch.setattr("bathyscope.cache.directory._DETACH_DEAD", detach)
    fast.save(fast.load("fast").with_source(Source("ceph12", directory)))
    result = bathy("release", "fast", "--start-osds")
    assert result.exit_code == 0, result.exception
    assert f"NOT CACHED: {directory} is a plain directory" in result.stderr
    assert calls == [
        ("systemctl", "reset-failed", "ceph-osd@12.service"),
        ("systemctl", "start", "--no-block", "ceph-osd@12.service"),
    ]
    assert detached.read_text() == directory
    # One that would believe what was written past it is not left to itself.
    config = fast.load("fast")
    fast.save(
        dataclasses.replace(config, rest=config.rest | {"cache": config.rest["cache"] | {"after_unclean": "verify"}})
    )
    refused(bathy("release", "fast", "--start-osds"), CacheError, "would not notice what is written past it")
    assert len(calls) == 2


def test_the_trouble_of_one_directory_keeps_no_other_osd_down(
    bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def run(_: LocalHost, request: ProcessRequest) -> Completed:
        calls.append(request.argv)
        return Completed(request, 1 if "ceph-osd@12.service" in request.argv else 0, b"", b"masked\n", 0, 0)

    monkeypatch.setattr(LocalHost, "run", run)
    template = fast.root / "etc/systemd/system/bathyd@.service"
    template.parent.mkdir(parents=True, exist_ok=True)
    template.touch()
    for osd in (12, 13):
        fast.save(fast.load("fast").with_source(Source(f"ceph{osd}", f"/var/lib/ceph/osd/ceph-{osd}")))
    # As an earlier version wrote it: the OSD would be kept down by the unit that has failed.
    old = drop_in(fast, "/var/lib/ceph/osd/ceph-13")
    assert old is not None
    old.parent.mkdir(parents=True)
    old.write_text("[Unit]\nRequires=bathyd@fast.service\n")
    refused(bathy("release", "fast", "--start-osds"), CacheError, "ceph-osd@12: masked")
    assert calls[-1] == ("systemctl", "start", "--no-block", "ceph-osd@13.service")
    assert "Requires=" not in old.read_text()
    assert "Wants=bathyd@fast.service" in old.read_text()


def test_a_directory_that_is_served_keeps_no_other_osd_down(
    bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = b"37 36 0:45 / /var/lib/ceph/osd/ceph-12 rw - fuse.bathyd bathyd rw\n"
    monkeypatch.setattr(LocalHost, "read", lambda *_: served)
    calls = programs_run(monkeypatch)
    monkeypatch.setattr("bathyscope.cache.directory._DETACH_DEAD", "")
    for osd in (12, 13):
        fast.save(fast.load("fast").with_source(Source(f"ceph{osd}", f"/var/lib/ceph/osd/ceph-{osd}")))
    refused(bathy("release", "fast", "--start-osds"), CacheError, "ceph-12 is served by a daemon")
    assert [words[-1] for words in calls] == ["ceph-osd@13.service"] * 2


def test_a_cache_that_runs_is_not_released(bathy: Bathy, daemon: FakeDaemon, fast: Places) -> None:
    refused(bathy("release", "fast"), CacheError, "is running")


def test_osds_start_also_where_others_can_write_the_configuration(
    bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = programs_run(monkeypatch)
    # What it says is not believed; what the daemon has served is in its own notes.
    fast.save(fast.load("fast").with_source(Source("ceph13", "/var/lib/ceph/osd/ceph-13")))
    files.write_file(fast.state("fast") / "session.json", b'{"sources": {"/var/lib/ceph/osd/ceph-12": []}}')
    fast.config("fast").chmod(0o666)
    result = bathy("release", "fast", "--start-osds")
    assert result.exit_code == 0, result.exception
    assert "other users can write" in result.stderr
    assert [words[-1] for words in calls] == ["ceph-osd@12.service"] * 2
    # One that may say so trusts that nothing is written past it.
    for content in (b'{"after_unclean": "verify"', b" " * (17 << 20)):
        fast.config("fast").write_bytes(content)
        refused(bathy("release", "fast", "--start-osds"), CacheError, "would not notice what is written past it")
    fast.config("fast").unlink()
    os.mkfifo(fast.config("fast"))
    refused(bathy("release", "fast", "--start-osds"), CacheError, "would not notice what is written past it")
    assert len(calls) == 2


def test_a_mount_that_hangs_is_left_alone_and_keeps_no_other_osd_down(
    bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch, hung: Path
) -> None:
    monkeypatch.setattr("bathyscope.cache.directory._ANSWER_LIMIT_S", 0.2)
    fast.save(fast.load("fast").with_source(Source("hung", str(hung))).with_source(Source("b", "/srv/b")))
    with monkeypatch.context() as patch:
        calls = programs_run(patch)
        error = refused(bathy("release", "fast"), CacheError, f"{hung}: its daemon does not answer within")
        assert calls == []
    # What the hint says.
    assert f"umount --force {hung}; then: bathy cache release fast" in str(error.hint)
    subprocess.run(["umount", "--force", hung], check=False, capture_output=True)
    result = bathy("release", "fast")
    assert result.exit_code == 0, result.exception
    assert not os.path.ismount(hung)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (f"import sys; sys.exit({errno.EIO})", "Input/output error"),
        ("raise SystemExit('no such interpreter')", "no such interpreter"),
    ],
)
def test_a_mount_that_answers_with_another_error_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str, said: str
) -> None:
    mounts = f"37 36 0:45 / {tmp_path} rw - fuse.bathyd bathyd rw\n".encode()
    monkeypatch.setattr(LocalHost, "read", lambda *_: mounts)
    monkeypatch.setattr("bathyscope.cache.directory._DETACH_DEAD", ask)
    (error,) = release([str(tmp_path)], "fast", LocalHost()).values()
    assert isinstance(error, CacheError)
    assert said in error.message


def _is_listed(mount: Path) -> bool:
    return f" {mount} " in Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize("dead", [65534], indirect=True)
def test_a_dead_mount_that_another_user_made_is_left_alone(dead: Path) -> None:
    (error,) = release([str(dead)], "fast", LocalHost()).values()
    assert "another mount than that of bathyd is there" in error.message
    assert _is_listed(dead)


@pytest.mark.parametrize("dead", [0], indirect=True)
def test_a_path_that_leads_elsewhere_by_now_takes_no_mount_away(
    dead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the directory had been replaced by a link after the mounts were listed.
    exchanged = tmp_path / "exchanged"
    exchanged.symlink_to(dead.parent)
    path = str(exchanged / dead.name)
    with monkeypatch.context() as patch:
        patch.setattr(LocalHost, "read", lambda *_: f"37 36 0:45 / {path} rw - fuse.bathyd bathyd rw\n".encode())
        (error,) = release([path], "fast", LocalHost()).values()
    assert "another mount than that of bathyd is there" in error.message
    assert _is_listed(dead)
    assert release([str(dead)], "fast", LocalHost()) == {}
    assert not _is_listed(dead)


def test_a_drop_in_that_cannot_be_renewed_keeps_its_osd_and_others_from_no_start(
    bathy: Bathy, fast: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = programs_run(monkeypatch)
    install_unit(fast)
    for osd in (12, 13):
        fast.save(fast.load("fast").with_source(Source(f"ceph{osd}", f"/var/lib/ceph/osd/ceph-{osd}")))
        path = drop_in(fast, f"/var/lib/ceph/osd/ceph-{osd}")
        assert path is not None
        path.parent.mkdir(parents=True)
        if osd == 12:
            # In place of the file: it can be neither read nor replaced.
            (path / "inner").mkdir(parents=True)
        else:
            path.write_text("[Unit]\nRequires=bathyd@fast.service\n")
    error = refused(bathy("release", "fast", "--start-osds"), CacheError, "ceph-osd@12.service.d/bathyscope-cache.conf")
    assert "ceph-osd@13" not in error.message
    assert [words[-1] for words in calls if "start" in words] == ["ceph-osd@12.service", "ceph-osd@13.service"]
    assert path is not None
    assert "Wants=bathyd@fast.service" in path.read_text()


def test_directories_of_daemons_that_hang_are_asked_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = {f"/srv/{number}": b"fuse.bathyd" for number in range(40)}
    lines = (b"37 36 0:45 / %s rw - %s bathyd rw" % (name.encode(), kind) for name, kind in mounts.items())
    host = FakeHost(
        files={"/proc/self/mountinfo": b"\n".join(lines)}, programs={sys.executable: FakeAnswer(duration_s=1e6)}
    )
    failures = release([*mounts], "fast", host)
    assert failures.keys() == mounts.keys()
    assert all("does not answer within 10 s" in error.message for error in failures.values())
    # A unit that is stopped is given 90 s by systemd.
    assert host.monotonic_ns() <= 11e9
