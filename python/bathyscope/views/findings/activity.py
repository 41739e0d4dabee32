"""A view of a recording: its sentence, its tables, and what cannot be seen."""

from __future__ import annotations

from collections.abc import Iterator

from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Facts, Section, Text
from bathyscope.units import format_seconds
from bathyscope.views import labels

_TITLES = {"devices": "Images", "osds": "OSDs", "osd_pools": "OSDs by pool", "ops": "Operations"}


def sections(finding: ActivityFinding) -> Iterator[Section]:
    """Yield the view as the only section."""
    length = format_seconds((finding.end_ns - finding.start_ns) / 1e9)
    where = Text(f"{finding.target}, {length} from {labels.time_utc(finding.start_ns)}", "dim")
    yield Section(finding.view, title(finding.view), (where, *blocks(finding)))


def blocks(finding: ActivityFinding) -> tuple[object, ...]:
    """Return the blocks of a view besides where and when it is of."""
    remarks = (Text(remark, "dim", "- ") for remark in finding.unseen)
    facts = [Facts(finding.facts)] if finding.facts else []
    return (Text(finding.sentence, "strong"), *facts, *finding.heat_maps, *finding.tables, *remarks)


def title(view: str) -> str:
    """Return the heading of a view."""
    return _TITLES.get(view, view.capitalize())
