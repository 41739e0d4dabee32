"""A recording on the terminal: its first view, the images, and how the recording went."""

from __future__ import annotations

from typing import TextIO

from bathyscope.records.collect_finding import CollectFinding
from bathyscope.views import Options
from bathyscope.views.table import activity, recording


def write(finding: CollectFinding, stream: TextIO, options: Options) -> None:
    """Print both."""
    activity.write(finding.views[0], stream, options)
    stream.write("\n")
    recording.write(finding.recording, stream, options)
