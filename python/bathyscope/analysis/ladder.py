"""The ladder: every pattern from the raw disk up, what each layer loses, and what holds each point back."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis import bootstrap, ladder_series
from bathyscope.analysis.columns import Tables, floats, split_by_step, strings, table_of, where
from bathyscope.analysis.ladder_point import Point, Repeat, base_pattern, point
from bathyscope.analysis.ladder_words import group_sentence, headline, loss_sentence
from bathyscope.analysis.step_figures import figures
from bathyscope.errors import AnalysisError
from bathyscope.records import Caveat, Run, Step, from_table
from bathyscope.records.finding import (
    CaveatView,
    CommandView,
    Distribution,
    LadderFinding,
    PointFinding,
    RungGroup,
    RungLoss,
    Series,
)

# From the device up. A layer that is not listed stands above all that are, in order of its name.
LAYER_ORDER = ("disk", "rados", "rbd", "krbd", "rbd_nbd", "cephfs", "rgw", "omap")
WITNESS_LIMIT = 0.10
_SEVERITIES = {"refused": 0, "doubt": 1, "note": 2}


def build(tables: Tables, commands: Iterable[CommandView] = ()) -> LadderFinding:
    """Return the ladder of one run from its tables (keys are table names; missing tables count as empty).

    Raises AnalysisError when the tables hold several runs or no step at all.
    """
    steps = from_table(Step, table_of(tables, "step"))
    if not steps:
        raise AnalysisError("the run has no finished step", hint="resume it with `bathy bench resume`")
    ids = {step.run_id for step in steps}
    if len(ids) > 1:
        raise AnalysisError(f"a ladder is of one run, not of {len(ids)}", hint="compare two runs with `bathy compare`")
    parts = split_by_step(tables)
    osd_count = _osds_by_class(table_of(tables, "placement"))
    points, series = _points(steps, parts, osd_count)
    fio = [p for p in points if p.finding.witness == "fio"]
    witnesses = [p for p in points if p.finding.witness != "fio"]
    groups = _groups(fio, osd_count)
    caveats = _run_caveats(table_of(tables, "caveat"), points, _disagreements(fio, witnesses))
    runs = from_table(Run, table_of(tables, "run"))
    run = runs[-1] if runs else None
    distributions: list[Distribution] = [d for d in map(ladder_series.distribution, points) if d is not None]
    return LadderFinding(
        run_id=steps[0].run_id,
        plan_name=run.plan_name if run else "",
        target=run.target if run else "",
        status=run.status if run else "running",
        started_ns=run.started_ns if run else min(s.started_ns for s in steps),
        ended_ns=run.ended_ns if run else None,
        headline=headline(groups),
        groups=tuple(groups),
        witnesses=tuple(p.finding for p in witnesses),
        distributions=tuple(distributions),
        series=tuple(series),
        caveats=caveats,
        environment=_environment(table_of(tables, "environment"), run),
        commands=tuple(commands),
    )


def _points(
    steps: Sequence[Step], parts: dict[int, dict[str, pa.Table]], osds: dict[str, frozenset[int]]
) -> tuple[list[Point], list[Series]]:
    """Return the points in the plan's order of first appearance, and the series of every step."""
    repeats: dict[str, list[Repeat]] = {}
    everything = frozenset(number for numbers in osds.values() for number in numbers) or None
    series: list[Series] = []
    for step in sorted(steps, key=lambda s: s.step_index):
        own = parts.get(step.step_index, {})
        numbers = figures(
            step.step_index,
            own,
            on_disk=step.layer == "disk",
            device_class=step.device_class,
            osds=osds.get(step.device_class) if step.device_class else everything,
        )
        caveats = tuple(from_table(Caveat, table_of(own, "caveat")))
        repeats.setdefault(step.step_key, []).append(Repeat(step, numbers, table_of(own, "op"), caveats))
        series.extend(ladder_series.series_of(step, own))
    return [point(group) for group in repeats.values()], series


def _osds_by_class(placement: pa.Table) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for osd, kind in zip(floats(placement, "osd"), strings(placement, "device_class"), strict=True):
        found.setdefault(kind, set()).add(int(osd))
    return {kind: frozenset(numbers) for kind, numbers in found.items()}


def layer_height(layer: str) -> tuple[int, str]:
    """Return a sort key: the place of a layer on the ladder."""
    return (LAYER_ORDER.index(layer) if layer in LAYER_ORDER else len(LAYER_ORDER), layer)


def _groups(points: Sequence[Point], osds: dict[str, frozenset[int]]) -> list[RungGroup]:
    """Return the groups: each pattern variant of a device class with its layers from the disk up.

    A layer that was not run in a variant (a disk knows no images, so no -j4) joins with its plain pattern.
    """
    classes = list(dict.fromkeys(p.finding.device_class for p in points))
    groups = []
    for device_class in classes:
        own = [p for p in points if p.finding.device_class == device_class]
        joined: list[list[Point]] = []
        for variant in dict.fromkeys(p.variant for p in own):
            members = [p for p in own if p.variant == variant]
            layers = {p.finding.layer for p in members}
            members += [
                p
                for p in own
                if p.finding.layer not in layers
                and p.variant == base_pattern(variant)
                and not any(q.variant == variant and q.finding.layer == p.finding.layer for q in own)
            ]
            joined.append(sorted(members, key=lambda p: layer_height(p.finding.layer)))
        # A group that is wholly inside another (the disk alone, once it joined a variant) says nothing new.
        sets = [{p.finding.step_key for p in group} for group in joined]
        for i, group in enumerate(joined):
            if not any(sets[i] < other for other in sets):
                groups.append(_group(device_class, group, osds))
    return groups


def _group(device_class: str, points: Sequence[Point], osds: dict[str, frozenset[int]]) -> RungGroup:
    measured = [p for p in points if p.finding.iops.value]
    losses = tuple(
        _loss(lower, upper, len(osds.get(device_class, ()))) for lower, upper in itertools.pairwise(measured)
    )
    findings = tuple(p.finding for p in points)
    # The variant of the top rung names the group: lower rungs may have joined with their plain pattern.
    return RungGroup(device_class, points[-1].variant, findings, losses, group_sentence(findings, losses))


def _loss(lower: Point, upper: Point, osd_count: int) -> RungLoss:
    ratio = bootstrap.ratio(lower.iops, upper.iops).estimate.figure("ratio")
    added = bootstrap.difference(lower.latency_ns_mean, upper.latency_ns_mean).estimate.figure("ns")
    sentence = loss_sentence(lower.finding, upper.finding, ratio, added, osd_count)
    return RungLoss(lower.finding.layer, upper.finding.layer, ratio, added, sentence)


def _disagreements(points: Sequence[Point], witnesses: Sequence[Point]) -> list[CaveatView]:
    """Return a doubt for each configuration where a second load generator measured something else."""
    by_key = {p.finding.step_key: p for p in points}
    found = []
    for witness in witnesses:
        main = by_key.get(witness.finding.step_key.split("@")[0])
        if main is None:
            continue
        estimate = bootstrap.ratio(main.iops, witness.iops).estimate
        if estimate.value is None or estimate.low is None or estimate.high is None:
            continue
        if abs(estimate.value - 1) > WITNESS_LIMIT and not estimate.low <= 1 <= estimate.high:
            text = (
                f"{witness.finding.witness} measured {estimate.value:.2f} × the IOPS of fio on the same configuration"
            )
            found.append(CaveatView("witness_disagrees", "doubt", text, (main.finding.step_key,)))
    return found


def _run_caveats(table: pa.Table, points: Sequence[Point], more: Sequence[CaveatView]) -> tuple[CaveatView, ...]:
    """Return all caveats of a run, equal ones of several steps as one row, the gravest first."""
    whole = table.filter(pc.is_null(table.column("step_index")))
    rows = [CaveatView(c.code, c.severity, c.text) for c in from_table(Caveat, whole)]
    rows += [caveat for p in points for caveat in p.finding.caveats] + list(more)
    joined: dict[tuple[str, str, bool], CaveatView] = {}
    differing: set[tuple[str, str, bool]] = set()
    for row in rows:
        key = (row.code, row.severity, bool(row.step_keys))
        seen = joined.get(key)
        if seen is None:
            joined[key] = row
        elif row.step_keys and row.step_keys[0] not in seen.step_keys:
            joined[key] = CaveatView(seen.code, seen.severity, seen.text, (*seen.step_keys, *row.step_keys))
        elif not row.step_keys and row.text != seen.text:
            joined[(row.code, row.severity + row.text, False)] = row
        if seen is not None and row.step_keys and row.text != seen.text:
            differing.add(key)
    for key in differing:
        row = joined[key]
        text = f"{row.text} (the first of {len(row.step_keys)} configurations; their figures differ)"
        joined[key] = dataclasses.replace(row, text=text)
    return tuple(sorted(joined.values(), key=lambda v: (_SEVERITIES.get(v.severity, 3), v.code)))


def _environment(table: pa.Table, run: Run | None) -> tuple[tuple[str, str, str], ...]:
    rows: list[tuple[str, str, str]] = []
    if run is not None:
        facts = [
            ("bathy", "version", run.bathy_version),
            ("cluster", "fsid", run.cluster_fsid),
            ("cluster", "ceph_version", run.ceph_version),
            ("client", "fio_version", run.fio_version),
            ("client", "host_name", run.host_name),
            ("client", "kernel", run.kernel),
            ("client", "cpu_count", run.cpu_count),
        ]
        rows = [(subject, name, str(value)) for subject, name, value in facts if value is not None]
    before = where(table, moment="before")
    known = {(subject, name) for subject, name, _ in rows}
    for fact in (before if before.num_rows else table).to_pylist():
        if (fact["subject"], fact["name"]) not in known:
            rows.append((fact["subject"], fact["name"], fact["value"]))
    return tuple(rows)


def points_of(finding: LadderFinding) -> tuple[PointFinding, ...]:
    """Return every point of a ladder once, in the order of its groups."""
    seen: dict[str, PointFinding] = {}
    for group in finding.groups:
        for one in group.points:
            seen.setdefault(one.step_key, one)
    return tuple(seen.values())
