"""What the page of a run carries besides its text: chart specifications once, data once, both compact."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from bathyscope.records.finding import LadderFinding, as_plain
from bathyscope.views import labels
from bathyscope.views.charts.ceilings import ceilings
from bathyscope.views.charts.distribution import distribution
from bathyscope.views.charts.rungs import METRICS, rungs
from bathyscope.views.charts.series import series, shown_measures
from bathyscope.views.charts.stages import stages
from bathyscope.views.charts.theme import PAGE


def chart_data(finding: LadderFinding) -> dict[str, Any]:
    """Return {"templates": {name: specification}, "charts": {id: …}, "layers": {key: name}}.

    A chart is {"template", "rows"}, or refers to the finding's own data by index: {"template", "series": […]} or
    {"template", "distributions": […]}, so that no point is in the file twice.
    """
    templates: dict[str, Any] = {}
    charts: dict[str, Any] = {}
    for number, device_class in enumerate(labels.device_classes(finding)):
        drawings = {f"ladder-{number}-{m}": rungs(finding, device_class, m, PAGE) for m in METRICS}
        drawings[f"stages-{number}"] = stages(finding, device_class, PAGE, legend=False)
        for chart_id, drawing in drawings.items():
            templates[chart_id] = drawing.template(PAGE)
            charts[chart_id] = {
                "template": chart_id,
                "rows": _shorter(list(drawing.rows)),
                "about": drawing.description,
            }
    by_pattern = _indices((one.device_class, one.pattern) for one in finding.distributions)
    by_measure = _indices((one.step_key, one.name) for one in finding.series)
    for number, group in enumerate(finding.groups):
        drawing = ceilings(finding, group, PAGE, legend=False)
        if drawing.rows:
            if "ceilings" not in templates:
                templates["ceilings"] = drawing.template(PAGE)
            rows = _shorter(list(drawing.rows))
            charts[f"ceilings-{number}"] = {"template": "ceilings", "rows": rows, "about": drawing.description}
        if found := by_pattern.get((group.device_class, group.pattern)):
            if "distribution" not in templates:
                templates["distribution"] = distribution(finding, group, PAGE, legend=False).template(PAGE)
            about = f"Latency distribution of {labels.device_class(group.device_class)} {labels.group_pattern(group)}"
            charts[f"distribution-{number}"] = {"template": "distribution", "distributions": found, "about": about}
        for (place, point), name in itertools.product(enumerate(group.points), shown_measures(finding)):
            if found := by_measure.get((point.step_key, name)):
                template = f"series-{name}"
                if template not in templates:
                    templates[template] = series(finding, point.step_key, name, PAGE).template(PAGE)
                about = f"{name} of {labels.clean(point.step_key)} over time"
                charts[f"series-{number}-{place}-{name}"] = {"template": template, "series": found, "about": about}
    titles = {view.name: view.title for view in labels.layers(finding)}
    return {"templates": templates, "charts": charts, "layers": titles}


def _indices(keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    for index, key in enumerate(keys):
        found.setdefault(key, []).append(index)
    return found


def finding_data(finding: LadderFinding) -> dict[str, Any]:
    """Return the finding for the page: like JSON output, but points of series and distributions as columns.

    Figures are rounded to seven, points to five and those of accounts to four significant digits, which is finer than
    any of them is measured.
    """
    plain: dict[str, Any] = as_plain(finding)
    for one in plain["series"]:
        one["points"] = _columns(one["points"], ("t_s", "value"))
    for one in plain["distributions"]:
        one["points"] = _columns(one["points"], ("quantile", "latency_ns"))
    return {name: value if name in ("series", "distributions") else _shorter(value) for name, value in plain.items()}


def _shorter(value: Any, digits: int = 7) -> Any:
    if isinstance(value, dict):
        # An account has more figures than all the rest, and none is known to a thousandth.
        return {name: _shorter(one, 4 if name == "account" else digits) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_shorter(one, digits) for one in value]
    return _rounded(value, digits) if isinstance(value, float) else value


def _columns(points: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, list[float | None]]:
    # Quantiles keep their nines.
    digits = {name: 9 if name == "quantile" else 5 for name in names}
    return {name: [_rounded(point[name], digits[name]) for point in points] for name in names}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")
