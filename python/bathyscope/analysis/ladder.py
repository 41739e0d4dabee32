"""The ladder: every pattern from the raw disk up, what each layer loses, and what holds each point back."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis import bootstrap, caveat_texts, knee, ladder_series, tenants
from bathyscope.analysis.account.client_options import client_options
from bathyscope.analysis.account.disk_layer import DiskLayer
from bathyscope.analysis.account.step import account_of
from bathyscope.analysis.columns import Tables, ints, strings, table_of, where
from bathyscope.analysis.interference import own_figures
from bathyscope.analysis.ladder_point import Point, Repeat, base_pattern, point
from bathyscope.analysis.ladder_words import Layers, group_sentence, headline, loss_sentence
from bathyscope.analysis.placement import cluster_of, known_osds
from bathyscope.errors import AnalysisError
from bathyscope.records import Caveat, Run, Step, from_table
from bathyscope.records.blocks import CaveatView, severity_order
from bathyscope.records.finding import CommandView, KneeFinding, LadderFinding, LayerView, RungGroup, RungLoss, Series

CROSS_CHECK_LIMIT = 0.10
_SOME_REPEATS = re.compile(r" \(in \d+ of \d+ repeats\)$")


def build(
    tables: Tables,
    of_steps: Mapping[int, Tables],
    commands: Iterable[CommandView] = (),
    layers: Sequence[LayerView] = (),
) -> LadderFinding:
    """Return the ladder of one run from its tables (keys are table names; missing tables count as empty).

    `of_steps` are the tables of each step by its index, cut to its window (`window.tables`); `layers` are the traits of
    the layers that are known; one that is not known stands above all others by its name.

    Raises AnalysisError when the tables hold several runs or no step at all.
    """
    steps = from_table(Step, table_of(tables, "step"))
    if not steps:
        raise AnalysisError("the run has no finished step", hint="resume it with `bathy bench resume`")
    runs = from_table(Run, table_of(tables, "run"))
    if len(runs) > 1:
        raise AnalysisError(f"a ladder is of one run, not of {len(runs)}", hint="compare two runs with `bathy compare`")
    names = {layer.name: layer for layer in layers}
    placement = table_of(tables, "placement")
    options = client_options(table_of(tables, "environment"))
    points, series, shared = _points(steps, of_steps, names, placement, options)
    rungs, cross_checks = _apart(points)
    knees = knee.knees(rungs, names)
    beyond = knee.beyond(rungs, knees)
    groups = _groups(rungs, _osd_counts(placement), names, knees)
    of_points = [*(c for p in points for c in p.finding.caveats), *_disagreements(rungs, cross_checks)]
    run = runs[0] if runs else None
    return LadderFinding(
        run_id=run.run_id if run else "",
        plan_name=run.plan_name if run else "",
        target=run.target if run else "",
        status=run.status if run else "running",
        started_ns=run.started_ns if run else min(s.started_ns for s in steps),
        ended_ns=run.ended_ns if run else None,
        headline=headline(groups, names, knees, beyond),
        groups=tuple(groups),
        cross_checks=tuple(p.finding for p in cross_checks),
        distributions=tuple(d for d in map(ladder_series.distribution, points) if d is not None),
        series=tuple(series),
        caveats=run_caveats(tables, of_points),
        environment=_environment(table_of(tables, "environment"), run),
        commands=tuple(commands),
        layers=tuple(sorted(layers, key=lambda layer: layer.place)),
        tenants=tenants.cost(tables, shared),
        knees=knees,
    )


def _points(
    steps: Sequence[Step],
    of_steps: Mapping[int, Tables],
    layers: Layers,
    placement: pa.Table,
    options: Mapping[str, int],
) -> tuple[list[Point], list[Series], list[tenants.Shared]]:
    """Return the points in the plan's order of first appearance, the series of those that have them, and tenants."""
    repeats: dict[str, list[Repeat]] = {}
    series: list[Series] = []
    shared: list[tenants.Shared] = []
    counted = Counter(step.step_key for step in steps)
    osds, cluster = known_osds(placement), cluster_of(placement)
    alone = [step for step in steps if step.osds is None and step.status == "done"]
    of_disks = {step.step_index: own_figures(step, of_steps[step.step_index]) for step in alone}
    disks = DiskLayer((step, of_disks[step.step_index]) for step in alone)
    shown, points_max = ladder_series.detail(len(counted), max(counted.values(), default=0))
    for step in sorted(steps, key=lambda s: s.step_index):
        of_step = of_steps[step.step_index]
        caveats = tuple(from_table(Caveat, table_of(of_step, "caveat")))
        step_figures = of_disks.get(step.step_index) or own_figures(step, of_step)
        disk = None if step.osds is None else disks.of(step, len(step.osds.split()))
        account = account_of(step, step_figures, of_step, osds, disk, options=options)
        repeats.setdefault(step.step_key, []).append(
            Repeat(step, step_figures, account, table_of(of_step, "op"), caveats)
        )
        if len(repeats[step.step_key]) <= shown:
            series.extend(ladder_series.series_of(step, of_step, points_max))
        if step_figures.tenants is not None:
            shared.append(tenants.Shared(step.step_key, step.started_ns, step_figures.tenants))
    return [point(group, layers, cluster) for group in repeats.values()], series, shared


def _apart(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Return the rungs, and the points of a second load generator, which only check those of their layer's first."""
    first: dict[str, str] = {}
    for p in points:
        # The key of a step names its load generator when that is not fio.
        if p.finding.layer not in first or "@" not in p.finding.step_key:
            first[p.finding.layer] = p.finding.load_generator
    rungs = [p for p in points if p.finding.load_generator == first[p.finding.layer]]
    return rungs, [p for p in points if p.finding.load_generator != first[p.finding.layer]]


def _osd_counts(placement: pa.Table) -> dict[str, int]:
    """Return the number of OSDs of each device class."""
    counted = placement.group_by("device_class", use_threads=False).aggregate([("osd", "count_distinct")])
    return dict(zip(strings(counted, "device_class"), ints(counted, "osd_count_distinct").tolist(), strict=True))


def _rung(layer: str, layers: Layers) -> tuple[float, str]:
    """Return a sort key: the rung of a layer, from the device up."""
    return (layers[layer].place if layer in layers else math.inf, layer)


def _groups(
    points: Sequence[Point], osd_counts: dict[str, int], layers: Layers, knees: Sequence[KneeFinding]
) -> list[RungGroup]:
    """Return the groups: each pattern variant of a device class with its layers from the disk up.

    A layer that was not run in a variant (a disk knows no images, so no -j4) joins with its plain pattern.
    """
    groups = []
    for device_class in dict.fromkeys(p.finding.device_class for p in points):
        of_class = [p for p in points if p.finding.device_class == device_class]
        joined: list[list[Point]] = []
        for variant in dict.fromkeys(p.variant for p in of_class):
            members = [p for p in of_class if p.variant == variant]
            present = {p.finding.layer for p in members}
            members += [p for p in of_class if p.finding.layer not in present and p.variant == base_pattern(variant)]
            joined.append(sorted(members, key=lambda p: _rung(p.finding.layer, layers)))
        # A group that is wholly inside another (the disk alone, once it joined a variant) says nothing new.
        sets = [{p.finding.step_key for p in group} for group in joined]
        for i, group in enumerate(joined):
            if not any(sets[i] < other for other in sets):
                groups.append(_group(group, osd_counts.get(device_class, 0), layers, knees))
    return groups


def _group(points: Sequence[Point], osd_count: int, layers: Layers, knees: Sequence[KneeFinding]) -> RungGroup:
    measured = [p for p in points if p.finding.iops.value]
    losses = tuple(_loss(lower, upper, osd_count, layers) for lower, upper in itertools.pairwise(measured))
    findings = tuple(p.finding for p in points)
    # The variant of the top rung names the group: lower rungs may have joined with their plain pattern.
    sentence = group_sentence(findings, losses, layers, knees)
    return RungGroup(findings[0].device_class, points[-1].variant, findings, losses, sentence)


def _loss(lower: Point, upper: Point, osd_count: int, layers: Layers) -> RungLoss:
    ratio = bootstrap.ratio(lower.iops, upper.iops).estimate.figure("ratio")
    added = bootstrap.difference(lower.latency_ns_mean, upper.latency_ns_mean).estimate.figure("ns")
    # A layer without OSDs under test is a single device.
    spread = osd_count if upper.finding.on_cluster and not lower.finding.on_cluster else 0
    sentence = loss_sentence((lower.finding, upper.finding), (ratio, added), spread, layers)
    return RungLoss(lower.finding.layer, upper.finding.layer, ratio, added, sentence)


def _disagreements(points: Sequence[Point], cross_checks: Sequence[Point]) -> list[CaveatView]:
    """Return a warning for each configuration where a second load generator measured something else."""
    by_key = {p.finding.step_key: p for p in points}
    warnings = []
    for cross_check in cross_checks:
        main = by_key.get(cross_check.finding.step_key.split("@")[0])
        if main is None:
            continue
        estimate = bootstrap.ratio(main.iops, cross_check.iops).estimate
        if estimate.value is None or estimate.low is None or estimate.high is None:
            continue
        if abs(estimate.value - 1) > CROSS_CHECK_LIMIT and not estimate.low <= 1 <= estimate.high:
            name = cross_check.finding.load_generator
            text = f"{name} measured {estimate.value:.2f} × the IOPS of fio on the same configuration"
            warnings.append(CaveatView("cross_check_disagrees", "warning", text, (main.finding.step_key,)))
    return warnings


def run_caveats(tables: Tables, others: Iterable[CaveatView]) -> tuple[CaveatView, ...]:
    """Return all caveats of a run, the most severe first: those of all of it, and of `others` a row for each kind."""
    table = table_of(tables, Caveat.TABLE)
    whole = table.filter(pc.is_null(table.column("step_index")))
    rows = dict.fromkeys(CaveatView(c.code, c.severity, c.text) for c in from_table(Caveat, whole))
    kinds: dict[tuple[str, str], list[CaveatView]] = {}
    for caveat in others:
        kinds.setdefault((caveat.code, caveat.severity), []).append(caveat)
    return tuple(sorted([*rows, *map(_joined, kinds.values())], key=lambda view: (severity_order(view), view.code)))


def _joined(same: Sequence[CaveatView]) -> CaveatView:
    """Return caveats of one kind as one, with the steps of all: the words that most of them have, with ranges."""
    keys = tuple(dict.fromkeys(key for caveat in same for key in caveat.step_keys))
    if len({caveat.text for caveat in same}) == 1:
        return dataclasses.replace(same[0], step_keys=keys)
    texts = [_SOME_REPEATS.sub("", caveat.text) for caveat in same]
    most = caveat_texts.most_common(texts)
    text = caveat_texts.ranged(most)
    if any(caveat.text not in texts for caveat in same):
        text += " (not in all repeats)"
    if len(most) < len(same):
        text += f" (in {len(most)} of {len(same)} cases; other words in the rest)"
    return dataclasses.replace(same[0], text=text, step_keys=keys)


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
    facts_of_run = {(subject, name) for subject, name, _ in rows}
    for fact in (before if before.num_rows else table).to_pylist():
        if (fact["subject"], fact["name"]) not in facts_of_run:
            rows.append((fact["subject"], fact["name"], fact["value"]))
    return tuple(rows)
