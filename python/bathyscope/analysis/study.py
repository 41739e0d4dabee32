"""A study: the same access patterns in every phase, compared with the first phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bathyscope.analysis import bootstrap
from bathyscope.analysis.columns import Tables, floats, ints, strings, table_of, total, where
from bathyscope.analysis.foreign import STEAL_LIMIT, STEAL_MIN
from bathyscope.records.figure import Figure
from bathyscope.records.finding import CaveatView
from bathyscope.records.study_finding import ExpectationView, StudyCell, StudyFinding, StudyRow
from bathyscope.spec.study import Expectation, StudyDesign
from bathyscope.units import format_percent, three_digits

_TIMES = "×"
_NO_RATIO = Figure(None, _TIMES)


def build(
    tables: Tables, design: StudyDesign, run_id: str, caveats: Sequence[tuple[str, str]], *, is_judged: bool
) -> StudyFinding:
    """Return the finding of a study. `tables` needs `study_step` and `result`; `caveats` are those of the target.

    A step that was made again (another one of the same phase and pattern) replaces the earlier one.
    Nothing is expected of a pattern that no phase has.
    """
    steps = {(row["phase"], row["pattern"]): row for row in table_of(tables, "study_step").to_pylist()}
    result = table_of(tables, "result")
    phases = tuple(phase for phase in design.phases if any(known == phase for known, _ in steps))
    rows = []
    for pattern in dict.fromkeys(pattern for _, pattern in steps):
        results = {
            phase: where(result, step_index=steps[phase, pattern]["step_index"])
            for phase in phases
            if (phase, pattern) in steps
        }
        base = results.get(design.phases[0])
        cells = [
            _cell(phase, steps[phase, pattern], own, base if phase != design.phases[0] else None)
            for phase, own in results.items()
        ]
        rows.append(StudyRow(pattern, tuple(cells)))
    measured = {row.pattern for row in rows}
    known = {cell: step["cpu_steal_ratio"] for cell, step in steps.items()}
    steal = {cell: ratio for cell, ratio in known.items() if ratio is not None}
    expectations = tuple(
        _judge(one, rows, design.phases[0], steal) for one in design.expectations if one.pattern in measured
    )
    shown = [CaveatView(code, "note", text) for code, text in (*caveats, *design.caveats)]
    return StudyFinding(
        run_id=run_id,
        study=design.name,
        title=design.title,
        phases=phases,
        base=design.phases[0] if design.phases[0] in phases and len(phases) > 1 else None,
        clients=len(set(strings(result, "client"))),
        rows=tuple(rows),
        expectations=expectations,
        is_judged=is_judged,
        sentence=_sentence(expectations, is_judged=is_judged),
        caveats=(*_failures(result), *_steal(steal), *shown),
    )


def _cell(phase: str, step: dict[str, Any], own: pa.Table, base: pa.Table | None) -> StudyCell:
    count, iops = total(own, "io_count"), _iops(own)
    latencies, counts = floats(own, "latency_ns_mean"), floats(own, "io_count")
    latency = float(np.nansum(latencies * counts) / count) if count else None
    read_bytes, hit_bytes = step["cache_read_bytes"], step["cache_read_hit_bytes"]
    # What an OSD reads for the sake of a write is no read of a client.
    is_read = "read" in strings(own, "direction")
    hit = hit_bytes / read_bytes if is_read and read_bytes and hit_bytes is not None else None
    bandwidth = None if iops is None else iops * step["block_size_bytes"]
    return StudyCell(
        phase=phase,
        iops=Figure(iops, "1/s", samples=own.num_rows),
        bandwidth_bytes_per_s=Figure(bandwidth, "bytes/s", samples=own.num_rows),
        latency_ns_mean=Figure(latency, "ns", samples=own.num_rows),
        ratio=_NO_RATIO if base is None else _ratio(base, own),
        read_hit_ratio=hit,
    )


def _iops(results: pa.Table) -> float | None:
    """Return the I/Os of all clients over the longest time that one of them took: no client counts after its end."""
    longest_ns = int(ints(results, "runtime_ns").max(initial=0))
    return total(results, "io_count") / longest_ns * 1e9 if longest_ns else None


def _ratio(base: pa.Table, own: pa.Table) -> Figure:
    """Return the ratio of all clients' IOPS; its interval is of each client's own: its image stays the same."""
    below, above = _iops(base), _iops(own)
    if not below or not above:
        return _NO_RATIO
    before, after = (dict(zip(strings(one, "client"), floats(one, "iops"), strict=True)) for one in (base, own))
    ratios = [iops / before[client] for client, iops in after.items() if before.get(client, 0) > 0]
    return bootstrap.median(ratios, at=above / below).figure(_TIMES)


def _judge(
    expectation: Expectation, rows: Sequence[StudyRow], base: str, steal: Mapping[tuple[str, str], float]
) -> ExpectationView:
    """Judge an expectation. `steal`: (phase, pattern) → share of the time in which processors waited for a hypervisor.

    A load that uses up the processors is slower by as much as it waits for them. Where the ratio would be on the other
    side of what was expected without that, it is not judged.
    """
    pattern, phase, wanted = expectation.pattern, expectation.phase, expectation.ratio_min
    cells = [cell for row in rows if row.pattern == pattern for cell in row.cells]
    ratio = next((cell.ratio for cell in cells if cell.phase == phase), _NO_RATIO)
    words = f"at least {three_digits(wanted)} × was expected"
    if ratio.value is None:
        text = f"{phase} {pattern} was not measured, or {base} was not; {words}"
        return ExpectationView(pattern, phase, wanted, ratio, None, text)
    met: bool | None = ratio.value >= wanted
    is_certain = ratio.low is None or ratio.high is None or not ratio.low < wanted <= ratio.high
    result = f"{'met' if met else 'not met'}{'' if is_certain else ', not certain'}"
    before, after = (steal.get((one, pattern), 0.0) for one in (base, phase))
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


def _steal(steal: Mapping[tuple[str, str], float]) -> list[CaveatView]:
    (phase, pattern), most = max(steal.items(), key=lambda item: item[1], default=(("", ""), 0.0))
    if most < STEAL_MIN:
        return []
    text = (
        f"The processors waited for the hypervisor for {format_percent(min(steal.values()))} to {format_percent(most)} "
        f"of the time of a step (steal), longest in {phase} {pattern}."
    )
    return [CaveatView("cpu_steal", "warning" if most >= STEAL_LIMIT else "note", text)]
