"""Two runs compared step by step: faster, slower or inconclusive.

Only steps with the same key that measured the same thing are compared: see `differences`, which also lists everything
else that is not the same in both runs. A step is called faster or slower when three things hold:

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
from collections.abc import Mapping, Sequence
from typing import Literal

from bathyscope.analysis import bootstrap, latency
from bathyscope.analysis.columns import Tables, by_step, strings, table_of
from bathyscope.analysis.differences import Facts, differences, joined, obstacle, step_differences
from bathyscope.analysis.step_figures import StepFigures, figures
from bathyscope.analysis.trust import STOPPED_WHEN_PRECISE, WHEN_PRECISE
from bathyscope.errors import AnalysisError, UsageError
from bathyscope.records import Caveat, Run, Step, from_table
from bathyscope.records.figure import Figure
from bathyscope.records.finding import CompareFinding, Difference, StepEffect
from bathyscope.units import format_percent

Metric = Literal["iops", "latency", "p99"]
METRICS: tuple[Metric, ...] = ("iops", "latency", "p99")
THRESHOLD = 0.05
ALPHA = 0.05
REPEATS_MIN = 3
ONLY_IN_A = "only in A"
ONLY_IN_B = "only in B"

_METRIC_WORDS: Mapping[str, str] = {"iops": "IOPS", "latency": "mean latency", "p99": "p99 latency"}
# Differences that a headline names; the others are counted.
_NAMED_MAX = 3


@dataclasses.dataclass(frozen=True, slots=True)
class _Side:
    """One configuration of one run: its repeats, good ones only, and why there are none."""

    step: Step
    good: tuple[StepFigures, ...]
    reason: str | None


def compare(
    tables_a: Tables,
    tables_b: Tables,
    *,
    metric: Metric = "iops",
    threshold: float = THRESHOLD,
    recorded: tuple[Facts, Facts] = ({}, {}),
) -> CompareFinding:
    """Return what changed from run A to run B. `threshold` is the least change that counts, as a ratio.

    `recorded` are the facts of both runs that are in none of their tables (`differences.recorded_facts`).

    Raises UsageError for an unknown metric or threshold, AnalysisError when the runs have no step in common.
    """
    if metric not in METRICS:
        raise UsageError(f"metric must be one of {', '.join(METRICS)} (got '{metric}')")
    if not 0 <= threshold < 1:
        raise UsageError(f"threshold must be at least 0 and below 1 (got {threshold})")
    sides_a, sides_b = _sides(tables_a), _sides(tables_b)
    common = [key for key in sides_a if key in sides_b]
    if not common:
        raise AnalysisError(
            "the two runs have no step in common: nothing can be compared",
            hint="compare runs of the same plan on the same device classes",
        )
    of_runs = differences(tables_a, tables_b, recorded)
    of_steps = {key: step_differences(sides_a[key].step, sides_b[key].step) for key in common}
    forbidden = obstacle(of_runs)
    compared = [_effect((sides_a[key], sides_b[key]), metric, forbidden or obstacle(of_steps[key])) for key in common]
    adjusted = bootstrap.false_discovery_rate([p_value for _, p_value in compared])
    comparisons = sum(value is not None for value in adjusted)
    effects = tuple(
        effect if effect.reason else _judged(effect, value, threshold, comparisons)
        for (effect, _), value in zip(compared, adjusted, strict=True)
    )
    missing = tuple((key, ONLY_IN_A) for key in sides_a if key not in sides_b)
    missing += tuple((key, ONLY_IN_B) for key in sides_b if key not in sides_a)
    every = joined([*of_runs, *(difference for of_step in of_steps.values() for difference in of_step)])
    return CompareFinding(
        run_a=_run_id(tables_a),
        run_b=_run_id(tables_b),
        effects=effects,
        missing=missing,
        differences=every,
        headline=_headline(effects, missing, metric) + _other_configuration(every) + _stopping(tables_a, tables_b),
    )


def other_configuration(finding: CompareFinding) -> tuple[Difference, ...]:
    """Return the differences between what was measured: a step that is faster or slower may be so because of them.

    Another Ceph version or another machine is not among them: that is what runs are compared for.
    """
    return tuple(d for d in finding.differences if d.severity != "note" and d.area != "environment")


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
    answers = {name: by_step(table_of(tables, name)) for name in ("result", "interval", "histogram")}
    sides: dict[str, _Side] = {}
    for step in steps:
        of_step = {name: rows[step.step_index] for name, rows in answers.items() if step.step_index in rows}
        numbers = figures(step, of_step)
        usable = step.status == "done" and numbers.io_count > 0
        seen = sides.get(step.step_key)
        sides[step.step_key] = _Side(
            seen.step if seen else step,
            (*(seen.good if seen else ()), *((numbers,) if usable else ())),
            (seen.reason if seen else None) or (None if usable else step.reason or f"the step {step.status}"),
        )
    return sides


def _effect(sides: tuple[_Side, _Side], metric: Metric, forbidden: str | None) -> tuple[StepEffect, float | None]:
    """Return what changed, and its p-value; inconclusive with a reason where the sides cannot be compared at all."""
    a, b = sides
    (figure_a, values_a), (figure_b, values_b) = _measured(a, metric), _measured(b, metric)
    contrast = bootstrap.Contrast(bootstrap.Estimate(None), None)
    if figure_a.value and figure_b.value and forbidden is None:
        contrast = bootstrap.ratio(values_a, values_b, at=(figure_a.value, figure_b.value))
    value, low, high = (
        None if ratio is None else ratio - 1
        for ratio in (contrast.estimate.value, contrast.estimate.low, contrast.estimate.high)
    )
    effect = Figure(value, "ratio", low, high, samples=contrast.estimate.samples)
    reason = _missing(a, b, figure_a, figure_b) or forbidden or _too_few(figure_a, figure_b)
    finding = StepEffect(a.step.step_key, metric, figure_a, figure_b, effect, "inconclusive", reason)
    return finding, None if reason else contrast.p_value


def _measured(side: _Side, metric: Metric) -> tuple[Figure, list[float]]:
    """Return the figure of one side and its per-repeat values."""
    if metric == "p99":
        histograms = [f.histogram for f in side.good if f.histogram.io_count]
        quantiles_ns = [h.quantile_ns(0.99) for h in histograms]
        return latency.percentile(histograms, 0.99), [v for v in quantiles_ns if v is not None]
    if metric == "iops":
        values = [f.iops for f in side.good if f.iops]
    else:
        values = [f.latency_ns_mean for f in side.good if f.latency_ns_mean]
    return bootstrap.median(values).figure("1/s" if metric == "iops" else "ns"), values


def _missing(a: _Side, b: _Side, figure_a: Figure, figure_b: Figure) -> str | None:
    """Return why one of the sides has no figure, or None."""
    for name, side, figure in (("A", a, figure_a), ("B", b, figure_b)):
        if not side.good:
            return f"no figure in {name}: {side.reason}"
        if figure.value is None:
            return f"no figure in {name}: too few I/Os, or the load generator reports no such latency"
    return None


def _too_few(a: Figure, b: Figure) -> str | None:
    if min(a.samples, b.samples) < REPEATS_MIN:
        return f"{a.samples} and {b.samples} repeats; at least {REPEATS_MIN} on each side are needed"
    return None


def _judged(effect_of_step: StepEffect, adjusted: float | None, threshold: float, comparisons: int) -> StepEffect:
    """Return an effect with its verdict; `comparisons` is how many its p-value was adjusted for."""
    effect, verdict, reason = effect_of_step.effect, "inconclusive", None
    if effect.value is None or effect.low is None or effect.high is None or adjusted is None:
        reason = "no interval can be given"
    elif effect.low <= 0 <= effect.high:
        bound = max(abs(effect.low), abs(effect.high))
        reason = f"no change is within the interval; a change of more than {format_percent(bound)} is not"
    elif adjusted > ALPHA:
        reason = f"among {comparisons} comparisons one such difference is likely by chance"
    elif abs(effect.value) < threshold:
        change, least = format_percent(abs(effect.value)), format_percent(threshold)
        reason = f"a change of {change} is below the threshold of {least}"
    else:
        verdict = "faster" if (effect.value > 0) == (effect_of_step.metric == "iops") else "slower"
    return dataclasses.replace(effect_of_step, verdict=verdict, reason=reason)


def _run_id(tables: Tables) -> str:
    runs = from_table(Run, table_of(tables, "run"))
    return runs[-1].run_id if runs else ""


def _headline(effects: tuple[StepEffect, ...], missing: tuple[tuple[str, str], ...], metric: Metric) -> str:
    slower = [e for e in effects if e.verdict == "slower"]
    faster = [e for e in effects if e.verdict == "faster"]
    parts = []
    for name, group in (("slower", slower), ("faster", faster)):
        if group:
            most = max(group, key=lambda e: abs(e.effect.value or 0.0))
            parts.append(f"{len(group)} {name} (most: {most.step_key}, {_signed(most.effect.value or 0.0)})")
    unknown = len(effects) - len(slower) - len(faster)
    if unknown:
        parts.append(f"{unknown if parts else 'all'} inconclusive")
    text = f"Of {len(effects)} steps, by {_METRIC_WORDS[metric]}: {', '.join(parts)}."
    if missing:
        text += f" {len(missing)} exist in one run only and are not compared."
    return text


def _other_configuration(every: Sequence[Difference]) -> str:
    """Return the sentences that warn of runs that are not of the same thing; empty when they are."""
    text = ""
    for severity, words in (
        ("refused", "The figures are not of the same thing and are not compared"),
        ("warning", "The runs are not of the same configuration"),
    ):
        as_grave = [d for d in every if d.severity == severity]
        if as_grave:
            more = f"; and {len(as_grave) - _NAMED_MAX} more" if len(as_grave) > _NAMED_MAX else ""
            text += f" {words}: {'; '.join(d.text for d in as_grave[:_NAMED_MAX])}{more}."
    return text


def _stopping(*tables: Tables) -> str:
    """Return the sentence that limits the intervals of runs that ended their repeats when they were precise."""
    codes = {code for each in tables for code in strings(table_of(each, Caveat.TABLE), "code")}
    return f" Repeats ended when they were precise: {WHEN_PRECISE}." if STOPPED_WHEN_PRECISE in codes else ""


def _signed(ratio: float) -> str:
    return f"{'+' if ratio >= 0 else '−'}{format_percent(abs(ratio))}"
