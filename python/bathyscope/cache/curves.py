"""Miss-ratio curves of caches that run, and of their sources: what other sizes would give, as the daemons answer it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bathyscope.cache.looks import Look, source_name
from bathyscope.fields import as_dict, as_float, as_int, as_list, parsing
from bathyscope.records.activity_finding import ActivityColumn, ActivityFinding, ActivityTable
from bathyscope.units import format_bytes, format_percent

_COLUMNS = (
    ActivityColumn("Cache"),
    ActivityColumn("Source", help="a source as if it had a cache of its own; a dash is the whole cache"),
    ActivityColumn("Size", "bytes"),
    ActivityColumn("Hit %", "ratio"),
    ActivityColumn("Of the present size", "times", help="of the share that the source may use, or of the cache"),
    ActivityColumn("Present"),
)
_OWN = "The curve of a source is that of a cache of its own, of which others take nothing."


@dataclass(frozen=True, slots=True)
class Curve:
    """Estimated hit ratios by size in bytes, of a cache (`source` is None) or of one of its sources.

    `present_bytes` is its size now, if the daemon says which point that is.
    """

    cache: str
    source: str | None
    hit_ratios: Mapping[int, float]
    present_bytes: int | None
    evidence: str

    @property
    def name(self) -> str:
        """What sentences call it."""
        return self.cache if self.source is None else f"{self.cache}, {self.source}"


def curves(cache: str, answer: Mapping[str, Any], *, only: str | None = None) -> tuple[list[Curve], list[str]]:
    """Return what a daemon answered: the curves, and a sentence for each that is not there. Raises ParseError.

    With `only` it is that of one source.
    """
    known: list[Curve] = []
    missing: list[str] = []
    with parsing(f"the curve of the cache '{cache}'"):
        for source, entry in _entries(answer):
            if only not in {None, source}:
                continue
            found = entry["curve"]
            if found is None:
                of = cache if source is None else f"{cache}, {source}"
                missing.append(f"{of}: no curve yet: {entry.get('reason')}.")
                continue
            points = [as_dict(point) for point in as_list(found["points"])]
            known.append(
                Curve(
                    cache,
                    source,
                    {as_int(point["size_bytes"]): as_float(point["hit_ratio"]) for point in points},
                    next((as_int(point["size_bytes"]) for point in points if point.get("is_current")), None),
                    _evidence(found),
                )
            )
    return known, missing


def curve(
    looks: Sequence[Look],
    answers: Mapping[str, dict[str, Any]],
    *,
    source: str | None = None,
    remarks: Sequence[str] = (),
) -> ActivityFinding:
    """Return the curves of caches and sources, or of one source, with the requests that stand behind each."""
    known, unseen = [], [*remarks]
    for look in looks:
        found, missing = curves(look.cache, answers[look.cache], only=source)
        known += found
        unseen += missing
    rows = tuple(row for one in known for row in _rows(one))
    # A cache with many sources has a sentence for itself; theirs are in the table.
    said = [one for one in known if one.source == source]
    unseen += [f"{one.name}: {one.evidence}" for one in said]
    if any(one.source is not None for one in known):
        unseen.append(_OWN)
    end_ns = max(look.at_ns for look in looks)
    return ActivityFinding(
        view="cache curve",
        run_id="",
        target="cache " + ", ".join(look.cache for look in looks),
        start_ns=end_ns - round(max(look.uptime_s for look in looks) * 1e9),
        end_ns=end_ns,
        sentence=" ".join(map(_sentence, said)) or "There is no curve yet.",
        tables=(ActivityTable("Hit ratio by size", _COLUMNS, rows),),
        unseen=(*unseen, "Another load, or a longer time, has another curve."),
    )


def _entries(answer: Mapping[str, Any]) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    yield None, answer
    # A daemon that was started before an update has none of sources.
    for entry in map(as_dict, as_list(answer.get("sources", []))):
        yield source_name(entry), entry


def _rows(one: Curve) -> Iterator[tuple[Any, ...]]:
    for size, ratio in one.hit_ratios.items():
        times = None if not one.present_bytes else size / one.present_bytes
        yield one.cache, one.source, size, ratio, times, "present" if size == one.present_bytes else ""


def _sentence(one: Curve) -> str:
    present = one.present_bytes
    if present is None or not {present, present * 2} <= one.hit_ratios.keys():
        return f"{one.name}: {len(one.hit_ratios)} sizes."
    now, twice = format_percent(one.hit_ratios[present]), format_percent(one.hit_ratios[present * 2])
    return f"{one.name}: {now} hits at the present size, {twice} at twice the size ({format_bytes(present * 2)})."


def _evidence(found: Mapping[str, Any]) -> str:
    """Return the sentence that says how much stands behind a curve."""
    requests, sampled, bound = as_int(found["requests"]), as_int(found["sampled"]), found.get("error_bound")
    error = "not known" if bound is None else f"at most {format_percent(as_float(bound))}"
    policy = f" of a cache with the policy {found['policy']}" if found.get("policy") else ""
    return (
        f"Hit ratios{policy}, estimated from {sampled:,} sampled of {requests:,} reads of lines since its start, "
        f"or since its size changed. Their error is {error}."
    )
