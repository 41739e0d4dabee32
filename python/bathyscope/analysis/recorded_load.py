"""What limits clients in a window of time that was recorded: the account of a bench step, of a load that others made.

A recording has no load generator that says what it did. What clients did is what the OSDs counted of it as primaries
(`activity.osd_sums`), or for one image or pool what was counted of that, and an I/O's latency is its time in its OSD,
from receipt to reply. So of what lies before the OSDs (clients, librbd, their network) nothing is seen, and where no
resource of the cluster is used up the clients do not ask for more. How many I/Os were in flight follows from rate and
latency.

Everything else is as for a step: the same samples, cut to the window by the same rules, the same ceilings and verdicts.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis.account.client_options import client_options, limit_ceilings
from bathyscope.analysis.account.step import account_of
from bathyscope.analysis.activity import osd_sums
from bathyscope.analysis.activity.images import IMAGES, Images
from bathyscope.analysis.activity.shape import Question, spread, sums
from bathyscope.analysis.activity.words import COUNTED
from bathyscope.analysis.columns import Tables, strings, table_of, where
from bathyscope.analysis.interference import own_figures
from bathyscope.analysis.ladder_point import Repeat, point
from bathyscope.analysis.placement import cluster_of, known_osds
from bathyscope.analysis.window import joined_in, of_time, overlaps, rows_in
from bathyscope.errors import AnalysisError
from bathyscope.records import (
    CLIENTS,
    HERE,
    RECORDS_BY_TABLE,
    SAME_MACHINE,
    CacheSample,
    Caveat,
    CgroupSample,
    ClusterStatus,
    DeviceSample,
    EnvironmentFact,
    Interval,
    NetworkSample,
    Op,
    PerfCounter,
    Placement,
    ProcessSample,
    Result,
    SimulatedDiskSample,
    Step,
    to_table,
)
from bathyscope.records.account import Ceiling
from bathyscope.records.figure import Figure
from bathyscope.records.finding import PointFinding
from bathyscope.units import format_bytes, format_percent, format_rate, three_digits

_JOINED = (CacheSample, CgroupSample, DeviceSample, NetworkSample, ProcessSample, SimulatedDiskSample)
_SECTIONS = "(section IN ('osd', 'bluestore') OR section LIKE 'throttle-%')"
# Of operations one by one so many are enough to see where they go.
_OPS_MAX = 20_000
_BIN_LEAST_NS, _BINS_MAX = 5_000_000_000, 60
_COUNTS = {"op_r": "read", "op_w": "write", "op_rw": "write"}
_OF_OSDS = "osds "
# A device class that serves less of the operations is not under load.
_CLASS_MIN = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class _Direction:
    """What clients did in one direction; `latency_ns_sum` is None where it is not known."""

    name: str
    count: float
    size_bytes: float
    latency_ns_sum: float | None


def queries(question: Question) -> Mapping[str, str]:
    """Return what `build` needs, as SQL over a recording or over the rows of a live screen."""
    window = of_time(question.start_ns, question.end_ns)
    bin_ns = _bin_ns(question)
    names = ", ".join(f"'{name}'" for name in _COUNTS)
    counters = spread(question, PerfCounter.TABLE, bin_ns, f"section = 'osd' AND name IN ({names})")
    keys = "pool, namespace, image, image_id"
    return {
        **{_OF_OSDS + name: sql for name, sql in osd_sums.queries(question).items()},
        **{record.TABLE: joined_in(record, window) for record in _JOINED},
        PerfCounter.TABLE: joined_in(PerfCounter, window, _SECTIONS),
        ClusterStatus.TABLE: rows_in(ClusterStatus, window),
        Op.TABLE: f"SELECT * FROM ({rows_in(Op, window)}) ORDER BY started_ns DESC LIMIT {_OPS_MAX}",
        Placement.TABLE: f"SELECT * FROM {Placement.TABLE}",
        EnvironmentFact.TABLE: f"SELECT DISTINCT moment, subject, name, value FROM {EnvironmentFact.TABLE}",
        "course": f"SELECT place, name, sum(delta * weight) AS ops FROM {counters} GROUP BY ALL ORDER BY place, name",
        "images": f"SELECT {keys}, {sums(question, *COUNTED)} FROM image_io WHERE {overlaps(question)} GROUP BY {keys}",
        "image_names": IMAGES,
        "pools": f"SELECT pool, {sums(question, *COUNTED[:4])} FROM pg_io WHERE {overlaps(question)} GROUP BY pool",
    }


def build(tables: Tables, question: Question) -> PointFinding:
    """Return what clients did in the window with its account and its verdict.

    Raises AnalysisError where nobody counted what they did, or an image or pool did nothing.
    """
    osds, seconds, is_timed = osd_sums.read({n.removeprefix(_OF_OSDS): t for n, t in tables.items() if _OF_OSDS in n})
    if math.isinf(seconds) or not osds:
        raise AnalysisError(
            "nobody counted what clients did in this time",
            hint="`bathy collect` asks OSDs, or placement groups, for it",
        )
    directions = _of_part(tables, question) or _of_all(osds, is_timed=is_timed)
    under_load = _under_load(osds)
    classes = sorted({osd.device_class for osd in under_load})
    step = _step(directions, classes, question, seconds)
    step = dataclasses.replace(step, osds=" ".join(str(osd.osd) for osd in under_load))
    samples = _samples(tables) | {
        Result.TABLE: _results(directions, seconds),
        # The course is of all clients.
        Interval.TABLE: _course(tables["course"].slice(0, 0 if question.image or question.pool else None), question),
    }
    figures = own_figures(step, samples)
    placement, options = table_of(samples, Placement.TABLE), client_options(table_of(samples, EnvironmentFact.TABLE))
    limits = tuple(_image_limits(tables, options, seconds, figures.iops))
    account = account_of(step, figures, samples, known_osds(placement), limits=limits)
    repeat = Repeat(step, figures, account, table_of(samples, Op.TABLE), tuple(_caveats(directions, question)))
    return point(
        [repeat], {}, cluster_of(placement), said=_said(directions, seconds, account.in_flight, question)
    ).finding


def _under_load(osds: Sequence[osd_sums.OsdSum]) -> list[osd_sums.OsdSum]:
    """Return the OSDs of the device classes that clients use: those of another class are idle for another reason."""
    ops: Counter[str] = Counter()
    for osd in osds:
        ops[osd.device_class] += osd.ops
    used = {name for name, count in ops.items() if count >= _CLASS_MIN * ops.total()}
    return [osd for osd in osds if osd.device_class in used]


def _bin_ns(question: Question) -> int:
    return max(_BIN_LEAST_NS, (question.end_ns - question.start_ns) // _BINS_MAX)


def _of_all(osds: Sequence[osd_sums.OsdSum], *, is_timed: bool) -> list[_Direction]:
    """Return what all clients did, from what each OSD did as a primary."""
    return [
        _Direction(
            name,
            sum(getattr(osd, f"{name}_count") for osd in osds),
            sum(getattr(osd, f"{name}_bytes") for osd in osds),
            sum(getattr(osd, f"{name}_latency_ns_sum") or 0.0 for osd in osds) if is_timed else None,
        )
        for name in ("read", "write")
    ]


def _of_part(tables: Tables, question: Question) -> list[_Direction] | None:
    """Return what was done to the image or the pool that is asked for; None where all is. Raises AnalysisError."""
    if question.image is None and question.pool is None:
        return None
    names = Images(tables["image_names"])
    rows = tables["images"].to_pylist()
    if question.image is not None:
        rows = [row for row in rows if names.name(row) == question.image]
    else:
        rows = [row for row in rows if row["pool"] == question.pool] or [
            row for row in tables["pools"].to_pylist() if row["pool"] == question.pool
        ]
    if not rows:
        part = f"the image {question.image}" if question.image is not None else f"the pool {question.pool}"
        raise AnalysisError(
            f"no I/O of {part} was counted in this time",
            hint=f"bathy analyze {question.run_id} --view {'devices' if question.image else 'pools'} lists them",
        )
    directions = []
    for name in ("read", "write"):
        times = [row.get(f"{name}_latency_ns_sum") for row in rows if row[f"{name}_count"]]
        spent_ns = None if None in times else float(sum(time for time in times if time is not None))
        count, size_bytes = (sum(row[f"{name}_{what}"] for row in rows) for what in ("count", "bytes"))
        directions.append(_Direction(name, count, size_bytes, spent_ns))
    return directions


def _step(directions: Sequence[_Direction], classes: Sequence[str], question: Question, seconds: float) -> Step:
    """Return the window as a step: as many I/Os in flight as rate and latency say."""
    count = sum(direction.count for direction in directions)
    spent_ns = sum(direction.latency_ns_sum or 0.0 for direction in directions)
    reads, writes = (bool(direction.count) for direction in directions)
    return Step(
        step_index=0,
        step_key=CLIENTS,
        repeat_index=0,
        layer=CLIENTS,
        load_generator=CLIENTS,
        device_class=classes[0] if len(classes) == 1 else "",
        op="randrw" if reads and writes else "randwrite" if writes else "randread",
        block_size_bytes=round(sum(direction.size_bytes for direction in directions) / count) if count else 0,
        queue_depth=max(1, round(spent_ns / 1e9 / seconds)),
        jobs=1,
        object_size_bytes=None,
        working_set_bytes=None,
        temperature="any",
        ramp_s=0.0,
        runtime_s=seconds,
        started_ns=question.end_ns - round(seconds * 1e9),
        ended_ns=question.end_ns,
        measured_start_ns=question.start_ns,
        measured_end_ns=question.end_ns,
        osds="",
        prolonged_count=0,
        status="done",
        reason=None,
    )


def _results(directions: Sequence[_Direction], seconds: float) -> pa.Table:
    """Return what was done as a load generator would have reported it."""
    rows = [
        Result(
            0,
            CLIENTS,
            direction.name,
            round(direction.count),
            round(direction.size_bytes),
            0,
            round(seconds * 1e9),
            direction.count / seconds,
            direction.size_bytes / seconds,
            direction.latency_ns_sum / direction.count if direction.latency_ns_sum is not None else None,
            *(None,) * 5,
        )
        for direction in directions
        if direction.count
    ]
    return to_table(Result, rows)


def _course(course: pa.Table, question: Question) -> pa.Table:
    """Return the rates over time. The last bin ends with the window and may be shorter than the others."""
    bin_ns, whole_ns = _bin_ns(question), question.end_ns - question.start_ns
    rows = []
    for row in course.to_pylist():
        begins = row["place"] * bin_ns
        length = min(bin_ns, whole_ns - begins)
        rate = row["ops"] / (length / 1e9)
        rows.append(Interval(0, CLIENTS, _COUNTS[row["name"]], begins + length, length, rate, 0.0, None))
    return to_table(Interval, rows)


def _samples(tables: Tables) -> dict[str, pa.Table]:
    """Return the tables of the window without the machine that only looks on."""
    samples = {name: tables[name] for name in RECORDS_BY_TABLE if name in tables}
    process = samples[ProcessSample.TABLE]
    hosts = set(strings(where(process, process="host"), "host")) - {HERE}
    osds = [
        host
        for host, name in zip(strings(process, "host"), strings(process, "process"), strict=True)
        if name.startswith("osd.")
    ]
    # The nodes of a lab are this machine under other names.
    is_node = bool(where(samples[EnvironmentFact.TABLE], name=SAME_MACHINE, value=HERE).num_rows)
    if not is_node and all(host in hosts for host in osds):
        samples[ProcessSample.TABLE] = process.filter(pc.not_equal(process.column("host"), pa.scalar(HERE)))
    return samples


def _image_limits(tables: Tables, options: Mapping[str, int], seconds: float, iops: float) -> Iterator[Ceiling]:
    """Yield of each limit that images have the ceiling of the image that is nearest to it."""
    names = Images(tables["image_names"])
    nearest: dict[str, Ceiling] = {}
    for row in tables["images"].to_pylist() if options and iops > 0 else ():
        rates = {name: (row[f"{name}_count"] / seconds, row[f"{name}_bytes"] / seconds) for name in ("read", "write")}
        both = (sum(rate[0] for rate in rates.values()), sum(rate[1] for rate in rates.values()))
        for ceiling in limit_ceilings(options, {**rates, "": both}, names.name(row), HERE, iops):
            best = nearest.get(ceiling.subject)
            if best is None or (ceiling.reached.value or 0.0) > (best.reached.value or 0.0):
                nearest[ceiling.subject] = ceiling
    yield from nearest.values()


def _caveats(directions: Sequence[_Direction], question: Question) -> Iterator[Caveat]:
    if any(direction.count and direction.latency_ns_sum is None for direction in directions):
        text = "latencies are not known: the OSDs' own counters were not read, or not those of all"
        yield Caveat(0, "no_latency", "warning", text, "capture")
    if question.image is not None or question.pool is not None:
        text = "where the latency is spent, and what each OSD does, is of all clients of the cluster together"
        yield Caveat(0, "of_all_clients", "note", text, "capture")
    text = "latency is the time in the OSDs: what the clients and their network add is not seen by a recording"
    yield Caveat(0, "osd_latency", "note", text, "capture")


def _said(directions: Sequence[_Direction], seconds: float, in_flight: Figure, question: Question) -> str:
    """Return the beginning of the verdict: what clients did."""
    count, size = (sum(getattr(direction, name) for direction in directions) for name in ("count", "size_bytes"))
    who = (
        "Clients"
        if question.image is None and question.pool is None
        else f"Clients of {question.image or question.pool}"
    )
    if not count:
        return f"{who} did no I/O"
    reads = directions[0].count / count
    kinds = f"{format_percent(reads)} reads, {format_bytes(size / count)} on average"
    depth = "" if in_flight.value is None else f" with {three_digits(in_flight.value)} in flight"
    return f"{who} did {format_rate(count / seconds)} IOPS ({kinds}){depth}"
