"""The program that serves simulated disks: `python -m bathyscope.simdisk --help`.

It lies by itself and imports nothing else: signals are blocked for this process's threads, and a library that starts
threads of its own would be ended by them.
"""

from __future__ import annotations

import sys

from bathyscope._core import disk_profiles, serve_disks

__all__ = ["disk_profiles"]

if __name__ == "__main__":
    sys.exit(serve_disks(sys.argv[1:]))
