"""Sources: one file for each tool or interface that is watched. They plan requests and read answers, nothing else."""

from __future__ import annotations

import sys

from bathyscope.discovery import members
from bathyscope.sources.shape import Source

SOURCES: dict[str, Source] = members(sys.modules[__name__], "SOURCE")
"""Every source by its name."""
