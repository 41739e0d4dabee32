"""What a hit costs: random reads of a file that `bathyd` has cached beside the least daemon of the same FUSE crate.

    python benchmarks/simdisk/bathyd_cost.py [--pairs 7] [--seconds 4]

File and SSD lie in memory and both daemons have the same threads and priority, so what is compared is the daemons' own
work. `pass-through` is bathyd without a cache. Loads take turns; the figures are ratios to the least daemon.
Needs `cargo build --release -p bathyd -p bathy-fuse --bins --examples`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from daemons import example, fio, passthrough, serving

SIZE_BYTES = 256 << 20
MODES = ("write-through", "pass-through")
DEPTHS = (1, 16)


@contextlib.contextmanager
def bathyd(mode: str, transport: str = "dev", *, real_time: bool = True) -> Iterator[Path]:
    """Serve a directory with one file in memory and give the file's path."""
    with tempfile.TemporaryDirectory(prefix="bathyd-", dir="/dev/shm") as place:
        directory = Path(place)
        source = directory / "dir"
        source.mkdir()
        (directory / "state").mkdir()
        for name, size_bytes in (("dir/block", SIZE_BYTES), ("ssd", 2 * SIZE_BYTES)):
            with (directory / name).open("wb") as file:
                file.truncate(size_bytes)
        config = {
            "socket": str(directory / "socket"),
            "state": str(directory / "state"),
            "cache": {"ssd": str(directory / "ssd")},
            "sources": [{"dir": str(source), "mode": mode}],
            "transport": transport,
        }
        (directory / "config.json").write_text(json.dumps(config))
        program = example("passthrough").parents[1] / "bathyd"
        priority = ["chrt", "--rr", "1"] if real_time else []
        with serving([*priority, program, directory / "config.json"], source):
            yield source / "block"


def missed_requests(path: Path) -> int:
    """Return how many reads so far the cache could not serve alone."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path.parents[1] / "socket"))
        connection.sendall(b'{"query":"status"}\n')
        answer = json.loads(connection.makefile().readline())["answer"]
    reads = answer["cache"]["engine"]["reads"]
    return int(reads["requests"] - reads["requests_hit"])


def iops(path: Path, depth: int, seconds: float) -> float:
    job = fio(
        path, "--rw=randread", "--bs=4k", "--ioengine=libaio", f"--iodepth={depth}", "--time_based",
        f"--runtime={seconds}", "--norandommap",
    )  # fmt: skip
    return float(job["read"]["iops"])


def run(pairs: int, seconds: float) -> None:
    with contextlib.ExitStack() as stack:
        plain, _ = stack.enter_context(passthrough(SIZE_BYTES))
        paths = {mode: stack.enter_context(bathyd(mode)) for mode in MODES}
        for path in (plain, *paths.values()):
            fio(path, "--rw=write", "--bs=1M", f"--size={SIZE_BYTES}")
            fio(path, "--rw=read", "--bs=64k", f"--size={SIZE_BYTES}", "--loops=2")
        missed = missed_requests(paths["write-through"])
        for depth in DEPTHS:
            ratios: dict[str, list[float]] = {mode: [] for mode in MODES}
            plains = []
            for _ in range(pairs):
                base = iops(plain, depth, seconds)
                plains.append(base)
                for mode, path in paths.items():
                    ratios[mode].append(iops(path, depth, seconds) / base)
            for mode, found in ratios.items():
                print(
                    f"randread 4 KiB depth {depth:2}  {mode:13} / passthrough daemon"
                    f" {statistics.median(found):.3f} ({min(found):.3f} to {max(found):.3f}),"
                    f" passthrough {statistics.median(plains):.0f} IOPS",
                    flush=True,
                )
        if missed_requests(paths["write-through"]) > missed:
            raise RuntimeError("not all reads were hits: the figures say nothing about hits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args()
    run(options.pairs, options.seconds)


if __name__ == "__main__":
    main()
