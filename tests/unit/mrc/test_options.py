"""Options that cannot be: each is a `UsageError` that names its argument, and never an error of the core's binding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from bathyscope import mrc
from bathyscope.errors import AnalysisError, UsageError
from bathyscope.spec import values

KEYS = np.arange(100, dtype=np.uint64)

BAD_WHOLE: list[Any] = [-1, 1.5, "2", True, float("nan"), float("inf"), 1 << 70, [1], b"1"]
BAD_RATES: list[Any] = [0, 0.0, -0.5, 1.01, 2, float("nan"), float("inf"), "0.5", True, [0.5]]
BAD_LINES: list[Any] = [*BAD_WHOLE, None, 0, 1, 511, 3000, 1 << 31]
BAD_FLAGS: list[Any] = [None, 1, 0, "no"]
BAD_NAMES: list[Any] = [None, "", "none", "belady", 3, ["all"]]
BAD_SIZES: list[Any] = [
    [-4096],
    [0],
    [100],
    [float("nan")],
    [float("inf")],
    ["4K"],
    "4K",
    [True],
    [[4096], [1, 2]],
    1 << 70,
]

BAD: dict[str, list[Any]] = {
    "threads": [*BAD_WHOLE, None, 0, 5000],
    "salt": [*BAD_WHOLE, None],
    "samples": [*BAD_WHOLE, 0],
    "rate": BAD_RATES,
    "line_bytes": BAD_LINES,
}
MORE: dict[str, dict[str, list[Any]]] = {
    "mrc": {"policy": BAD_NAMES, "unit": BAD_NAMES, "ops": ["none", None, 2], "sizes_bytes": BAD_SIZES},
    "profile": {"group_bytes": [*BAD_WHOLE, 0, 1 << 60], "joinable": BAD_FLAGS},
    "simulate": {"policy": BAD_NAMES, "min_lines": [*BAD_WHOLE, 0, None], "sizes_bytes": [*BAD_SIZES, [4096 << 31]]},
    "profile_traces": {
        "group_by": BAD_NAMES, "trace_format": ["", "pcap", 3], "skip_bad_records": BAD_FLAGS, "progress": [3, "x"],
        "line_bytes": [[], [0], 4096, "4096", [3000], [4096, -1]],
        "node_of_osd": [[], [-1], ["a"], 3, [1 << 40]],
    },
}  # fmt: skip
TAKEN = {
    "mrc": ("threads", "salt", "samples", "line_bytes"),
    "profile": ("threads", "salt", "samples", "rate", "line_bytes"),
    "simulate": ("threads", "salt", "rate", "line_bytes"),
    "profile_traces": ("threads", "salt", "samples", "rate"),
}


def cases() -> list[Any]:
    return [
        pytest.param(function, name, value, id=f"{function}-{name}-{value!r}")
        for function, names in TAKEN.items()
        for name, values in ({name: BAD[name] for name in names} | MORE[function]).items()
        for value in values
    ]


@pytest.fixture
def call(tmp_path: Path) -> dict[str, Callable[..., Any]]:
    path = tmp_path / "disk.u32"
    KEYS.astype("<u4").tofile(path)

    def traces(**given: Any) -> Any:
        return mrc.profile_traces([path], **({"trace_format": "raw-u32"} | given))

    return {
        "mrc": lambda **given: mrc.mrc(KEYS, **given),
        "profile": lambda **given: mrc.profile(KEYS, **given),
        "simulate": lambda **given: mrc.simulate(KEYS, **({"policy": "lru"} | given)),
        "profile_traces": traces,
    }


@pytest.mark.parametrize(("function", "name", "value"), cases())
def test_a_value_that_cannot_be_is_named(
    call: dict[str, Callable[..., Any]], function: str, name: str, value: Any
) -> None:
    with pytest.raises(UsageError) as caught:
        call[function](**{name: value})
    assert name in caught.value.message
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("function", list(TAKEN))
def test_values_at_the_limits_are_taken(call: dict[str, Callable[..., Any]], function: str) -> None:
    limits: dict[str, list[Any]] = {
        "threads": [1, np.int64(2)], "salt": [0, 2**64 - 1, np.uint64(2**64 - 1)], "samples": [1, None, 1 << 48],
        "rate": [1, 1e-9, np.float32(0.5), None], "line_bytes": [512, 1 << 30, np.int32(4096)],
    }  # fmt: skip
    for name in TAKEN[function]:
        for value in limits[name]:
            if function == "profile_traces":
                call[function](**{name: value})
            else:
                call[function](**{name: value} | ({"sizes_bytes": [1 << 30]} if function != "profile" else {}))


@pytest.mark.parametrize("paths", [[], "disk.u32", Path("disk.u32"), [3], ["/nowhere"], None, ["bad\0name"]])
def test_paths_that_cannot_be_are_named(paths: Any) -> None:
    with pytest.raises(UsageError, match="paths"):
        mrc.profile_traces(paths)


class TestProfile:
    made = mrc.profile(KEYS, samples=None)

    @pytest.mark.parametrize("value", BAD_NAMES)
    def test_units_and_ops(self, value: Any) -> None:
        with pytest.raises(UsageError, match="unit must be"):
            self.made.curve(unit=value)
        if value != "all":
            with pytest.raises(UsageError, match="ops must be"):
                self.made.totals(value)
            with pytest.raises(UsageError, match="ops must be"):
                self.made.curve(ops=value)

    @pytest.mark.parametrize("value", BAD_SIZES)
    def test_sizes(self, value: Any) -> None:
        for ask in (self.made.curve, self.made.flash_write_bytes):
            with pytest.raises(UsageError, match="sizes_bytes"):
                ask(value)

    def test_what_is_no_profile_does_not_join(self) -> None:
        with pytest.raises(UsageError, match=r"later must be a Profile \(got a ndarray"):
            mrc.profile(KEYS, joinable=True).join(KEYS)  # type: ignore[arg-type]

    @pytest.mark.parametrize("sigmas", [-1, float("nan"), float("inf"), "2", True, None])
    def test_bands(self, sigmas: Any) -> None:
        with pytest.raises(UsageError, match="sigmas"):
            self.made.curve().band(sigmas)

    def test_what_was_not_fetched_has_no_amplification(self) -> None:
        with pytest.raises(AnalysisError, match="bytes"):
            self.made.fetch_amplification()


@pytest.mark.parametrize(
    ("most", "words"), [(1024, "1024"), (2**64 - 1, "2^64 - 1"), (1 << 30, "2^30"), (3 << 30, "3221225472")]
)
def test_limits_are_written_as_people_read_them(most: int, words: str) -> None:
    count = TypeAdapter(Annotated[int, values.whole_number(1, most)])
    with pytest.raises(ValidationError, match=f"must be a whole number from 1 to {words.replace('^', '.')} "):
        count.validate_python(0)


def requests(volumes: list[int], lengths: int | None = None) -> dict[str, Any]:
    rows = len(volumes)
    return {
        "offset_bytes": np.zeros(rows, np.uint64),
        "length_bytes": np.full(rows if lengths is None else lengths, 4096, np.uint32),
        "volume": np.asarray(volumes, np.uint32),
    }


class TestVolumes:
    @pytest.mark.parametrize("volume", [2**24 - 1, 2**24, 2**32 - 2])
    def test_those_that_would_share_lines_are_refused(self, volume: int) -> None:
        with pytest.raises(UsageError, match=f"volume has {volume}; it must be less than 16777215"):
            mrc.profile(requests([0, 2**32 - 1, volume]), samples=None)

    def test_those_at_the_limits_have_lines_of_their_own(self) -> None:
        volumes = [0, 1, 2**24 - 2, 2**32 - 1]
        assert mrc.profile(requests([*volumes, *volumes]), samples=None).distinct_lines == len(volumes)


@pytest.mark.parametrize("first", ["profile", "add"])
def test_columns_of_unequal_length_are_named(first: str) -> None:
    made = mrc.profile(requests([1, 2]), samples=None)
    with pytest.raises(UsageError, match="length_bytes has 1 rows, offset_bytes has 2"):
        (made.add if first == "add" else mrc.profile)(requests([1, 2], lengths=1))


class TestGroups:
    """Groups of 64 lines of 4 KiB: a sample needs 4,096 lines for 64 of them."""

    @pytest.mark.parametrize("function", ["profile", "profile_traces"])
    def test_a_sample_of_few_groups_is_refused(self, call: dict[str, Callable[..., Any]], function: str) -> None:
        line = 4096 if function == "profile" else [65_536, 4096]
        with pytest.raises(
            UsageError, match=r"samples must be at least 4096, 64 groups of group_bytes 262144 \(got 4095\)"
        ):
            call[function](samples=4095, group_bytes=262_144, line_bytes=line)
        for samples in (4096, None):
            call[function](samples=samples, group_bytes=262_144, line_bytes=line)
        # Groups of one line are none, and a rate takes as many as there are.
        call[function](samples=1, group_bytes=4096, line_bytes=line)
        call[function](rate=0.5, samples=1, group_bytes=262_144, line_bytes=line)

    def test_small_lines_are_sampled_in_enough_regions(self) -> None:
        # Requests of 2 MiB make regions of 4 MiB: 131,072 lines of 512 bytes are 16 of them only.
        trace = {
            "offset_bytes": np.arange(8, dtype=np.uint64) << np.uint64(21),
            "length_bytes": np.full(8, 1 << 21, np.uint32),
        }
        assert mrc.mrc(trace, line_bytes=512, unit="requests").total == 8
