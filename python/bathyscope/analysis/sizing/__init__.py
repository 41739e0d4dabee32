"""Sizing: from miss-ratio curves to a size, a split, a latency, a life and a cost. Pure."""

from __future__ import annotations

from bathyscope.analysis.sizing.build import build
from bathyscope.analysis.sizing.next_pass import next_pass
from bathyscope.analysis.sizing.question import SizeQuestion

__all__ = ["SizeQuestion", "build", "next_pass"]
