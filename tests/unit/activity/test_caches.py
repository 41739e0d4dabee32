"""What the caches over OSDs served, by OSD and node."""

from __future__ import annotations

from tests.unit.activity.conftest import START_NS, Recording, S, rows_of

from bathyscope.records import CacheSample, Placement

GIB = 1 << 30


def placed(osd: int, host: str, size_bytes: int | None) -> Placement:
    return Placement(osd, host, "hdd", None, None, size_bytes, None, None, None)


def sample(osd: int | None, at_s: float, reads: int, hits: int, used_bytes: int, **other: int) -> CacheSample:
    directory = "/srv/data" if osd is None else f"/var/lib/ceph/osd/ceph-{osd}"
    counts = {"write_count": 10, "write_hit_count": 5, "write_bytes": 40_960} | other
    return CacheSample(
        START_NS + round(at_s * S), 10 * S, "localhost", "fast", directory.rpartition("/")[2], directory, osd,
        GIB, used_bytes, 3, reads, hits, reads * 4096, hits * 4096 + 1024, **counts,
    )  # fmt: skip


def test_hits_and_cached_shares_of_osds_and_nodes(recording: Recording) -> None:
    recording.seen("caches")
    recording.add(placed(0, "a", 4 * GIB), placed(1, "a", 4 * GIB), placed(2, "b", None))
    recording.add(
        *(sample(0, 10, 100, 50, 5), sample(0, 20, 100, 90, GIB)),
        *(sample(1, 20, 0, 0, GIB), sample(2, 20, 60, 15, 7), sample(None, 20, 6, 6, 0)),
    )
    found = recording.view("caches")
    columns = ("OSD", "cached", "of capacity", "reads", "hit", "read IOPS", "to cached")
    assert rows_of(found, *columns) == [
        ("osd.0", GIB, 0.25, 200, 0.7, 200 / 60, 0.5),
        ("osd.1", GIB, 0.25, 0, None, 0.0, 0.5),
        ("osd.2", 7, None, 60, 0.25, 1.0, 0.5),
        ("/srv/data", 0, None, 6, 1.0, 0.1, 0.5),
    ]
    assert rows_of(found, "from cache")[0] == ((140 * 4096 + 2048) / (200 * 4096),)
    nodes = found.tables[1]
    assert [row[:5] for row in nodes.rows] == [
        ("(not known)", 1, 0, None, 3),
        ("a", 2, 2 * GIB, 0.25, 6),
        ("b", 1, 7, None, 3),
    ]
    assert found.sentence == "61 % of the reads of 4 OSDs came from the cache, with 2.00 GiB cached."


def test_an_interval_at_the_edge_counts_with_its_part(recording: Recording) -> None:
    recording.seen("caches")
    recording.add(sample(0, 65, 100, 50, 5))
    assert rows_of(recording.view("caches"), "reads", "hit") == [(50, 0.5)]


def test_without_a_cache_nothing_is_claimed(recording: Recording) -> None:
    found = recording.view("caches")
    assert found.sentence == "No cache was seen at work."
    assert any("No cache over an OSD of this machine was asked" in remark for remark in found.unseen)
