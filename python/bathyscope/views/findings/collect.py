"""A recording: every view of it, who did how much when, and how the recording went."""

from __future__ import annotations

from collections.abc import Iterator

from bathyscope.records.blocks import Section
from bathyscope.records.collect_finding import CollectFinding
from bathyscope.views.findings import activity, recording


def sections(finding: CollectFinding) -> Iterator[Section]:
    """Yield a section for each view, the heat maps, and those of the recording."""
    first, *others = finding.views
    yield from activity.sections(first)
    yield Section("heat", "Over time", finding.heat_maps)
    for view in others:
        yield Section(view.view, activity.title(view.view), activity.blocks(view))
    yield from recording.sections(finding.recording)
