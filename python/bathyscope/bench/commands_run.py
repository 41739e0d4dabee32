"""The load commands of a run exactly as they ran, from its raw answers."""

from __future__ import annotations

from bathyscope.layers import REGISTRY
from bathyscope.records.finding import CommandView
from bathyscope.sources.base import load_raw
from bathyscope.store import RunDirectory


def commands_of(run: RunDirectory) -> list[CommandView]:
    """Return the load commands of every finished step, in order. Raises StoreError, ParseError."""
    found = []
    for finished in run.finished_steps().values():
        step = finished.step()
        for layer in REGISTRY:
            directory = finished.raw_directory / layer
            if not directory.is_dir():
                continue
            found += [
                CommandView(
                    step_key=step.step_key,
                    repeat_index=step.repeat_index,
                    label=answer.label,
                    argv=answer.argv,
                    environment=answer.environment,
                    exit_code=answer.exit_code,
                    duration_s=(answer.ended_ns - answer.started_ns) / 1e9,
                )
                for answer in load_raw(directory)
            ]
    return found
