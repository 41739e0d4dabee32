"""A recording: every view of it, who did how much when, and how the recording went."""

from __future__ import annotations

from collections.abc import Iterator

from bathyscope.records.blocks import Section, Text
from bathyscope.records.collect_finding import CollectFinding
from bathyscope.views.findings import activity, recording

_PICTURED = "nodes"
_BRIGHT = (
    "The brighter, the more. A row that lights up alone is one image or one OSD; a column that lights up is all of "
    "them."
)


def sections(finding: CollectFinding) -> Iterator[Section]:
    """Yield a section for each view, the heat maps after the first, and how the recording went."""
    for place, view in enumerate(finding.views):
        blocks = activity.blocks(view, is_pictured=view.view == _PICTURED)
        head = (activity.where(view),) if place == 0 else ()
        yield Section(view.view, activity.title(view.view), (*head, *blocks))
        if place == 0 and finding.heat_maps:
            yield Section("heat", "Over time", (Text(_BRIGHT, "dim"), *finding.heat_maps))
    yield from recording.sections(finding.recording)
