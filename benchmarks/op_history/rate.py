"""How fast op histories are read, on one core: MB of JSON a second.

    python benchmarks/op_history/rate.py [--version 20.2.4] [--ops 50000] [--runs 7]

The histories are those that the tests were recorded with, their ops repeated as other requests at other times. Measured
are the core alone, the source with its Arrow table, what is done before an answer is kept (`compact`), and `json.loads`
of the same bytes, which builds objects and no table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bathyscope import _core
from bathyscope.records import Op, RawAnswer
from bathyscope.sources import op_history
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "op_history"
SCOPE = Scope(target=Target(name="t"))
_REQUEST = re.compile(r"(client\.\d+\.\d+):(\d+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="20.2.4", choices=sorted(path.name for path in FIXTURES.iterdir()))
    parser.add_argument("--ops", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    if _core.DEBUG_BUILD:
        print("a debug build of the core: its figures mean nothing", file=sys.stderr)
    for form, figures in measure(arguments.version, arguments.ops, arguments.runs).items():
        print(f"{form}: {figures.pop('mb'):.1f} MB, {figures.pop('rows'):.0f} client ops")
        for name, rate in figures.items():
            print(f"  {name:24} {rate:8.0f} MB/s")


def measure(version: str, ops: int, runs: int) -> dict[str, dict[str, float]]:
    """Return form of the history → MB, rows, and MB/s of each reader."""
    whole = RawAnswer("op_history-osd.0", (), (), 0, history(version, ops), b"", 10**18, 10**18)
    short = op_history.compact(whole)
    found = {}
    for form, answer in (("as the OSD answers", whole), ("as it is kept", short)):
        size_mb = len(answer.stdout) / 1e6
        readers: dict[str, Callable[[], object]] = {
            "core": lambda answer=answer: _core.OpHistories(None).add(0, answer.stdout, 0, None),
            "source, Arrow table": lambda answer=answer: op_history.SOURCE.parse([answer], SCOPE),
            "json.loads": answer.json,
            "compact": lambda answer=answer: op_history.compact(answer),
        }
        rows = op_history.SOURCE.parse([answer], SCOPE)[Op].num_rows
        found[form] = {"mb": size_mb, "rows": rows}
        found[form] |= {name: size_mb / best_s(read, runs) for name, read in readers.items()}
    return found


def history(version: str, ops: int) -> bytes:
    """Return a history of so many ops, replicas' parts among them in the share in which they were recorded."""
    recorded = [
        json.dumps(op, separators=(",", ":"))
        for path in sorted((FIXTURES / version / "three-replicas").glob("*.stdout"))
        for op in json.loads(path.read_bytes())["ops"]
    ]
    listed = ",".join(itertools.islice(_repeated(recorded), ops))
    return f'{{"size":{ops + 1},"duration":600,"ops":[{listed}]}}'.encode()


def _repeated(recorded: list[str]) -> Iterator[str]:
    for turn in itertools.count():
        # Other requests, and an hour's other seconds.
        clock = f"T{turn // 3600 % 24:02}:{turn // 60 % 60:02}:{turn % 60:02}."
        for op in recorded:
            yield re.sub(r"T\d\d:\d\d:\d\d\.", clock, _REQUEST.sub(rf"\g<1>:{turn}0\g<2>", op, count=1))


def best_s(work: Callable[[], object], runs: int) -> float:
    """Return the least processor time of `runs`: other work on the machine only adds to it."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    main()
