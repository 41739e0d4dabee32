"""The machines of a cluster's other OSDs, seen by a Prometheus: which node_exporter is whose, and how its clock goes.

A machine is known by the name that its OSDs report, its node_exporter by `nodename` of `node_uname_info`, which is the
same name of the same kernel; where no such label is there, by the host part of `instance`. A machine that no series is
found for, or several are, is left out, and `caveats` names it.
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bathyscope.errors import ParseError
from bathyscope.fields import as_dict, as_float, as_list, last_line, parsing
from bathyscope.host import HttpRequest, Request
from bathyscope.records import EnvironmentFact, RawAnswer, Record, Tables
from bathyscope.sources.facts import fact_table, latest
from bathyscope.sources.node_clock import clock_of
from bathyscope.sources.nodes import elsewhere
from bathyscope.sources.shape import Source
from bathyscope.spec import PrometheusAccess
from bathyscope.spec.scope import Scope, ScopeExporter

CLOCK = "prometheus_clock"
_UNAME = "node_uname_info"
_EXCHANGES = 4
_NAMED_MAX = 8
_LABEL_MAX = 255


class Exporters:
    """`node_uname_info`, and several round trips to Prometheus."""

    name = "exporters"
    records: tuple[type[Record], ...] = (EnvironmentFact,)
    period_s = 300.0
    timeout_s = 12.0
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return the questions, when OSDs are on other machines; none without a Prometheus."""
        access = scope.target.prometheus
        if access is None or not elsewhere(scope):
            return []
        return [
            query(access, _UNAME, selector(_UNAME, access.match), self.timeout_s),
            *(query(access, f"{CLOCK}-{n}", "time()", self.timeout_s) for n in range(_EXCHANGES)),
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return how the clock of Prometheus goes against ours, and whose series were found."""
        return {EnvironmentFact: fact_table(_facts(answers, scope))}


SOURCE: Source = Exporters()


def query(access: PrometheusAccess, label: str, expression: str, timeout_s: float) -> HttpRequest:
    """Return an instant query, at the server's own time."""
    url = access.url.rstrip("/") + "/api/v1/query"
    return HttpRequest(label, url, (("query", expression),), access.auth, timeout_s)


def selector(metrics: str, labels: Mapping[str, str], *more: tuple[str, str, str]) -> str:
    """Return a selector of PromQL. `metrics` is an expression of names, `more` are (label, operator, value)."""
    words = [("__name__", "=~", metrics), *((name, "=", value) for name, value in labels.items()), *more]
    # Strings of PromQL have the escapes of Go, which are those of JSON for what JSON escapes.
    return f"{{{','.join(f'{name}{sign}{json.dumps(value)}' for name, sign, value in words)}}}"


def result_of(answer: RawAnswer, kind: str) -> list[Any]:
    """Return the result of a query: series for a "vector" or a "matrix", [time, value] for a "scalar".

    Raises ParseError.
    """
    with parsing(answer.label):
        data = as_dict(as_dict(answer.json())["data"])
        if data["resultType"] != kind:
            raise ParseError(f"{answer.label}: Prometheus answered with {data['resultType']!r:.40}, not a {kind}")
        return as_list(data["result"])


def times(answer: RawAnswer) -> tuple[int, int]:
    """Return the time of Prometheus in an answer to `time()`, twice: it has no length. Raises ParseError."""
    with parsing(answer.label):
        # Milliseconds: as nanoseconds a float would not hold them.
        at_ns = round(as_float(result_of(answer, "scalar")[1]) * 1000) * 1_000_000
    return at_ns, at_ns


def exporters_of(answers: Sequence[RawAnswer], scope: Scope) -> tuple[ScopeExporter, ...]:
    """Return the machines that exactly one node_exporter's series are found for, by the latest answer."""
    return tuple(
        ScopeExporter(name=name, instance=labels[0][0], job=labels[0][1])
        for name, labels in _matches(answers, scope).items()
        if len(labels) == 1
    )


def problem(answers: Sequence[RawAnswer]) -> str | None:
    """Return why Prometheus gave no answer that can be used, or None."""
    answer = next((answer for answer in reversed(answers) if answer.label == _UNAME), None)
    if answer is None:
        return None
    if answer.exit_code != 0:
        return last_line(answer.stderr)
    try:
        result_of(answer, "vector")
    except ParseError as error:
        return error.message
    return None


def caveats(answers: Sequence[RawAnswer], scope: Scope) -> list[str]:
    """Return a sentence for each machine with OSDs that Prometheus gives no figures of, and why."""
    if not answers:
        return []
    matches, failed, sentences = _matches(answers, scope), problem(answers), []
    for name, osds in sorted(elsewhere(scope).items()):
        labels = matches.get(name, [])
        if len(labels) == 1:
            continue
        if failed is not None:
            why = f"Prometheus gave no answer: {failed}"
        elif labels:
            seen = ", ".join(f"{instance} of job {job}" for instance, job in labels[:3])
            why = f"Prometheus has several node_exporters of this name ({seen}); choose with --prometheus-match"
        else:
            why = f"Prometheus has no {_UNAME} of this name"
        numbers = [f"osd.{osd.osd}" for osd in osds]
        more = f" and {len(numbers) - _NAMED_MAX} more" if len(numbers) > _NAMED_MAX else ""
        named = ", ".join(numbers[:_NAMED_MAX]) + more
        sentences.append(f"{name or 'a machine without a name'} was not sampled for {named}: {why}")
    return sentences


def _matches(answers: Sequence[RawAnswer], scope: Scope) -> dict[str, list[tuple[str, str]]]:
    """Return machine with OSDs → (instance, job) of the node_exporters that may be its own.

    By the full name, else by its first part, where that names one machine on both sides.
    """
    answer = latest(answers).get(_UNAME)
    if answer is None or answer.exit_code != 0:
        return {}
    try:
        seen = _seen(answer)
    except ParseError:
        # `caveats` says so.
        return {}
    machines = [name for name in elsewhere(scope) if name]
    short = collections.Counter(_first_part(name) for name in machines)
    by_part: dict[str, set[str]] = collections.defaultdict(set)
    for name in seen:
        by_part[_first_part(name)].add(name)
    matches = {}
    for name in sorted(machines):
        part = _first_part(name)
        alike = by_part.get(part, set())
        exporters = seen.get(name) or (seen[next(iter(alike))] if len(alike) == 1 and short[part] == 1 else None)
        if exporters:
            matches[name] = sorted(exporters)
    return matches


def _seen(answer: RawAnswer) -> dict[str, set[tuple[str, str]]]:
    """Return name of a machine → (instance, job) of the series that have it. Raises ParseError."""
    seen: dict[str, set[tuple[str, str]]] = collections.defaultdict(set)
    with parsing(_UNAME):
        for series in result_of(answer, "vector"):
            labels = as_dict(as_dict(series)["metric"])
            instance, job = (str(labels.get(name, "")) for name in ("instance", "job"))
            host = re.sub(r"^\[|\]?(:\d+)?$", "", instance)
            name = str(labels.get("nodename") or host)
            if max(map(len, (name, instance, job))) <= _LABEL_MAX:
                seen[name].add((instance, job))
    return dict(seen)


def _first_part(name: str) -> str:
    return name.partition(".")[0].lower()


def _facts(answers: Sequence[RawAnswer], scope: Scope) -> Iterator[tuple[str, str, str]]:
    """Yield (subject, name, value)."""
    for exporter in exporters_of(answers, scope):
        yield f"node {exporter.name}", "node_exporter", exporter.instance
    clock = clock_of((a for a in answers if a.label.startswith(CLOCK)), times)
    if clock is not None:
        yield "prometheus", "clock_offset_ns", str(clock.offset_ns)
        yield "prometheus", "clock_error_ns", str(clock.error_ns)
