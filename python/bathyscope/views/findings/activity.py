"""A view of a recording: its sentence, its tables, and what cannot be seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.records.blocks import Bars, Facts, Section, Text
from bathyscope.units import format_seconds
from bathyscope.views import labels

_TITLES = {"devices": "Images", "osds": "OSDs", "osd_pools": "OSDs by pool", "ops": "Operations"}


def sections(finding: ActivityFinding) -> Iterator[Section]:
    """Yield the view as the only section."""
    yield Section(finding.view, title(finding.view), (where(finding), *blocks(finding, is_pictured=True)))


def where(finding: ActivityFinding) -> Text:
    """Return of what and of when a view is."""
    length = format_seconds((finding.end_ns - finding.start_ns) / 1e9)
    return Text(f"{finding.target}, {length} from {labels.time_utc(finding.start_ns)}", "dim")


def blocks(finding: ActivityFinding, *, is_pictured: bool) -> tuple[object, ...]:
    """Return the blocks of a view besides where and when it is of; a picture is its heat maps, else bars."""
    pictures: Sequence[object] = finding.heat_maps
    if is_pictured and not pictures:
        pictures = [
            Bars(
                f"bars-{finding.view}", f"Reads and writes of {table.title}", table, ("reads", "writes"), "share_ratio"
            )
            for table in finding.tables[:1]
        ]
    remarks = (Text(remark, "dim", "- ") for remark in finding.unseen)
    facts = [Facts(finding.facts)] if finding.facts else []
    return (Text(finding.sentence, "strong"), *facts, *pictures, *finding.tables, *remarks)


def title(view: str) -> str:
    """Return the heading of a view."""
    return _TITLES.get(view, view.capitalize())
