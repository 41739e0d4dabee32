"""Every chart of one view of a recording."""

from __future__ import annotations

from bathyscope.views.charts.activity import drawings

__all__ = ["drawings"]
