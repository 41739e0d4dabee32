"""The caches over OSDs of this machine, by what their daemons count: hits, bytes, and how full each is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from bathyscope.fields import as_dict, as_int, as_list, parsing
from bathyscope.host import Request, SocketRequest
from bathyscope.host.process import resident_memory
from bathyscope.records import HERE, CacheSample, RawAnswer, Record, Tables
from bathyscope.sources.shape import Columns, Source
from bathyscope.spec.scope import Scope

# Column of the record → where the answer has the counter of a source.
_COUNTERS = {
    "read_count": ("reads", "requests"),
    "read_hit_count": ("reads", "requests_hit"),
    "read_bytes": ("reads", "bytes"),
    "read_hit_bytes": ("reads", "bytes_hit"),
    "write_count": ("writes", "requests"),
    "write_hit_count": ("writes", "requests_hit"),
    "write_bytes": ("writes", "bytes"),
}
# Column → what is so at the time of the answer.
_STATES = {"capacity_bytes": "capacity_bytes", "used_bytes": "used_bytes", "file_count": "files"}
_OSD = re.compile(r"(?:^|[.-])([0-9]{1,7})$")


class Caches:
    """`status` on the socket of each cache's daemon."""

    name = "caches"
    records: tuple[type[Record], ...] = (CacheSample,)
    period_s = 1.0
    timeout_s = 5.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one request for each cache on this machine."""
        line = json.dumps({"query": "status"})
        return [
            SocketRequest(f"{self.name}-{path}", path, line, self.timeout_s, process_file="status")
            for path in scope.target.cache_sockets
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return a row for each directory and pair of consecutive answers of one run of its daemon."""
        del scope
        columns = Columns(CacheSample)
        before: dict[str, tuple[int, Mapping[str, Any]]] = {}
        with parsing(self.name):
            for answer in answers:
                if answer.exit_code != 0:
                    continue
                said = as_dict(answer.json())
                if not said.get("ok"):
                    continue
                status = as_dict(said["answer"]) | {"process": resident_memory(answer.files)}
                last_ns, last = before.get(answer.label, (answer.ended_ns, {}))
                before[answer.label] = answer.ended_ns, status
                # After a restart all is counted from 0 again.
                if last and last.get("pid") == status.get("pid") and answer.ended_ns > last_ns:
                    _add(columns, (last_ns, last), (answer.ended_ns, status))
        return {CacheSample: columns.table()}


SOURCE: Source = Caches()


def _add(columns: Columns, before: tuple[int, Mapping[str, Any]], now: tuple[int, Mapping[str, Any]]) -> None:
    (last_ns, last), (at_ns, status) = before, now
    earlier = _served(last)
    about = as_dict(status["cache"])
    budget = as_dict(as_dict(about.get("engine") or {}).get("memory") or {}).get("budget_bytes")
    resident = as_dict(status["process"] or {}).get("resident_bytes")
    for name, entry in _served(status).items():
        directory = str(entry["dir"])
        # Without a cache, or before the first request, nothing is counted.
        if name not in earlier or entry.get("stats") is None or earlier[name].get("stats") is None:
            continue
        counted, was = (_counted(as_dict(state["stats"])) for state in (entry, earlier[name]))
        grown = {column: value - was[column] for column, value in counted.items()}
        if min(grown.values()) < 0:
            # It was stopped and started between the answers.
            continue
        usage = as_dict(entry.get("usage") or {})
        columns.add(
            at_ns=at_ns, duration_ns=at_ns - last_ns, host=HERE, cache=str(about.get("name") or about.get("ssd") or ""),
            source=name, directory=directory, osd=_osd(directory),
            **{column: _known(usage.get(key)) for column, key in _STATES.items()}, **grown,
            daemon_resident_bytes=_known(resident), daemon_memory_budget_bytes=_known(budget),
        )  # fmt: skip


def _served(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the directories by name, without those that are stopped and serve open files: they can have successors."""
    entries = map(as_dict, as_list(status["sources"]))
    return {str(entry["name"]): entry for entry in entries if entry.get("is_served", True)}


def _counted(stats: Mapping[str, Any]) -> dict[str, int]:
    return {column: as_int(as_dict(stats[kind])[key]) for column, (kind, key) in _COUNTERS.items()}


def _known(value: Any) -> int | None:
    return None if value is None else as_int(value)


def _osd(directory: str) -> int | None:
    """Return the number of the OSD whose data directory is named so: ceph-3, osd.3."""
    match = _OSD.search(PurePosixPath(directory).name)
    return None if match is None else int(match[1])
