"""Facts about what a run stands on, as cluster_map and machine read them, and which settings are kept at all."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from bathyscope.errors import ParseError
from bathyscope.fields import as_dict, as_list, parsing
from bathyscope.records import EnvironmentFact, RawAnswer
from bathyscope.sources.shape import Columns

CONFIG_DUMP = "config_dump"
CONFIG_DIFF = "config_diff"

# Passwords and keys are options of Ceph, too, under names that each release and each module of the manager adds to. So
# only values of the families that a measurement depends on are kept. Options of the manager's modules, of RGW, of
# authentication and whatever is not known here are not among them.
_FAMILIES = (
    *(
        "osd",
        "bluestore",
        "bluefs",
        "bdev",
        "rocksdb",
        "filestore",
        "journal",
        "memstore",
        "compressor",
        "erasure_code",
    ),
    *("rbd", "objecter", "librados", "rados", "client", "ms", "async", "mon", "paxos", "mds", "heartbeat", "throttler"),
    *("debug", "log", "perf"),
)
_KEPT = re.compile(rf"({'|'.join(_FAMILIES)})_[a-z0-9_]+|mgr/balancer/[a-z0-9_]+|cephx_sign_messages")
# A name that sounds like a secret is none of them, whatever its family.
_SECRET = re.compile(r"passw|passphrase|secret|token|credential|key|cert|auth|uri|url|host$")
_NOT_KEPT = "(not kept)"


def is_kept(option: str) -> bool:
    """Return whether the value of an option is kept: it is known to be no secret."""
    return _KEPT.fullmatch(option) is not None and _SECRET.search(option) is None


def latest(answers: Iterable[RawAnswer]) -> dict[str, RawAnswer]:
    """Return the last good answer of each label."""
    return {answer.label: answer for answer in answers if answer.exit_code == 0}


def fact_table(facts: Iterable[tuple[str, str, Any]]) -> pa.Table:
    """Return (subject, name, value) as facts of the moment "before"; of two about the same the later counts."""
    values = {(subject, name): str(value) for subject, name, value in facts}
    columns = Columns(EnvironmentFact)
    for (subject, name), value in values.items():
        columns.add(moment="before", subject=subject, name=name, value=value)
    return columns.table()


def facts_at(facts: pa.Table, moment: str) -> pa.Table:
    """Return a table of facts with another moment: "before" or "after" the run."""
    index = facts.schema.get_field_index("moment")
    return facts.set_column(index, facts.schema.field(index), pa.repeat(pa.scalar(moment), facts.num_rows))


def redacted(answer: RawAnswer) -> RawAnswer:
    """Return an answer of `config dump` or `config diff` with the values of `is_kept` options; any other as it is.

    The others' values are replaced by words that say so. An answer that is not understood loses its content: what
    cannot be read cannot be cleared of secrets.
    """
    is_dump, is_diff = answer.label == CONFIG_DUMP, answer.label.startswith(f"{CONFIG_DIFF}-")
    if not (is_dump or is_diff) or not answer.stdout.strip():
        return answer
    try:
        value = answer.json()
        with parsing(answer.label):
            if is_dump:
                for option in as_list(value):
                    if not is_kept(str(as_dict(option)["name"])):
                        option["value"] = _NOT_KEPT
            else:
                differences = as_dict(as_dict(value).get("diff", {}))
                for name in itertools.filterfalse(is_kept, list(differences)):
                    differences[name] = dict.fromkeys(as_dict(differences[name]), _NOT_KEPT)
    except ParseError:
        return dataclasses.replace(answer, stdout=b"")
    return dataclasses.replace(answer, stdout=json.dumps(value).encode())
