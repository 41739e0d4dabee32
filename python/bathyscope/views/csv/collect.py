"""A recording as CSV: the rows of its first view, the images."""

from __future__ import annotations

from typing import TextIO

from bathyscope.records.collect_finding import CollectFinding
from bathyscope.views import Options
from bathyscope.views.csv import activity


def write(finding: CollectFinding, stream: TextIO, options: Options) -> None:
    """Write one row for each image."""
    activity.write(finding.views[0], stream, options)
