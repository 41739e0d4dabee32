"""The benchmark beside bcache and dm-cache: its trace, how it reads their counters, and a small run in a guest."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

MIB = 1 << 20
# Said by Linux 6.1 in the guest. The fields of the second are described in device-mapper/cache.rst.
BCACHE_COUNTERS = "119 285 0 0"
DM_CACHE_STATUS = (
    "0 135168 cache 8 13/1024 128 3/2112 35 366 7 92 0 3 0 2 metadata2 writethrough"
    " 2 migration_threshold 2048 smq 0 rw -"
)
BATHYD_STATUS = '{"ok": true, "answer": {"cache": {"engine": {"reads": {"requests": 1620, "requests_hit": 326}}}}}'


@pytest.fixture
def peers() -> Iterator[ModuleType]:
    try:
        yield importlib.import_module("benchmarks.cache.peers_in_guest")
    finally:
        for name in [name for name in sys.modules if name.startswith("benchmarks")]:
            sys.modules.pop(name)


def test_a_synthetic_trace_is_the_same_again_and_no_request_crosses_a_line(peers: ModuleType) -> None:
    trace = peers.synthetic(20_000, 256 * MIB)
    assert (trace == peers.synthetic(20_000, 256 * MIB)).all()
    assert (trace != peers.synthetic(20_000, 256 * MIB, seed=13)).any()
    ends = trace["offset_bytes"] + trace["length_bytes"]
    assert ends.max() <= 256 * MIB
    assert (trace["offset_bytes"] // peers.LINE_BYTES == (ends - 1) // peers.LINE_BYTES).all()
    assert set(np.unique(trace["length_bytes"])) == {4096, 8192, 16384, 32768, 65536}
    assert 0.16 < trace["is_write"].mean() < 0.2
    # A tenth of the requests are scans: each reads where the one before ended.
    follows = trace["offset_bytes"][1:] == ends[:-1]
    assert 0.09 < follows.mean() < 0.13
    # By Zipf, a tenth of the lines gets far more than a tenth of the requests.
    counts = np.sort(np.unique(trace["offset_bytes"] // peers.LINE_BYTES, return_counts=True)[1])[::-1]
    assert counts[:409].sum() > 0.5 * counts.sum()


def test_a_recorded_trace_is_cut_after_its_first_reads_and_writes(peers: ModuleType, tmp_path: Path) -> None:
    records = np.zeros(4, peers.VSCSI1)
    records["command"] = [peers.READ_10, 0x35, peers.WRITE_10, peers.READ_10]
    records["length_bytes"], records["sector"] = 8192, [2, 3, 4, 5]
    records.tofile(tmp_path / "trace.vscsi")
    assert peers.from_vscsi(tmp_path / "trace.vscsi", 2).tolist() == [(1024, 8192, 0), (2048, 8192, 1)]


def test_reads_and_hits_in_what_each_cache_says(peers: ModuleType) -> None:
    assert peers.READS["bcache"](BCACHE_COUNTERS) == (404, 119)
    # What was to be bypassed and was in the cache nevertheless is a hit.
    assert peers.READS["bcache"]("119 285 6 90") == (500, 125)
    assert peers.READS["dm_cache"](DM_CACHE_STATUS) == (401, 35)
    assert peers.READS["bathyd"](BATHYD_STATUS) == (1620, 326)


def test_a_pass_counts_what_came_after_its_start_and_a_start_what_came_before_it(peers: ModuleType) -> None:
    disk = "{reads} 0 {read_sectors} 0 7 0 {written_sectors} 0 0 0 0"

    def mark(name: str, at: int) -> list[list[str]]:
        return [
            *(
                ["disk", name, which, *disk.format(reads=at, read_sectors=8 * at, written_sectors=2 * at).split()]
                for which in ("vda", "vdb")
            ),
            ["counters", name, *f"{at} {2 * at} 0 0".split()],
        ]

    said = [*mark("before-first", 10), *mark("first", 110), *mark("before-second", 111), *mark("second", 211), ["done"]]
    passes = peers._passes(said, peers.READS["bcache"], ["first", "second"])
    assert passes["first"] == {
        "ssd_read_bytes": 100 * 4096,
        "ssd_write_bytes": 100 * 1024,
        "hdd_reads": 100,
        "hdd_read_bytes": 100 * 4096,
        "hdd_write_bytes": 100 * 1024,
        "cache_reads": 300,
        "cache_hits": 100,
        "start_ssd_read_bytes": 10 * 4096,
        "start_hdd_read_bytes": 10 * 4096,
    }
    assert passes["second"]["start_hdd_read_bytes"] == 4096


@pytest.mark.slow
@pytest.mark.machine
def test_what_is_warm_after_a_power_cut_is_counted(peers: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    if (reason := peers.guest.missing()) is not None:
        pytest.skip(reason)
    (verify,) = (peer for peer in peers.PEERS if peer.name == "bathyd, verify")
    requests = peers.synthetic(500, 64 * MIB, writes=0.0)
    # bathyd writes records of lines every 5 s.
    (result,) = peers.run([verify], requests, 136 * MIB, idle_s=8)
    passes = result["passes"]
    assert {name: it["cache_reads"] for name, it in passes.items()} == dict.fromkeys(passes, 500)
    # Everything fits: the HDD is asked in the first pass only for what was asked before.
    assert passes["second"]["cache_hits"] == 500
    assert passes["second"]["hdd_reads"] == 0
    assert passes["first"]["cache_hits"] < passes["after-cut"]["cache_hits"]
    assert "after-cut" in capsys.readouterr().out
