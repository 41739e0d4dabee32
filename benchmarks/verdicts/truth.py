"""What a verdict must say, how one is judged, and the truth table. Nothing here needs a cluster."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Sequence

from bathyscope.records.finding import LadderFinding, PointFinding

NAMED_LEAST, WRONG_MOST, CLEAN_RUNS = 0.90, 0.02, 20
"""Of all judged loads with an injection: right at least, wrong at most. Runs without one that must name no cause."""
NO_CAUSE = frozenset({"nearest", "unknown", "idle", "queue", "replica_wait", "refused"})
"""Limits that name no cause: a queue and a wait for replicas are symptoms."""
OUTCOMES = ("right", "wrong", "none", "no figure")
CEILING_OFF_MOST = 0.15
"""Where an injected limit is named, how far the measured rate may be from the ceiling that is predicted for it."""

_RESOURCES = {
    "device": ("device", "bluefs_device"),
    "host_cpu": ("host_cpu",),
    "client_cpu": ("client_cpu", "client_thread"),
}
"""Names of `Ceiling.resource` of a limit, where they are not its own."""

_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


@dataclasses.dataclass(frozen=True, slots=True)
class Expect:
    """What is true of a load: the names of `Verdict.limit` that are right, and what the first sentence must name.

    `subject` is a regular expression ("osd\\.0"); empty where no name is needed.
    """

    limits: frozenset[str]
    subject: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """One load of one run, held against the truth."""

    case: str
    injected: bool
    pattern: str
    limit: str
    subject: str
    sentence: str
    expect: Expect
    outcome: str
    iops: float | None
    ceiling_iops: float | None = None

    @property
    def off_ceiling(self) -> float | None:
        """How far the rate is from the ceiling of the limit that is named; None where that is wrong, or has none."""
        if not self.injected or self.outcome != "right" or not self.iops or not self.ceiling_iops:
            return None
        return abs(self.iops / self.ceiling_iops - 1)


def first_sentence(text: str) -> str:
    """Return the first sentence. A full stop inside of a word (osd.0, 3.5) ends none."""
    end = _SENTENCE_END.search(text)
    return text if end is None else text[: end.end()]


def outcome(limit: str, sentence: str, expect: Expect) -> str:
    """Return whether the cause is named: right, wrong (another cause is) or none."""
    first = first_sentence(sentence)
    named = not expect.subject or re.search(rf"(?<![\w.]){expect.subject}(?!\w|\.\d)", first) is not None
    if limit in expect.limits and named:
        return "right"
    return "none" if limit in NO_CAUSE else "wrong"


def judge(case: str, expected: dict[str, Expect], finding: LadderFinding, *, injected: bool) -> list[Judged]:
    """Return every load of a run of `case`, in the order of the plan. A load that was not measured has no figure."""
    points = {(p.layer, p.pattern): p for group in finding.groups for p in group.points}
    by_pattern: dict[str, PointFinding] = {pattern: point for (_, pattern), point in points.items()}
    return [_judged(case, pattern, expect, by_pattern.get(pattern), injected) for pattern, expect in expected.items()]


def _judged(case: str, pattern: str, expect: Expect, point: PointFinding | None, injected: bool) -> Judged:
    if point is None:
        return Judged(case, injected, pattern, "", "", "", expect, "no figure", None)
    verdict, iops = point.verdict, point.iops.value
    found = outcome(verdict.limit, verdict.sentence, expect)
    # A load can be refused for the very reason that was injected. Any other that has no figure is a fault of the run.
    if iops is None and found != "right":
        found = "no figure"
    return Judged(
        case, injected, pattern, verdict.limit, verdict.subject, verdict.sentence, expect, found, iops, _ceiling(point)
    )


def _ceiling(point: PointFinding) -> float | None:
    """Return the ceiling of what the verdict names."""
    verdict, resources = point.verdict, _RESOURCES.get(point.verdict.limit, (point.verdict.limit,))
    for ceiling in point.account.ceilings if point.account is not None else ():
        if ceiling.resource in resources and verdict.subject in ("", ceiling.subject):
            return ceiling.iops.value
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Totals:
    """All judged loads against the bounds. A clean run is one without an injection, and a load of it."""

    counts: dict[str, int]
    clean_counts: dict[str, int]
    off_ceiling: tuple[float, ...] = ()

    @property
    def named_ratio(self) -> float:
        return self._ratio("right")

    @property
    def wrong_ratio(self) -> float:
        return self._ratio("wrong")

    @property
    def within_bounds(self) -> bool:
        """Whether causes are named often enough, wrong ones seldom and never in clean runs, and ceilings hold."""
        clean = self.clean_counts
        return (
            self.named_ratio >= NAMED_LEAST
            and self.wrong_ratio <= WRONG_MOST
            and not self.counts.get("no figure")
            and max(self.off_ceiling, default=0.0) <= CEILING_OFF_MOST
            and clean.get("right", 0) + clean.get("none", 0) == sum(clean.values())
        )

    def _ratio(self, outcome_: str) -> float:
        total = sum(self.counts.values())
        return self.counts.get(outcome_, 0) / total if total else 0.0


def totals(judged: Iterable[Judged]) -> Totals:
    found: dict[bool, collections.Counter[str]] = {True: collections.Counter(), False: collections.Counter()}
    off: list[float] = []
    for one in judged:
        found[one.injected][one.outcome] += 1
        if one.off_ceiling is not None:
            off.append(one.off_ceiling)
    return Totals(dict(found[True]), dict(found[False]), tuple(off))


def table(judged: Sequence[Judged]) -> str:
    """Return the truth table: a row for each case and load, over all its repeats."""
    rows: dict[tuple[str, str], list[Judged]] = {}
    for one in judged:
        rows.setdefault((one.case, one.pattern), []).append(one)
    lines = [f"{'case':<24}{'load':<20}{'right':>6}{'wrong':>6}{'none':>6}{'lost':>6}  what was named"]
    for (case, pattern), same in rows.items():
        count = collections.Counter(one.outcome for one in same)
        named = collections.Counter(" ".join(filter(None, (one.limit, one.subject))) or "-" for one in same)
        said = ", ".join(f"{name} ({n})" if n < len(same) else name for name, n in named.most_common())
        figures = "".join(f"{count[name]:>6}" for name in OUTCOMES)
        lines.append(f"{case:<24}{pattern:<20}{figures}  {said}")
    return "\n".join(lines) + "\n"


def totals_text(found: Totals, clean_runs: int) -> str:
    """Return the totals beside the bounds."""
    injected, clean = sum(found.counts.values()), sum(found.clean_counts.values())
    lines = [f"{injected} loads with an injection: {_counted(found.counts)}"]
    if injected:
        lines[0] += (
            f"; named {found.named_ratio:.0%} (at least {NAMED_LEAST:.0%}), "
            f"wrong {found.wrong_ratio:.0%} (at most {WRONG_MOST:.0%})"
        )
    near = sum(off <= CEILING_OFF_MOST for off in found.off_ceiling)
    lines.append(
        f"{len(found.off_ceiling)} ceilings of limits that were injected and named: {near} within "
        f"{CEILING_OFF_MOST:.0%} of the measured rate; all must be"
    )
    wanted = f" (at least {CLEAN_RUNS} runs)" if clean_runs < CLEAN_RUNS else ""
    lines.append(
        f"{clean} loads of {clean_runs} runs without one{wanted}: {_counted(found.clean_counts)}; wrong must be 0"
    )
    return "\n".join(lines) + "\n"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts.get(name)) or "nothing"
