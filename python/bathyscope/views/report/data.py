"""What the page carries besides its text: chart specifications once, data once, both compact."""

from __future__ import annotations

import json
from typing import Any

from bathyscope.records.finding import LadderFinding, as_plain
from bathyscope.views import labels
from bathyscope.views.charts import PAGE, Drawing, distribution, ladder, series, stages
from bathyscope.views.charts.ladder import METRICS
from bathyscope.views.charts.series import shown_measures

_DIGITS = 5


def chart_data(finding: LadderFinding) -> dict[str, Any]:
    """Return {"templates": {name: specification}, "charts": {id: …}, "layers": {key: name}}.

    A chart is {"template", "rows"}, or refers to the finding's own data by index: {"template", "series": […]} or
    {"template", "distributions": […]}, so that no point is in the file twice.
    """
    templates: dict[str, Any] = {}
    charts: dict[str, Any] = {}
    for number, device_class in enumerate(labels.device_classes(finding)):
        drawings = {f"ladder-{number}-{m}": ladder(finding, device_class, m, PAGE) for m in METRICS}
        drawings[f"stages-{number}"] = stages(finding, device_class, PAGE, legend=False)
        for chart_id, drawing in drawings.items():
            templates[chart_id] = drawing.template(PAGE)
            charts[chart_id] = {"template": chart_id, "rows": list(drawing.rows), "about": drawing.description}
    _add_distributions(finding, templates, charts)
    _add_series(finding, templates, charts)
    return {"templates": templates, "charts": charts, "layers": {n: labels.layer(n) for n in labels.layers(finding)}}


def _add_distributions(finding: LadderFinding, templates: dict[str, Any], charts: dict[str, Any]) -> None:
    places: dict[tuple[str, str], list[int]] = {}
    for index, one in enumerate(finding.distributions):
        places.setdefault((one.device_class, one.pattern), []).append(index)
    for number, group in enumerate(finding.groups):
        found = places.get((group.device_class, group.pattern))
        if not found:
            continue
        if "distribution" not in templates:
            templates["distribution"] = distribution(finding, group, PAGE, legend=False).template(PAGE)
        about = f"Latency distribution of {labels.device_class(group.device_class)} {labels.group_pattern(group)}"
        charts[f"distribution-{number}"] = {"template": "distribution", "distributions": found, "about": about}


def _add_series(finding: LadderFinding, templates: dict[str, Any], charts: dict[str, Any]) -> None:
    places: dict[tuple[str, str], list[int]] = {}
    for index, one in enumerate(finding.series):
        places.setdefault((one.step_key, one.name), []).append(index)
    for number, group in enumerate(finding.groups):
        for place, point in enumerate(group.points):
            for name in shown_measures(finding):
                found = places.get((point.step_key, name))
                if not found:
                    continue
                template = f"series-{name}"
                if template not in templates:
                    drawing: Drawing = series(finding, point.step_key, name, PAGE)
                    templates[template] = drawing.template(PAGE)
                about = f"{name} of {labels.clean(point.step_key)} over time"
                charts[series_id(number, place, name)] = {"template": template, "series": found, "about": about}


def series_id(group_index: int, point_index: int, name: str) -> str:
    """Return the id of a series chart."""
    return f"series-{group_index}-{point_index}-{name}"


def finding_data(finding: LadderFinding) -> dict[str, Any]:
    """Return the finding for the page: like JSON output, but points of series and distributions as columns.

    Points are rounded to five significant digits, which is finer than any of them is measured.
    """
    plain: dict[str, Any] = as_plain(finding)
    for one in plain["series"]:
        one["points"] = _columns(one["points"], ("t_s", "value"))
    for one in plain["distributions"]:
        one["points"] = _columns(one["points"], ("quantile", "latency_ns"))
    return plain


def _columns(points: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, list[float | None]]:
    return {name: [_rounded(name, point[name]) for point in points] for name in names}


def _rounded(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    # Quantiles keep their nines.
    return float(f"{value:.{9 if name == 'quantile' else _DIGITS}g}")


def json_for_html(value: Any) -> str:
    """Return JSON that is safe inside a script element: no "<", no line separators, whatever the names hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    # A lone surrogate has no UTF-8.
    return text.encode("utf-8", "replace").decode()
