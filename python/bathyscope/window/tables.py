"""Windows over tables in memory: those of a run, of a step that has just ended, of the last seconds."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from bathyscope.analysis.columns import Tables, by_step, table_of
from bathyscope.analysis.window import Window, by_window, of_step, queries
from bathyscope.records import EnvironmentFact, Step, from_table
from bathyscope.store import duck


def in_windows(tables: Tables, windows: Sequence[Window]) -> list[dict[str, pa.Table]]:
    """Return for each window those of the tables that are samples and have rows in it, cut to it."""
    cut_tables: list[dict[str, pa.Table]] = [{} for _ in windows]
    wanted = queries([name for name, table in tables.items() if table.num_rows], windows)
    for name, answer in duck.query_tables(tables, wanted).items():
        for number, rows in by_window(answer).items():
            cut_tables[number][name] = rows
    return cut_tables


def of_steps(tables: Tables, steps: Sequence[Step] | None = None) -> dict[int, dict[str, pa.Table]]:
    """Return step_index → every table that has rows of the step (by default of all), samples cut to its window.

    A load generator's own answers name their step. Facts hold for the whole run.
    """
    steps = from_table(Step, table_of(tables, Step.TABLE)) if steps is None else steps
    always = {name: table for name, table in tables.items() if name == EnvironmentFact.TABLE}
    samples = in_windows(tables, [of_step(step) for step in steps])
    tables_by_step = {step.step_index: {**always, **sampled} for step, sampled in zip(steps, samples, strict=True)}
    for name, table in tables.items():
        for index, rows in by_step(table).items() if "step_index" in table.column_names else ():
            if index in tables_by_step:
                tables_by_step[index][name] = rows
    return tables_by_step
