"""The shape of a source: one file that asks one tool or interface and reads its answers.

A source plans requests from a scope, `recording` carries them out and keeps every answer verbatim, and the source reads
the answers to Arrow tables. Both of its methods are pure: a parser sees raw answers and a scope that was itself made
from raw answers, so it is tested on recorded bytes, and a run can be parsed again years later.

To add a source, add a file with a `SOURCE` of this shape; it is then discovered, and whoever records it gets its raw
answers, tables and cost stored. Which verb asks it, and how often, is the choice of that verb.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from bathyscope.fields import as_dict, parsing
from bathyscope.host import CephRequest, Request
from bathyscope.records import RawAnswer, Record, Tables, build_table, schema_of
from bathyscope.spec.scope import Scope

# When a daemon answered, in ns since the Unix epoch, and its JSON object.
Look = tuple[int, dict[str, Any]]


class Source(Protocol):
    """One source. `period_s` and `timeout_s` are defaults; a recorder's `Job` may change them.

    `differences`: a row says what is new since the collection before, so the recorder hands the last answers of one
    segment to the next one as its first. Rows that these give by themselves (a history has them) are the first of the
    table, and belong to the segment before.
    """

    name: str
    records: tuple[type[Record], ...]
    period_s: float
    timeout_s: float
    differences: bool

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return what to ask; empty when the scope has nothing for this source."""
        ...

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return the rows of any number of collections, their answers in order of time. Raises ParseError.

        An answer with an exit code other than 0 is no row and no error: the collection's own row counts it.
        """
        ...


class Columns:
    """The columns of a table while answers are read: plain lists, which become Arrow once."""

    def __init__(self, record: type[Record]) -> None:
        self._record = record
        self._lists: dict[str, list[Any]] = {name: [] for name in schema_of(record).names}

    def add(self, **values: Any) -> None:
        """Add a row: a value for every column of the record, but for optional ones that no row has."""
        for name, value in values.items():
            self._lists[name].append(value)

    def __getitem__(self, name: str) -> list[Any]:
        return self._lists[name]

    def table(self) -> pa.Table:
        """Return the table. Raises ParseError when a value does not fit its column: a sum beyond 64 bits, say."""
        with parsing(f"the table {self._record.TABLE}"):
            rows = max(map(len, self._lists.values()))
            return build_table(
                self._record, {name: values for name, values in self._lists.items() if values or not rows}
            )


def intervals(answers: Sequence[RawAnswer], label: str) -> Iterator[tuple[str, Look, Look]]:
    """Yield (daemon, earlier look, later look) of the answers LABEL-DAEMON, daemon by daemon: only two are in memory.

    A daemon that did not answer for a while has one longer interval. Raises ParseError.
    """
    by_daemon: dict[str, list[RawAnswer]] = {}
    for answer in answers:
        if answer.exit_code == 0 and answer.label.startswith(f"{label}-"):
            by_daemon.setdefault(answer.label.removeprefix(f"{label}-"), []).append(answer)
    for daemon, given in by_daemon.items():
        earlier: Look | None = None
        for answer in given:
            with parsing(answer.label):
                later = answer.ended_ns, as_dict(answer.json())
            if earlier is not None and later[0] > earlier[0]:
                yield daemon, earlier, later
            earlier = later


def spread(osds: Sequence[int], most: int) -> list[int]:
    """Return `osds` in order, or at most `most` of them, evenly spread."""
    ordered = sorted(osds)
    if len(ordered) <= most:
        return ordered
    return [ordered[index * len(ordered) // most] for index in range(most)]


def ask(label: str, daemon: str, prefix: str, timeout_s: float, **arguments: Any) -> CephRequest:
    """Return a command for a daemon that is answered in JSON."""
    return CephRequest(label, daemon, (("prefix", prefix), *arguments.items(), ("format", "json")), timeout_s)


def tell(label: str, osd: int, prefix: str, timeout_s: float, **arguments: Any) -> CephRequest:
    """Return a command for an OSD (`ceph tell osd.N …`), labelled LABEL-osd.N."""
    return ask(f"{label}-osd.{osd}", f"osd.{osd}", prefix, timeout_s, **arguments)
