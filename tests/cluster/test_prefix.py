"""A machine without Ceph's programs and modules, and a prefix that enters the root where they are."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root"),
]
PLAN = """\
name: prefix
layers: [rados, rbd]
patterns: [randwrite-16K-qd8]
axes: {image_size: 32M}
runtime: 3s
ramp: 1s
repeats: 1
limits: {prolong: 0, baseline: 1s}
"""
# Everything of Ceph's that a machine with fio alone has not.
_HIDDEN = ("/usr/bin/ceph", "/usr/bin/rados", "/usr/bin/rbd")


@pytest.fixture
def bare(tmp_path: Path) -> list[str]:
    """Return the words that start a program where Ceph's programs and Python modules are hidden."""
    modules = [str(path) for path in Path("/usr/lib/python3/dist-packages").glob("r[ab]d*.so")]
    hidden = [path for path in (*_HIDDEN, *modules) if Path(path).exists()]
    assert any("rados" in module for module in modules)
    hide = "".join(f"mount --bind {tmp_path}/nothing {shlex.quote(path)} && " for path in hidden)
    (tmp_path / "nothing").touch()
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{hide} exec "$@"', "sh"]


@pytest.fixture
def prefix() -> str:
    """Return a prefix into this process's own root, as `nsenter` and `kubectl exec` are into a container's."""
    return f"nsenter --mount=/proc/{os.getpid()}/ns/mnt -- env PATH=/usr/sbin:/usr/bin:/sbin:/bin"


def words(cluster: Any, tmp_path: Path, *more: str) -> list[str]:
    target = cluster.target
    (tmp_path / "plan.yaml").write_text(PLAN)
    given = ["bench", "run", str(tmp_path / "plan.yaml"), "--conf", target.conf, "--client", target.client]
    given += ["--keyring", target.keyring] if target.keyring else []
    return [*given, "-w", str(tmp_path / "ws"), "--output", "csv", *more]


def test_a_run_through_a_prefix_and_a_killed_one_is_undone(
    cluster: Any, bare: list[str], prefix: str, tmp_path: Path, tools: Any
) -> None:
    environment = cluster.environment()

    def run(*given: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*bare, *cluster.argv(*given)], env={**environment, **more}, capture_output=True, text=True,
            check=False, timeout=200,
        )  # fmt: skip

    # Without it nothing can be done here.
    refused = run(*words(cluster, tmp_path))
    assert refused.returncode == 2
    assert "Ceph Python module cannot be used" in refused.stderr or "ceph is not installed" in refused.stderr
    done = run(*words(cluster, tmp_path), BATHY_CEPH_PREFIX=prefix)
    assert done.returncode == 0, done.stderr
    found = tools.newest(tmp_path / "ws")
    assert found.info.target["ceph_prefix"] == shlex.split(prefix)
    for step, tables in tools.steps(found):
        assert step.status == "done"
        # Status, map and perf counters came through it.
        assert all(tables[name] for name in ("result", "perf_counter", "cluster_status", "op"))
    assert found.info.versions["ceph"]
    assert cluster.journals() == []
    # Killed in a load: the pools and the history's size are still as the run has made them.
    begun = tmp_path / "begun"
    with begun.open("wb") as said:
        argv = [*bare, *cluster.argv(*words(cluster, tmp_path, "--runtime", "60s", "--ceph-prefix", prefix))]
        process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=said)
    try:
        tools.wait_for(
            lambda: tools.fio_of(process.pid) and "[1/2" in begun.read_text(), what="the load", timeout_s=120
        )
    finally:
        process.kill()
        process.wait()
    assert cluster.journals()
    cleaned = run("bench", "cleanup")
    assert cleaned.returncode == 0, cleaned.stderr
    # What must be as before is looked at by the fixture `cluster`.
    assert cluster.journals() == []


def test_a_load_without_its_files_here_is_refused_before_anything_is_made(
    cluster: Any, prefix: str, tmp_path: Path
) -> None:
    """The prefix leads to a ceph.conf that is not on this machine."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "c.conf").write_bytes(Path(cluster.target.conf).read_bytes())
    here = tmp_path / "here"
    here.mkdir()
    # Behind the prefix the directory `here` is `there`.
    inside = f"unshare --mount sh -c 'mount --bind {there} {here} && exec \"$@\"' sh env PATH=/usr/bin:/bin"
    given = words(cluster, tmp_path, "--ceph-prefix", inside)
    given[given.index("--conf") + 1] = str(here / "c.conf")
    ended = cluster.bathy(*given)
    assert ended.returncode == 2
    assert f"fio runs on this machine and cannot read {here}/c.conf here" in ended.stderr
