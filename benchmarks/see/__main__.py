"""`python -m benchmarks.see --check top`: what a live screen costs on a large cluster that is made up."""

from __future__ import annotations

import argparse
import json

from benchmarks.see import top

CHECKS = {"top": top.main}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", choices=CHECKS, default="top")
    parser.add_argument("--osds", type=int, default=1000)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=32, help="placement groups of each OSD")
    parser.add_argument("--looks", type=int, default=15, help="samples before the screen is measured")
    parser.add_argument("--repeats", type=int, default=3, help="samples of each view; the median is printed")
    arguments = vars(parser.parse_args())
    print(json.dumps(CHECKS[arguments.pop("check")](**arguments), indent=1))


main()
