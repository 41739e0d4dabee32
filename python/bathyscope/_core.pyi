# Types of the compiled core. It is private: `bathyscope.mrc` is the public API.

from collections.abc import Callable
from os import PathLike
from typing import Literal, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

__version__: str
DEBUG_BUILD: bool

_U64: TypeAlias = npt.NDArray[np.uint64]
_U32: TypeAlias = npt.NDArray[np.uint32]
_U8: TypeAlias = npt.NDArray[np.uint8]
_F64: TypeAlias = npt.NDArray[np.float64]

class _CurveDict(TypedDict):
    sizes_lines: _U64
    miss_ratio: _F64
    miss_ratio_raw: _F64
    miss_ratio_adjusted: _F64
    cold_miss_ratio: float
    estimate: Literal["exact", "raw", "adjusted"]

class _ProfileCurveDict(_CurveDict):
    stderr: _F64
    misses: _F64
    cold: float
    sampled: float
    total: float

class _SimulationDict(_CurveDict):
    misses: _F64
    simulated_references: _F64
    simulated_lines: _F64
    simulated_rate: _F64
    flash_writes_lines: _F64
    total: float

class _ReportDict(TypedDict):
    events: int
    events_left_out: int
    records_ignored: int
    records_bad: int
    events_out_of_order: int
    bytes_read: int
    first_errors: list[str]
    time_ns_range: tuple[int, int] | None
    memory_bytes: int

class Profile:
    line_bytes: int
    rate: float
    group_bits: int
    tracked_lines: int
    distinct_lines: float
    exact: bool
    memory_bytes: int
    def add_keys(self, keys: _U64) -> None: ...
    def add_requests(
        self, offset_bytes: _U64, length_bytes: _U32, op: _U8 | None = None, volume: _U32 | None = None
    ) -> None: ...
    def join(self, later: Profile) -> None: ...
    def curve(self, sizes_lines: _U64, unit_name: str, ops_name: str) -> _ProfileCurveDict: ...
    def totals(self, ops_name: str) -> tuple[int, int, int]: ...

class TraceProfiles:
    def take_profiles(self) -> list[tuple[int, int, str | None, Profile]]: ...
    def report(self) -> _ReportDict: ...

def profile_keys(
    keys: _U64,
    *,
    line_bytes: int = 4096,
    rate: float | None = None,
    max_lines: int | None = None,
    salt: int = 0,
    strata_bits: int = 8,
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
    strata_bits: int = 8,
    group_bits: int = 0,
    threads: int = 1,
    joinable: bool = False,
) -> Profile: ...
def profile_traces(
    paths: list[str] | list[PathLike[str]],
    *,
    line_bytes: list[int],
    format: str | None = None,  # noqa: A002 - the name of the option everywhere else
    group_by: str = "all",
    node_of_osd: list[int] | None = None,
    rate: float | None = None,
    max_lines: int | None = None,
    salt: int = 0,
    strata_bits: int = 8,
    group_bytes: int | None = None,
    threads: int = 1,
    skip_bad_records: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> TraceProfiles: ...
def simulate_keys(
    keys: _U64,
    policy_name: str,
    sizes_lines: _U64,
    *,
    rate: float | None = None,
    min_lines: int = 500,
    salt: int = 0,
    threads: int = 1,
) -> _SimulationDict: ...
def policy_names() -> list[str]: ...
def trace_formats() -> list[str]: ...

class _PassReportDict(TypedDict, total=False):
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

class _Pass:
    def read_traces(
        self,
        paths: list[str] | list[PathLike[str]],
        *,
        format: str | None = None,  # noqa: A002 - the name of the option everywhere else
        threads: int = 1,
        skip_bad_records: bool = False,
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
        max_lines: int | None = None,
        salt: int = 0,
    ) -> None: ...
    def take_whole_profiles(self) -> list[tuple[int, Profile]]: ...
    def take_group_profiles(self) -> list[tuple[int, int, str | None, Profile]]: ...
    def report(self) -> _PassReportDict: ...
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
        small_in_ram: bool = True,
        on_write: str = "allocate",
        n_hit: int | None = None,
        stream_cutoff_bytes: int | None = None,
        write_budget_bytes_per_day: int | None = None,
        windows: tuple[int, int] | None = None,
        sample_region_bytes: int = 1048576,
    ) -> int: ...
    def results(self, engine: int) -> dict[str, _F64]: ...
    def windows(self, engine: int) -> dict[str, _F64]: ...
    def memory_bytes(self) -> int: ...
