"""Whose reads those of a parent are: what a clone has not written itself is read from its parent, and counted there.

A client that did I/O on one clone of a parent reads the parent for that clone. Of one that only reads what the clone
has not written, nothing is counted at the clone: a read of an object that is not there fails, and does not count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import pyarrow as pa

from bathyscope.analysis.activity.images import Images
from bathyscope.analysis.activity.shape import Question
from bathyscope.analysis.window import overlaps

_NAMED_MOST = 3


def queries(question: Question) -> Mapping[str, str]:
    """Return what `readers_of` needs."""
    return {
        "clones": "SELECT DISTINCT pool, namespace, image, image_id, parent FROM image WHERE parent IS NOT NULL",
        "readers": "SELECT pool, namespace, image, image_id, client, CAST(sum(read_count) AS BIGINT) AS read_count "
        f"FROM image_io WHERE {overlaps(question)} AND EXISTS (SELECT 1 FROM image WHERE parent IS NOT NULL) "
        "GROUP BY ALL",
    }


def readers_of(tables: Mapping[str, pa.Table], known: Images) -> Mapping[str, str]:
    """Return parent → for which clones it was read, in words; both as pool/[namespace/]image."""
    clones = {known.name(row): row["parent"] for row in tables["clones"].to_pylist()}
    rows = [(known.name(row), row["client"], row["read_count"]) for row in tables["readers"].to_pylist()]
    # (parent, client) → the clones of the parent that the client did I/O on.
    used: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, client, _ in rows:
        if name in clones and client is not None:
            used[clones[name], client].add(name)
    of_parent: dict[str, list[str]] = defaultdict(list)
    for clone, parent in clones.items():
        of_parent[parent].append(clone)
    parents: dict[str, Counter[str]] = defaultdict(Counter)
    for name, client, reads in rows:
        if reads and name in of_parent:
            whose = sorted(used.get((name, client), ()))
            parents[name]["its clone " + " or ".join(whose) if len(whose) <= _NAMED_MOST and whose else ""] += reads
    return {parent: _words(counted, of_parent[parent]) for parent, counted in parents.items()}


def _words(counted: Counter[str], clones: list[str]) -> str:
    """Return the clones of a parent and their reads; those of the key "" are of any of its clones, or its own."""
    named = [(who, reads) for who, reads in counted.most_common() if who]
    parts = [f"{reads:,} for {who}" for who, reads in named[:_NAMED_MOST]]
    if more := sum(reads for _, reads in named[_NAMED_MOST:]):
        parts.append(f"{more:,} for other clones")
    if counted[""]:
        some = ", ".join(sorted(clones)[:_NAMED_MOST]) + (", …" if len(clones) > _NAMED_MOST else "")
        parts.append(f"{counted['']:,} its own or for a clone ({some})")
    return f"reads: {', '.join(parts)}"
