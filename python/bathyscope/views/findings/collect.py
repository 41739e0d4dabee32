"""A recording: what limited its clients, every view of it, who did how much when, and how the recording went."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from bathyscope.records.blocks import Section, Table, Text
from bathyscope.records.collect_finding import CollectFinding
from bathyscope.views.findings import account, activity, recording

_PICTURED = "nodes"
_BRIGHT = (
    "The brighter, the more. A row that lights up alone is one image or one OSD; a column that lights up is all of "
    "them."
)


def sections(finding: CollectFinding) -> Iterator[Section]:
    """Yield the load, a section for each view, the heat maps after the first, and how the recording went."""
    yield from _load(finding)
    for index, view in enumerate(finding.views):
        blocks = activity.blocks(view, is_pictured=view.view == _PICTURED)
        head = (activity.where(view),) if index == 0 else ()
        yield Section(view.view, activity.title(view.view), (*head, *blocks))
        if index == 0 and finding.heat_maps:
            yield Section("heat", "Over time", (Text(_BRIGHT, "dim"), *finding.heat_maps))
    yield from recording.sections(finding.recording)


def _load(finding: CollectFinding) -> Iterator[Section]:
    """Yield what `bathy explain` says of all of the recording, under keys of its own: views have the same ones.

    Its tables are for people here: who did the I/O is what the CSV of a recording has.
    """
    if finding.load is None:
        words = f"Cannot tell what limits the clients: {finding.why_no_load}"
        hint = (Text(finding.next_step, lead="Next: "),) * bool(finding.next_step)
        yield Section("load", "Load", (Text(words, "strong"), *hint))
        return
    for section in account.sections(finding.load):
        shown = [block for block in section.blocks if getattr(block, "only", "") != "programs"]
        blocks = tuple(dataclasses.replace(each, only="people") if isinstance(each, Table) else each for each in shown)
        key = section.key if section.key == "load" else f"load-{section.key}"
        yield Section(key, section.title, blocks)
