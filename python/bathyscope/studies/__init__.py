"""Studies: experiments that make what they need, measure it in phases and judge the result. One file each."""

from __future__ import annotations

import sys

from bathyscope.discovery import members
from bathyscope.studies.base import Study

__all__ = ["STUDIES", "Study"]

STUDIES: dict[str, Study] = members(sys.modules[__name__], "STUDY")
"""Every study by its name."""
