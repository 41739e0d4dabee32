"""Every chart of a run."""

from __future__ import annotations

from collections.abc import Iterator

from bathyscope.records.finding import LadderFinding
from bathyscope.views import labels
from bathyscope.views.charts.base import Drawing
from bathyscope.views.charts.ceilings import ceilings
from bathyscope.views.charts.distribution import distribution
from bathyscope.views.charts.rungs import METRICS, rungs
from bathyscope.views.charts.series import series, shown_measures
from bathyscope.views.charts.stages import stages
from bathyscope.views.charts.theme import Theme


def drawings(finding: LadderFinding, theme: Theme) -> Iterator[Drawing]:
    """Yield every chart that has something to show."""
    for device_class in labels.device_classes(finding):
        for metric in METRICS:
            yield rungs(finding, device_class, metric, theme)
        yield from (d for d in [stages(finding, device_class, theme)] if d.rows)
    for group in finding.groups:
        yield from (d for d in [ceilings(finding, group, theme)] if d.rows)
        yield from (d for d in [distribution(finding, group, theme)] if d.rows)
    for step_key in dict.fromkeys(s.step_key for s in finding.series):
        for name in shown_measures(finding):
            yield from (d for d in [series(finding, step_key, name, theme)] if d.rows)
