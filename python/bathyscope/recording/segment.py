"""What a segment of a recording holds, and how it is read: pure, so a segment parsed again gives the same tables.

Beside the answers of its sources a segment keeps, as raw answers of "recording", its scope and its collections: what
each cost and how many answers it gave. That is all that parsing needs.
"""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pydantic import ValidationError

from bathyscope.errors import ParseError
from bathyscope.fields import load_json
from bathyscope.recording.collect import Collected
from bathyscope.records import Collection, RawAnswer, Record, Tables, schema_of, to_table
from bathyscope.sources.shape import Source
from bathyscope.spec.scope import Scope

RECORDING = "recording"
_SCOPE, _COLLECTIONS, _CARRIED = "scope", "collections", "carried"

_COLUMNS = operator.attrgetter(*schema_of(Collection).names)

Raw = Mapping[str, Sequence[RawAnswer]]


def pack(
    scope: Scope, collections: Sequence[Collected], carried: Mapping[str, Sequence[RawAnswer]]
) -> dict[str, list[RawAnswer]]:
    """Return the raw answers of a segment by source, and those of "recording".

    `carried` are answers of earlier segments that the differences of this one begin at. A source without a new answer
    has none here.
    """
    raw: dict[str, list[RawAnswer]] = {}
    for collected in collections:
        if collected.answers:
            name = collected.cost.source
            raw.setdefault(name, list(carried.get(name, ()))).extend(collected.answers)
    costs = [[*_COLUMNS(collected.cost), len(collected.answers)] for collected in collections]
    first = {name: len(carried.get(name, ())) for name in raw}
    start_ns = min((collected.cost.at_ns for collected in collections), default=0)
    end_ns = max((collected.cost.at_ns + collected.cost.duration_ns for collected in collections), default=0)
    raw[RECORDING] = [
        RawAnswer(label, (), (), 0, text.encode(), b"", start_ns, end_ns)
        for label, text in (
            (_SCOPE, scope.model_dump_json()),
            (_COLLECTIONS, json.dumps(costs)),
            (_CARRIED, json.dumps(first)),
        )
    ]
    return raw


def parse_segment(raw: Raw, sources: Mapping[str, Source]) -> dict[type[Record], pa.Table]:
    """Return the tables of a segment from its raw answers alone, a row of Collection for each collection among them.

    A collection that its source does not understand has the reason in its row. A source that is not known any more has
    no tables. Raises ParseError when the scope or the list of collections is damaged.
    """
    scope, costs, counts, carried = _about(raw)
    tables: dict[type[Record], list[pa.Table]] = {}
    for name, source in sources.items():
        answers = list(raw.get(name, ()))
        if not answers:
            continue
        mine = [index for index, cost in enumerate(costs) if cost.source == name and counts[index]]
        groups = _split(answers, [carried.get(name, 0), *(counts[index] for index in mine)])
        parsed, problems = parse_collections(source, groups, scope)
        # What the answers of the segment before give by themselves is there, and comes first.
        before = parse_collections(source, groups[:1], scope)[0] if groups[0] else {}
        for record, table in parsed.items():
            tables.setdefault(record, []).append(table.slice(before[record].num_rows if record in before else 0))
        for group, problem in problems.items():
            if group > 0:
                cost = costs[mine[group - 1]]
                costs[mine[group - 1]] = dataclasses.replace(
                    cost, success=False, failure_count=cost.request_count, problem=problem
                )
    joined = {record: pa.concat_tables(parts) for record, parts in tables.items()}
    joined[Collection] = to_table(Collection, costs)
    return joined


def parse_collections(
    source: Source, collections: Sequence[Sequence[RawAnswer]], scope: Scope
) -> tuple[Tables, dict[int, str]]:
    """Return the tables of the collections of one source, and index → problem of those that cannot be parsed.

    One that is not understood costs its own rows only: the others are parsed without it.
    """
    problems: dict[int, str] = {}
    try:
        return source.parse([answer for answers in collections for answer in answers], scope), problems
    except ParseError:
        pass
    for index, answers in enumerate(collections):
        try:
            source.parse(answers, scope)
        except ParseError as error:
            problems[index] = error.message
    good = [answer for index, answers in enumerate(collections) if index not in problems for answer in answers]
    try:
        return source.parse(good, scope), problems
    except ParseError as error:
        return {}, {index: problems.get(index, error.message) for index in range(len(collections))}


def _split(answers: list[RawAnswer], counts: Sequence[int]) -> list[list[RawAnswer]]:
    """Return `answers` in groups of `counts`. Raises ParseError when there are more or fewer."""
    groups, start = [], 0
    for count in counts:
        groups.append(answers[start : start + count])
        start += count
    if start != len(answers):
        raise ParseError(f"a segment has {len(answers)} answers; its list of collections has {start}")
    return groups


def _about(raw: Raw) -> tuple[Scope, list[Collection], list[int], dict[str, int]]:
    """Return a segment's scope, its collections, the count of answers of each, and of those carried by source."""
    texts = {answer.label: answer.stdout for answer in raw.get(RECORDING, ())}
    try:
        rows = load_json(texts[_COLLECTIONS])
        return (
            Scope.model_validate_json(texts[_SCOPE]),
            [Collection(*row[:-1]) for row in rows],
            [int(row[-1]) for row in rows],
            {str(name): int(count) for name, count in load_json(texts[_CARRIED]).items()},
        )
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise ParseError(f"the context of a segment cannot be read: {error}") from error
