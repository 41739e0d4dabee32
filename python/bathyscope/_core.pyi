# Types of the compiled core. It is private: `bathyscope.mrc` is the public API.

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Literal, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

__version__: str
DEBUG_BUILD: bool
# Limits and shares that both languages must agree on; the core is where they stand.
MIN_LINE_BYTES: int
MAX_LINE_BYTES: int
MAX_VOLUMES: int
MAX_CACHE_LINES: int
MAX_FETCH_UNITS: int
MAX_WINDOWS: int
MIN_MINIATURE_LINES: int
MOST_REQUEST_BYTES: int
NOT_KNOWN: int
OTHERS: int
STRATA_BITS: int

_I64: TypeAlias = npt.NDArray[np.int64]
_U64: TypeAlias = npt.NDArray[np.uint64]
_U32: TypeAlias = npt.NDArray[np.uint32]
_U8: TypeAlias = npt.NDArray[np.uint8]
_F64: TypeAlias = npt.NDArray[np.float64]

class _CurveDict(TypedDict):
    miss_ratio: _F64
    miss_ratio_raw: _F64
    miss_ratio_adjusted: _F64
    cold_miss_ratio: float
    estimate: Literal["exact", "raw", "adjusted"]
    stderr: _F64
    total: float

class Profile:
    line_bytes: int
    rate: float
    group_bits: int
    distinct_lines: float
    exact: bool
    memory_bytes: int
    def add_keys(self, keys: _U64) -> None: ...
    def add_requests(
        self, offset_bytes: _U64, length_bytes: _U32, op: _U8 | None = None, volume: _U32 | None = None
    ) -> None: ...
    def join(self, later: Profile) -> None: ...
    def curve(self, sizes_lines: _U64, unit_name: str, ops_name: str) -> _CurveDict: ...
    def totals(self, ops_name: str) -> tuple[int, int, int]: ...

def profile_keys(
    keys: _U64,
    *,
    line_bytes: int = 4096,
    rate: float | None = None,
    max_lines: int | None = None,
    salt: int = 0,
    group_bits: int = 0,
    threads: int = 1,
    joinable: bool = False,
) -> Profile: ...
def profile_requests(
    offset_bytes: _U64,
    length_bytes: _U32,
    op: _U8 | None = None,
    volume: _U32 | None = None,
    *,
    line_bytes: int = 4096,
    rate: float | None = None,
    max_lines: int | None = None,
    salt: int = 0,
    group_bits: int = 0,
    threads: int = 1,
    joinable: bool = False,
) -> Profile: ...
def simulate_keys(
    keys: _U64,
    policy_name: str,
    sizes_lines: _U64,
    *,
    line_bytes: int = 4096,
    rate: float | None = None,
    min_lines: int = 500,
    salt: int = 0,
    threads: int = 1,
) -> _CurveDict: ...
def serve_disks(arguments: list[str]) -> int: ...
def serve_cache(arguments: list[str]) -> int: ...
def make_load(arguments: list[str]) -> int: ...
def disk_profiles() -> list[tuple[str, str]]: ...
def stage_lines(
    policy_name: str, size_lines: int, line_bytes: int, memory_bytes: int | None = None, cache_lines: int | None = None
) -> int: ...
def cache_memory(
    size_lines: int, line_bytes: int, memory_bytes: int | None = None, sources: int = 1
) -> dict[str, int]: ...
def policy_names() -> list[str]: ...
def trace_formats() -> list[str]: ...

class OpHistories:
    def __init__(self, pools: list[int] | None) -> None: ...
    def add(self, osd: int, answer: bytes, asked_ns: int, size: int | None) -> None: ...
    def columns(self) -> tuple[dict[str, _I64], dict[str, list[str]]]: ...

class _OsdLogReportDict(TypedDict):
    ops: int
    ops_of_stats: int
    ops_outside: int
    replies_left_out: int
    requests_forgotten: int
    lines_bad: int
    bytes_read: int
    file_bytes_read: int
    first_errors: list[str]

class _OsdOpsDict(TypedDict):
    # The least number stands for what is not known.
    started_ns: _I64
    duration_ns: _I64
    osd: _I64
    pool_id: _I64
    offset_bytes: _I64
    length_bytes: _I64
    result: _I64
    # 0 read, 1 write, 2 other.
    op: npt.NDArray[np.int8]
    # Where each text ends, from 0, and all texts one after another.
    client: tuple[npt.NDArray[np.int32], _U8]
    client_address: tuple[npt.NDArray[np.int32], _U8]
    pg: tuple[npt.NDArray[np.int32], _U8]
    object_name: tuple[npt.NDArray[np.int32], _U8]

class OsdLogReader:
    def __init__(
        self,
        paths: Sequence[str | PathLike[str]],
        *,
        osd: int | None = None,
        since_ns: int | None = None,
        until_ns: int | None = None,
    ) -> None: ...
    def next_batch(self) -> _OsdOpsDict | None: ...
    def report(self) -> _OsdLogReportDict: ...

class _ReportDict(TypedDict):
    events: int
    events_left_out: int
    records_ignored: int
    records_bad: int
    events_out_of_order: int
    overlapping_files: list[str]
    bytes_read: int
    first_errors: list[str]
    time_ns_range: tuple[int, int] | None
    memory_bytes: int
    request_bytes_p99: float
    object_end_bytes: int
    columns_used: list[str]
    columns_ignored: list[str]

class _Pass:
    def read_traces(
        self,
        paths: list[str] | list[PathLike[str]],
        *,
        format: str | None = None,  # noqa: A002 - the name of the option everywhere else
        threads: int = 1,
        skip_bad_records: bool = False,
        object_bytes: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None: ...
    def add_requests(
        self,
        time_ns: _U64,
        offset_bytes: _U64,
        length_bytes: _U32,
        op: _U8,
        volume: _U32,
        group: _U32,
        *,
        threads: int = 1,
    ) -> None: ...

class ProfilePass(_Pass):
    def __init__(
        self,
        line_bytes: list[int],
        *,
        group_by: str = "all",
        node_of_osd: list[int] | None = None,
        rate: float | None = None,
        max_lines: int | None = None,
        salt: int = 0,
        group_bytes: int | None = None,
        whole: bool = True,
        most_groups: int | None = None,
        chosen: set[int] | None = None,
    ) -> None: ...
    def group_requests(self) -> tuple[_U32, _U64, _U64]: ...
    def take_whole_profiles(self) -> list[tuple[int, Profile]]: ...
    def take_group_profiles(self) -> list[tuple[int, int, str | None, Profile]]: ...
    def report(self) -> _ReportDict: ...
    def read_latencies(self) -> dict[str, _F64]: ...

class EnginePass(_Pass):
    def __init__(self, *, group_by: str = "all", node_of_osd: list[int] | None = None) -> None: ...
    def add_engine(
        self,
        policy_name: str,
        line_bytes: int,
        sizes_lines: _U64,
        *,
        group: int | None = None,
        others: bool = False,
        rate: float | None = None,
        min_lines: int = 500,
        salt: int = 0,
        fetch_bytes: int | None = None,
        unit_bytes: int | None = None,
        break_even_bytes: int | None = None,
        on_write: str = "allocate",
        n_hit: int | None = None,
        stream_cutoff_bytes: int | None = None,
        is_stream_of_writes: bool = False,
        write_budget_bytes_per_day: int | None = None,
        windows: tuple[int, int] | None = None,
        sample_region_bytes: int = 1048576,
        memory_bytes: int | None = None,
        cache_lines: int | None = None,
    ) -> int: ...
    def results(self, engine: int) -> dict[str, _F64]: ...
    def windows(self, engine: int) -> dict[str, _F64]: ...
    def memory_bytes(self) -> int: ...
