"""What `bathy size` found, as a table, JSON or CSV: the advice first, then the curves that it rests on."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from rich.console import Console
from rich.padding import Padding

from bathyscope.errors import UsageError
from bathyscope.records.size_finding import SizeFinding, StabilityWindow
from bathyscope.views import csv, json
from bathyscope.views.labels import SEVERITY_ORDER
from bathyscope.views.size_tables import write_curves, write_details, write_groups, write_split
from bathyscope.views.size_words import is_advised, main_curve, trace_line
from bathyscope.views.terminal import console, text

_CALL_STYLES = {
    "worth it": "bold green", "wears out": "bold yellow", "not worth it": "bold yellow", "cannot tell": "bold yellow",
}  # fmt: skip
_BARS = "▁▂▃▄▅▆▇█"
_NOT_JUDGED = "·"


def write(
    finding: SizeFinding,
    output: str = "table",
    stream: TextIO | None = None,
    *,
    colour: bool | None = None,
    width: int | None = None,
) -> None:
    """Write `finding` to `stream` (default: stdout) as `output`: table, json or csv. Raises UsageError."""
    stream = sys.stdout if stream is None else stream
    match output:
        case "table":
            write_table(finding, console(stream, colour=colour, width=width))
        case "json":
            json.write(finding, stream)
        case "csv":
            csv.write(point_rows(finding), stream)
        case _:
            raise UsageError(f"'{output}' is not an output", hint="use table, json or csv")


def point_rows(finding: SizeFinding) -> list[dict[str, Any]]:
    """Return one flat row for each point of each curve; `mark` says which are the knee and the wanted size."""
    rows = []
    for curve in finding.curves:
        for point in curve.points:
            marks = [name for name, p in (("knee", curve.knee), ("wanted", curve.wanted)) if p is point]
            marks += ["advised"] if is_advised(finding, curve, point) else []
            rows.append(
                {
                    "group_kind": curve.group_kind,
                    "group_name": curve.group_name,
                    "line_bytes": curve.line_bytes,
                    "fetch_bytes": curve.fetch_bytes,
                    "policy": curve.policy,
                    "admission": curve.admission,
                    "method": curve.method,
                    "size_bytes": point.size_bytes,
                    "flash_bytes": point.flash_bytes,
                    "memory_bytes": point.memory_bytes,
                    "read_hit_ratio": point.read_hit.value,
                    "read_hit_ratio_low": point.read_hit.low,
                    "read_hit_ratio_high": point.read_hit.high,
                    "read_byte_hit_ratio": point.read_byte_hit,
                    "write_hit_ratio": point.write_hit,
                    "write_byte_hit_ratio": point.write_byte_hit,
                    "backing_reads_left": point.backing_reads_left,
                    "cold_read_ratio": curve.cold_read_ratio,
                    "cold_write_ratio": curve.cold_write_ratio,
                    "write_gap_ratio": curve.write_gap_ratio,
                    "fetch_amplification": point.fetch_amplification,
                    "flash_write_bytes_per_day": point.flash_write_bytes_per_day,
                    "life_years": point.life_years,
                    "latency_ns_mean": point.latency_ns_mean,
                    "latency_ns_p99": point.latency_ns_p99,
                    "cost": point.cost,
                    "read_requests": curve.read_requests,
                    "write_requests": curve.write_requests,
                    "working_set_bytes": curve.working_set_bytes,
                    "sampled_lines": curve.sampled_lines,
                    "mark": " ".join(marks),
                }
            )
    return rows


def write_table(finding: SizeFinding, out: Console) -> None:
    """Print the answer for people, within 80 columns."""
    out.print(text(finding.advice.sentence, _CALL_STYLES.get(finding.advice.call, "bold")))
    for reason in finding.advice.further_reasons:
        out.print(Padding(text(f"- {reason}"), (0, 0, 0, 2), expand=False))
    out.print(text(trace_line(finding), "dim"))
    main = main_curve(finding)
    for policy in dict.fromkeys(c.policy for c in finding.curves if c.group_kind == "all"):
        curves = [c for c in finding.curves if c.group_kind == "all" and c.policy == policy]
        write_curves(finding, curves, out)
    if main is not None and main.points:
        write_details(finding, main, out)
    write_groups(finding, main, out)
    write_split(finding, main, out)
    _stability(finding, out)
    out.print(text(finding.latency_sentence))
    if finding.cost_sentence:
        out.print(text(finding.cost_sentence))
    order = {name: place for place, name in enumerate(SEVERITY_ORDER)}
    for caveat in sorted(finding.caveats, key=lambda c: order.get(c.severity, 9)):
        out.print(text(f"{caveat.severity}: {caveat.text}", "yellow" if caveat.severity == "doubt" else "dim"))


def _bar(window: StabilityWindow) -> str:
    if window.read_hit_ratio is None or not window.judged:
        return _NOT_JUDGED
    return _BARS[min(7, int(8 * window.read_hit_ratio))]


def _stability(finding: SizeFinding, out: Console) -> None:
    out.print()
    out.print(text(finding.stability_sentence))
    if len(finding.stability) > 1:
        shown = finding.stability[-60:]
        bars = "".join(_bar(w) for w in shown)
        out.print(text(f"hits by window, 0 to 100%: {bars}", "dim"))
        if not all(w.judged for w in shown):
            out.print(text(f"{_NOT_JUDGED}: not counted, the cold first window and those of few reads", "dim"))
