"""/proc of the machines of a cluster's other OSDs, over ssh: what `proc` reads here, by their own clocks corrected.

A machine costs only its own figures. One that gave no reading at the beginning or at the end gives no rows at all:
figures of a part of the time must not pass for all of it. A gap in between is no loss, since counters go on.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from bathyscope.errors import ParseError
from bathyscope.fields import last_line, parsing
from bathyscope.host import NodeRequest, Request
from bathyscope.host.ssh import ssh_argv
from bathyscope.records import RawAnswer, Record, Tables, schema_of
from bathyscope.sources import proc
from bathyscope.sources.node_clock import clock_of
from bathyscope.sources.nodes import access_to, load_on
from bathyscope.sources.shape import Source
from bathyscope.spec.scope import Scope, ScopeNode

_LABEL = "proc-"


class NodeProc:
    """/proc/stat, diskstats, net/dev, and /proc/PID/stat of the OSDs that were found on each machine."""

    name = "node_proc"
    records = proc.SOURCE.records
    period_s = 0.2
    timeout_s = 2.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one question for each machine."""
        return [
            NodeRequest(
                f"{_LABEL}{node.name}",
                ssh_argv(access_to(scope.target, node.name), node.name),
                {"paths": list(proc.paths([d.pid for d in node.daemons] + [pid for _, pid in load_on(node, scope)]))},
                self.timeout_s,
            )
            for node in scope.nodes
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return a row for each device, process and interface, and pair of consecutive readings of its machine."""
        tables: dict[type[Record], list[pa.Table]] = {r: [schema_of(r).empty_table()] for r in self.records}
        for node in scope.nodes:
            try:
                node_tables = _node_tables(_of_node(answers, node), node, scope)
            except ParseError:
                # `caveats` says so.
                continue
            for record, table in node_tables.items():
                tables[record].append(table)
        return {record: pa.concat_tables(parts) for record, parts in tables.items()}


SOURCE: Source = NodeProc()


def caveats(answers: Sequence[RawAnswer], scope: Scope) -> list[str]:
    """Return a sentence for each machine whose figures are missing, or have gaps."""
    sentences = []
    for node in scope.nodes if answers else ():
        of_node = _of_node(answers, node)
        failed = [answer for answer in of_node if answer.exit_code != 0]
        why = f"no reading failed, {len(of_node)} were taken"
        if failed:
            why = f"{len(failed)} of {len(of_node)} readings failed: {last_line(failed[-1].stderr)}"
        try:
            rows = sum(table.num_rows for table in _node_tables(of_node, node, scope).values())
        except ParseError as error:
            rows, why = 0, error.message
        if not rows:
            sentences.append(f"{node.name} has no processor and device figures: {why}")
        elif failed:
            sentences.append(f"{node.name} was sampled more rarely: {why}")
    return sentences


def _of_node(answers: Sequence[RawAnswer], node: ScopeNode) -> list[RawAnswer]:
    return [answer for answer in answers if answer.label == f"{_LABEL}{node.name}"]


def _node_tables(answers: Sequence[RawAnswer], node: ScopeNode, scope: Scope) -> Tables:
    """Return the rows of one machine. Raises ParseError."""
    clock = clock_of(answers)
    whole = bool(answers) and answers[0].exit_code == 0 and answers[-1].exit_code == 0
    with parsing(f"/proc of {node.name}"):
        good = [answer for answer in answers if answer.exit_code == 0] if clock is not None and whole else []
        readings = [] if clock is None else [proc.Reading.of(answer, clock.ours_ns(answer)) for answer in good]
        machine = proc.Sampled(
            node.name, node.daemons, node.clock_ticks_per_s, node.page_bytes, node.links,
            processes=load_on(node, scope),
        )  # fmt: skip
        return proc.samples(readings, machine)
