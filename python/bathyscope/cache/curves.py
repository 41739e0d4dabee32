"""Miss-ratio curves of caches that run: what other sizes would give, as the daemons answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bathyscope.cache.looks import Look
from bathyscope.fields import as_dict, as_float, as_int, as_list, parsing
from bathyscope.records.activity_finding import ActivityColumn, ActivityFinding, ActivityTable
from bathyscope.units import format_bytes, format_percent

_COLUMNS = (
    ActivityColumn("Size", "bytes"),
    ActivityColumn("Hit %", "ratio"),
    ActivityColumn("Of the present size", "times"),
    ActivityColumn("Present"),
)


def curve(
    looks: Sequence[Look], answers: Mapping[str, dict[str, Any]], *, remarks: Sequence[str] = ()
) -> ActivityFinding:
    """Return the curves of caches, with the number of requests that stand behind each."""
    rows: list[tuple[Any, ...]] = []
    sentences, unseen = [], [*remarks]
    for look in looks:
        with parsing(f"the curve of the cache '{look.cache}'"):
            found = answers[look.cache]["curve"]
            if found is None:
                unseen.append(f"{look.cache}: no curve yet: {answers[look.cache].get('reason')}.")
                continue
            points = [as_dict(point) for point in as_list(found["points"])]
            present = next((as_int(point["size_bytes"]) for point in points if point.get("is_current")), None)
            for point in points:
                size, ratio = as_int(point["size_bytes"]), as_float(point["hit_ratio"])
                times = None if not present else size / present
                rows.append((look.cache, size, ratio, times, "present" if size == present else ""))
            sentences.append(_sentence(look.cache, points, present))
            unseen.append(f"{look.cache}: {_evidence(found)}")
    end_ns = max(look.at_ns for look in looks)
    return ActivityFinding(
        view="cache curve",
        run_id="",
        target="cache " + ", ".join(look.cache for look in looks),
        start_ns=end_ns - round(max(look.uptime_s for look in looks) * 1e9),
        end_ns=end_ns,
        sentence=" ".join(sentences) or "There is no curve yet.",
        tables=(ActivityTable("Hit ratio by size", (ActivityColumn("Cache"), *_COLUMNS), tuple(rows)),),
        unseen=(*unseen, "Another load, or a longer time, has another curve."),
    )


def _sentence(cache: str, points: Sequence[dict[str, Any]], present: int | None) -> str:
    by_size = {as_int(point["size_bytes"]): as_float(point["hit_ratio"]) for point in points}
    if present is None or not {present, present * 2} <= by_size.keys():
        return f"{cache}: {len(points)} sizes."
    now, twice = format_percent(by_size[present]), format_percent(by_size[present * 2])
    return f"{cache}: {now} hits at the present size, {twice} at twice the size ({format_bytes(present * 2)})."


def _evidence(found: dict[str, Any]) -> str:
    """Return the sentence that says how much stands behind a curve."""
    requests, sampled, bound = as_int(found["requests"]), as_int(found["sampled"]), found.get("error_bound")
    error = "not known" if bound is None else f"at most {format_percent(as_float(bound))}"
    policy = f" of a cache with the policy {found['policy']}" if found.get("policy") else ""
    return (
        f"Hit ratios{policy}, estimated from {sampled:,} sampled of {requests:,} reads of lines since its start. "
        f"Their error is {error}."
    )
