"""Miss-ratio curves of caches that run, and of their sources: what other sizes would give, as the daemons answer it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bathyscope.cache.snapshots import Snapshot, source_name
from bathyscope.fields import as_dict, as_float, as_int, as_list, parsing
from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Column, Table
from bathyscope.units import format_bytes, format_percent

_COLUMNS = (
    Column("cache", "Cache"),
    Column("source", "Source", help="a source as if it had a cache of its own; a dash is the whole cache"),
    Column("size_bytes", "Size", "bytes"),
    Column("hit_ratio", "Hit %", "ratio", help="a dash: the sample has too few lines for this size"),
    Column("size_ratio", "Of the present size", "times", help="of the share that the source may use, or of the cache"),
    Column("present", "Present"),
    Column("reads", "Reads", "count", rank=1, help="of lines: a request counts once for each line that it touches"),
    Column("sampled", "Sampled", "count", rank=1, help="reads that the hit ratio is estimated from"),
)
_SINCE = "since the daemon's start, or since the content or the size (of a source: its share) changed"
_OWN = "The curve of a source assumes a cache that it does not share; that of a cache ignores the limits of sources."


@dataclass(frozen=True, slots=True)
class Point:
    """A size, also as a multiple of the present one, and the estimated hit ratio, if it is known."""

    size_bytes: int
    size_ratio: float
    hit_ratio: float | None


@dataclass(frozen=True, slots=True)
class Curve:
    """Read hit ratios by size, of a cache (`source` is None) or of one of its sources, from `sampled` of `reads`.

    They are those of a cache with this policy, and off by at most `error_bound` if that is known.
    """

    cache: str
    source: str | None
    points: tuple[Point, ...]
    reads: int
    sampled: int
    policy: str | None
    error_bound: float | None

    @property
    def name(self) -> str:
        """What sentences call it."""
        return _name(self.cache, self.source)

    def at(self, size_ratio: float) -> Point | None:
        """Return the point of a multiple of the present size."""
        return next((point for point in self.points if point.size_ratio == size_ratio), None)


def curves(cache: str, answer: Mapping[str, Any], *, only: str | None = None) -> tuple[list[Curve], list[str]]:
    """Return what a daemon answered: the curves, and a sentence for each that is not there. Raises ParseError.

    With `only` it is that of one source.
    """
    present: list[Curve] = []
    missing: list[str] = []
    with parsing(f"the curve of the cache '{cache}'"):
        for source, entry in _entries(answer):
            if only not in {None, source}:
                continue
            curve = entry["curve"]
            if curve is None:
                missing.append(f"{_name(cache, source)}: no curve: {entry.get('reason')}.")
                continue
            present.append(_curve(cache, source, curve))
    if only is not None and not present and not missing:
        missing.append(f"{_name(cache, only)}: no curve: it is not served any more.")
    return present, missing


def curve(
    snapshots: Sequence[Snapshot],
    answers: Mapping[str, dict[str, Any]],
    *,
    source: str | None = None,
    remarks: Sequence[str] = (),
) -> ActivityFinding:
    """Return the curves of caches and sources, or of one source, with the reads that stand behind each."""
    all_curves, unseen = [], [*remarks]
    for snapshot in snapshots:
        present, missing = curves(snapshot.cache, answers[snapshot.cache], only=source)
        all_curves += present
        unseen += missing
    rows = tuple(row for curve in all_curves for row in _rows(curve))
    # A cache with many sources has a sentence for itself; theirs are in the table.
    said = [curve for curve in all_curves if curve.source == source]
    unseen += [f"{curve.name}: {_evidence(curve)}" for curve in said]
    if any(curve.source is not None for curve in all_curves):
        unseen.append(_OWN)
    nothing = "There are curves of sources alone." if all_curves else "There is no curve yet."
    end_ns = max(snapshot.at_ns for snapshot in snapshots)
    return ActivityFinding(
        view="cache curve",
        run_id="",
        target="cache " + ", ".join(snapshot.cache for snapshot in snapshots),
        start_ns=end_ns - round(max(snapshot.uptime_s for snapshot in snapshots) * 1e9),
        end_ns=end_ns,
        sentence=" ".join(map(_sentence, said)) or nothing,
        tables=(Table("curve", "Hit ratio by size", _COLUMNS, rows),),
        unseen=(*unseen, f"Hit ratios are of reads {_SINCE}. Another load, or a longer time, has another curve."),
    )


def _name(cache: str, source: str | None) -> str:
    return cache if source is None else f"{cache}, {source}"


def _entries(answer: Mapping[str, Any]) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    yield None, answer
    for entry in map(as_dict, as_list(answer["sources"])):
        yield source_name(entry), entry


def _curve(cache: str, source: str | None, entry: Mapping[str, Any]) -> Curve:
    points = tuple(_point(as_dict(point)) for point in as_list(entry["points"]))
    bound = entry.get("error_bound")
    return Curve(
        cache,
        source,
        points,
        reads=as_int(entry["requests"]),
        sampled=as_int(entry["sampled"]),
        policy=entry.get("policy"),
        error_bound=None if bound is None else as_float(bound),
    )


def _point(point: Mapping[str, Any]) -> Point:
    hits = point["hit_ratio"]
    return Point(as_int(point["size_bytes"]), as_float(point["size_ratio"]), None if hits is None else as_float(hits))


def _rows(curve: Curve) -> Iterator[tuple[Any, ...]]:
    for point in curve.points:
        is_present = "present" if point.size_ratio == 1 else ""
        yield (
            curve.cache,
            curve.source,
            point.size_bytes,
            point.hit_ratio,
            point.size_ratio,
            is_present,
            curve.reads,
            curve.sampled,
        )


def _sentence(curve: Curve) -> str:
    present, twice = curve.at(1), curve.at(2)
    if present is None or present.hit_ratio is None:
        return f"{curve.name}: the hits at the present size are not known, as the sample has too few lines for it."
    sentence = f"{curve.name}: {format_percent(present.hit_ratio)} hits at the present size"
    if twice is None or twice.hit_ratio is None:
        return f"{sentence}."
    return f"{sentence}, {format_percent(twice.hit_ratio)} at twice the size ({format_bytes(twice.size_bytes)})."


def _evidence(curve: Curve) -> str:
    """Return the sentence that says how much stands behind a curve."""
    error = "not known" if curve.error_bound is None else f"at most {format_percent(curve.error_bound)}"
    policy = f" of a cache with the policy {curve.policy}" if curve.policy else ""
    return (
        f"Hit ratios{policy}, estimated from {curve.sampled:,} sampled of {curve.reads:,} reads of lines. "
        f"Their error is {error}."
    )
