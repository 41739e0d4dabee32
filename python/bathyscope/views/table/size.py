"""What `bathy size` found, for people: the advice first, then the curves that it rests on."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.padding import Padding

from bathyscope.records.size_finding import SizeFinding
from bathyscope.views import Options
from bathyscope.views.size_words import main_curve, trace_line
from bathyscope.views.table.size_tables import write_curves, write_details, write_groups, write_split
from bathyscope.views.table.terminal import console, text

_BARS = "▁▂▃▄▅▆▇█"
_NOT_JUDGED = "·"


def write(finding: SizeFinding, stream: TextIO, options: Options) -> None:
    """Print the advice with its reasons, the tables, the stability and the caveats."""
    out = console(stream, options)
    out.print(text(finding.advice.sentence, "bold green" if finding.advice.verdict == "worth it" else "bold yellow"))
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
    for sentence in (*finding.demand_sentences, finding.latency_sentence):
        out.print(text(sentence))
    if finding.cost_sentence:
        out.print(text(finding.cost_sentence))
    for caveat in sorted(finding.caveats, key=lambda c: c.rank):
        out.print(text(f"{caveat.severity}: {caveat.text}", "yellow" if caveat.severity == "warning" else "dim"))


def _stability(finding: SizeFinding, out: Console) -> None:
    out.print()
    out.print(text(finding.stability_sentence))
    if len(finding.stability) > 1:
        shown = finding.stability[-60:]
        bars = "".join(
            _NOT_JUDGED if w.read_hit_ratio is None or not w.judged else _BARS[min(7, int(8 * w.read_hit_ratio))]
            for w in shown
        )
        out.print(text(f"read hit ratio by window, 0 to 100%: {bars}", "dim"))
        if not all(w.judged for w in shown):
            out.print(text(f"{_NOT_JUDGED}: not counted (the first window is cold; others have few reads)", "dim"))
