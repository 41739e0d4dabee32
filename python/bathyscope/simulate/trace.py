"""Block traces: what a pass of the compiled core is fed with. Trace files here, operations of a run in `op_trace`.

A trace is fed several times: once to profile it, then to simulate caches of the sizes that follow. No pass holds it in
memory.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bathyscope import _core
from bathyscope.errors import ParseError, UsageError
from bathyscope.records.size import TraceSummary
from bathyscope.spec.size import By
from bathyscope.spec.step import DEFAULT_OBJECT_BYTES
from bathyscope.units import format_bytes, format_size_short

Progress = Callable[[int, int], None]
"""Called with events and how far in the trace's extent; what it raises ends the pass."""

CorePass = _core.ProfilePass | _core.EnginePass

UNKNOWN = 2**32 - 1


class BlockTrace(abc.ABC):
    """A trace that can be fed to several passes. `extent` is what `progress` counts up to in its second argument.

    `nodes` are the OSDs of each node, for `by="node"`. `core_by` is the grouping that the core is given, with
    `node_of_osd`. `object_bytes` is the size of the objects of images, where the trace has objects: as given, or
    the smallest power of two, from `least_object_bytes`, that holds every request.
    """

    core_by: str
    node_of_osd: list[int] | None = None

    def __init__(
        self,
        by: By,
        extent: int,
        nodes: Mapping[str, Sequence[int]] | None,
        *,
        object_bytes: int | None = None,
        least_object_bytes: int = DEFAULT_OBJECT_BYTES,
    ) -> None:
        self.by: By = by
        self.object_bytes = object_bytes or least_object_bytes
        self._object_bytes_given = object_bytes is not None
        self._has_objects = False
        self.extent = extent
        self._nodes = Nodes(nodes) if by == "node" else None

    @abc.abstractmethod
    def feed(self, into: CorePass, *, threads: int, progress: Progress | None) -> None:
        """Stream the trace through `into`. Raises ParseError at a bad record (unless skipped) and at what is none."""

    @abc.abstractmethod
    def summary(self, first: _core.ProfilePass) -> TraceSummary:
        """Return counts, times and read latencies: what the first pass found beside the profiles."""

    def refit(self, first: _core.ProfilePass) -> bool:  # noqa: ARG002 - for traces that know only then
        """Take up what the first pass found about objects; whether it must be repeated. Raises UsageError."""
        return False

    def fit_objects(self, end_bytes: int) -> bool:
        """Make objects large enough for a request that ends there, 0 without objects. Return whether they were not.

        Raises UsageError when a size was given that cannot be.
        """
        self._has_objects = end_bytes > 0
        if end_bytes <= self.object_bytes:
            return False
        if self._object_bytes_given:
            raise UsageError(
                f"--object-size must be at least {format_bytes(end_bytes)}: an I/O of the trace ends there in its "
                f"object (got {format_size_short(self.object_bytes)})",
                hint="`rbd info IMAGE` shows the size of an image's objects",
            )
        self.object_bytes = 1 << (end_bytes - 1).bit_length()
        return True

    def object_summary(self) -> dict[str, Any]:
        """Return what a TraceSummary says of the size of objects."""
        return {
            "object_bytes": self.object_bytes if self._has_objects else None,
            "object_bytes_given": self._object_bytes_given,
        }

    def group_name(self, number: int, name: str | None) -> str:
        """Return the name of a group for people: its own where the trace has one, else of its kind and number."""
        if number == UNKNOWN:
            return "(unknown)"
        if name is not None:
            return name or "(no name)"
        if self._nodes is not None and number < len(self._nodes.names):
            return self._nodes.names[number]
        return f"osd.{number}" if self.by == "osd" else f"{self.by} {number}"


class TraceFiles(BlockTrace):
    """Trace files of one workload, in the order of time."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        by: By = "all",
        trace_format: str | None = None,
        skip_bad_records: bool = False,
        nodes: Mapping[str, Sequence[int]] | None = None,
        object_bytes: int | None = None,
    ) -> None:
        for path in paths:
            if not path.is_file():
                raise UsageError(f"there is no trace file {path}", hint="give a trace file, or a run by its id")
        if len({path.resolve() for path in paths}) < len(paths):
            raise UsageError("a trace is given twice", hint="each file is read once, in the order given")
        super().__init__(by, sum(path.stat().st_size for path in paths), nodes, object_bytes=object_bytes)
        self.paths = [str(path) for path in paths]
        self._format = trace_format
        self._skip = skip_bad_records
        self.core_by = by
        self.node_of_osd = None if self._nodes is None else self._nodes.node_of_osd

    def feed(self, into: CorePass, *, threads: int, progress: Progress | None) -> None:
        """Stream the files."""
        try:
            into.read_traces(
                self.paths,
                format=self._format,
                threads=threads,
                skip_bad_records=self._skip,
                object_bytes=self.object_bytes,
                progress=progress,
            )
        except (ValueError, OSError) as error:
            hint = "--format names the format, --skip-bad-records goes on after bad records"
            raise ParseError(str(error), hint=hint) from error

    def refit(self, first: _core.ProfilePass) -> bool:
        """Place requests again when they reach beyond the objects."""
        return self.fit_objects(first.report()["object_end_bytes"])

    def summary(self, first: _core.ProfilePass) -> TraceSummary:
        """Return what the readers counted."""
        report, latencies = first.report(), first.read_latencies()
        return TraceSummary(
            sources=tuple(self.paths),
            events=report["events"],
            skipped=report["records_bad"],
            time_ns_range=report["time_ns_range"],
            latency_ns=tuple(latencies["latency_ns"].tolist()),
            latency_counts=tuple(latencies["count"].tolist()),
            first_errors=tuple(report["first_errors"]),
            request_bytes_p99=report["request_bytes_p99"],
            out_of_order=report["events_out_of_order"],
            overlapping_files=tuple(report["overlapping_files"]),
            columns_used=tuple(report["columns_used"]),
            columns_ignored=tuple(report["columns_ignored"]),
            **self.object_summary(),
        )


class Nodes:
    """Which OSDs stand on which node."""

    def __init__(self, osds_of_node: Mapping[str, Sequence[int]] | None) -> None:
        if not osds_of_node:
            raise UsageError("--by node needs the OSDs of each node", hint="--nodes FILE, YAML: 'node-a: [0, 1]'")
        self.names = list(osds_of_node)
        highest = max((osd for osds in osds_of_node.values() for osd in osds), default=-1)
        self.node_of_osd = [UNKNOWN] * (highest + 1)
        for number, (name, osds) in enumerate(osds_of_node.items()):
            for osd in osds:
                if self.node_of_osd[osd] != UNKNOWN:
                    raise UsageError(f"osd.{osd} stands on {self.names[self.node_of_osd[osd]]} and on {name}")
                self.node_of_osd[osd] = number
