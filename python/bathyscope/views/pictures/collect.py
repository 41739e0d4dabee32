"""Every chart of a recording: who did how much when, and how the nodes share it."""

from __future__ import annotations

from bathyscope.records.collect_finding import CollectFinding
from bathyscope.views.charts import activity, heat
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.theme import LIGHT, Theme


def drawings(finding: CollectFinding, theme: Theme = LIGHT) -> list[Drawing]:
    """Return the heat maps of a recording, and the bars of its nodes."""
    nodes = [bar for view in finding.views if view.view == "nodes" for bar in activity.bars(view, theme)]
    return [*heat.drawings(finding, theme), *nodes]
