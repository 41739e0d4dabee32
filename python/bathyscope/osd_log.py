"""Logs of OSDs as tables of operations, read by the compiled core in batches.

What a log says depends on its debug levels; `crates/bathy-trace/src/ceph/log.rs` says what is read, and how no
operation counts twice:

    debug_osd 15   one log_op_stats line for each operation that succeeded, with its latency to the microsecond
    debug_ms 1     the request and its reply, joined; the latency is a difference of times in the log, which come from a
                   clock of one to four milliseconds (log_coarse_timestamps), so single latencies are that coarse

A time without a zone (before Ceph 15) is taken for UTC. `complete_since_ns` is the start of the first operation: a log
with these levels holds every operation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope import _core, rbd_names
from bathyscope.errors import ParseError, UsageError
from bathyscope.records import Op, build_table

_OPS = ("read", "write", "other")
_NONE = np.iinfo(np.int64).min

_LOG_HINT = "give logs of OSDs: ceph-osd.3.log, its rotated files, or what `journalctl -o short-iso-precise` prints"


@dataclasses.dataclass(frozen=True, slots=True)
class OsdLogReport:
    """What the core counted, up to the last batch; the fields are those of `OsdLogReport` in `bathy_trace`."""

    ops: int
    ops_of_stats: int
    ops_outside: int
    replies_left_out: int
    requests_forgotten: int
    lines_bad: int
    bytes_read: int
    file_bytes_read: int
    first_errors: list[str]


class OsdLogs:
    """Logs of OSDs, in any order, compressed or not. Raises UsageError when one of them is no log of a Ceph daemon."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        osd: int | None = None,
        since_ns: int | None = None,
        until_ns: int | None = None,
    ) -> None:
        self.size_bytes = sum(path.stat().st_size for path in paths if path.is_file())
        try:
            self._reader = _core.OsdLogReader(
                [str(path) for path in paths], osd=osd, since_ns=since_ns, until_ns=until_ns
            )
        except (ValueError, OSError) as error:
            raise UsageError(str(error), hint=_LOG_HINT) from error
        # OSD → start of its first operation.
        self._since_ns: dict[int, int] = {}

    @property
    def report(self) -> OsdLogReport:
        """Counts up to the last batch."""
        return OsdLogReport(**self._reader.report())

    def tables(self) -> Iterator[pa.Table]:
        """Yield the operations in tables of the record `op`, which may be empty: so a caller can say how far it is.

        Raises UsageError when neither a line nor the file's name says the OSD, ParseError when a file cannot be read.
        """
        while (batch := self._next()) is not None:
            osd, started_ns = batch["osd"], batch["started_ns"]
            if (osd == _NONE).any():
                raise UsageError(
                    "the messages in a log do not name its OSD, and neither does the name of the file",
                    hint="give --osd N, or name the file as Ceph does: ceph-osd.N.log",
                )
            columns = {
                name: pa.array(values, mask=values == _NONE)
                for name, values in (
                    ("osd", osd),
                    ("started_ns", started_ns),
                    ("duration_ns", batch["duration_ns"]),
                    ("pool_id", batch["pool_id"]),
                    ("offset_bytes", batch["offset_bytes"]),
                    ("length_bytes", batch["length_bytes"]),
                    ("result", batch["result"]),
                )
            }
            address, object_name = _texts(batch["client_address"]), _texts(batch["object_name"])
            yield build_table(
                Op,
                {
                    **columns,
                    "client": _texts(batch["client"]),
                    "client_address": pc.if_else(
                        pc.equal(address, pa.scalar("")), pa.scalar(None, pa.string()), address
                    ),
                    "pg": _texts(batch["pg"]),
                    "object_name": object_name,
                    "op": pa.DictionaryArray.from_arrays(batch["op"], list(_OPS)),
                    "complete_sample": True,
                    "complete_since_ns": self._complete_since_ns(osd, started_ns),
                    **rbd_names.image_columns(object_name),
                },
            )

    def _complete_since_ns(self, osd: npt.NDArray[np.int64], started_ns: npt.NDArray[np.int64]) -> pa.Array[Any]:
        osds, which = np.unique(osd, return_inverse=True)
        for number, name in enumerate(osds.tolist()):
            if name not in self._since_ns:
                self._since_ns[name] = int(started_ns[which == number].min())
        since_ns = np.array([self._since_ns[name] for name in osds.tolist()], dtype=np.int64)
        return pa.array(since_ns[which])

    def _next(self) -> _core._OsdOpsDict | None:
        try:
            return self._reader.next_batch()
        except (ValueError, OSError) as error:
            raise ParseError(str(error)) from error


def _texts(column: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]) -> pa.StringArray:
    """Return a column of texts without a copy."""
    offsets, content = column
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets.data), pa.py_buffer(content.data))
