"""The report of a run: one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

from bathyscope.views.report.page import page, write

__all__ = ["page", "write"]
