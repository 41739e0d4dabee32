"""What `bathy collect --follow` holds on disk: made-up answers of a cluster, recorded and rolled up by a fake clock.

    python benchmarks/store/follow.py [--osds 100] [--images 1000] [--minutes 10] [--directory DIRECTORY]

The answers have the form and the length of recorded ones (tests/fixtures), and counters that grow by chance, so that
they are as hard to compress. A part of an hour is recorded, and its size taken as recorded, after its raw answers are
gone, in minutes and in hours. From that follows what days hold. What nodes sample (--ssh) and bursts are not in it.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bathyscope.host import CephRequest
from bathyscope.host.fake import EPOCH_NS, FakeCephSession, FakeClock, FakeHost
from bathyscope.recording.recorder import Job, Recorder
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.recording.sinks import SegmentSink
from bathyscope.sources import SOURCES, perf_counters
from bathyscope.spec import Target
from bathyscope.spec.scope import ScopeOsd
from bathyscope.store import RunDirectory, Workspace
from bathyscope.store.roll_up import Retention, roll_up

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures"
RELEASE = "16.2.15"
PGS_PER_OSD = 33
HOUR_S, DAY_S = 3600, 86400
# As `bathy collect` asks with --interval 5s, where the manager's module is there.
PERIODS_S = {
    "cluster_status": 10.0, "pg_stats": 10.0, "mgr_counters": 5.0, "images": 300.0, "pg_map": 600.0,
    "perf_counters": 5.0, "osd_latency_histograms": 10.0,
}  # fmt: skip


class Cluster:
    """Answers whose counters grow."""

    def __init__(self, osds: int, images: int) -> None:
        self._dice = random.Random(211)
        self.clock = FakeClock()
        self.osds, self.images = osds, images
        self._pgs = 1 << (osds * PGS_PER_OSD - 1).bit_length()
        self._dumps = [fixture(f"perf_dump/{RELEASE}/{when}/perf_dump-osd.0") for when in ("before", "after")]
        self._histograms = [
            fixture(f"osd_histograms/{RELEASE}/{when}/osd_histograms-osd.0") for when in ("before", "after")
        ]
        self._group = fixture(f"pg_stats/{RELEASE}/two-images/pg_dump-0")["pg_stats"][0]
        self._counts = [[self._dice.randrange(10**9) for _ in range(4)] for _ in range(self._pgs)]
        self._images = [[self._dice.randrange(10**9) for _ in range(6)] for _ in range(images)]
        self._by_osd = [[self._dice.randrange(10**9) for _ in range(6)] for _ in range(osds)]
        self._header = fixture(f"images/{RELEASE}/pools/images-rbd")["images"][0]

    def session(self) -> FakeCephSession:
        environment = f"environment/{RELEASE}/answers"
        session = FakeCephSession({
            "perf dump": lambda request: self._grown(self._dumps, request),
            "perf histogram dump": lambda request: self._grown(self._histograms, request),
            "pg dump": self._pg_dump,
            "bathyscope counters": lambda _: self._counters(),
            "images": lambda _: self._listing(),
            "status": fixture(f"{environment}/status"),
            "health": fixture(f"{environment}/health"),
            "osd perf": {"osd_perf_infos": []},
        }, clock=self.clock)  # fmt: skip
        session.requests = Nothing()
        return session

    def _grown(self, looks: list[Any], request: CephRequest) -> Any:
        """Return the first look, grown by what lies between the two, more or less, for each look until now."""
        weight = (self.clock.now_ns() - EPOCH_NS) / 5e9 * 0.2 * (1 + hash(request.daemon) % 7)
        return grown(looks[0], looks[1], lambda: weight * (0.9 + 0.2 * self._dice.random()))

    def _pg_dump(self, request: CephRequest) -> Any:
        brief = "pgs_brief" in dict(request.command)["dumpcontents"]
        groups = []
        for seed, counts in enumerate(self._counts):
            acting = [(seed * 7 + step) % self.osds for step in (0, 11, 23)]
            about = {"pgid": f"2.{seed:x}", "state": "active+clean", "up": acting, "acting": acting}
            about |= {"up_primary": acting[0], "acting_primary": acting[0]}
            if brief:
                groups.append(about)
                continue
            for place in range(4):
                counts[place] += self._dice.randrange(2000)
            names = ("num_read", "num_write", "num_read_kb", "num_write_kb")
            stats = {**self._group["stat_sum"], **dict(zip(names, counts, strict=True))}
            groups.append({**self._group, **about, "stat_sum": stats})
        return {"pg_ready": True, "pg_stats": groups}

    def _counters(self) -> Any:
        for totals in (*self._images, *self._by_osd):
            for place in range(6):
                totals[place] += self._dice.randrange(10**3 if place < 2 else 10**8)
        at_s = (self.clock.now_ns() - EPOCH_NS) / 1e9
        images = [
            [
                f"client.{4000 + i}",
                f"10.0.{i // 250}.{i % 250}",
                2,
                "",
                -1,
                f"{0x10AB00000000 + i * 7919:x}",
                at_s,
                *totals,
            ]
            for i, totals in enumerate(self._images)
        ]
        osds = [[osd, 2, at_s, *totals] for osd, totals in enumerate(self._by_osd)]
        queries = {
            "image_client": {"registered_age_s": at_s, "rows": images},
            "osd_pool": {"registered_age_s": at_s, "rows": osds},
        }
        return {"version": 1, "instance": "a", "clock_s": at_s, "at_age_s": 0.3, "queries": queries, "dropped": 0}

    def _listing(self) -> Any:
        namespace, place, _, entry, header = self._header
        listed = [[namespace, place, f"{0x10AB00000000 + i * 7919:x}", entry, header] for i in range(self.images)]
        return {"images": listed, "left": 0}


class Nothing(list[Any]):
    """Remembers nothing."""

    def append(self, item: Any) -> None:
        pass


def fixture(path: str) -> Any:
    return json.loads((FIXTURES / f"{path}.stdout").read_text())


def grown(first: Any, last: Any, weight: Callable[[], float]) -> Any:
    """Return a value that has grown as `last` has from `first`, times `weight`."""
    if isinstance(first, dict):
        return {key: grown(value, last.get(key, value), weight) for key, value in first.items()}
    if isinstance(first, list):
        return [grown(a, b, weight) for a, b in zip(first, last, strict=True)] if len(first) == len(last) else first
    if isinstance(first, int | float) and not isinstance(first, bool) and first != last:
        return type(first)(first + (last - first) * weight())
    return first


def measure(directory: Path, osds: int, images: int, minutes: float) -> dict[str, Any]:
    """Record, roll up, and return bytes a day and what the run holds after 1, 7, 30 and 365 days."""
    cluster = Cluster(osds, images)
    host = FakeHost(ceph=cluster.session(), clock=cluster.clock)
    keeper = ScopeKeeper(host, host.ceph, Target(name="synthetic"), sources=())
    schema = fixture(f"perf_dump/{RELEASE}/schema/perf_schema-osd.0")
    keeper.narrow(
        osds=tuple(ScopeOsd(osd=osd, host=f"node{osd // 10}") for osd in range(osds)), asked_osds=None,
        pools={"rbd": 2}, rbd_pools=("rbd",), mgr_modules=("bathyscope",),
        counter_kinds=perf_counters.kinds(schema),
    )  # fmt: skip
    jobs = [Job(SOURCES[name], period_s=period_s, budget_ratio=1e9) for name, period_s in PERIODS_S.items()]
    run = Workspace(directory).create_run(kind="collect", started_ns=EPOCH_NS)
    began = time.monotonic()
    with SegmentSink(run, keeper, segment_s=60.0) as sink:
        Recorder(host, host.ceph, keeper, jobs, sink).run(minutes * 60)
    took_s = time.monotonic() - began
    span_s = minutes * 60
    now_ns = EPOCH_NS + round((span_s + 2 * DAY_S) * 1e9)
    never = 1e12
    stages = {"with raw answers": size_bytes(run)}
    for stage, kept in (
        ("as recorded", Retention(raw_s=0, recorded_s=never, minute_s=never, event_s=never)),
        ("minutes", Retention(raw_s=0, recorded_s=0, minute_s=never, event_s=never)),
        ("hours", Retention(raw_s=0, recorded_s=0, minute_s=0, event_s=0)),
    ):
        # The second call deletes what the first one has replaced.
        for _ in range(2):
            roll_up(run, now_ns, kept)
        stages[stage] = size_bytes(run)
    run.close()
    per_day = {stage: round(count / span_s * DAY_S) for stage, count in stages.items()}
    # A part of an hour makes one row of an hour.
    per_day["hours"] = round(stages["hours"] * 24)
    kept = Retention()
    finest_days = max(kept.recorded_s, kept.raw_s) / DAY_S
    raw = (per_day["with raw answers"] - per_day["as recorded"]) * kept.raw_s / DAY_S
    holds = {
        days: round(
            raw + per_day["as recorded"] * min(days, finest_days)
            + per_day["minutes"] * max(0.0, min(days, kept.minute_s / DAY_S) - finest_days)
            + per_day["hours"] * max(0.0, days - kept.minute_s / DAY_S)
        )
        for days in (1, 7, 30, 365)
    }  # fmt: skip
    return {
        "osds": osds, "images": images, "groups": len(cluster._counts), "recorded_s": span_s, "took_s": round(took_s),
        "bytes_per_day": per_day, "raw_bytes_kept": round(raw), "bytes_after_days": holds,
    }  # fmt: skip


def size_bytes(run: RunDirectory) -> int:
    return sum(path.stat().st_size for path in (run.path / "segments").rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--osds", type=int, default=100)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        print(json.dumps(measure(Path(directory), arguments.osds, arguments.images, arguments.minutes), indent=1))


if __name__ == "__main__":
    main()
