"""What a recording holds: what each source cost, every gap, every daemon that was absent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bathyscope.analysis.columns import Ints, Tables, ints, strings, table_of, where
from bathyscope.records.recording_finding import DaemonAbsence, Gap, RecordingFinding, SourceRecording

NOT_ASKED = "nothing was asked"
_GAP_PERIODS = 1.5
# Intervals of one daemon touch each other; a clock that is corrected moves them by less.
_TOUCHING_NS = 1_000_000


def build(
    tables: Tables, start_ns: int, end_ns: int | None = None, periods_s: Mapping[str, float] | None = None
) -> RecordingFinding:
    """Return the finding of what was recorded from `start_ns` to `end_ns`, in ns since the Unix epoch.

    `tables` needs `collection`, and of `perf_counter` each daemon's intervals (daemon, at_ns, duration_ns), doubled or
    not. A recording that goes on has no `end_ns`: its last collection counts. `periods_s` are the planned periods by
    source; one that is not in it (the scope's) is asked when it is needed and has no gaps. Without `periods_s` the
    median of what is seen counts.
    """
    collection = table_of(tables, "collection").sort_by("at_ns")
    if end_ns is None:
        end_ns = int(ints(collection, "at_ns").max(initial=start_ns))
    sources = tuple(
        _source(name, where(collection, source=name), (start_ns, end_ns), periods_s)
        for name in sorted(set(strings(collection, "source")))
    )
    return RecordingFinding(start_ns, end_ns, sources, absences(table_of(tables, "perf_counter"), start_ns, end_ns))


def _source(name: str, rows: pa.Table, span: tuple[int, int], periods_s: Mapping[str, float] | None) -> SourceRecording:
    """Return what recording one source gave; `rows` are its collections in order of time."""
    at_ns, cost_ns = ints(rows, "at_ns"), ints(rows, "duration_ns")
    asked, failed = ints(rows, "request_count"), ints(rows, "failure_count")
    took_place = asked > 0
    if periods_s is None:
        period_ns = int(np.median(np.diff(at_ns))) if len(at_ns) > 1 else 0
    else:
        period_ns = round(periods_s.get(name, 0.0) * 1e9)
    costs_ns = cost_ns[took_place]
    length_ns = max(1, span[1] - span[0])
    return SourceRecording(
        source=name,
        period_ns=period_ns,
        collection_count=int(took_place.sum()),
        failure_count=int((took_place & ~_flags(rows, "success")).sum()),
        missed_count=int((~took_place).sum()),
        mean_cost_ns=float(costs_ns.mean()) if len(costs_ns) else 0.0,
        max_cost_ns=int(costs_ns.max(initial=0)),
        answer_bytes=int(ints(rows, "answer_bytes").sum()),
        wall_ratio=float(costs_ns.sum()) / length_ns,
        gaps=_gaps(rows, asked > failed, span, period_ns),
    )


def _gaps(rows: pa.Table, good: npt.NDArray[np.bool_], span: tuple[int, int], period_ns: int) -> tuple[Gap, ...]:
    """Return the spans of more than 1.5 periods between good collections, those that touch and have one reason joined.

    The recording's start and end count as good ones: what lies between them and the first or last one is a gap too.
    """
    if period_ns <= 0:
        return ()
    at_ns = ints(rows, "at_ns")
    marks = np.concatenate(([span[0]], at_ns[good], [span[1]]))
    wide = np.flatnonzero(np.diff(marks) > _GAP_PERIODS * period_ns)
    if not len(wide):
        return ()
    starts, ends = marks[wide], marks[wide + 1]
    reasons = _reasons(rows, at_ns, good, starts, ends)
    # A gap is joined to the one before when it begins where that one ended, for the same reason.
    joined = np.zeros(len(wide), dtype=bool)
    joined[1:] = (wide[1:] == wide[:-1] + 1) & (reasons[1:] == reasons[:-1])
    firsts = np.flatnonzero(~joined)
    lasts = np.append(firsts[1:], len(wide)) - 1
    return tuple(
        Gap(int(starts[first]), int(ends[last]), str(reasons[first]), int(last - first))
        for first, last in zip(firsts, lasts, strict=True)
    )


def _reasons(
    rows: pa.Table, at_ns: Ints, good: npt.NDArray[np.bool_], starts: Ints, ends: Ints
) -> npt.NDArray[np.object_]:
    """Return what was said of each gap: by the first collection in it that failed or was missed.

    A source that was slowed down gives the reason in its next successful collection, which ends the gap.
    """
    problems = np.array([problem or NOT_ASKED for problem in rows.column("problem").to_pylist()], dtype=object)
    reasons = np.full(len(starts), NOT_ASKED, dtype=object)
    bad = np.flatnonzero(~good)
    first = np.searchsorted(at_ns[bad], starts)
    inside = first < len(bad)
    inside[inside] = at_ns[bad[first[inside]]] < ends[inside]
    reasons[inside] = problems[bad[first[inside]]]
    after = np.searchsorted(at_ns, ends)
    slowed = ~inside & (after < len(at_ns))
    slowed[slowed] = _flags(rows, "success")[after[slowed]]
    reasons[slowed] = problems[after[slowed]]
    return reasons


def absences(perf_counter: pa.Table, start_ns: int, end_ns: int) -> tuple[DaemonAbsence, ...]:
    """Return the spans in which a daemon has no intervals while others have: it was restarted, or it is gone.

    The intervals of a daemon touch each other. One that only did not answer for a while has a longer interval next; one
    that began to count again has none for that time.
    """
    if perf_counter.num_rows == 0:
        return ()
    intervals = (
        perf_counter.select(["daemon", "at_ns", "duration_ns"])
        .group_by(["daemon", "at_ns"], use_threads=False)
        .aggregate([("duration_ns", "max")])
        .sort_by([("daemon", "ascending"), ("at_ns", "ascending")])
    )
    codes = intervals.column("daemon").combine_chunks().dictionary_encode()
    names, daemon = codes.dictionary.to_pylist(), codes.indices.to_numpy(zero_copy_only=False)
    ends, lengths = ints(intervals, "at_ns"), ints(intervals, "duration_ns_max")
    begins = ends - lengths
    same = daemon[1:] == daemon[:-1]
    firsts, lasts = np.flatnonzero(np.append(True, ~same)), np.flatnonzero(np.append(~same, True))
    late = firsts[begins[firsts] - begins.min() > _GAP_PERIODS * lengths[firsts]]
    gone = lasts[ends.max() - ends[lasts] > _GAP_PERIODS * lengths[lasts]]
    before = np.flatnonzero(same & (begins[1:] - ends[:-1] > _TOUCHING_NS))
    before = before[_others_between(ends, ends[before], begins[before + 1], lengths[before + 1])]
    every_absence = (
        [DaemonAbsence(names[daemon[i]], start_ns, int(begins[i]), returned=True) for i in late]
        + [DaemonAbsence(names[daemon[i]], int(ends[i]), int(begins[i + 1]), returned=True) for i in before]
        + [DaemonAbsence(names[daemon[i]], int(ends[i]), end_ns, returned=False) for i in gone]
    )
    return tuple(sorted(every_absence, key=lambda absence: (absence.start_ns, absence.daemon)))


def _others_between(ends: Ints, hole_starts: Ints, hole_ends: Ints, lengths: Ints) -> npt.NDArray[np.bool_]:
    """Return for each hole of a daemon whether an interval of another one ends in it.

    Daemons answer a little before or after each other: half an interval (of `lengths`) on either side is no other time.
    """
    ordered = np.sort(ends)
    slack = np.minimum(lengths, hole_ends - hole_starts) // 2
    until = np.searchsorted(ordered, hole_ends + slack)
    return np.asarray(until > np.searchsorted(ordered, hole_starts + slack, side="right"), dtype=np.bool_)


def _flags(table: pa.Table, column: str) -> npt.NDArray[np.bool_]:
    return np.asarray(table.column(column).combine_chunks().to_numpy(zero_copy_only=False), dtype=np.bool_)
