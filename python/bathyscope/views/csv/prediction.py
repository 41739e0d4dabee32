"""A dry run as CSV: one row for each load command; the totals and the changes are in JSON."""

from __future__ import annotations

from typing import TextIO

from bathyscope.records.prediction_finding import PredictionFinding
from bathyscope.views import Options
from bathyscope.views.csv import write_rows
from bathyscope.views.labels import shell_word

_COLUMNS = ("step_key", "command", "environment", "root", "cgroup")


def write(finding: PredictionFinding, stream: TextIO, _options: Options) -> None:
    """Write the commands in the order in which they would start."""
    rows = [
        {
            "step_key": command.step_key,
            "command": " ".join(map(shell_word, command.argv)),
            "environment": " ".join(f"{name}={value}" for name, value in command.environment),
            "root": command.root,
            "cgroup": command.cgroup,
        }
        for command in finding.commands
    ]
    write_rows(rows, stream, _COLUMNS)
