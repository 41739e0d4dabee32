"""`python -m benchmarks.overhead`: the three checks, on a lab of their own unless --lab names one."""

from __future__ import annotations

from benchmarks.overhead.overhead import main

main()
