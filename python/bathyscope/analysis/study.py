"""A study: the same access patterns in every phase, compared with the first phase."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from bathyscope.analysis import bootstrap
from bathyscope.analysis.columns import Tables, floats, strings, table_of, total
from bathyscope.analysis.interference import STEAL_LIMIT, STEAL_MIN
from bathyscope.analysis.ladder import run_caveats
from bathyscope.analysis.ladder_point import base_pattern, variant_of
from bathyscope.analysis.step_figures import StepFigures, figures
from bathyscope.analysis.trust import STOPPED_WHEN_PRECISE
from bathyscope.errors import AnalysisError
from bathyscope.records import CacheSample, Caveat, Result, Step, from_table
from bathyscope.records.blocks import CaveatView
from bathyscope.records.figure import Figure
from bathyscope.records.study_finding import ExpectationView, StudyCell, StudyFinding, StudyRow
from bathyscope.spec.study import Expectation, StudyDesign
from bathyscope.units import format_percent, three_digits

_TIMES = "×"
_NO_RATIO = Figure(None, _TIMES)
_OF_CACHES = ("cache_hits", "small_working_set")
_ONE_RUN = (
    "Each cell is one measurement. The interval of a ratio is the variation between clients; another run of the study "
    "can differ by more."
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Repeat:
    """One measurement of an access pattern in a phase: its figures, its results, and its caches if they are known."""

    step: Step
    figures: StepFigures
    result: pa.Table
    caches: pa.Table

    @property
    def of_clients(self) -> dict[str, float]:
        """IOPS of each client."""
        return dict(zip(strings(self.result, "client"), floats(self.result, "iops").tolist(), strict=True))


# (phase, pattern) → its measurements that can be trusted, by their repeat.
_Cells = Mapping[tuple[str, str], Mapping[int, _Repeat]]


def build(
    tables: Tables,
    of_steps: Mapping[int, Tables],
    design: StudyDesign,
    run_id: str,
    *,
    is_judged: bool,
) -> StudyFinding:
    """Return the finding of a study. `of_steps` are the tables of each step, cut to its window.

    A step that was refused or failed has no figure. Nothing is expected of a pattern that no phase has. Raises
    AnalysisError when there is no step at all.
    """
    cells: dict[tuple[str, str], dict[int, _Repeat]] = {}
    reasons: dict[tuple[str, str], str] = {}
    keys: dict[tuple[str, str], str] = {}
    steps = sorted(from_table(Step, table_of(tables, Step.TABLE)), key=lambda step: step.step_index)
    if not steps:
        raise AnalysisError("the run has no finished step", hint="resume it with `bathy bench resume`")
    for step in steps:
        cell = step.phase or "", base_pattern(variant_of(step.step_key))
        of_step, repeats = of_steps[step.step_index], cells.setdefault(cell, {})
        keys[cell] = step.step_key
        if step.status == "done":
            result, caches = table_of(of_step, Result.TABLE), table_of(of_step, CacheSample.TABLE)
            repeats[step.repeat_index] = _Repeat(step, figures(step, of_step), result, caches)
        else:
            reasons[cell] = step.reason or step.status
    phases = tuple(phase for phase in design.phases if any(measured == phase for measured, _ in cells))
    first = design.phases[0]
    rows = []
    for pattern in dict.fromkeys(pattern for _, pattern in cells):
        base = cells.get((first, pattern), {})
        of_phases = [(phase, keys[phase, pattern]) for phase in phases if (phase, pattern) in cells]
        of_pattern = (_cell(phase, key, cells[phase, pattern], base, first) for phase, key in of_phases)
        rows.append(StudyRow(pattern, tuple(of_pattern)))
    patterns = {row.pattern for row in rows}
    steal = {cell: ratio for cell, repeats in cells.items() if (ratio := _steal_of(repeats)) is not None}
    expectations = tuple(
        _judge(expectation, rows, first, steal, reasons)
        for expectation in design.expectations
        if expectation.pattern in patterns
    )
    result = table_of(tables, Result.TABLE)
    caveats = [*_failures(result), *_of_steps(tables, of_steps, steps), *_steal(steal)]
    caveats += [CaveatView(code, "note", text) for code, text in design.caveats]
    if max((len(repeats) for repeats in cells.values()), default=0) == 1:
        caveats.append(CaveatView("one_run", "note", _ONE_RUN))
    return StudyFinding(
        run_id=run_id,
        study=design.name,
        title=design.title,
        phases=phases,
        base=first if first in phases and len(phases) > 1 else None,
        clients=len(set(strings(result, "client"))),
        rows=tuple(rows),
        expectations=expectations,
        is_judged=is_judged,
        sentence=_sentence(expectations, is_judged=is_judged),
        caveats=run_caveats(tables, caveats),
    )


def _cell(
    phase: str, step_key: str, rounds: Mapping[int, _Repeat], base: Mapping[int, _Repeat], first: str
) -> StudyCell:
    repeats = list(rounds.values())
    result = pa.concat_tables([repeat.result for repeat in repeats]) if repeats else table_of({}, Result.TABLE)
    count = total(result, "io_count")
    latencies, counts = floats(result, "latency_ns_mean"), floats(result, "io_count")
    latency = float(np.nansum(latencies * counts) / count) if count else None
    rates = [repeat.figures.iops for repeat in repeats]
    # One measurement has no interval; its samples are its clients.
    iops = bootstrap.median(rates) if len(repeats) > 1 else bootstrap.Estimate(*rates[:1] or (None,))
    samples = iops.samples or result.num_rows
    block_bytes = repeats[0].step.block_size_bytes if repeats else 0
    bandwidth, low, high = (None if v is None else v * block_bytes for v in (iops.value, iops.low, iops.high))
    return StudyCell(
        phase=phase,
        step_key=step_key,
        iops=Figure(iops.value, "1/s", iops.low, iops.high, samples=samples),
        bandwidth_bytes_per_s=Figure(bandwidth, "bytes/s", low, high, samples=samples),
        latency_ns_mean=Figure(latency, "ns", samples=result.num_rows),
        ratio=_NO_RATIO if phase == first else _ratio(base, rounds),
        read_hit_ratio=_hit_ratio(repeats) if "read" in strings(result, "direction") else None,
    )


def _hit_ratio(repeats: Sequence[_Repeat]) -> float | None:
    """Return the share of the bytes that the OSDs read from their caches and that were cached.

    What an OSD reads for the sake of a write is no read of a client, so it is not asked for where clients only write.
    """
    read, hit = (sum(total(repeat.caches, f"read_{name}") for repeat in repeats) for name in ("bytes", "hit_bytes"))
    return hit / read if read else None


def _ratio(base: Mapping[int, _Repeat], rounds: Mapping[int, _Repeat]) -> Figure:
    """Return the ratio of all clients' IOPS.

    Its interval is of the repeats, each compared with the base's of the same round; of one repeat it is of the clients,
    each compared with itself: its image stays the same.
    """
    pairs = [(base[number], repeat) for number, repeat in rounds.items() if number in base]
    # A generator that ran for less than its clock can tell reports I/Os and no rate.
    pairs = [(before, after) for before, after in pairs if before.figures.iops > 0]
    ratios = [after.figures.iops / before.figures.iops for before, after in pairs]
    if len(ratios) != 1:
        return bootstrap.median(ratios).figure(_TIMES)
    before, after = (repeat.of_clients for repeat in pairs[0])
    each = [iops / before[client] for client, iops in after.items() if before.get(client, 0) > 0]
    return bootstrap.median(each, at=ratios[0]).figure(_TIMES)


def _steal_of(repeats: Mapping[int, _Repeat]) -> float | None:
    ratios = [r.figures.host_steal_ratio for r in repeats.values() if r.figures.host_steal_ratio is not None]
    return sum(ratios) / len(ratios) if ratios else None


def _judge(
    expectation: Expectation,
    rows: Sequence[StudyRow],
    base: str,
    steal: Mapping[tuple[str, str], float],
    reasons: Mapping[tuple[str, str], str],
) -> ExpectationView:
    """Judge an expectation. `steal`: (phase, pattern) → share of the time in which processors waited for a hypervisor.
    `reasons`: why there is no figure.

    A load that uses up the processors is slower by as much as it waits for them. Where the ratio would be on the other
    side of what was expected without that, it is not judged.
    """
    pattern, phase, wanted = expectation.pattern, expectation.phase, expectation.ratio_min
    cells = [cell for row in rows if row.pattern == pattern for cell in row.cells]
    ratio = next((cell.ratio for cell in cells if cell.phase == phase), _NO_RATIO)
    words = f"at least {three_digits(wanted)} × was expected"
    if ratio.value is None:
        refused = [(name, reasons[name, pattern]) for name in (phase, base) if (name, pattern) in reasons]
        text = f"{phase} {pattern} was not measured, or {base} was not; {words}"
        if refused:
            text = f"{refused[0][0]} {pattern} has no figure: {refused[0][1]}; {words}"
        return ExpectationView(pattern, phase, wanted, ratio, None, text)
    met: bool | None = ratio.value >= wanted
    is_certain = ratio.low is None or ratio.high is None or not ratio.low < wanted <= ratio.high
    result = f"{'met' if met else 'not met'}{'' if is_certain else ', not certain'}"
    before, after = (steal.get((name, pattern), 0.0) for name in (base, phase))
    if max(before, after) >= STEAL_MIN and met is not (ratio.value * (1 - before) >= wanted * (1 - after)):
        met = None
        shares = f"{format_percent(after)} of the time in {phase}, {format_percent(before)} in {base}"
        result = f"cannot tell: the processors waited for the hypervisor {shares} (steal)"
    text = f"{phase} {pattern} has {three_digits(ratio.value)} × the IOPS of {base}; {words}: {result}"
    return ExpectationView(pattern, phase, wanted, ratio, met, text)


def _sentence(expectations: Sequence[ExpectationView], *, is_judged: bool) -> str:
    met = sum(expectation.met is True for expectation in expectations)
    unknown = sum(expectation.met is None for expectation in expectations)
    words = f"{met} of {len(expectations)} expectations are met" + (f", {unknown} cannot be judged" if unknown else "")
    return words if is_judged else f"{words}; they are for a lab with simulated disks, so they are only reported here"


def _failures(result: pa.Table) -> list[CaveatView]:
    failed, done = total(result, "error_count"), total(result, "io_count")
    if not failed:
        return []
    text = f"{failed:.0f} I/Os failed ({format_percent(failed / max(1.0, failed + done))} of all)."
    return [CaveatView("failed_ios", "warning", text)]


def _of_steps(tables: Tables, of_steps: Mapping[int, Tables], steps: Sequence[Step]) -> Iterator[CaveatView]:
    """Yield why steps were refused, and their warnings.

    That a cache answered is no warning where caches over OSDs were looked at: their hits are shown.
    """
    keys = {step.step_index: step.step_key for step in steps}
    for caveat in from_table(Caveat, table_of(tables, Caveat.TABLE)):
        is_shown = caveat.severity != "note" or caveat.code == STOPPED_WHEN_PRECISE
        if caveat.step_index not in keys or not is_shown:
            continue
        cached = table_of(of_steps[caveat.step_index], CacheSample.TABLE).num_rows > 0
        # Steal is told of all steps together, and failed I/Os are.
        if caveat.code not in ("cpu_steal", "io_errors", *(_OF_CACHES if cached else ())):
            yield CaveatView(caveat.code, caveat.severity, caveat.text, (keys[caveat.step_index],))


def _steal(steal: Mapping[tuple[str, str], float]) -> list[CaveatView]:
    (phase, pattern), most = max(steal.items(), key=lambda item: item[1], default=(("", ""), 0.0))
    if most < STEAL_MIN:
        return []
    text = (
        f"The processors waited for the hypervisor for {format_percent(min(steal.values()))} to {format_percent(most)} "
        f"of the time of a step (steal), longest in {phase} {pattern}."
    )
    return [CaveatView("cpu_steal", "warning" if most >= STEAL_LIMIT else "note", text)]
