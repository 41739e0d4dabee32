"""`python -m benchmarks.activity --check CHECK`: what a large cluster costs: live screen, views of a recording."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.activity import ops, top

# Each takes the options that it names.
CHECKS: Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "top": (top.main, ("osds", "images", "groups", "looks", "repeats")),
    "ops": (ops.main, ("ops", "directory")),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.activity", description=__doc__)
    parser.add_argument("--check", choices=tuple(CHECKS), default="top")
    parser.add_argument("--osds", type=int, default=1000)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=32, help="placement groups of each OSD")
    parser.add_argument("--looks", type=int, default=15, help="samples before the screen is measured")
    parser.add_argument("--repeats", type=int, default=3, help="samples of each view; the median is printed")
    parser.add_argument("--ops", type=int, default=10_000_000, help="ops: operations in the run")
    parser.add_argument("--directory", type=Path, default=None, help="ops: where the run is made; default: temporary")
    arguments = vars(parser.parse_args())
    check, names = CHECKS[arguments["check"]]
    print(json.dumps(check(**{name: arguments[name] for name in names}), indent=1))


main()
