"""One more layer is one file: the conductor runs it, and the ladder and the report show it, without any edit."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bathyscope import layers, run_kinds, views
from bathyscope.bench import run_records, session
from bathyscope.bench.conductor import Watcher
from bathyscope.commands.report import finding_of, write_page
from bathyscope.host import ProcessRequest
from bathyscope.host.fake import EPOCH_NS, FakeAnswer, FakeHost
from bathyscope.layers import LAYERS
from bathyscope.records.finding import LadderFinding, LayerView
from bathyscope.spec import DiskTarget, Target
from bathyscope.spec.plan_file import parse_plan
from bathyscope.store import RunDirectory, Workspace

FILE = '''
"""The encrypted disk: a load generator of its own, which prints the rate of every second."""

from bathyscope.host import ProcessRequest
from bathyscope.layers.base import Layer
from bathyscope.load import LoadTables
from bathyscope.load.base import EMPTY
from bathyscope.records import Histogram, Interval, Result, to_table
from bathyscope.records.finding import LayerView

S = 1_000_000_000


class CryptLayer(Layer):
    view = LayerView("crypt", "Encrypted disk", "the encrypted disk", place=5, slot=3, shape="cross", dash=(8, 2))
    load_generators = {"meter": ""}
    needs_cluster = False

    def plan(self, step, context):
        pattern = step.pattern
        return (ProcessRequest("meter", ("meter", self.name, pattern.op, str(pattern.queue_depth)), timeout_s=60),)

    def parse(self, step_index, step, answers):
        (answer,) = answers
        rates = answer.json()["rates"]
        count, seconds, size = sum(rates), len(rates), step.pattern.block_size_bytes
        start_ns = answer.started_ns + round(step.ramp_s * S)
        latency_ns = step.pattern.queue_depth / (count / seconds) * S
        own = {"step_index": step_index, "client": "meter", "direction": "read"}
        total = Result(
            **own, io_count=count, io_bytes=count * size, error_count=0, runtime_ns=seconds * S, iops=count / seconds,
            bandwidth_bytes_per_s=count * size / seconds, latency_ns_mean=latency_ns, latency_ns_stddev=None,
            latency_ns_min=None, latency_ns_max=None, cpu_user_s=0.1, cpu_system_s=0.1,
        )
        series = [
            Interval(**own, offset_ns=(i + 1) * S, duration_ns=S, iops=rate, bandwidth_bytes_per_s=rate * size,
                     latency_ns_mean=latency_ns)
            for i, rate in enumerate(rates)
        ]
        bucket = Histogram(**own, kind="lat", bucket_ns=round(latency_ns), count=count)
        tables = {Result: to_table(Result, [total]), Interval: to_table(Interval, series)}
        return LoadTables({**EMPTY, **tables, Histogram: to_table(Histogram, [bucket])}, start_ns, answer.ended_ns)


LAYER = CryptLayer()
'''
PLAN = """
name: t
layers: [disk, crypt]
patterns: [randread-4K-qd16]
device_classes: [all]
repeats: 3
ramp: 1s
runtime: 10s
"""
RATES = {"disk": 1000, "crypt": 400}


@pytest.fixture
def one_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the file beside the layers that exist. The disk is measured by the same program here."""
    (tmp_path / "crypt.py").write_text(FILE)
    monkeypatch.setattr(layers, "__path__", [*layers.__path__, str(tmp_path)])
    before = dict(LAYERS)
    LAYERS.update(layers.discover())

    class Disk(type(LAYERS["crypt"])):  # type: ignore[misc]
        view = LAYERS["disk"].view

    LAYERS["disk"] = Disk()
    yield
    LAYERS.clear()
    LAYERS.update(before)
    del sys.modules["bathyscope.layers.crypt"]


@pytest.fixture
def host() -> FakeHost:
    """A machine whose processors and disk are sampled too."""

    def meter(request: ProcessRequest) -> FakeAnswer:
        rate = RATES[request.argv[1]]
        return FakeAnswer(json.dumps({"rates": [rate, rate + 1] * 5}).encode(), duration_s=11)

    found = FakeHost({"meter": meter})

    def stat() -> bytes:
        ticks = (found.clock.now_ns() - EPOCH_NS) // 10_000_000
        return f"cpu  {ticks} 0 0 {ticks} 0 0 0 0 0 0\ncpu0 0\ncpu1 0\n".encode()

    found.files |= {"/proc/stat": stat, "/proc/diskstats": b"", "/etc/os-release": b"ID=debian\n"}
    return found


@pytest.fixture
def run(one_more: None, host: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(4096))
    target = Target(name="box", kind="disk", disks={"": DiskTarget(path=str(disk))})
    plan = parse_plan(PLAN, name="t", layers=layers.traits())
    promised = [planned.argv for planned in session.predict(host, plan, target).commands]
    assert [argv[1] for argv in promised].count("crypt") == 3
    found = session.begin(host, Workspace(tmp_path / "ws"), plan, target, Watcher())
    assert [request.argv for request in host.requests if request.argv[0] == "meter"] == promised
    return found


def test_the_ladder_has_its_rung(run: RunDirectory) -> None:
    assert run.status == "done"
    finding = finding_of(run)
    assert isinstance(finding, LadderFinding)
    (group,) = finding.groups
    assert [(point.layer, point.status, round(point.iops.value or 0)) for point in group.points] == [
        ("disk", "done", 1000), ("crypt", "done", 400)
    ]  # fmt: skip
    (loss,) = group.losses
    assert (loss.lower_layer, loss.upper_layer) == ("disk", "crypt")
    assert "the encrypted disk" in loss.sentence
    assert [layer.name for layer in finding.layers][:2] == ["disk", "crypt"]
    assert LayerView("crypt", "Encrypted disk", "the encrypted disk", 5, 3, "cross", (8, 2)) in finding.layers


def test_every_view_shows_it(run: RunDirectory, tmp_path: Path) -> None:
    finding = finding_of(run)
    table = io.StringIO()
    views.render(finding, "table", table, width=200)
    assert "Encrypted disk" in table.getvalue()
    for output in ("json", "csv"):
        assert "crypt" in views.as_text(finding, output)
    page = write_page(finding, tmp_path / "report.html").read_text()
    assert page.count("Encrypted disk") > 1
    commands = re.search('id="commands-data">([^<]+)<', page)
    assert commands is not None
    assert b"meter crypt randread 16" in gzip.decompress(base64.b64decode(commands[1]))


def test_its_steps_are_parsed_again(run: RunDirectory, tmp_path: Path) -> None:
    before = run.tables()
    with Workspace(tmp_path / "ws").open_run(run.id, exclusive=True) as again:
        assert run_records.reparse(again) == 0
    after = Workspace(tmp_path / "ws").open_run(run.id).tables()
    assert after.keys() == before.keys()
    for name, table in before.items():
        assert after[name].equals(table), name
    assert run_kinds.kind_of(run).describe(run)[0] == ("steps finished", 6)
