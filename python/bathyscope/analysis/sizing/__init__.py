"""Sizing: from miss-ratio curves to a size, a split, a latency, a life and a cost. Pure."""

from __future__ import annotations

from bathyscope.analysis.sizing.build import SizeQuestion, admissions_to_try, build

__all__ = ["SizeQuestion", "admissions_to_try", "build"]
