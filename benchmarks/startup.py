"""What a start of `bathy` costs, as a multiple of `python -c 'import typer'` in the same run.

    python -m benchmarks.startup

Processor time, the least of several starts: what else the machine does hardly counts. The aim is 3 or less.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence

from bathyscope import cli

STARTS = 10


def cost_s(arguments: Sequence[str]) -> float:
    """Return the least processor time of a start of Python with `arguments`, in seconds."""
    least = float("inf")
    for _ in range(STARTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def main() -> None:
    base_s = cost_s(["-c", "import typer"])
    print(f"{'import typer':24} {base_s * 1e3:5.0f} ms")
    for words in (["--version"], ["--help"], *([verb, "--help"] for verb in cli.Verbs())):
        each_s = cost_s(["-m", "bathyscope.cli", *words])
        print(f"bathy {' '.join(words):18} {each_s * 1e3:5.0f} ms  {each_s / base_s:.1f} x")


if __name__ == "__main__":
    main()
