"""The loads of a run in a terminal, a line for each: how far it is from its nearest ceiling."""

from __future__ import annotations

from typing import TextIO

from bathyscope.records.explain_finding import AccountsFinding
from bathyscope.records.finding import PointFinding
from bathyscope.views import Options, figures, labels
from bathyscope.views.account_words import nearest
from bathyscope.views.refusal import is_shown, why_refused
from bathyscope.views.table.fitting import fitting, shortened
from bathyscope.views.table.terminal import console, print_wrapped, text

_HEADINGS = ("step", "IOPS", "ceiling", "reached", "nearest ceiling", "verdict")
_WORDS = frozenset({"nearest ceiling", "verdict"})
# What is left out first where a terminal is narrow; JSON and CSV have all of it.
_DISPENSABLE = ("nearest ceiling", "ceiling", "verdict")
_WORDS_LENGTH = 28


def write(finding: AccountsFinding, stream: TextIO, options: Options) -> None:
    """Print a line for each load, then why some have no figures."""
    out = console(stream, options)
    out.print(text(f"run {finding.run_id} on {finding.target}", "dim"), soft_wrap=True)
    out.print()
    out.print(fitting(_HEADINGS, [_row(point) for point in finding.points], out, _DISPENSABLE, words=_WORDS))
    for point in finding.points:
        if not is_shown(point):
            print_wrapped(f"{labels.clean(point.step_key)}: ", why_refused(point), out, out.width, "red")
    out.print()
    if not any(map(nearest, finding.points)):
        print_wrapped("", "No load of this run has an account of its resources.", out, out.width)
        return
    legend = "ceiling: the IOPS at which the nearest resource has none left; reached: how much of it the load reaches."
    print_wrapped("", f"{legend} `bathy explain RUN STEP` prints the whole account.", out, out.width, "dim")


def _row(point: PointFinding) -> tuple[str, list[str]]:
    name = labels.clean(point.step_key)
    if not is_shown(point):
        return "red", [name, *[figures.NOT_APPLICABLE] * 4, labels.clean(point.status)]
    rate = f"{figures.compact(point.iops.value, point.iops.unit)} {figures.plus_minus(point.iops)}".rstrip()
    verdict = labels.limit(point.verdict)
    ceiling = nearest(point)
    if ceiling is None:
        return "", [name, rate, *[figures.NOT_APPLICABLE] * 3, verdict]
    found = [figures.compact(f.value, f.unit) for f in (ceiling.iops, ceiling.reached)]
    return "", [name, rate, *found, shortened(labels.clean(ceiling.words), _WORDS_LENGTH), verdict]
