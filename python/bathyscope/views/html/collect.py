"""The page of a recording: who did the I/O, over time and in every view, and how the recording went."""

from __future__ import annotations

from typing import Any, TextIO

from bathyscope.records.collect_finding import CollectFinding
from bathyscope.records.finding import as_plain
from bathyscope.units import format_percent, format_seconds
from bathyscope.views import Options, labels
from bathyscope.views.charts.theme import PAGE
from bathyscope.views.html.activity import chart_data, view_content
from bathyscope.views.html.frame import render_page
from bathyscope.views.pictures.collect import drawings

# Views whose rows are things that are counted beside the heading.
_COUNTED = ("devices", "clients", "osds", "nodes")


def write(finding: CollectFinding, stream: TextIO, _options: Options) -> None:
    """Write the page of a recording."""
    drawn = drawings(finding, PAGE)
    content = _content(finding, {drawing.name: drawing.title for drawing in drawn})
    stream.write(render_page(finding, "collect.html.j2", content, charts=chart_data(drawn), data=as_plain(finding)))


def _content(finding: CollectFinding, charts: dict[str, str]) -> dict[str, Any]:
    shown = [view_content(view) for view in finding.views]
    return {
        "title": f"who did the I/O of {finding.target}",
        "file_stem": f"collect-{finding.run_id}",
        "csv_row": "One row for each image",
        "sections": [
            ("who", "Who"),
            *[("heat", "Over time")] * bool(charts),
            *[(view["name"], view["title"]) for view in shown],
            ("recording", "Recording"),
        ],
        "finding": finding,
        "facts": [
            ("Recorded", format_seconds((finding.end_ns - finding.start_ns) / 1e9)),
            ("From", labels.time_utc(finding.start_ns)),
            ("Cluster", labels.clean(finding.target)),
            *[(view["title"], f"{view['count']:,}") for view in shown if view["name"] in _COUNTED and view["count"]],
        ],
        "charts": charts,
        "views": shown,
        "sources": [
            (
                source.source,
                format_seconds(source.period_ns / 1e9) if source.period_ns else "–",
                f"{source.collection_count:,}",
                f"{source.failure_count:,}",
                f"{source.missed_count:,}",
                len(source.gaps),
                format_percent(source.wall_ratio),
            )
            for source in finding.recording.sources
        ],
    }
