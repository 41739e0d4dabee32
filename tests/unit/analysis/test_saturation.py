# ruff: noqa: E501 - a table of cases reads best with one case a line
"""Verdicts: each limit is found when it is the limit, and nothing is claimed when nothing qualifies."""

from __future__ import annotations

import dataclasses

import pytest

from bathyscope.analysis.saturation import Load, verdict
from bathyscope.analysis.stages import PeerWait, StageFinding
from bathyscope.records.finding import StageShare


def stage_finding(peers: tuple[PeerWait, ...] = (), **shares: float) -> StageFinding:
    rows = tuple(StageShare(stage, share, 1e6 * share, 1e6 * share, 3e6 * share) for stage, share in shares.items())
    return StageFinding(rows, 500, complete=True, slowest_peers=peers)


IDLE = Load(
    layer="rbd", device_class="ssd", op="randwrite", concurrency=16, latency_ns_mean=4.3e6, utilization_max=0.4,
    utilization_mean=0.39, device_count=3, osd_cpu_us_per_op=180.0, osd_cores=0.4, client_cores=0.2,
    client_thread_busy=0.1, host_cpu_ratio=0.3, host_processors=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "limit", "words"),
    [
        ({"device_class": "hdd", "utilization_max": 0.99, "utilization_mean": 0.98, "limited": True}, "device", "HDD at 99 % of its limit"),
        ({"utilization_max": 0.99, "utilization_mean": 0.5, "limited": True}, "device", "the mean of 3 at 50 %"),
        ({"device_class": "hdd", "utilization_max": 0.99, "utilization_mean": 0.98}, "device", "HDD at 99 % utilisation"),
        ({"utilization_max": 0.99, "utilization_mean": 0.98}, "device", "can have reserve"),
        ({"client_thread_busy": 0.97}, "client_cpu", "97 % of a processor"),
        ({"client_cores": 1.9, "host_cpu_ratio": 1.0}, "client_cpu", "1.90 of 2 processors"),
        ({"osd_cores": 1.5, "host_cpu_ratio": 0.97}, "osd_cpu", "OSD CPU: 180 µs per op, 1.50 of 2 cores"),
        ({"osd_cores": 0.3, "client_cores": 1.2, "host_cpu_ratio": 0.97}, "host_cpu", "OSDs 0.300, load 1.20 of 2 cores"),
        ({"osd_cores": 0.6, "other_cores": 1.2, "host_cpu_ratio": 0.97}, "host_cpu", "other processes 1.20 of 2 cores"),
        ({"read_from_cache_ratio": 0.9, "op": "randread"}, "cache", "90 % of the reads came from a cache"),
        ({"stages": stage_finding(store=0.3, replica_wait=0.61, queue=0.09)}, "replica_wait", "61 % of the time"),
        ({"stages": stage_finding(store=0.3, replica_wait=0.1, queue=0.6)}, "queue", "OSD's queue is 60 %"),
        ({"concurrency": 1}, "latency_bound", "one I/O at a time, 4.30 ms each"),
        ({"concurrency": 1, "stages": stage_finding(store=0.8, queue=0.2)}, "latency_bound", "80 % of the time inside the OSDs is in the OSD's own store"),
        ({}, "unknown", "cannot tell: nothing measured is at its limit; the busiest device is at 40 %"),
        ({"stages": stage_finding(store=0.8, queue=0.2)}, "unknown", "80 % of the time inside the OSDs"),
    ],
)  # fmt: skip
def test_limits(change: dict[str, object], limit: str, words: str) -> None:
    found = verdict(dataclasses.replace(IDLE, **change))  # type: ignore[arg-type]
    assert found.limit == limit
    assert words in found.sentence


def test_a_throttled_device_below_its_limit_is_not_blamed_for_being_busy() -> None:
    assert verdict(dataclasses.replace(IDLE, limited=True, utilization_max=0.6, device_class="hdd")).limit == "unknown"


def test_busy_flash_is_not_blamed_while_processors_are_full() -> None:
    full = dataclasses.replace(IDLE, utilization_max=0.99, utilization_mean=0.98, host_cpu_ratio=0.98, osd_cores=1.6)
    assert verdict(full).limit == "osd_cpu"


def test_one_io_at_a_time_does_not_saturate_a_disk() -> None:
    """At QD1 a disk is busy nearly all the time because it serves the one I/O there is."""
    alone = dataclasses.replace(IDLE, device_class="hdd", concurrency=1, utilization_max=0.97, utilization_mean=0.4)
    assert verdict(alone).limit == "latency_bound"


def test_nothing_measured() -> None:
    found = verdict(Load("rbd", "", "randread", 16))
    assert found.limit == "unknown"
    assert found.sentence == "cannot tell: neither devices nor processors were measured"
    assert found.evidence == ()


def test_a_peer_is_named_only_when_it_stands_out() -> None:
    even = tuple(PeerWait(n, 1 / 3, 100, 1e6) for n in range(3))
    one = (PeerWait(7, 0.8, 100, 9e6), PeerWait(1, 0.1, 100, 1e6), PeerWait(2, 0.1, 100, 1e6))
    shares = {"store": 0.3, "replica_wait": 0.7}
    assert "osd." not in verdict(dataclasses.replace(IDLE, stages=stage_finding(even, **shares))).sentence
    assert (
        "osd.7 is waited for in 80 %"
        in verdict(dataclasses.replace(IDLE, stages=stage_finding(one, **shares))).sentence
    )


def test_evidence_holds_what_was_measured_and_nothing_else() -> None:
    names = {e.name: e.figure for e in verdict(IDLE).evidence}
    assert names["OSD CPU per op"].value == 180.0
    assert names["OSD CPU per op"].unit == "µs"
    assert "reads from cache" not in names
