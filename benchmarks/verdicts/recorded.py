"""Judges what a recording would have said: the same loads, as if others had made them.

A run of a case has all that a recording of its time would have, and the load generator's own answers besides. Without
these, each of its loads is a load of unknown clients, and what limited it is known as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from cases import Case
from truth import Expect, Judged, outcome

from bathyscope.analysis import recorded_load
from bathyscope.analysis.activity.shape import Question
from bathyscope.analysis.columns import ints, strings
from bathyscope.analysis.ladder_point import variant_of
from bathyscope.records import Collection, Histogram, Interval, Result, Step, from_table, to_table
from bathyscope.records.finding import PointFinding
from bathyscope.store import duck

# What only a load generator's own answers show: of clients that were looked at it is that the cluster does not limit
# them.
_OF_CLIENTS = frozenset({"client_cpu", "latency_bound", "nearest", "refused", "cache", "thin"})


def expected(expect: Expect, *, images: bool = True) -> Expect:
    """Return what is true of a load whose clients are not seen.

    A tenant is a client like all others: what it and the load use up together is what limits both. A limit on what a
    load generator has in flight is its own, one of an OSD is seen; that of an image where `images` were counted.
    """
    limits = set(expect.limits) - _OF_CLIENTS - (set() if images else {"image_limit"})
    if "objecter" in expect.subject:
        limits.discard("in_flight")
    if limits != expect.limits or limits & {"tenant", "outside"}:
        # Of a thin image, or one that nobody reads from an OSD, next to nothing is seen.
        return Expect(frozenset({*limits, "clients", "idle"}))
    return expect


def finding_of(tables: Mapping[str, pa.Table], step: Step) -> PointFinding:
    """Return what a recording of a step's time says: from the look at the counters before the load to the one after."""
    perf = tables["perf_counter"]
    at, length = ints(perf, "at_ns"), ints(perf, "duration_ns")
    own = (at > step.started_ns) & (at - length < step.ended_ns)
    if not own.any():
        raise ValueError("the step has no counters")
    start_ns, end_ns = int((at - length)[own].min()), int(at[own].max())
    looks = [Collection(moment, "perf_counters", 0, 1, 0, 0, True, None) for moment in (start_ns, end_ns)]
    left_out = {Result.TABLE, Interval.TABLE, Histogram.TABLE, Step.TABLE, "caveat"}
    kept = {name: table for name, table in tables.items() if name not in left_out}
    process = kept["process_sample"]
    not_client = [name != "client" for name in strings(process, "process")]
    kept["process_sample"] = process.filter(pa.array(not_client, pa.bool_()))
    question = Question("", "", start_ns, end_ns)
    answers = duck.query_tables({**kept, "collection": to_table(Collection, looks)}, recorded_load.queries(question))
    return recorded_load.build(answers, question)


def judge(case: Case, tables: Mapping[str, pa.Table]) -> Iterator[Judged]:
    """Yield the verdict on each load of a run of a case, held against the truth."""
    for step in from_table(Step, tables["step"]):
        pattern = variant_of(step.step_key)
        expect = case.loads.get(pattern)
        if expect is None or step.osds is None:
            continue
        # The I/O of images is counted by recordings alone.
        expect = expected(expect, images=False)
        yield judged(case, pattern, expect, finding_of(tables, step))


def judged(case: Case, pattern: str, expect: Expect, point: PointFinding) -> Judged:
    """Return the verdict on a load of clients, held against the truth."""
    verdict = point.verdict
    said = outcome(verdict.limit, verdict.sentence, expect)
    return Judged(
        case.name, not case.clean, pattern, verdict.limit, verdict.subject, verdict.sentence, expect, said,
        point.iops.value,
    )  # fmt: skip
