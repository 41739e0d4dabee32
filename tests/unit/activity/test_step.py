"""Who did the I/O during one step of a benchmark: the views of a recording, of the time of the step."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.activity.conftest import rows_of
from tests.unit.analysis.builders import Load, RunBuilder

from bathyscope.commands.analyze import finding_of_view
from bathyscope.errors import UsageError
from bathyscope.records import RECORDS_BY_TABLE, Collection, PerfCounter, Step, from_table, to_table
from bathyscope.store import RunDirectory, Workspace


@pytest.fixture
def bench(tmp_path: Path) -> RunDirectory:
    """A benchmark of two steps: random reads, then random writes."""
    builder = RunBuilder()
    builder.add_osds("hdd", 3)
    for load in (Load(), Load(op="randwrite")):
        builder.add_step(load)
    tables = builder.tables()
    steps = from_table(Step, tables["step"])
    looks = [
        Collection(at_ns, "perf_counters", 0, 3, 0, 0, True, None)
        for step in steps
        for at_ns in (step.started_ns, step.ended_ns)
    ]
    tables["collection"] = to_table(Collection, looks)
    run = Workspace(tmp_path).create_run(kind="bench", started_ns=steps[0].started_ns, target={"name": "lab"})
    with run:
        with run.begin_segment("step-00000") as writer:
            for name, table in tables.items():
                if name not in ("run", "op"):
                    writer.table(RECORDS_BY_TABLE[name], table)
            writer.commit()
        run.update(status="done", ended_ns=steps[-1].ended_ns)
    return run


def test_a_step_is_named_by_its_key_or_a_part_of_it(bench: RunDirectory) -> None:
    reads, writes = (finding_of_view(bench, "osds", step=key) for key in ("randread", "randwrite"))
    for view, column, other, name in ((reads, "reads", "writes", "op_r"), (writes, "writes", "reads", "op_w")):
        counted = [row.delta for row in from_table(PerfCounter, bench.table(PerfCounter)) if row.name == name]
        assert sum(row[0] for row in rows_of(view, column)) == pytest.approx(sum(filter(None, counted)), abs=3)
        assert sum(row[0] for row in rows_of(view, other)) == 0
    assert reads.end_ns <= writes.start_ns


def test_without_a_step_it_is_all_of_them(bench: RunDirectory) -> None:
    whole = finding_of_view(bench, "osds")
    parts = [finding_of_view(bench, "osds", step=key) for key in ("randread", "randwrite")]
    for column in ("reads", "writes"):
        each = [sum(row[0] for row in rows_of(part, column)) for part in parts]
        assert sum(row[0] for row in rows_of(whole, column)) == pytest.approx(sum(each), abs=6)


def test_a_step_that_is_not_there_is_refused(bench: RunDirectory) -> None:
    with pytest.raises(UsageError, match="has no step 'rbd/x'"):
        finding_of_view(bench, "osds", step="rbd/x")
