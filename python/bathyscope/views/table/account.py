"""The account of one load in a terminal: what limits it, each ceiling, and where its latency is spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console

from bathyscope.records import CLIENTS
from bathyscope.records.account import Account, ForeignWork, Prediction
from bathyscope.records.explain_finding import AccountFinding
from bathyscope.records.figure import Figure
from bathyscope.records.finding import Evidence, PointFinding
from bathyscope.units import format_duration_ns, format_percent
from bathyscope.views import Options, figures, labels
from bathyscope.views.account_words import (
    NOT_KNOWN,
    by_node,
    capacity_text,
    demand_text,
    evidence_text,
    in_order,
    known_text,
    little,
    nearest_of_each,
    place,
    sources,
    standing_out,
    throttle_text,
)
from bathyscope.views.cells import shortened
from bathyscope.views.refusal import is_shown, why_refused
from bathyscope.views.table.fitting import fitting
from bathyscope.views.table.terminal import console, print_wrapped, text

_OSDS_MAX = 10
_CEILINGS_OF_A_KIND = 3
_WIDTH_MAX = 120
_CEILINGS = ("resource", "one I/O takes", "capacity", "ceiling IOPS", "reached")
# The bar has no heading.
_PARTS = ("place", "latency", "share", " ")
_OSDS = ("OSD", "host", "I/Os", "even", "time", "own part")
_OSDS_LEGEND = (
    "I/Os, time: its share of the I/Os and of their time in OSDs. even: the share that its CRUSH weight gives. "
    "own part: how long its own part of an I/O takes."
)
_FOREIGN = ("work", "rate", "of the load's")
_NAME_LENGTH_MIN = 16
# The columns of figures beside the name of a resource.
_FIGURES_WIDTH = 54
_BAR_WIDTH_MAX = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def write(finding: AccountFinding, stream: TextIO, options: Options) -> None:
    """Print the verdict, the account, and what each change would bring."""
    out = console(stream, options)
    width = min(out.width, _WIDTH_MAX)
    point = finding.point
    of_run = f"run {finding.run_id} on {finding.target}"
    is_recorded = point.layer == CLIENTS
    about = (
        f"what clients did in {of_run}" if is_recorded else f"{point.step_key} ({labels.pattern(point)}) of {of_run}"
    )
    print_wrapped("", about, out, width, "dim")
    out.print()
    if not is_shown(point):
        print_wrapped("", f"{point.status}: {why_refused(point)}", out, width, "red")
        return
    print_wrapped("", point.verdict.sentence, out, width, "bold")
    if point.verdict.next_step:
        print_wrapped("Next: ", point.verdict.next_step, out, width, "green")
    if point.account is None:
        out.print()
        why = "this load went through no OSD" if not point.on_cluster else "the run recorded too little for it"
        print_wrapped("", f"There is no account of its resources: {why}.", out, width)
    else:
        _print_account(point.account, out, width, is_recorded=is_recorded)
    _print_facts("Also considered", point.verdict.alternatives, out, width)
    _print_facts("Evidence", point.verdict.evidence, out, width)
    for prediction in finding.predictions:
        _print_prediction(prediction, out, width)
    _print_caveats(point, out, width)


def _print_account(account: Account, out: Console, width: int, *, is_recorded: bool) -> None:
    _print_ceilings(account, out, width)
    _print_parts(account, out, width)
    _print_osds(account, out, width)
    for throttle in account.throttles:
        print_wrapped("  ", throttle_text(throttle), out, width)
    if account.foreign:
        _print_heading("Work that is not the load's", out)
        rows = [("", [_foreign_name(work), _rate(work.rate), _foreign_share(work)]) for work in account.foreign]
        out.print(fitting(_FOREIGN, rows, out, ("of the load's",)))
        for work in account.foreign:
            print_wrapped("  ", work.sentence, out, width)
    # What clients have in flight is known by this law alone.
    if not is_recorded:
        _print_heading("Little's law", out)
        print_wrapped("", little(account), out, width)


def _print_ceilings(account: Account, out: Console, width: int) -> None:
    rate = f"{known_text(account.iops)} {figures.plus_minus(account.iops)}".rstrip() + " IOPS"
    _print_heading(f"Ceilings (measured: {rate})", out)
    if not account.ceilings:
        print_wrapped("", "No resource was seen.", out, width)
        return
    shown = nearest_of_each(in_order(account), _CEILINGS_OF_A_KIND)
    rows = [
        (
            "" if one in account.limits else "dim",
            [
                shortened(labels.clean(one.words), max(_NAME_LENGTH_MIN, width - _FIGURES_WIDTH)),
                demand_text(one.demand),
                capacity_text(one),
                f"{known_text(one.iops)} {figures.plus_minus(one.iops)}".rstrip(),
                known_text(one.reached),
            ],
        )
        for one in shown
    ]
    out.print(fitting(_CEILINGS, rows, out, ("capacity", "one I/O takes")))
    if len(shown) < len(account.ceilings):
        more = len(account.ceilings) - len(shown)
        print_wrapped("  ", f"and {more} more of the same kinds; --output csv has them all", out, width, "dim")
    for source, names in sources(account):
        print_wrapped("  ", f"capacity from {source}: {_joined(names)}", out, width, "dim")
    harmless = [one.words for one in account.ceilings if not one.binding]
    if harmless:
        print_wrapped("  ", f"holds nothing back when reached: {_joined(harmless)}", out, width, "dim")
    unknown = [one.words for one in account.ceilings if one.capacity.value is None]
    if unknown:
        print_wrapped("  ", f"capacity not known: {_joined(unknown)}", out, width, "yellow")


def _joined(names: Sequence[str]) -> str:
    shown = 3
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _print_parts(account: Account, out: Console, width: int) -> None:
    if not account.parts:
        return
    _print_heading(f"Where the latency is (mean: {known_text(account.latency_ns)})", out)
    longest = max(len(place(part.place).title) for part in account.parts)
    bar_width = max(8, min(_BAR_WIDTH_MAX, width - longest - 24))
    rows = [
        (
            "",
            [
                place(part.place).title,
                known_text(part.latency_ns),
                known_text(part.share),
                _bar(part.share.value, bar_width),
            ],
        )
        for part in account.parts
    ]
    out.print(fitting(_PARTS, rows, out, (" ",), words=frozenset({" "})))


def _bar(share: float | None, width: int) -> str:
    """Return a bar of at most `width` characters, exact to an eighth of one."""
    whole, eighths = divmod(round(8 * width * min(max(share or 0.0, 0.0), 1.0)), 8)
    return ("█" * whole + _EIGHTHS[eighths]).rstrip()


def _print_osds(account: Account, out: Console, width: int) -> None:
    if not account.osds:
        return
    shown = standing_out(account.osds, _OSDS_MAX)
    more = len(account.osds) - len(shown)
    _print_heading("What each OSD does" if not more else f"The {len(shown)} OSDs that stand out most", out)
    rows = [
        (
            "",
            [
                f"osd.{one.osd}",
                labels.machine(one.host),
                known_text(one.op_share),
                format_percent(one.expected_share),
                known_text(one.in_flight_share),
                known_text(one.own_ns),
            ],
        )
        for one in shown
    ]
    out.print(fitting(_OSDS, rows, out, ("host", "even"), words=frozenset({"host"})))
    if more:
        print_wrapped("  ", f"and {more} more; --output csv has them all", out, width, "dim")
    if nodes := by_node(account.osds):
        print_wrapped("  ", nodes, out, width)
    print_wrapped("  ", _OSDS_LEGEND, out, width, "dim")


def _foreign_name(work: ForeignWork) -> str:
    return f"{work.kind} ({work.subject})" if _is_of_machine(work) else work.subject or work.kind


def _foreign_share(work: ForeignWork) -> str:
    """Return the share of the load's own; that of a machine's processors is in the sentence."""
    return figures.NOT_APPLICABLE if _is_of_machine(work) else _share(work.share)


def _is_of_machine(work: ForeignWork) -> bool:
    return work.rate.unit == "cores"


def _rate(figure: Figure) -> str:
    """Return a rate of foreign work, with its unit."""
    return f"{known_text(figure)} I/Os/s" if figure.unit == "1/s" and figure.value is not None else known_text(figure)


def _share(figure: Figure) -> str:
    return figures.NOT_APPLICABLE if figure.value is None else known_text(figure)


def _print_facts(heading: str, facts: Iterable[Evidence], out: Console, width: int) -> None:
    lines = [f"{evidence_text(one)} {_range(one.figure)}".rstrip() for one in facts]
    if lines:
        _print_heading(heading, out)
    for line in lines:
        print_wrapped("  ", line, out, width)


def _range(figure: Figure) -> str:
    span = figures.range_text(figure)
    return f"({span})" if span else ""


def _print_prediction(prediction: Prediction, out: Console, width: int) -> None:
    _print_heading(f"What if {labels.clean(prediction.change)}", out)
    rate = f"{known_text(prediction.iops)} IOPS {_range(prediction.iops)}".rstrip()
    change = figures.change_text(prediction.ratio.value)
    latency = prediction.latency_ns.value
    each = NOT_KNOWN if latency is None else f"{format_duration_ns(latency)} each"
    print_wrapped("  ", f"{rate}, {change}, {each}; the nearest ceiling then: {prediction.limit}", out, width, "bold")
    print_wrapped("  ", prediction.sentence, out, width)
    for assumption in prediction.assumptions:
        print_wrapped("  assumed: ", assumption, out, width, "dim")


def _print_caveats(point: PointFinding, out: Console, width: int) -> None:
    if point.caveats:
        _print_heading("Caveats", out)
    for caveat in sorted(point.caveats, key=lambda one: one.rank):
        style = {"refused": "red", "warning": "yellow"}.get(caveat.severity, "")
        print_wrapped("  ", f"{caveat.severity}: {caveat.text} ({caveat.code})", out, width, style)


def _print_heading(heading: str, out: Console) -> None:
    out.print()
    out.print(text(heading, "bold cyan"))
