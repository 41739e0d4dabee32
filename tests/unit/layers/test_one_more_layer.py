"""One more layer is one file: plan, dry run, checks, preparation, clean-up and parser know it without any edit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.bench.conftest import FakeCluster

from bathyscope import layers
from bathyscope.bench import cleanup, preflight
from bathyscope.bench.preflight import ClusterLook
from bathyscope.bench.resources import Resources
from bathyscope.errors import EnvironmentError_, PlanError, UnhealthyError, UsageError
from bathyscope.host.fake import FakeAnswer, FakeHost
from bathyscope.layers import LAYERS, LayerContext, needs
from bathyscope.load import output_paths
from bathyscope.recording.journal import Journal
from bathyscope.records import ClusterStatus, Histogram, Interval, RawAnswer, Result
from bathyscope.spec import StepSpec, Target
from bathyscope.spec.plan import Limits, expand
from bathyscope.spec.plan_file import parse_plan
from bathyscope.spec.scope import Scope, ScopeOsd

FILE = '''
"""The CephFS layer: fio on a file of a file system of our own."""

import dataclasses
from collections.abc import Sequence

from bathyscope.errors import UsageError
from bathyscope.layers import common
from bathyscope.layers.base import Layer
from bathyscope.layers.needs import Action, Need, PoolNeed, Removal, change, question
from bathyscope.load import Place, fio
from bathyscope.records.finding import LayerView


@dataclasses.dataclass(frozen=True, slots=True)
class FileSystemNeed(Need):
    """A file system on pools of our own."""

    name: str
    size_bytes: int

    removals = (
        Removal(
            kind="file_system",
            words="the file system",
            order=-1,
            listing=lambda _: question("fs ls"),
            names=lambda answer: {entry["name"] for entry in answer},
            request=lambda given: change("fs-rm", "fs rm", fs_name=given["name"], yes_i_really_mean_it=True),
        ),
    )

    @property
    def key(self):
        return f"file system {self.name}"

    @property
    def cluster_bytes(self):
        return self.size_bytes

    def make(self, context):
        words = {"metadata": f"{self.name}-meta", "data": f"{self.name}-data"}
        return (Action(change("fs", "fs new", fs_name=self.name, **words), creates=("file_system", self.name)),)

    def fill(self, context):
        engine = {"ioengine": "posixaio", "filename": f"/mnt/{self.name}", "size": self.size_bytes}
        return (common.fill(f"prefill-{self.name}", engine, self.size_bytes, place=Place()),)

    def check_fill(self, answer):
        fio.check(answer)


class CephfsLayer(Layer):
    view = LayerView("cephfs", "CephFS", "CephFS", place=30, slot=3, shape="diamond", dash=(8, 2, 2, 2))
    load_generators = {"fio": "posixaio"}
    axes = frozenset({"image_size"})

    def check(self, step, context):
        if step.pattern.block_size_bytes > step.image_size_bytes:
            raise UsageError("the block is larger than the file")

    def needs(self, step, context):
        name = common.pool_name(self.name, step, context)
        pools = [PoolNeed(f"{name}-{part}", step.device_class, context.replicas) for part in ("meta", "data")]
        return (*pools, FileSystemNeed(name, step.image_size_bytes))

    def plan(self, step, context):
        engine = {"ioengine": "posixaio", "filename": "/mnt/file", "size": step.image_size_bytes}
        return (common.load(step, 0, context, engine, place=Place()),)

    def parse(self, step_index, step, answers: Sequence):
        return common.fio_tables(step_index, step, answers)


LAYER = CephfsLayer()
'''
PLAN = """
name: t
layers: [rbd, cephfs]
patterns: [randread-4K-qd16]
axes: {image_size: 64M, jobs: 1, temperature: cold}
repeats: 2
"""
TARGET = Target(name="c", conf="/etc/ceph/ceph.conf")
CONTEXT = LayerContext(TARGET, "bathy-abcdef", "/tmp/bathy")
OSDS = tuple(ScopeOsd(osd=i, host="node1", device_class="ssd", size_bytes=1 << 30) for i in range(3))
CLEAN = ClusterStatus(1, "HEALTH_OK", 0, 64, 64, 0, 0, None, None)


@pytest.fixture
def one_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the file beside the layers that exist."""
    (tmp_path / "cephfs.py").write_text(FILE)
    monkeypatch.setattr(layers, "__path__", [*layers.__path__, str(tmp_path)])
    before = dict(LAYERS)
    LAYERS.update(layers.discover())
    yield
    LAYERS.clear()
    LAYERS.update(before)
    del sys.modules["bathyscope.layers.cephfs"]
    needs.REMOVALS.pop("file_system", None)


@pytest.fixture
def steps(one_more: None) -> list[StepSpec]:
    return expand(parse_plan(PLAN, name="t", layers=layers.traits()), ("ssd",), layers.traits())


def test_plans_know_it(steps: list[StepSpec]) -> None:
    assert [step.key for step in steps if step.repeat_index == 0] == [
        "rbd/ssd/randread-4K-qd16-cold",
        "cephfs/ssd/randread-4K-qd16",
    ]
    assert (steps[1].image_size_bytes, steps[1].object_size_bytes, steps[1].load_generator) == (64 << 20, None, "fio")
    assert layers.views()[-1].title == "CephFS"
    with pytest.raises(PlanError) as error:
        parse_plan(PLAN.replace("cephfs", "cephsf"), name="t", layers=layers.traits())
    assert "did you mean 'cephfs'?" in (error.value.hint or "")


def test_a_plan_does_not_know_it_without_its_file() -> None:
    with pytest.raises(PlanError, match="there is no layer 'cephfs'"):
        parse_plan(PLAN, name="t", layers=layers.traits())


def test_a_dry_run_names_its_commands(steps: list[StepSpec]) -> None:
    planned = layers.planned(steps, CONTEXT, prefill=True, warm=())
    own = [(key, request) for key, request in planned if "--ioengine=posixaio" in request.argv]
    assert [key for key, _ in own] == [
        "prefill",
        "cephfs/ssd/randread-4K-qd16#0",
        "cephfs/ssd/randread-4K-qd16#1",
    ]
    assert output_paths(own[1][1])[0] == "/tmp/bathy/fio-0_iops.log"


def test_the_checks_before_a_run_know_it(steps: list[StepSpec]) -> None:
    def fio(engines: bytes) -> FakeHost:
        return FakeHost({"fio": lambda request: FakeAnswer(b"fio-3.33" if "--version" in request.argv else engines)})

    preflight.check_tools(fio(b"\trbd\n\tposixaio\n"), TARGET, steps)
    with pytest.raises(EnvironmentError_, match="no engine 'posixaio'"):
        preflight.check_tools(fio(b"\trbd\n"), TARGET, steps)
    preflight.check_layers(steps, CONTEXT)
    large = steps[1].model_copy(update={"image_size_bytes": 1024})
    with pytest.raises(UsageError, match="larger than the file"):
        preflight.check_layers([large], CONTEXT)
    preflight.check_disks(FakeHost(), steps, CONTEXT)
    scope = Scope(target=TARGET, osds=OSDS)
    preflight.check_cluster(scope, ClusterLook(CLEAN), Limits())
    preflight.check_space(scope, steps, CONTEXT, Limits(), default_replicas=3)
    with pytest.raises(UnhealthyError, match="would fill"):
        preflight.check_space(
            scope, [steps[1].model_copy(update={"image_size_bytes": 1 << 30})], CONTEXT, Limits(), default_replicas=3
        )


class Cluster(FakeCluster):
    """A cluster that knows file systems too."""

    def do_fs_new(self, daemon: str, words: Any) -> Any:
        self.config[words["fs_name"]] = "a file system"
        return b""

    def do_fs_ls(self, daemon: str, words: Any) -> Any:
        return [{"name": name} for name in self.config]

    def do_fs_rm(self, daemon: str, words: Any) -> Any:
        del self.config[words["fs_name"]]
        return b""


def test_what_it_needs_is_made_filled_and_removed(
    steps: list[StepSpec], tmp_path: Path, recorded: Callable[[str], list[RawAnswer]]
) -> None:
    cluster = Cluster()
    session, before = cluster.session(), cluster.state()
    host = FakeHost(ceph=session)
    journal = Journal.create(tmp_path / "journal", "20260101-000000-abcdef", "/x", TARGET, host)
    wanted = layers.needs_of([step for step in steps if step.layer == "cephfs"], CONTEXT)
    assert len(wanted) == 3
    Resources(host, session, journal).make(wanted, Scope(target=TARGET, osds=OSDS), status=lambda: CLEAN)
    assert list(cluster.config) == ["bathy-abcdef-cephfs-ssd"]
    assert list(cluster.pools) == ["bathy-abcdef-cephfs-ssd-meta", "bathy-abcdef-cephfs-ssd-data"]
    (fill,) = [request for need in wanted for request in need.fill(CONTEXT)]
    assert fill.label == "prefill-bathy-abcdef-cephfs-ssd"
    wanted[2].check_fill(recorded("fio/3.33/rbd-randwrite")[0])
    said: list[str] = []
    assert cleanup.undo_all(host, session, Journal.load(journal.path), note=said.append) == []
    assert said[0] == "removing the file system bathy-abcdef-cephfs-ssd"
    assert cluster.state() == before


def test_its_answers_are_read(steps: list[StepSpec], recorded: Callable[[str], list[RawAnswer]]) -> None:
    found = LAYERS["cephfs"].parse(7, steps[1], recorded("fio/3.33/rbd-randread"))
    assert set(found.tables) == {Result, Interval, Histogram}
    assert found.tables[Result].column("step_index").to_pylist() == [7]
    assert found.tables[Interval].num_rows > 5
