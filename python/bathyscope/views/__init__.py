"""Renderers: findings in, text or files out. Views never compute."""

from __future__ import annotations

from bathyscope.views.dispatch import Output, render

__all__ = ["Output", "render"]
