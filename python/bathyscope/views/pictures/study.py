"""Every chart of a study."""

from __future__ import annotations

from bathyscope.views.charts.study import drawings

__all__ = ["drawings"]
