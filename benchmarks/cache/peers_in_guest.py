"""bcache, dm-cache and bathyd in one guest: hits, disk traffic, and what is still warm after a power cut.

    python -m benchmarks.cache.peers_in_guest [FILE] [--requests N] [--cache 136M] [--peers NAME ...] [--json FILE]

FILE is a vSCSI trace; without it, a synthetic one: 4 to 64 KiB, Zipf over 1 GiB, with writes and scans. Each peer gets
new disks, an SSD of the same size and a HDD, and the same requests, one at a time and past the page cache: twice, then
QEMU is killed, the guest boots again, and the requests follow a third time. Before that, bathyd alone is killed once.
The guest's processor is emulated, so that latencies mean nothing: all figures are counts.

Hits are reads that each cache counts as served without the HDD. What reached the disks is what the guest's kernel
counts for them (/sys/block/*/stat), the same for all. Fetches 70 MB of Debian packages the first time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.cache import guest
from benchmarks.cache.bed import place
from benchmarks.mrc.common import VSCSI1

from bathyscope.errors import EnvironmentError_
from bathyscope.units import parse_bytes

SECTOR_BYTES = 512
LINE_BYTES = 64 << 10
MIB = 1 << 20
REQUEST = np.dtype([("offset_bytes", "<u8"), ("length_bytes", "<u4"), ("is_write", "<u4")])
Requests = npt.NDArray[np.void]

READ_10, WRITE_10 = 0x28, 0x2A

# bcache publishes its counters 22 times in 5 minutes (drivers/md/bcache/stats.c): every 13.6 s.
IDLE_S = 15
MOVED = (
    *("hdd_read_bytes", "hdd_write_bytes", "ssd_write_bytes"),
    *("start_ssd_read_bytes", "start_hdd_read_bytes"),
)
BOOT_TIMEOUT_S = 1800.0


@dataclasses.dataclass(frozen=True)
class Peer:
    """One cache, and how it is set up."""

    name: str
    system: str
    options: str = ""
    cutoff: str = ""
    after_unclean: str = "cold"


# bcache gives each node of its index a bucket of its own, and keeps some in reserve: with buckets of 512 KiB, the
# default, a cache this small has few left. dm-cache gets blocks as long as the lines of bathyd; both write through.
BUCKETS = "--bucket 64k"
DM_CACHE = f"{LINE_BYTES // SECTOR_BYTES} 2 metadata2 writethrough smq 0"
PEERS = (
    Peer("bcache", "bcache", BUCKETS),
    Peer("bcache, no cutoff", "bcache", BUCKETS, cutoff="0"),
    Peer("dm-cache smq", "dm_cache", DM_CACHE),
    Peer("bathyd", "bathyd"),
    Peer("bathyd, verify", "bathyd", after_unclean="verify"),
)


@dataclasses.dataclass(frozen=True)
class Mark:
    """Counts since the guest started: of the two disks, and of the cache's reads."""

    ssd_read_bytes: int
    ssd_write_bytes: int
    hdd_reads: int
    hdd_read_bytes: int
    hdd_write_bytes: int
    cache_reads: int
    cache_hits: int

    def since(self, earlier: Mark) -> Mark:
        """Return what was counted from `earlier` on."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(earlier), strict=True)
        return Mark(*(now - then for now, then in pairs))


def synthetic(
    requests: int, disk_bytes: int, seed: int = 12, *, exponent: float = 0.9, writes: float = 0.2, scans: float = 0.1
) -> Requests:
    """Return a trace: reads and writes of lines by Zipf, and scans of 8 MiB in 64 KiB reads.

    No request crosses a line, so that a cache that splits requests there counts as one that does not. Popular lines lie
    next to each other in groups of 16.
    """
    rng = np.random.default_rng(seed)
    lines, group = disk_bytes // LINE_BYTES, 16
    weights = np.arange(1, lines + 1, dtype=np.float64) ** -exponent
    place = (rng.permutation(lines // group)[:, None] * group + np.arange(group)).ravel()
    line = place[rng.choice(place.size, requests, p=weights[: place.size] / weights[: place.size].sum())]
    # The same line is always asked for in parts of the same length.
    length = np.array([4, 8, 16, 32, 64])[rng.choice(5, lines, p=[0.45, 0.2, 0.2, 0.1, 0.05])][line] << 10
    found = np.zeros(requests, REQUEST)
    found["offset_bytes"] = line * LINE_BYTES + rng.integers(0, LINE_BYTES // length) * length
    found["length_bytes"] = length
    found["is_write"] = rng.random(requests) < writes
    scan_length = (8 << 20) // LINE_BYTES
    for start in rng.choice(requests // scan_length, int(requests * scans / scan_length), replace=False) * scan_length:
        part = found[start : start + scan_length]
        first = rng.integers(0, lines - scan_length)
        part["offset_bytes"] = (first + np.arange(scan_length)) * LINE_BYTES
        part["length_bytes"], part["is_write"] = LINE_BYTES, 0
    return found


def from_vscsi(path: Path, requests: int | None) -> Requests:
    """Return the first reads and writes of a trace."""
    records = np.fromfile(path, VSCSI1)
    records = records[np.isin(records["command"], (READ_10, WRITE_10)) & (records["length_bytes"] > 0)][:requests]
    found = np.zeros(len(records), REQUEST)
    found["offset_bytes"] = records["sector"] * np.uint64(SECTOR_BYTES)
    found["length_bytes"] = records["length_bytes"]
    found["is_write"] = records["command"] == WRITE_10
    return found


def _bcache_reads(said: str) -> tuple[int, int]:
    # What bcache decided to bypass, it still reads from the SSD if it is there.
    hits, misses, bypass_hits, bypass_misses = map(int, said.split())
    return hits + misses + bypass_hits + bypass_misses, hits + bypass_hits


def _dm_cache_reads(said: str) -> tuple[int, int]:
    # Documentation/admin-guide/device-mapper/cache.rst, "Status".
    hits, misses = map(int, said.split()[7:9])
    return hits + misses, hits


def _bathyd_reads(said: str) -> tuple[int, int]:
    reads = json.loads(said)["answer"]["cache"]["engine"]["reads"]
    return reads["requests"], reads["requests_hit"]


READS: dict[str, Callable[[str], tuple[int, int]]] = {
    "bcache": _bcache_reads,
    "dm_cache": _dm_cache_reads,
    "bathyd": _bathyd_reads,
}


def measure(peer: Peer, image: guest.Image, requests: Requests, cache_bytes: int, idle_s: int) -> dict[str, Any]:
    """Return what was counted in each pass, and between the start of the guest and each first pass."""
    # bcache keeps 8 KiB for itself.
    hdd_bytes = (int((requests["offset_bytes"] + requests["length_bytes"]).max()) // MIB + 2) * MIB
    with place(Path(tempfile.gettempdir())) as directory:
        beside = directory / "beside"
        for name in ("osd", "state"):
            (beside / name).mkdir(parents=True)
        (beside / "osd" / "block").symlink_to("/dev/vdb")
        disks = [
            guest.disk(directory / "ssd", cache_bytes),
            guest.disk(directory / "hdd", hdd_bytes),
            guest.file_system(directory / "beside.ext4", 32 * MIB, beside),
        ]
        config = {
            "socket": "/run/bathyd",
            "state": "/state/state",
            "cache": {"ssd": "/dev/vda", "after_unclean": peer.after_unclean, "admission": {}},
            "sources": [{"dir": "/state/osd", "mode": "write-through"}],
        }
        passes: dict[str, Any] = {}
        first = ["first", "second", *(["after-kill"] if peer.system == "bathyd" else [])]
        for boot, names, end in (("first", first, "cut"), ("again", ["after-cut"], "off")):
            variables = {
                "SYSTEM": peer.system,
                "BOOT": boot,
                "PASSES": " ".join(names),
                "IDLE_S": str(idle_s),
                "OPTIONS": peer.options,
                "CUTOFF": peer.cutoff,
                "END": end,
            }
            job = {
                "job": "".join(f"{name}='{value}'\n" for name, value in variables.items()).encode(),
                "config.json": json.dumps(config).encode(),
                "trace": requests.tobytes(),
            }
            with guest.booted(image, disks, job, directory, BOOT_TIMEOUT_S) as said:
                passes |= _passes(said, READS[peer.system], names)
    return {"peer": peer.name, "passes": passes}


def _passes(said: Iterable[list[str]], reads_in: Callable[[str], tuple[int, int]], names: list[str]) -> dict[str, Any]:
    """Return what a guest counted from its start, or the pass before, to each pass of a boot, and during it."""
    disks: dict[str, dict[str, list[int]]] = {}
    reads: dict[str, tuple[int, int]] = {}
    for words in said:
        if words[0] == "disk":
            disks.setdefault(words[1], {})[words[2]] = [int(it) for it in words[3:]]
        elif words[0] == "counters":
            reads[words[1]] = reads_in(" ".join(words[2:]))
        elif words[0] == "done":
            break
    marks = {name: _mark(disks[name], reads[name]) for name in disks}
    found = {}
    for number, name in enumerate(names):
        before = marks[f"before-{name}"]
        start = before.since(marks[names[number - 1]]) if number else before
        found[name] = dataclasses.asdict(marks[name].since(before)) | {
            "start_ssd_read_bytes": start.ssd_read_bytes,
            "start_hdd_read_bytes": start.hdd_read_bytes,
        }
    return found


def _mark(disks: dict[str, list[int]], reads: tuple[int, int]) -> Mark:
    # Documentation/block/stat.rst: reads, merged, sectors, ms; writes, merged, sectors, ms; ...
    ssd, hdd = disks["vda"], disks["vdb"]
    return Mark(
        ssd[2] * SECTOR_BYTES, ssd[6] * SECTOR_BYTES, hdd[0], hdd[2] * SECTOR_BYTES, hdd[6] * SECTOR_BYTES, *reads
    )


def show(result: dict[str, Any]) -> None:
    """Print a row for each pass."""
    for name, counts in result["passes"].items():
        moved = "".join(f" {counts[it] / MIB:9.1f}" for it in MOVED)
        hit_ratio = counts["cache_hits"] / counts["cache_reads"]
        print(f"{result['peer']:18} {name:11} {hit_ratio:9.4f} {counts['hdd_reads']:9}{moved}", flush=True)


def run(peers: list[Peer], requests: Requests, cache_bytes: int, idle_s: int = IDLE_S) -> Iterator[dict[str, Any]]:
    """Measure one peer after the other, and print what is found."""
    image = guest.image()
    is_write = requests["is_write"] == 1
    read_bytes, write_bytes = (requests["length_bytes"][it].sum() / MIB for it in (~is_write, is_write))
    print(
        f"{len(requests)} requests: {(~is_write).sum()} reads of {read_bytes:.0f} MiB, {is_write.sum()} writes of"
        f" {write_bytes:.0f} MiB; SSD of {cache_bytes / MIB:.0f} MiB; Linux {image.version}\n"
        f"{'':18} {'pass':11} {'hit':>9} {'HDD':>9} {'HDD read':>9} {'HDD write':>9} {'SSD write':>9} {'start SSD':>9}"
        f" {'start HDD':>9}\n"
        f"{'':18} {'':11} {'ratio':>9} {'reads':>9} {'MiB':>9} {'MiB':>9} {'MiB':>9} {'read MiB':>9} {'read MiB':>9}",
        flush=True,
    )
    for peer in peers:
        result = measure(peer, image, requests, cache_bytes, idle_s)
        show(result)
        yield result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, help="a vSCSI trace; otherwise a synthetic one")
    parser.add_argument("--requests", type=int, help="of the trace (all; synthetic: 50000)")
    parser.add_argument("--cache", type=parse_bytes, default=136 * MIB, help="size of the SSD")
    parser.add_argument("--peers", nargs="+", choices=[it.name for it in PEERS], default=[it.name for it in PEERS])
    parser.add_argument(
        "--idle-s", type=int, default=IDLE_S, help="between the last request and the counts, or the cut"
    )
    parser.add_argument("--json", type=Path, help="write all counts to this file")
    options = parser.parse_args()
    if options.file is None:
        requests = synthetic(options.requests or 50_000, 1 << 30)
    else:
        requests = from_vscsi(options.file, options.requests)
    results = []
    try:
        for result in run([it for it in PEERS if it.name in options.peers], requests, options.cache, options.idle_s):
            results.append(result)
            if options.json:
                found = {"cache_bytes": options.cache, "requests": len(requests), "results": results}
                options.json.write_text(json.dumps(found, indent=1) + "\n")
    except EnvironmentError_ as error:
        print(f"{error}\nhint: {error.hint}" if error.hint else error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
