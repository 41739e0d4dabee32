"""`bathyscope.mrc` against the definition of a cache, and what it says to wrong input."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from tests.unit.size.traces import lru_hits

from bathyscope import mrc
from bathyscope.errors import AnalysisError, ParseError, UsageError
from bathyscope.simulate.arrays import chunks


def block_trace(length: int = 60_000, seed: int = 1) -> npt.NDArray[np.uint64]:
    """Hot blocks, a warm range and sequential runs, as block traces have them."""
    rng = np.random.default_rng(seed)
    parts = []
    count = 0
    while count < length:
        kind = rng.integers(3)
        if kind == 0:
            start = int(rng.integers(40)) * 128
            part = np.arange(start, start + int(rng.integers(16, 128)))
        elif kind == 1:
            part = 100_000 + rng.integers(0, 30, 64)
        else:
            part = 50_000 + (rng.pareto(1.0, 64) * 100).astype(np.int64) % 3000
        parts.append(part)
        count += len(part)
    return np.concatenate(parts)[:length].astype(np.uint64)


@pytest.fixture(scope="module")
def keys() -> npt.NDArray[np.uint64]:
    return block_trace()


def request_table(rows: int = 5000) -> pa.Table:
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "offset_bytes": pa.array((rng.integers(0, 2000, rows) * 2048).astype(np.uint64)),
            "length_bytes": pa.array((rng.integers(1, 40, rows) * 1024).astype(np.uint32)),
            "op": pa.array(rng.integers(0, 4, rows).astype(np.uint8)),
            "volume": pa.array(rng.integers(0, 2, rows).astype(np.uint32)),
        }
    )


def test_exact_lru_is_what_a_cache_does(keys: npt.NDArray[np.uint64]) -> None:
    sizes = [1, 10, 100, 1000, 3000]
    curve = mrc.mrc(keys, samples=None, sizes_bytes=np.array(sizes) * 4096)
    expected = [1 - lru_hits(keys.tolist(), size) / len(keys) for size in sizes]
    assert curve.miss_ratio.tolist() == pytest.approx(expected, abs=1e-12)
    assert curve.estimate == "exact"
    assert curve.cold_miss_ratio == pytest.approx(len(np.unique(keys)) / len(keys))
    assert (curve.stderr == 0).all()


def test_a_request_hits_when_all_its_lines_do() -> None:
    table = request_table()
    size = 700
    cache: OrderedDict[tuple[int, int], None] = OrderedDict()
    missed = {0: 0, 1: 0}
    missed_bytes = {0: 0, 1: 0}
    for row in table.to_pylist():
        if row["op"] > 1:
            continue
        first, end = row["offset_bytes"], row["offset_bytes"] + row["length_bytes"]
        hit = True
        for line in range(first // 4096, (end - 1) // 4096 + 1):
            key = (row["volume"], line)
            if key in cache:
                cache.move_to_end(key)
            else:
                hit = False
                missed_bytes[row["op"]] += min(end, (line + 1) * 4096) - max(first, line * 4096)
                if len(cache) == size:
                    cache.popitem(last=False)
                cache[key] = None
        missed[row["op"]] += not hit
    made = mrc.profile(table, samples=None)
    for number, ops in ((0, "read"), (1, "write")):
        requests = made.curve([size * 4096], unit="requests", ops=ops)  # type: ignore[arg-type]
        assert requests.miss_ratio[0] * requests.total == pytest.approx(missed[number])
        in_bytes = made.curve([size * 4096], unit="bytes", ops=ops)  # type: ignore[arg-type]
        assert in_bytes.miss_ratio[0] * in_bytes.total == pytest.approx(missed_bytes[number])


def test_arrow_and_numpy_in_any_chunks_are_one_trace(keys: npt.NDArray[np.uint64]) -> None:
    expected = mrc.profile(keys, samples=2000).curve().miss_ratio
    pieces = [pa.array(piece) for piece in np.array_split(keys, 7)]
    forms = [pa.array(keys), pa.chunked_array(pieces), keys.astype(np.uint32), keys.astype(np.int64)]
    for form in forms:
        assert mrc.profile(form, samples=2000).curve().miss_ratio.tolist() == expected.tolist()


def test_arrays_are_read_in_place(keys: npt.NDArray[np.uint64]) -> None:
    for form in (keys, pa.array(keys), keys.view(np.int64)):
        (chunk,) = chunks(form)
        assert isinstance(chunk, np.ndarray)
        address = form.buffers()[1].address if isinstance(form, pa.Array) else form.ctypes.data
        assert chunk.ctypes.data == address


@pytest.mark.parametrize("rate", [None, 0.25])
def test_pieces_join_to_the_whole(keys: npt.NDArray[np.uint64], rate: float | None) -> None:
    whole = mrc.profile(keys, samples=None, rate=rate)
    first = mrc.profile(keys[:20_001], samples=None, rate=rate, joinable=True)
    first.join(mrc.profile(keys[20_001:], samples=None, rate=rate, joinable=True))
    assert first.curve().miss_ratio.tolist() == pytest.approx(whole.curve().miss_ratio.tolist(), abs=1e-12)


def test_threads_change_nothing() -> None:
    keys = block_trace(400_000)
    for options in ({"samples": None}, {"rate": 0.2}):
        one = mrc.profile(keys, **options).curve()  # type: ignore[arg-type]
        three = mrc.profile(keys, threads=3, **options).curve()  # type: ignore[arg-type]
        assert three.miss_ratio.tolist() == pytest.approx(one.miss_ratio.tolist(), abs=1e-12)


def test_a_sample_is_close_and_its_band_holds_the_truth() -> None:
    keys = block_trace(400_000)
    truth = mrc.mrc(keys, samples=None)
    for salt in range(5):
        curve = mrc.mrc(keys, samples=1000, salt=salt, sizes_bytes=truth.sizes_bytes)
        assert np.abs(curve.miss_ratio - truth.miss_ratio).mean() < 0.01
        low, high = curve.band(3.0)
        assert ((low <= truth.miss_ratio + 1e-3) & (truth.miss_ratio - 1e-3 <= high)).mean() > 0.9
        assert curve.estimate in {"raw", "adjusted"}


def test_a_simulation_of_lru_is_the_stack(keys: npt.NDArray[np.uint64]) -> None:
    sizes = np.array([10, 500, 2500]) * 4096
    simulated = mrc.simulate(keys, "lru", sizes_bytes=sizes, threads=2)
    assert simulated.miss_ratio.tolist() == mrc.mrc(keys, samples=None, sizes_bytes=sizes).miss_ratio.tolist()


@pytest.mark.parametrize("policy", mrc.policy_names())
def test_a_miniature_of_each_policy_is_close(policy: str) -> None:
    parts = [block_trace(50_000, seed) + np.uint64(1_000_000 * seed) for seed in range(6)]
    keys = np.concatenate([part[start : start + 5000] for start in range(0, 50_000, 5000) for part in parts])
    sizes = np.array([4000, 8000, 16_000]) * 4096
    full = mrc.simulate(keys, policy, sizes_bytes=sizes)
    small = mrc.simulate(keys, policy, sizes_bytes=sizes, rate=0.3)
    assert small.estimate == "adjusted"
    assert np.isnan(small.stderr).all()
    assert np.abs(full.miss_ratio - small.miss_ratio).max() < 0.05


def test_a_trace_of_few_lines_is_simulated_whole(keys: npt.NDArray[np.uint64]) -> None:
    curve = mrc.simulate(keys, "s3-fifo", sizes_bytes=np.array([2000]) * 4096, rate=0.01)
    assert curve.estimate == "exact"
    assert (curve.stderr == 0).all()


def test_the_module_is_callable(keys: npt.NDArray[np.uint64]) -> None:
    assert mrc(keys, policy="s3-fifo").policy == "s3-fifo"  # type: ignore[operator]


def test_fetch_amplification_and_flash_writes() -> None:
    table = request_table()
    made = mrc.profile(table, samples=None, line_bytes=65_536)
    amplification = made.fetch_amplification([65_536, 1 << 30])
    assert amplification[0] > amplification[1] > 0
    written = made.flash_write_bytes([1 << 30])[0]
    assert written >= made.totals("write")["bytes"]


@pytest.mark.parametrize(
    "trace",
    [
        "text",
        None,
        np.array([1.5]),
        np.array([[1, 2]]),
        np.array([-1]),
        pa.array([1, None]),
        pa.array(["a"]),
        {"offset_bytes": np.array([1])},
        {"offset_bytes": np.array([1, 2]), "length_bytes": np.array([1])},
        {"offset_bytes": np.array([1]), "length_bytes": np.array([1 << 40])},
    ],
)
def test_what_is_no_trace_is_refused(trace: object) -> None:
    with pytest.raises(UsageError):
        mrc.mrc(trace)


def test_what_was_not_profiled_is_not_answered(keys: npt.NDArray[np.uint64]) -> None:
    with pytest.raises(AnalysisError):
        mrc.profile(keys).curve(unit="bytes")
    with pytest.raises(AnalysisError):
        mrc.mrc(np.empty(0, np.uint64))


def test_profiles_that_do_not_fit_do_not_join(keys: npt.NDArray[np.uint64]) -> None:
    with pytest.raises(UsageError):
        mrc.profile(keys).join(mrc.profile(keys))


class TestFiles:
    @pytest.fixture
    def path(self, tmp_path: Path, keys: npt.NDArray[np.uint64]) -> Path:
        path = tmp_path / "disk.u32"
        keys.astype("<u4").tofile(path)
        return path

    def test_a_file_gives_the_curves_of_its_lines(self, path: Path, keys: npt.NDArray[np.uint64]) -> None:
        calls: list[tuple[int, int]] = []
        done = mrc.profile_traces(
            [path],
            line_bytes=[4096, 65_536],
            trace_format="raw-u32",
            samples=None,
            threads=2,
            progress=lambda events, size: calls.append((events, size)),
        )
        assert [found.line_bytes for found in done.profiles] == [4096, 65_536]
        assert done.report["events"] == len(keys)
        assert calls[-1] == (len(keys), path.stat().st_size)
        for found, line_keys in zip(done.profiles, (keys, keys // np.uint64(16)), strict=True):
            expected = mrc.profile(line_keys, samples=None, line_bytes=found.line_bytes)
            assert found.profile.curve().miss_ratio.tolist() == expected.curve().miss_ratio.tolist()

    def test_what_progress_raises_ends_the_pass(self, path: Path) -> None:
        def stop(events: int, size: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            mrc.profile_traces([path], trace_format="raw-u32", progress=stop)

    def test_trouble_with_files_is_an_error_with_a_hint(self, tmp_path: Path, path: Path) -> None:
        garbage = tmp_path / "garbage"
        garbage.write_bytes(b"\x00\xff" * 10)
        with pytest.raises(ParseError):
            mrc.profile_traces([garbage], trace_format="vscsi1")
        with pytest.raises(UsageError):
            mrc.profile_traces([path], group_by="node", trace_format="raw-u32")


def multi_line_requests() -> dict[str, np.ndarray]:
    """Reads of one to sixteen lines, of which the last line is often cold."""
    rng = np.random.default_rng(11)
    rows = 120_000
    start = rng.integers(0, 40_000, rows) * rng.random(rows) ** 2
    return {
        "offset_bytes": start.astype(np.uint64) * np.uint64(4096),
        "length_bytes": (rng.integers(1, 17, rows) * 4096).astype(np.uint32),
    }


def test_a_sample_of_single_lines_refuses_to_tell_requests() -> None:
    sampled = mrc.profile(multi_line_requests(), samples=2000)
    sampled.curve(unit="bytes")
    with pytest.raises(UsageError, match="whole requests"):
        sampled.curve(unit="requests")


def test_a_sample_of_regions_tells_requests() -> None:
    trace = multi_line_requests()
    truth = mrc.mrc(trace, unit="requests", samples=None)
    by_lines = mrc.mrc(trace, unit="lines", samples=None)
    # What single lines say is far off, so the agreement below is none by chance.
    assert np.abs(by_lines.miss_ratio - truth.miss_ratio).mean() > 0.05
    profile = mrc.profile(trace, samples=20_000, group_bytes=1 << 18)
    assert not profile.exact
    assert profile.rate < 0.7
    sampled = profile.curve(truth.sizes_bytes, unit="requests")
    assert np.abs(sampled.miss_ratio - truth.miss_ratio).mean() < 0.02


def test_requests_are_sampled_in_regions_without_being_told_to() -> None:
    trace = multi_line_requests()
    trace["offset_bytes"] = trace["offset_bytes"] * np.uint64(16)
    truth = mrc.mrc(trace, unit="requests", samples=None)
    sampled = mrc.mrc(trace, sizes_bytes=truth.sizes_bytes, unit="requests")
    assert sampled.estimate != "exact"
    assert truth.sizes_lines[-1] > 2 * 131_072
    assert np.abs(sampled.miss_ratio - truth.miss_ratio).mean() < 0.01


def test_files_are_sampled_in_regions_too(tmp_path: Path) -> None:
    trace = multi_line_requests()
    path = tmp_path / "requests.csv"
    rows = zip(trace["offset_bytes"].tolist(), trace["length_bytes"].tolist(), strict=True)
    path.write_text("offset_bytes,length_bytes\n" + "".join(f"{offset},{length}\n" for offset, length in rows))
    found = mrc.profile_traces([path], line_bytes=[4096, 16_384], samples=20_000, group_bytes=1 << 18)
    for profile in found.profiles:
        truth = mrc.mrc(trace, unit="requests", samples=None, line_bytes=profile.line_bytes)
        sampled = profile.profile.curve(truth.sizes_bytes, unit="requests")
        assert np.abs(sampled.miss_ratio - truth.miss_ratio).mean() < 0.03


def test_the_error_of_reads_is_that_of_reads() -> None:
    """One percent skewed reads among uniform writes: what the writes agree on says nothing of the reads."""
    rng = np.random.default_rng(5)
    rows = 300_000
    write = rng.random(rows) < 0.99
    skewed = np.minimum(rng.zipf(1.3, rows), 60_000)
    line = np.where(write, rng.integers(0, 60_000, rows), skewed)
    trace = {
        "offset_bytes": line.astype(np.uint64) * np.uint64(4096),
        "length_bytes": np.full(rows, 4096, np.uint32),
        "op": write.astype(np.uint8),
    }
    exact = mrc.profile(trace, samples=None)
    for ops, least in (("read", 0.85), ("write", 0.85)):
        truth = exact.curve(ops=ops)  # type: ignore[arg-type]
        held = []
        for salt in range(8):
            sampled = mrc.profile(trace, samples=4000, salt=salt).curve(truth.sizes_bytes, ops=ops)  # type: ignore[arg-type]
            low, high = sampled.band(2.4)
            held.append((low <= truth.miss_ratio) & (truth.miss_ratio <= high))
        assert np.mean(held) > least, ops


def test_the_error_of_bytes_in_a_sample_is_not_known() -> None:
    sampled = mrc.profile(multi_line_requests(), samples=2000)
    assert np.isnan(sampled.curve(unit="bytes").stderr).all()
    assert (sampled.curve(unit="lines").stderr >= 0).all()


def test_many_small_groups_take_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "volumes.csv"
    rows = "".join(f"{volume},{volume % 7 * 4096},4096\n" for volume in range(5000) for _ in range(2))
    path.write_text("volume,offset_bytes,length_bytes\n" + rows)
    found = mrc.profile_traces([path], line_bytes=[4096, 65_536], group_by="image")
    assert len(found.profiles) == 10_000
    assert sum(group.profile.memory_bytes for group in found.profiles) < 10_000 * 12_000
    assert found.report["memory_bytes"] < 10_000 * 12_000
