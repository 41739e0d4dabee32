"""The program that makes a load: `python -m bathyscope.bathy_load --help`.

It lies by itself and imports nothing else: it may end at any moment, and what it starts are threads of librados.
"""

from __future__ import annotations

import signal
import sys

from bathyscope._core import make_load

__all__: list[str] = []

if __name__ == "__main__":
    # Python's own handler would wait until the load is over.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(make_load(sys.argv[1:]))
