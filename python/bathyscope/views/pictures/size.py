"""Every chart of `bathy size`."""

from __future__ import annotations

from bathyscope.views.charts.size import drawings

__all__ = ["drawings"]
