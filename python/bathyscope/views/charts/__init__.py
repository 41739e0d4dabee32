"""Charts: Altair specifications from findings, for the report and as pictures. They draw, they do not compute."""

from __future__ import annotations

from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.distribution import distribution
from bathyscope.views.charts.ladder import ladder
from bathyscope.views.charts.series import series
from bathyscope.views.charts.stages import stages
from bathyscope.views.charts.theme import DARK, LIGHT, PAGE, Theme

__all__ = ["DARK", "LIGHT", "PAGE", "Drawing", "Theme", "distribution", "ladder", "series", "stages"]
