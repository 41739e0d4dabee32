"""Every chart of a recording."""

from __future__ import annotations

from bathyscope.views.charts.heat import drawings

__all__ = ["drawings"]
