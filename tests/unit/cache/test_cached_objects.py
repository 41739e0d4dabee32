"""`bathy cache objects --recording`: a run, a cluster and a cache's daemon in turn, and what can be wrong with each."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bathyscope import cli
from bathyscope.analysis.pg_mapping import seeds
from bathyscope.commands.cache_objects import cached_objects
from bathyscope.errors import CacheError, DeniedError, UsageError
from bathyscope.host.fake import FakeCephSession
from bathyscope.records import Op
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.spec import Target
from bathyscope.store import RunDirectory, Workspace

FSID, OTHER = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
ONODE = (Path(__file__).parents[2] / "fixtures/bluestore/20.2.4/whole.txt").read_bytes()
ALLOCATED_BYTES, PG_COUNT = 303_104, 12


def op(
    name: str,
    *,
    kind: str = "read",
    osd: int = 3,
    result: int | None = None,
    complete: bool = True,
    namespace: str = "",
) -> Op:
    image = "" if name == "plain" else "10193ecceed2"
    stages = (None,) * 6
    (seed,) = seeds(np.frombuffer(name.encode(), dtype=np.uint8).reshape(1, -1), namespace, PG_COUNT)
    return Op(
        osd,
        "client.1",
        None,
        1,
        f"1.{seed:x}",
        name,
        kind,
        0,
        4096,
        10**18,
        10**6,
        *stages,
        complete,
        10**18,
        result,
        image,
        None,
    )


@pytest.fixture
def recorded(tmp_path: Path) -> Any:
    def make(*ops: Op, kind: str = "collect", versions: dict[str, str] | None = None) -> RunDirectory:
        with Workspace(tmp_path / "ws").create_run(kind=kind, started_ns=10**18, versions=versions) as run:
            with run.begin_segment("0001") as segment:
                segment.table(Op, ops)
                segment.commit()
            return run

    return make


@pytest.fixture
def osd(tmp_path: Path) -> Path:
    directory = tmp_path / "osd"
    directory.mkdir()
    (directory / "whoami").write_text("3\n")
    (directory / "ceph_fsid").write_text(f"{FSID}\n")
    return directory


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, osd: Path) -> Any:
    def asked(run: RunDirectory, onode: Any = ONODE, cached: Any = None, **more: Any) -> ActivityFinding:
        pools = {"pools": [{"pool": 1, "pg_num": PG_COUNT}]}
        answers = {"fsid": {"fsid": FSID}, "osd dump": pools, "bluestore onode metadata": onode}
        monkeypatch.setattr("bathyscope.host.ceph.connect", lambda *_: FakeCephSession(answers))

        def say(**question: Any) -> dict[str, Any]:
            if isinstance(cached, Exception):
                raise cached
            return {"cached_bytes": [length for _, length in question["ranges"]]}

        files = [{"path": "block", "handle": "0a", "is_in_use": True}]
        sources = [{"name": "osd.3", "dir": str(osd), "files": files}, {"name": "home", "dir": "/home", "files": []}]
        daemon: Any = SimpleNamespace(name="fast", ask=say)
        answer = {"fast": {"sources": sources}}
        return cached_objects([daemon], answer, run, Target(name="c"), limit=20, **more)

    return asked


def test_the_busiest_objects_of_the_osd_with_what_is_cached(recorded: Any, ask: Any) -> None:
    run = recorded(
        op("rbd_data.a"), op("rbd_data.a"), op("rbd_data.a", kind="write"), op("plain"),
        # Failed, of another OSD, and no data.
        op("rbd_data.b", result=-2), op("rbd_data.c", osd=4), op("rbd_data.d", kind="other"),
        versions={"fsid": FSID},
    )  # fmt: skip
    finding = ask(run, remarks=["first"])
    (table,) = finding.tables
    size = ALLOCATED_BYTES
    assert table.rows == (
        ("rbd_data.a", "10193ecceed2", 1, "osd.3", 2, 8192, 1, size, size, 1.0),
        ("plain", None, 1, "osd.3", 1, 4096, 0, size, size, 1.0),
    )
    assert (finding.start_ns, finding.end_ns, finding.run_id) == (10**18, 10**18 + 10**6, run.id)
    assert finding.unseen[0] == "first"
    assert any("in bursts" in remark for remark in finding.unseen)
    assert any(remark.startswith("home: not shown: no running BlueStore OSD") for remark in finding.unseen)
    assert not any("slowest" in remark or "which cluster" in remark for remark in finding.unseen)


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({"onode": -errno.ENOENT}, "osd.3 does not know 1 of 1 objects"),
        ({"onode": b"something else"}, "does not begin with an onode"),
        ({"onode": -errno.EIO}, "scripted refusal"),
        ({"cached": CacheError("not open", hint="look")}, "osd.3: not open; look."),
    ],
)
def test_what_goes_wrong_with_one_osd_is_said_and_the_others_are_shown(
    recorded: Any, ask: Any, answers: dict[str, Any], says: str
) -> None:
    finding = ask(recorded(op("rbd_data.a")), **answers)
    assert finding.sentence == "No objects are known."
    assert any(says in remark for remark in finding.unseen), finding.unseen


def test_an_object_of_a_namespace_is_not_taken_for_its_namesake(recorded: Any, ask: Any) -> None:
    finding = ask(recorded(op("rbd_data.a"), op("rbd_data.a", namespace="ns"), op("rbd_data.a", namespace="ns")))
    assert [row[4] for row in finding.tables[0].rows] == [1]
    assert any("does not know 1 of 2 objects" in remark for remark in finding.unseen)


def test_a_key_that_may_not_ask_is_an_error(recorded: Any, ask: Any) -> None:
    with pytest.raises(DeniedError):
        ask(recorded(op("rbd_data.a")), onode=-errno.EACCES)


def test_a_run_without_operations_or_of_another_cluster_is_refused(recorded: Any, ask: Any) -> None:
    with pytest.raises(UsageError, match="has no operations"):
        ask(recorded())
    with pytest.raises(UsageError, match="another cluster"):
        ask(recorded(op("rbd_data.a"), versions={"fsid": OTHER}))


def test_what_is_doubtful_of_a_run_is_said(recorded: Any, ask: Any) -> None:
    finding = ask(recorded(op("rbd_data.a", complete=False), kind="import"))
    assert any("only the slowest" in remark for remark in finding.unseen)
    assert any("does not say of which cluster" in remark for remark in finding.unseen)
    assert not any("bursts" in remark for remark in finding.unseen)


def test_a_directory_of_an_osd_of_another_cluster_is_left_out(recorded: Any, ask: Any, osd: Path) -> None:
    (osd / "ceph_fsid").write_text(OTHER)
    finding = ask(recorded(op("rbd_data.a")))
    assert any("is not of an OSD of this cluster" in remark for remark in finding.unseen)
    (osd / "whoami").unlink()
    assert ask(recorded(op("rbd_data.a"))).tables[0].rows == ()


def test_the_key_that_it_needs_can_be_printed() -> None:
    printed = CliRunner().invoke(cli.app, ["caps", "cache", "objects"])
    assert (printed.exit_code, printed.stderr) == (0, "")
    assert printed.stdout.splitlines()[1:3] == ["  mon 'allow r' \\", "  osd 'allow *' \\"]
    refused = CliRunner().invoke(cli.app, ["caps", "cache"])
    assert isinstance(refused.exception, UsageError)
    assert "cache objects" in str(refused.exception.hint)
