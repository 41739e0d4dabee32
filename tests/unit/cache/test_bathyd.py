"""The verbs with a real bathyd: what is counted is what a test did, and the directory is plain before and after."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from bathyscope.cache.config import Places
from bathyscope.cache.daemon import Daemon
from bathyscope.errors import CacheError
from bathyscope.host import outliving
from bathyscope.host.local import LocalHost
from bathyscope.lab import simdisk
from bathyscope.spec.size import ADMISSION_OF_BATHYD, WRITE_BYPASS_BYTES, Admission

pytestmark = pytest.mark.skipif(not simdisk.possible(), reason="FUSE needs root and /dev/fuse")

MIB = 1 << 20
Bathy = Callable[..., Result]


@pytest.fixture
def fast(places: Places, bathy: Bathy, tmp_path: Path) -> Iterator[Places]:
    """Yield places with a running cache `fast` in a file, and a source `data` with a file of 4 MiB."""
    done(bathy("create", "fast", str(tmp_path / "ssd.img"), "--size", "256M"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_bytes(os.urandom(4 * MIB))
    daemon = Daemon(LocalHost(), places, "fast")
    try:
        done(bathy("start", "fast"))
        done(bathy("source", "create", "data", str(tmp_path / "data"), "--cache", "fast", "--size", "64M"))
        yield places
    finally:
        with contextlib.suppress(CacheError):
            daemon.stop(lambda _: None, force=True)
        # A test that failed must not leave its mount.
        subprocess.run(["umount", "-l", str(tmp_path / "data")], capture_output=True, check=False)


def done(result: Result) -> str:
    assert result.exit_code == 0, (result.exception, result.output)
    return result.stdout


def row(bathy: Bathy, report: str, table: int = 0) -> dict[str, Any]:
    found = json.loads(done(bathy(report, "fast", "-o", "json")))["tables"][table]
    return dict(found["rows"][0])


def is_mounted(directory: Path) -> bool:
    return f" {directory} fuse.bathyd " in Path("/proc/mounts").read_text()


def test_reports_are_what_was_read_and_written(fast: Places, bathy: Bathy, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert is_mounted(data)
    # A buffer that begins with a page: the kernel splits requests for others within a unit of 4 KiB.
    buffer = mmap.mmap(-1, 4 * MIB)
    # What is longer would go past the cache.
    written = WRITE_BYPASS_BYTES
    with (data / "file").open("rb", buffering=0) as file:
        assert [os.preadv(file.fileno(), [buffer], 0) for _ in range(2)] == [4 * MIB, 4 * MIB]
    with (data / "new").open("wb", buffering=0) as new:
        assert os.pwritev(new.fileno(), [memoryview(buffer)[:written]], 0) == written
    io = row(bathy, "io")
    assert (io["source"], io["directory"]) == ("data", str(data))
    assert (io["cache_read_bytes"], io["source_read_bytes"], io["source_write_bytes"]) == (4 * MIB, 4 * MIB, written)
    assert io["byte_hit_ratio"] == 0.5
    usage = row(bathy, "usage")
    assert (usage["capacity_bytes"], usage["usage_bytes"], usage["max_usage_bytes"], usage["files"]) == (
        64 * MIB, 4 * MIB + written, 4 * MIB + written, 2,
    )  # fmt: skip
    reads = row(bathy, "stats", 2)
    assert reads["read_hits"] == reads["read_misses"] > 0
    iops = row(bathy, "iops")
    assert iops["reads"] == reads["read_hits"]
    assert 0 < iops["read_p50_ns"] <= iops["read_p99_ns"] <= iops["read_max_ns"]
    files = {line["file"]: line for line in json.loads(done(bathy("files", "-o", "json")))["tables"][0]["rows"]}
    assert set(files) == {"file", "new"}
    metrics = done(bathy("metrics"))
    assert f'bathy_cache_read_bytes_total{{cache="fast",source="data",device="cache"}} {4 * MIB}\n' in metrics


def test_what_a_plan_simulates_is_what_may_enter_unless_told_otherwise(fast: Places, bathy: Bathy) -> None:
    shown, planned = Admission.of(row(bathy, "status")["admission"]), Admission.of(ADMISSION_OF_BATHYD)
    assert shown.model_copy(update={"name": planned.name}) == planned


def test_a_stop_leaves_a_plain_directory_and_a_start_is_warm(fast: Places, bathy: Bathy, tmp_path: Path) -> None:
    data = tmp_path / "data"
    content = (data / "file").read_bytes()
    (data / "new").write_bytes(content)
    done(bathy("stop", "fast"))
    assert not is_mounted(data)
    assert (data / "new").read_bytes() == (data / "file").read_bytes() == content
    done(bathy("start", "fast"))
    assert (data / "file").read_bytes() == content
    assert row(bathy, "io")["byte_hit_ratio"] == 1.0


def test_a_source_in_use_is_not_stopped_unless_forced(fast: Places, bathy: Bathy, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with (data / "file").open("rb") as file:
        refused = bathy("source", "delete", "data")
        assert isinstance(refused.exception, CacheError)
        assert len(fast.load("fast").sources) == 1
        assert is_mounted(data)
        done(bathy("source", "delete", "data", "--force"))
        assert not is_mounted(data)
        assert len(file.read()) == 4 * MIB
    assert fast.load("fast").sources == ()
    assert (data / "file").stat().st_size == 4 * MIB


def test_a_cache_that_was_killed_is_started_again(fast: Places, bathy: Bathy, tmp_path: Path) -> None:
    daemon = Daemon(LocalHost(), fast, "fast")
    content = (tmp_path / "data/file").read_bytes()
    outliving.end_all([daemon.started()])
    assert not daemon.is_up()
    assert (
        "still has the mount of a daemon that was killed" in json.loads(done(bathy("list", "-o", "json")))[0]["state"]
    )
    shown = bathy("status")
    assert shown.exit_code == 1
    assert "a daemon that was killed" in " ".join(shown.stdout.split())
    assert "a daemon that was killed" in str(bathy("stop", "fast").exception)
    # Without its configuration nobody would take the dead mount away.
    for words in (("source", "delete", "data"), ("delete", "fast", "--yes")):
        refused = bathy(*words)
        assert isinstance(refused.exception, CacheError)
        assert "a daemon that was killed" in refused.exception.message
    done(bathy("start", "fast"))
    assert (tmp_path / "data/file").read_bytes() == content


def test_an_ssd_that_holds_something_is_taken_by_force_alone(places: Places, bathy: Bathy, tmp_path: Path) -> None:
    ssd = tmp_path / "ssd.img"
    ssd.write_bytes(b"thesis" + bytes(16 * MIB))
    before = ssd.read_bytes()
    refused = bathy("create", "fast", str(ssd))
    assert isinstance(refused.exception, CacheError)
    assert "--force" in str(refused.exception.hint)
    assert (ssd.read_bytes(), places.names()) == (before, [])
    done(bathy("create", "fast", str(ssd), "--force"))
    assert ssd.read_bytes() != before
    small = bathy("create", "small", str(tmp_path / "small.img"), "--size", "64K")
    assert isinstance(small.exception, CacheError)
    assert "too small" in small.exception.message
    assert not (tmp_path / "small.img").exists()


def test_the_curve_of_a_load_that_fits_says_how_much_it_saw(fast: Places, bathy: Bathy, tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "data/file").read_bytes()
    finding = json.loads(done(bathy("curve", "fast", "-o", "json")))
    rows = finding["tables"][0]["rows"]
    assert {line["source"] for line in rows} == {None, "data"}
    for source in (None, "data"):
        sizes = {line["size_ratio"]: line["hit_ratio"] for line in rows if line["source"] == source}
        # All but the first read of each line are hits, at any of these sizes.
        assert sizes.keys() >= {0.25, 0.5, 1.0, 2.0, 4.0}
        assert 0.4 < sizes[1.0] < 1
    alone = json.loads(done(bathy("curve", "fast", "--source", "data", "-o", "json")))
    assert alone["tables"][0]["rows"] == [line for line in rows if line["source"] == "data"]
    metrics = done(bathy("metrics", "fast"))
    assert f'bathy_cache_source_curve_hit_ratio{{cache="fast",source="data",size_ratio="2"}} {sizes[2.0]!r}' in metrics
    assert any("sampled of" in remark for remark in finding["unseen"])


def test_run_serves_in_the_foreground_until_it_is_told_to_end(fast: Places, bathy: Bathy, tmp_path: Path) -> None:
    done(bathy("stop", "fast"))
    with subprocess.Popen(
        [sys.executable, "-m", "bathyscope.cli", "cache", "run", "fast", "--root", str(tmp_path)],
        stderr=subprocess.PIPE, text=True,
    ) as run:  # fmt: skip
        assert run.stderr is not None
        assert any("serving 1 directories" in line for line in run.stderr)
        assert is_mounted(tmp_path / "data")
        refused = bathy("stop", "fast")
        assert isinstance(refused.exception, CacheError)
        assert "not started by bathy" in refused.exception.message
        run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 0
    assert not is_mounted(tmp_path / "data")
