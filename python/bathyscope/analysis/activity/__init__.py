"""Who did the I/O, and where it landed: one file for each view of a recording."""

from __future__ import annotations

import sys

from bathyscope.analysis.activity.shape import View
from bathyscope.discovery import members

VIEWS: dict[str, View] = members(sys.modules[__name__], "VIEW")
"""Every view by its name."""
