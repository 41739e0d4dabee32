"""Two runs compared step by step: faster, slower, or cannot tell.

Only steps with the same key, and the same working set and claim on caches, are compared. A step is called
faster or slower when three things hold:

1. Its 95 % interval excludes "no change". The interval is of the ratio of medians (see `bootstrap.ratio`). A
   plain bootstrap calls 10 % of A/A comparisons different at three repeats; with Welch's interval on logarithms
   it is 2 to 4 % for normal, heavy-tailed, exponential and two-level noise.
2. The p-value holds after adjustment for the number of steps compared (Benjamini & Hochberg), so that two equal
   runs of fifty steps are called equal as a whole in at least 95 % of the cases.
3. The change is at least the threshold: a difference may be certain and still not matter.

At least three repeats on each side are needed. What is missing, refused or failed on one side is never equal to
anything. The interval holds the variation between the repeats of each run; two runs can differ by more than that
without a cause that you changed (placement of data, age of the store): repeat the runs when a small change matters.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Literal

from bathyscope.analysis import bootstrap, latency
from bathyscope.analysis.bootstrap import Contrast
from bathyscope.analysis.columns import Tables, split_by_step, table_of, where
from bathyscope.analysis.step_figures import StepFigures, figures
from bathyscope.errors import AnalysisError, UsageError
from bathyscope.records import Run, Step, from_table
from bathyscope.records.finding import CompareFinding, Figure, StepEffect
from bathyscope.units import format_bytes, format_percent

Metric = Literal["iops", "latency", "p99"]
METRICS: tuple[Metric, ...] = ("iops", "latency", "p99")
THRESHOLD = 0.05
ALPHA = 0.05
REPEATS_MIN = 3
ONLY_IN_A = "only in A"
ONLY_IN_B = "only in B"

_UNITS: Mapping[str, str] = {"iops": "1/s", "latency": "ns", "p99": "ns"}
# Our own pools and images carry the run's id; without it they are the same thing in both runs.
_RUN_PART = re.compile(r"bathy-[0-9A-Za-z]+")
_OSD = re.compile(r"osd\.[0-9]+")
# What differs between any two moments of the same machine explains nothing.
_VARYING = re.compile(r"loadavg|memory_available|latency_ms|^pgs active\+clean$")


@dataclasses.dataclass(frozen=True, slots=True)
class _Side:
    """One configuration of one run: its repeats, good ones only, and why there are none."""

    step: Step
    good: tuple[StepFigures, ...]
    reason: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Rule:
    """How a call is made: on which metric, from which change on, and among how many comparisons."""

    metric: Metric
    threshold: float
    comparisons: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Pair:
    step_key: str
    a: Figure
    b: Figure
    contrast: Contrast
    obstacle: str | None


def compare(
    tables_a: Tables, tables_b: Tables, *, metric: Metric = "iops", threshold: float = THRESHOLD
) -> CompareFinding:
    """Return what changed from run A to run B. `threshold` is the least change that counts, as a ratio.

    Raises UsageError for an unknown metric or threshold, AnalysisError when the runs have no step in common.
    """
    if metric not in METRICS:
        raise UsageError(f"'{metric}' is not a metric", hint=f"choose one of {', '.join(METRICS)}")
    if not 0 <= threshold < 1:
        raise UsageError(f"a threshold of {threshold} is not a share", hint="write 5% or 0.05")
    sides_a, sides_b = _sides(tables_a), _sides(tables_b)
    common = [key for key in sides_a if key in sides_b]
    if not common:
        raise AnalysisError(
            "the two runs have no step in common: nothing can be compared",
            hint="compare runs of the same plan on the same device classes",
        )
    pairs = [_pair(key, sides_a[key], sides_b[key], metric) for key in common]
    adjusted = bootstrap.false_discovery_rate([None if p.obstacle else p.contrast.p_value for p in pairs])
    rule = _Rule(metric, threshold, sum(value is not None for value in adjusted))
    effects = tuple(_effect(pair, q, rule) for pair, q in zip(pairs, adjusted, strict=True))
    missing = tuple((key, ONLY_IN_A) for key in sides_a if key not in sides_b)
    missing += tuple((key, ONLY_IN_B) for key in sides_b if key not in sides_a)
    return CompareFinding(
        run_a=_run_id(sides_a),
        run_b=_run_id(sides_b),
        effects=effects,
        missing=missing,
        environment_changes=tuple(_environment_changes(tables_a, tables_b)),
        headline=_headline(effects, missing, metric),
    )


def lost(finding: CompareFinding) -> tuple[str, ...]:
    """Return the keys of steps with a figure in A and none in B: missing, refused or failed there.

    Such a step may hide a regression, so a gate on regressions must not pass it as equal.
    """
    gone = [e.step_key for e in finding.effects if e.a.value is not None and e.b.value is None]
    return (*gone, *(key for key, side in finding.missing if side == ONLY_IN_A))


def _sides(tables: Tables) -> dict[str, _Side]:
    steps = sorted(from_table(Step, table_of(tables, "step")), key=lambda s: s.step_index)
    if not steps:
        raise AnalysisError(
            "a run without finished steps cannot be compared", hint="resume it with `bathy bench resume`"
        )
    if len({s.run_id for s in steps}) > 1:
        raise AnalysisError("each side of a comparison is one run")
    needed = ("result", "interval", "histogram")
    parts = split_by_step({name: table_of(tables, name) for name in needed})
    found: dict[str, _Side] = {}
    for step in steps:
        numbers = figures(step.step_index, parts.get(step.step_index, {}), on_disk=step.layer == "disk")
        usable = step.status == "done" and numbers.io_count > 0
        seen = found.get(step.step_key)
        found[step.step_key] = _Side(
            seen.step if seen else step,
            (*(seen.good if seen else ()), *((numbers,) if usable else ())),
            (seen.reason if seen else None) or (None if usable else step.reason or f"the step {step.status}"),
        )
    return found


def _pair(key: str, a: _Side, b: _Side, metric: Metric) -> _Pair:
    figure_a, values_a = _measured(a, metric)
    figure_b, values_b = _measured(b, metric)
    at = (figure_a.value, figure_b.value) if figure_a.value and figure_b.value else None
    contrast = bootstrap.ratio(values_a, values_b, at=at) if at else Contrast(bootstrap.Estimate(None), None)
    return _Pair(key, figure_a, figure_b, contrast, _obstacle(a, b, figure_a, figure_b))


def _measured(side: _Side, metric: Metric) -> tuple[Figure, list[float]]:
    """Return the figure of one side and its per-repeat values."""
    if metric == "p99":
        histograms = [f.histogram for f in side.good if f.histogram.io_count]
        own = [h.quantile_ns(0.99) for h in histograms]
        figure = latency.percentile(histograms, 0.99).figure("ns", latency.RELATIVE_ERROR)
        return figure, [v for v in own if v is not None]
    read: Callable[[StepFigures], float | None] = (
        (lambda f: f.iops) if metric == "iops" else (lambda f: f.latency_ns_mean)
    )
    values = [value for f in side.good if (value := read(f))]
    return bootstrap.median(values).figure(_UNITS[metric]), values


def _obstacle(a: _Side, b: _Side, figure_a: Figure, figure_b: Figure) -> str | None:
    """Return why the two sides cannot be compared at all, or None."""
    for name, side, figure in (("A", a, figure_a), ("B", b, figure_b)):
        if not side.good:
            return f"no figure in {name}: {side.reason}"
        if figure.value is None:
            return f"no figure in {name}: too few I/Os, or the load generator reports no such latency"
    if a.step.working_set_bytes != b.step.working_set_bytes:
        sizes = [format_bytes(s.step.working_set_bytes) if s.step.working_set_bytes else "unknown" for s in (a, b)]
        return f"the working sets differ: {sizes[0]} and {sizes[1]}"
    if a.step.temperature != b.step.temperature:
        return f"the claims on caches differ: {a.step.temperature} and {b.step.temperature}"
    if min(figure_a.samples, figure_b.samples) < REPEATS_MIN:
        return f"{figure_a.samples} and {figure_b.samples} repeats; at least {REPEATS_MIN} on each side are needed"
    return None


def _effect(pair: _Pair, adjusted: float | None, rule: _Rule) -> StepEffect:
    estimate = pair.contrast.estimate
    effect = Figure(
        None if estimate.value is None else estimate.value - 1,
        "ratio",
        None if estimate.low is None else estimate.low - 1,
        None if estimate.high is None else estimate.high - 1,
        0.0,
        estimate.samples,
    )
    call, reason = _call(pair.obstacle, effect, adjusted, rule)
    return StepEffect(pair.step_key, rule.metric, pair.a, pair.b, effect, call, reason)


def _call(obstacle: str | None, effect: Figure, adjusted: float | None, rule: _Rule) -> tuple[str, str | None]:
    if obstacle is not None:
        return "cannot tell", obstacle
    if effect.value is None or effect.low is None or effect.high is None or adjusted is None:
        return "cannot tell", "no interval can be given"
    if effect.low <= 0 <= effect.high:
        bound = max(abs(effect.low), abs(effect.high))
        return "cannot tell", f"no change is within the interval; a change of more than {format_percent(bound)} is not"
    if adjusted > ALPHA:
        return "cannot tell", f"among {rule.comparisons} comparisons one such difference is likely by chance"
    if abs(effect.value) < rule.threshold:
        change, least = format_percent(abs(effect.value)), format_percent(rule.threshold)
        return "cannot tell", f"a change of {change} is below the threshold of {least}"
    better = effect.value > 0 if rule.metric == "iops" else effect.value < 0
    return ("faster" if better else "slower"), None


def _run_id(sides: Mapping[str, _Side]) -> str:
    return next(iter(sides.values())).step.run_id


def _facts(tables: Tables) -> dict[tuple[str, str], str]:
    """Return what a run stood on: its own row, and the environment before it."""
    facts: dict[tuple[str, str], str] = {}
    for run in from_table(Run, table_of(tables, "run")):
        for name in ("target", "bathy_version", "ceph_version", "fio_version", "host_name", "kernel", "cpu_count"):
            value = getattr(run, name)
            if value is not None:
                facts["run", name] = str(value)
    for row in where(table_of(tables, "environment"), moment="before").to_pylist():
        facts[_RUN_PART.sub("bathy-…", row["subject"]), row["name"]] = row["value"]
    return facts


def _environment_changes(tables_a: Tables, tables_b: Tables) -> list[tuple[str, str, str, str]]:
    """Return (subject, name, value in A, value in B) of every fact that differs; equal ones of many OSDs as one row."""
    a, b = _facts(tables_a), _facts(tables_b)
    absent = "(not recorded)"
    subjects: dict[tuple[str, str, str, str], list[str]] = {}
    for subject, name in sorted(a.keys() | b.keys()):
        before, after = a.get((subject, name), absent), b.get((subject, name), absent)
        if before != after and not _VARYING.search(name):
            kind = subject.split(".", 1)[0] if _OSD.fullmatch(subject) else subject
            subjects.setdefault((kind, name, before, after), []).append(subject)
    return [
        (many[0] if len(many) == 1 else f"{many[0]} and {len(many) - 1} more", name, before, after)
        for (_, name, before, after), many in subjects.items()
    ]


def _headline(effects: tuple[StepEffect, ...], missing: tuple[tuple[str, str], ...], metric: Metric) -> str:
    slower = [e for e in effects if e.call == "slower"]
    faster = [e for e in effects if e.call == "faster"]
    parts = []
    for name, group in (("slower", slower), ("faster", faster)):
        if group:
            most = max(group, key=lambda e: abs(e.effect.value or 0.0))
            parts.append(f"{len(group)} {name} (most: {most.step_key}, {_signed(most.effect.value or 0.0)})")
    unknown = len(effects) - len(slower) - len(faster)
    if unknown:
        parts.append(f"{unknown} cannot be told apart" if parts else "none can be told apart")
    text = f"Of {len(effects)} steps, by {_METRIC_WORDS[metric]}: {', '.join(parts)}."
    if missing:
        text += f" {len(missing)} exist in one run only and are not compared."
    return text


_METRIC_WORDS: Mapping[str, str] = {"iops": "IOPS", "latency": "mean latency", "p99": "p99 latency"}


def _signed(ratio: float) -> str:
    return f"{'+' if ratio >= 0 else '−'}{format_percent(abs(ratio))}"
