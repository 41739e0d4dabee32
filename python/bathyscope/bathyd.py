"""The daemon of a cache: `python -m bathyscope.bathyd CONFIG.json`; README.md of crates/bathyd has the configuration.

It lies by itself and imports nothing else: signals are blocked for this process's threads, and a library that starts
threads of its own would be ended by them.
"""

from __future__ import annotations

import sys

from bathyscope._core import serve_cache

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(serve_cache(sys.argv[1:]))
