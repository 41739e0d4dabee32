"""What changed when: the largest shifts of load and latency, each with the image, client or OSD that moved with it.

The time is cut into bins, and each series (reads, writes, their latencies) into stretches of one level by binary
segmentation (Scott and Knott 1974): a cut is kept when it explains more of the variance than noise would, by the
penalty of the Bayesian information criterion (Yao 1988) with the noise taken from neighbouring bins. A stretch has
three bins at least, so what lasts shorter is no shift.

What moved with a shift is what changed most in the same direction between the stretches before and after it. That it
moved at the same time is no proof that it is the cause; a shift of load with an image that makes up all of it is near
to one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope.analysis.activity import ops
from bathyscope.analysis.activity.images import IMAGES, Images
from bathyscope.analysis.activity.shape import Question, View, finding_of, seen, seen_bins, spread
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table
from bathyscope.units import format_duration_ns, format_percent, format_rate, format_seconds

Floats = npt.NDArray[np.float64]
_Key = TypeVar("_Key")

_COLUMNS = (
    Column("since_start", "after", help="time since the start of the recording"),
    Column("at_ns", "at", "time", "when", rank=2),
    Column("what", "what", help="reads or writes a second, or their mean latency in the OSDs"),
    Column("level_before", "before", help="level before it"),
    Column("level_after", "then", help="level after it"),
    Column(
        "moved_together", "moved with it", help="what changed most in the same direction at the same time", prose=True
    ),
)
_NO_LATENCIES = "Latencies are not known: the OSDs' counters were not read."
_NO_CLIENTS = (
    "Which client moved with a shift is not known: the manager module bathyscope tells them apart "
    "(`bathy mgr install`)."
)
_BINS_MOST = 240
_BIN_LEAST_NS = 5_000_000_000
# Single operations have their own times, counters those of their collections.
_BIN_LEAST_OF_OPS_NS = 1_000_000_000
_STRETCH_BINS = 3
_FEW_BINS = 4
_SHIFTS_SHOWN = 10
# A level that changes by less is the same level to whoever works with it.
_CHANGE_LEAST = 0.2
_LOAD_LEAST_PER_S, _LOAD_LEAST_RATIO = 1.0, 0.05
# Who makes up less than this of a shift did not move with it.
_SHARE_LEAST = 0.3
# Reports of images come up to two periods after the operations.
_LATE_BINS = 2

# What a cluster does by itself, and how many placement groups it does that to at a moment.
_ACTIVITIES = {
    "deep scrubs": "coalesce(pg_deep_scrubbing_count, 0) AS deep_scrubs",
    "scrubs": "pg_scrubbing_count - coalesce(pg_deep_scrubbing_count, 0) AS scrubs",
    "trimming of deleted snapshots": "coalesce(pg_snap_trim_count, 0) AS trims",
    "unclean groups": "greatest(0, pg_count - pg_clean_count - pg_unknown_count) AS not_clean",
}
# It moved with a shift when it was seen so much more often on one side of it.
_OFTEN_RATIO = 0.5

_COUNTERS = {"reads": ("op_r",), "writes": ("op_w", "op_rw")}


@dataclasses.dataclass(frozen=True)
class _Shift:
    """A change of a series at the beginning of bin `place`, from the stretch since `begin` to the one until `end`."""

    series: str
    place: int
    begin: int
    end: int
    before: float
    after: float

    @property
    def size(self) -> float:
        """How large it is: the change as a share of the greater level."""
        return abs(self.after - self.before) / max(self.after, self.before)


class Timeline(View):
    """The shifts of the time that is asked for."""

    name = "timeline"
    help = "the largest shifts of load and latency, and what moved with each"
    tables = ("shifts",)

    def queries(self, question: Question) -> Mapping[str, str]:
        """Return the operations and latencies of each OSD, and those of images and clients, bin by bin."""
        counts = "sum(read_count * weight) AS reads, sum(write_count * weight) AS writes"
        bin_ns, bin_count = _bin_ns(question), _bin_count(question)
        images, of_clients = (ops.image_io(question, bin_ns, clients=clients) for clients in (False, True))
        clients = spread(question, of_clients, bin_ns, "client IS NOT NULL")
        return {
            "osds": _osds(question, bin_ns),
            "groups": f"SELECT place, {counts} FROM {spread(question, 'pg_io', bin_ns)} GROUP BY ALL",
            "images": _movers(
                f"SELECT place, pool, namespace, image, image_id, {counts} "
                f"FROM {spread(question, images, bin_ns)} GROUP BY ALL",
                "pool, namespace, image, image_id",
                bin_count,
            ),
            "clients": _movers(
                f"SELECT place, coalesce(client_address, client) AS client, {counts} FROM {clients} GROUP BY ALL",
                "client",
                bin_count,
            ),
            "counters_seen": seen(question, "perf_counters"),
            "groups_seen": seen(question, "pg_stats"),
            "known": IMAGES,
            "activities": f"SELECT (at_ns - {question.start_ns}) // {bin_ns} AS place, "
            f"{', '.join(_ACTIVITIES.values())} FROM cluster_status "
            f"WHERE at_ns BETWEEN {question.start_ns} AND {question.end_ns} ORDER BY at_ns",
        }

    def build(self, tables: Mapping[str, pa.Table], question: Question) -> ActivityFinding:
        """Return a row for each of the largest shifts, in order of time; the sentence is about the largest."""
        bins = _Bins(tables, question)
        largest = sorted(bins.shifts(), key=lambda shift: (-shift.size, shift.place))[:_SHIFTS_SHOWN]
        in_order = sorted(largest, key=lambda shift: shift.place)
        cells = tuple(
            (
                format_seconds(shift.place * bins.seconds),
                question.start_ns + round(shift.place * bins.seconds * 1e9),
                _WHAT[shift.series],
                bins.level(shift.series, shift.before),
                bins.level(shift.series, shift.after),
                bins.moved_with(shift),
            )
            for shift in in_order
        )
        sentence = "Nothing changed for long: no shift of load or latency stands out."
        if not bins.is_long_enough:
            sentence = "Too little was seen to tell whether anything changed: less than half a minute."
        if in_order:
            first = cells[in_order.index(largest[0])]
            with_it = f", and with it {first[5]}" if first[5] else ""
            sentence = f"After {first[0]} {first[2]} went from {first[3]} to {first[4]}{with_it}."
        unseen = [] if tables["osds"].num_rows else [_NO_LATENCIES]
        if tables["images"].num_rows and not tables["clients"].num_rows:
            unseen.append(_NO_CLIENTS)
        return finding_of(self, question, sentence, Table("shifts", "shifts", _COLUMNS, cells), unseen=unseen)


VIEW: View = Timeline()

_WHAT = {
    "reads": "reads",
    "writes": "writes",
    "reads latency": "the latency of reads",
    "writes latency": "the latency of writes",
}


def _osds(question: Question, bin_ns: int) -> str:
    """Return the SELECT of the operations of each OSD, the seconds that they took, and how many of them were timed."""
    sums = ", ".join(
        f"coalesce(sum({value} * weight) FILTER (WHERE name IN ({listed})), 0) AS {name}"
        for kind, names in _COUNTERS.items()
        for value, name, suffix in (
            ("delta", kind, ""),
            ("delta", f"{kind}_s", "_latency"),
            ("count", f"{kind}_timed", "_latency"),
        )
        for listed in [", ".join(f"'{each}{suffix}'" for each in names)]
    )
    names = ", ".join(f"'{name}', '{name}_latency'" for names in _COUNTERS.values() for name in names)
    counters = spread(question, ops.perf_counter(question, bin_ns), bin_ns, f"section = 'osd' AND name IN ({names})")
    return f"SELECT place, daemon, {sums} FROM {counters} GROUP BY ALL"


def _movers(sql: str, keys: str, bin_count: int) -> str:
    """Return the SELECT of the rows of `sql` of those who can make up a shift: of many images few can.

    Who is to be named moves by a share of a shift, and a shift is a share of the mean load; half of both is asked.
    """
    least = _SHARE_LEAST * _LOAD_LEAST_RATIO / 2
    return (
        f"SELECT * FROM ({sql}) QUALIFY max(reads + writes) OVER (PARTITION BY {keys}) "
        f">= {least} * (sum(reads + writes) OVER ()) / {bin_count}"
    )


def _bin_count(question: Question) -> int:
    return max(1, -(-(question.end_ns - question.start_ns) // _bin_ns(question)))


def _bin_ns(question: Question) -> int:
    return max(
        _BIN_LEAST_OF_OPS_NS if question.of_ops else _BIN_LEAST_NS, (question.end_ns - question.start_ns) // _BINS_MOST
    )


class _Bins:
    """All series over the bins of the time."""

    def __init__(self, tables: Mapping[str, pa.Table], question: Question) -> None:
        self._count = _bin_count(question)
        self.seconds = _bin_ns(question) / 1e9
        self._ops = {kind: np.zeros(self._count) for kind in ("reads", "writes")}
        # (kind, OSD) → sums of latency in seconds, and of operations, in each bin.
        self._sums: dict[tuple[str, str], Floats] = {}
        self._timed: dict[tuple[str, str], Floats] = {}
        counted = bool(tables["osds"].num_rows)
        if counted:
            self._of_osds(tables["osds"])
        else:
            for row in tables["groups"].to_pylist():
                self._add(self._ops, "reads", row["place"], row["reads"])
                self._add(self._ops, "writes", row["place"], row["writes"])
        # Outside of what was looked at nothing is known; 0 would be a shift, and so would a bin that was seen in part.
        span = tables["counters_seen" if counted else "groups_seen"]
        share = seen_bins(span, question, _bin_ns(question), self._count)
        self._ops = {kind: series / share for kind, series in self._ops.items()}
        # (bin, placement groups of each activity) of every look at the cluster.
        self._looks = [tuple(row.values()) for row in tables["activities"].to_pylist()]
        image_names = Images(tables["known"])
        self._movers: dict[tuple[str, str], Floats] = {}
        for row in tables["images"].to_pylist():
            self._of_mover(f"image {image_names.name(row)}", row)
        for row in tables["clients"].to_pylist():
            self._of_mover(f"client {row['client']}", row)

    def _of_osds(self, osds: pa.Table) -> None:
        places = osds["place"].to_numpy()
        within = osds.filter(pa.array((places >= 0) & (places < self._count)))
        daemons = within["daemon"].combine_chunks().dictionary_encode()
        cells = daemons.indices.to_numpy(), within["place"].to_numpy()

        def grid(column: str) -> Floats:
            values = np.zeros((len(daemons.dictionary), self._count))
            values[cells] = within[column].to_numpy()
            return values

        for kind in _COUNTERS:
            self._ops[kind] += grid(kind).sum(axis=0)
            for series, column in ((self._sums, f"{kind}_s"), (self._timed, f"{kind}_timed")):
                series.update(zip(((kind, str(name)) for name in daemons.dictionary), grid(column), strict=True))

    def _of_mover(self, name: str, row: Mapping[str, Any]) -> None:
        for kind in ("reads", "writes"):
            self._add(self._movers, (kind, name), int(row["place"]), row[kind])

    def _add(self, series: dict[_Key, Floats], key: _Key, bin_index: int, value: float) -> None:
        if 0 <= bin_index < self._count:
            series.setdefault(key, np.zeros(self._count))[bin_index] += value

    @property
    def is_long_enough(self) -> bool:
        """Whether two stretches of one level could be told apart."""
        return bool(np.isfinite(sum(self._ops.values())).sum() >= 2 * _STRETCH_BINS)

    def latency(self, kind: str) -> Floats:
        """Return the mean latency in ns of all OSDs in each bin; NaN where nothing was done."""
        total = sum((sums for (of, _), sums in self._sums.items() if of == kind), np.zeros(self._count))
        count = sum((counts for (of, _), counts in self._timed.items() if of == kind), np.zeros(self._count))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count > 0, total / count * 1e9, np.nan)

    def shifts(self) -> Iterator[_Shift]:
        """Yield every shift of every series."""
        if not np.isfinite(sum(self._ops.values())).any():
            return
        whole = float(np.nanmean(sum(self._ops.values()))) / self.seconds
        for kind in ("reads", "writes"):
            for shift in _shifts(kind, self._ops[kind] / self.seconds):
                # Ten reads a minute beside a thousand writes a second are nobody's concern.
                if abs(shift.after - shift.before) >= max(_LOAD_LEAST_PER_S, _LOAD_LEAST_RATIO * whole):
                    yield shift
            yield from _shifts(f"{kind} latency", self.latency(kind))

    def level(self, series: str, value: float) -> str:
        """Return a level for reading."""
        return format_duration_ns(value) if "latency" in series else f"{format_rate(value)}/s"

    def moved_with(self, shift: _Shift) -> str:
        """Return what moved with a shift, in words; empty for nothing."""
        kind, _, is_latency = shift.series.partition(" ")
        return self._slower(shift, kind) if is_latency else self._loads(shift, kind)

    def _loads(self, shift: _Shift, kind: str) -> str:
        change = shift.after - shift.before
        # What waits longer does less.
        parts = [*self._activities(shift, began=change < 0)]
        for word in ("image ", "client "):
            moved = {
                name: _change(values, shift) / self.seconds
                for (of, name), values in self._movers.items()
                if of == kind and name.startswith(word)
            }
            if moved:
                name, most = max(moved.items(), key=lambda item: item[1] * math.copysign(1, change))
                if most / change >= _SHARE_LEAST:
                    parts.append(f"{name} ({_signed(most)}/s, {format_percent(min(1.0, most / change))} of it)")
        return ", ".join(parts)

    def _slower(self, shift: _Shift, kind: str) -> str:
        parts = [*self._activities(shift, began=shift.after > shift.before)]
        ratios = {}
        for (of, osd), total in self._sums.items():
            if of == kind:
                before, after = (_mean(total, self._timed[of, osd], *span) for span in _spans(shift))
                if before and after:
                    ratios[osd] = after / before, before, after
        if len(ratios) > 1:
            up = shift.after > shift.before
            osd, (ratio, before, after) = max(ratios.items(), key=lambda item: item[1][0] if up else -item[1][0])
            others = float(np.median([each for name, (each, _, _) in ratios.items() if name != osd]))
            # One that moved as all others did is no more to blame than they are.
            if (ratio > 1.5 * others) if up else (ratio * 1.5 < others):
                parts.append(f"{osd} ({format_duration_ns(before * 1e9)} to {format_duration_ns(after * 1e9)})")
        loads = {
            (name, of): _change(values, shift) / self.seconds
            for (of, name), values in self._movers.items()
            if name.startswith("image ")
        }
        if loads:
            sign = 1 if shift.after > shift.before else -1
            (name, of), most = max(loads.items(), key=lambda item: item[1] * sign)
            whole = max(float(np.nanmean(sum(self._ops.values()))) / self.seconds, 1e-9)
            if most * sign >= _SHARE_LEAST * whole:
                parts.append(f"{of} of {name} ({_signed(most)}/s)")
        return ", ".join(parts)

    def _activities(self, shift: _Shift, *, began: bool) -> Iterator[str]:
        """Yield what the cluster itself began to do at a shift, or what it ended."""
        sides = [[counts for place, *counts in self._looks if begin <= place < end] for begin, end in _spans(shift)]
        quiet, busy = sides if began else reversed(sides)
        for number, name in enumerate(_ACTIVITIES) if quiet and busy else ():
            often, before = (sum(counts[number] > 0 for counts in side) / len(side) for side in (busy, quiet))
            if often - before >= _OFTEN_RATIO:
                most = max(counts[number] for counts in busy)
                yield f"{'' if began else 'the end of '}{name} (up to {most} placement groups at a time)"


def _signed(rate: float) -> str:
    return f"{'+' if rate >= 0 else '-'}{format_rate(abs(rate))}"


def _spans(shift: _Shift) -> tuple[tuple[int, int], tuple[int, int]]:
    return (shift.begin, shift.place), (shift.place, shift.end)


def _change(series: Floats, shift: _Shift) -> float:
    """Return by how much a mover's mean in a bin changed; bins just after a shift are left out if there are more."""
    late = min(_LATE_BINS, shift.end - shift.place - 1)
    return float(np.mean(series[shift.place + late : shift.end]) - np.mean(series[shift.begin : shift.place]))


def _mean(total: Floats, count: Floats, begin: int, end: int) -> float:
    counted = float(np.sum(count[begin:end]))
    return float(np.sum(total[begin:end])) / counted if counted else 0.0


def _shifts(series: str, values: Floats) -> Iterator[_Shift]:
    """Yield the shifts of one series: of neighbouring stretches whose levels differ by enough."""
    known = np.flatnonzero(np.isfinite(values))
    if len(known) < 2 * _STRETCH_BINS:
        return
    given = values[known]
    # Latencies vary by factors, counts by amounts.
    scaled = np.log(np.maximum(given, 1.0)) if "latency" in series else given
    dense = _without_moments(given)
    # Of a logarithm it is the difference itself that is a ratio.
    level = 1.0 if "latency" in series else float(np.mean(np.abs(given)))
    cuts = [0, *_cuts(_without_moments(scaled), _noise(scaled, level)), len(given)]
    for begin, place, end in zip(cuts, cuts[1:], cuts[2:], strict=False):
        before, after = float(np.mean(dense[begin:place])), float(np.mean(dense[place:end]))
        shift = _Shift(series, int(known[place]), int(known[begin]), int(known[end - 1]) + 1, before, after)
        if max(before, after) > 0 and shift.size >= _CHANGE_LEAST:
            yield shift


def _without_moments(values: Floats) -> Floats:
    """Return a series without what lasts shorter than a stretch: running medians keep edges where they are."""
    padded = np.pad(values, _STRETCH_BINS - 1, mode="edge")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * _STRETCH_BINS - 1), axis=1))


def _noise(values: Floats, level: float) -> float:
    """Return the noise of the running medians of a series, as the deviation of independent bins of the same mean.

    It is 2 % of `level` at least.
    """
    # Differences of neighbours hold no level: their median is the noise's, whatever shifts there are. It is taken
    # before the running medians, whose neighbours have nearly all bins in common.
    deviation = 1.4826 * float(np.median(np.abs(np.diff(values)))) / math.sqrt(2)
    # A mean of medians scatters by this more than one of values; a deviation of few bins may be far too small.
    deviation *= math.sqrt(math.pi / 2) * (1 + _FEW_BINS / len(values))
    # A series that does not vary at all (a paced load) has the noise of counting.
    return max(deviation, 0.02 * level, 1e-12)


def _cuts(values: Floats, noise: float) -> list[int]:
    """Return where the level changes, in order."""
    penalty = 2.0 * noise**2 * math.log(len(values)) * 2.0
    cuts: list[int] = []
    waiting = [(0, len(values))]
    while waiting:
        begin, end = waiting.pop()
        cut, gain = _best_cut(values[begin:end])
        if cut and gain > penalty:
            cuts.append(begin + cut)
            waiting += [(begin, begin + cut), (begin + cut, end)]
    return sorted(cuts)


def _best_cut(values: Floats) -> tuple[int, float]:
    """Return where one cut explains most, and how much of the sum of squares; 0 for too short a stretch."""
    count = len(values)
    places: Sequence[int] = range(_STRETCH_BINS, count - _STRETCH_BINS + 1)
    if not places:
        return 0, 0.0
    sums = np.concatenate([[0.0], np.cumsum(values)])
    left = np.array(places, dtype=np.float64)
    means = sums[places[0] : places[-1] + 1] / left
    others = (sums[-1] - sums[places[0] : places[-1] + 1]) / (count - left)
    gains = left * (count - left) / count * (means - others) ** 2
    best = int(np.argmax(gains))
    return places[best], float(gains[best])
