"""`python -m benchmarks.see --check CHECK`: a recording of a large cluster, made up, and what a view of it takes.

Prints seconds and memory (the greatest resident set of this process so far, VmHWM, the libraries included) as JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.see import ops

CHECKS: Mapping[str, Callable[[Path, argparse.Namespace], Mapping[str, float]]] = {"ops": ops.measure}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.see", description=__doc__)
    parser.add_argument("--check", choices=tuple(CHECKS), required=True)
    parser.add_argument("--directory", type=Path, default=None, help="where runs are made; default: a temporary one")
    parser.add_argument("--ops", type=int, default=10_000_000, help="ops: operations in the run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        print(json.dumps(CHECKS[arguments.check](Path(directory), arguments), indent=1))


main()
