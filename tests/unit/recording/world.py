"""A small cluster whose daemons count, restart and stop answering when told, and sources that ask it."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from bathyscope.errors import ParseError, UnreachableError
from bathyscope.host import CephRequest, ReadRequest, Request
from bathyscope.host.fake import EPOCH_NS, FakeCephSession, FakeClock, FakeHost
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.records import ProcessSample, RawAnswer, Record, build_table
from bathyscope.sources.cluster_status import StatusOfCluster
from bathyscope.sources.perf_counters import PerfCounters
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope, ScopeOsd

SECOND_NS = 1_000_000_000
TARGET = Target(name="c", conf="/etc/ceph/ceph.conf")


@dataclasses.dataclass
class World:
    """The cluster. Each OSD has counted since it started; times are seconds since the clock's beginning.

    `down` says which OSDs are down and `lost` whether nothing answers at a moment; `garbled` whether the OSDs answer
    with something else than JSON.
    """

    clock: FakeClock = dataclasses.field(default_factory=FakeClock)
    osds: tuple[int, ...] = (0, 1, 2)
    rate_per_s: int = 100
    restarts: dict[int, float] = dataclasses.field(default_factory=dict)
    down: Callable[[int, float], bool] = lambda osd, at_s: False
    lost: Callable[[float], bool] = lambda at_s: False
    garbled: Callable[[int, float], bool] = lambda osd, at_s: False

    @property
    def at_s(self) -> float:
        return (self.clock.now_ns() - EPOCH_NS) / 1e9

    def session(self) -> FakeCephSession:
        looks = {"status": {"pgmap": {}}, "health": {"status": "HEALTH_OK"}, "osd perf": {"osd_perf_infos": []}}
        answers: dict[str | tuple[str, str], Any] = {
            prefix: lambda _, value=value: self._answer(value) for prefix, value in looks.items()
        }
        return FakeCephSession({**answers, "perf dump": self.perf_dump, "osd df": self.map}, clock=self.clock)

    def host(self) -> FakeHost:
        return FakeHost(files={"/proc/stat": self.stat}, ceph=self.session(), clock=self.clock)

    def counted(self, osd: int) -> int:
        restarted_s = self.restarts.get(osd, 0.0)
        since_s = restarted_s if self.at_s >= restarted_s else 0.0
        return round((self.at_s - since_s) * self.rate_per_s)

    def _answer(self, value: Any) -> Any:
        return UnreachableError("the connection to the cluster was lost") if self.lost(self.at_s) else value

    def perf_dump(self, request: CephRequest) -> Any:
        osd = int(request.daemon.removeprefix("osd."))
        if self.down(osd, self.at_s):
            return self._answer(-6)
        return self._answer(b"{broken" if self.garbled(osd, self.at_s) else b'{"osd":{"op":%d}}' % self.counted(osd))

    def map(self, request: CephRequest) -> Any:
        return self._answer({str(osd): not self.down(osd, self.at_s) for osd in self.osds})

    def stat(self) -> bytes:
        return b"%d" % round(self.at_s * 10)


class Counters(PerfCounters):
    """The source perf_counters, under another name."""

    name = "counters"


@dataclasses.dataclass
class Readings:
    """As the source proc: differences between readings of a file."""

    name: str = "readings"
    records: tuple[type[Record], ...] = (ProcessSample,)
    period_s: float = 1.0
    timeout_s: float = 5.0
    differences: bool = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        return [ReadRequest("proc", ("/proc/stat",))]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Mapping[type[Record], pa.Table]:
        seen = [(answer.ended_ns, int(answer.files[0][1])) for answer in answers if answer.exit_code == 0]
        pairs = list(itertools.pairwise(seen))
        columns = {
            "at_ns": [after[0] for _, after in pairs],
            "duration_ns": [after[0] - before[0] for before, after in pairs],
            "cpu_user_s": [(after[1] - before[1]) / 10 for before, after in pairs],
        }
        return {
            ProcessSample: build_table(
                ProcessSample, {**columns, "host": "h", "process": "host", "cpu_system_s": 0.0, "processors": 2}
            )
        }


class Status(StatusOfCluster):
    """The source cluster_status, under another name."""

    name = "status"


@dataclasses.dataclass
class Map:
    """As the source cluster_map."""

    name: str = "map"
    records: tuple[type[Record], ...] = ()
    period_s: float = 300.0
    timeout_s: float = 5.0
    differences: bool = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        schema = [CephRequest(f"schema-osd.{osd.osd}", "mon", (("prefix", "status"),)) for osd in scope.osds[:1]]
        return [CephRequest("map", "mgr", (("prefix", "osd df"),)), *schema]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Mapping[type[Record], pa.Table]:
        return {}


def scope_of(answers: Sequence[RawAnswer], target: Target) -> Scope:
    known = {answer.label: answer for answer in answers if answer.exit_code == 0}
    if "map" not in known:
        raise ParseError("no map")
    osds = tuple(ScopeOsd(osd=int(osd), up=up) for osd, up in json.loads(known["map"].stdout).items())
    kinds = {"osd": {"op": "counter"}} if any(label.startswith("schema") for label in known) else {}
    return Scope(target=target, osds=osds, counter_kinds=kinds)


def keeper_of(host: FakeHost, **more: Any) -> ScopeKeeper:
    """Return a keeper of the world's scope that has been read once."""
    keeper = ScopeKeeper(host, host.ceph, TARGET, sources=[Map()], scope_of=scope_of, **more)
    keeper.refresh()
    return keeper
