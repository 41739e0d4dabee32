"""SQL over any number of runs, and nothing but reading them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bathyscope.errors import UsageError
from bathyscope.records import ALL_RECORDS, Caveat, schema_of
from bathyscope.store import RunDirectory, Workspace, duck


@pytest.fixture
def runs(tmp_path: Path) -> list[RunDirectory]:
    workspace = Workspace(tmp_path / "it's a space")
    made = []
    for number in range(2):
        with workspace.create_run(plan_name="q", plan_text="", started_ns=number + 1) as run:
            for index in range(3):
                with run.begin_step(index) as writer:
                    writer.commit({Caveat: [Caveat(run.id, index, "a", "note", "t", "s")]})
            if number:
                run.finalize()
            made.append(run)
    return made


def test_one_view_per_record_over_finished_and_unfinished_runs(runs: list[RunDirectory]) -> None:
    rows = duck.query(runs, "SELECT run_id, count(*) AS n FROM caveat GROUP BY run_id ORDER BY run_id").to_pylist()
    assert [row["n"] for row in rows] == [3, 3]
    assert {row["run_id"] for row in rows} == {run.id for run in runs}


def test_every_view_exists_and_has_its_columns(runs: list[RunDirectory]) -> None:
    for record in ALL_RECORDS:
        table = duck.query(runs, f'FROM "{record.TABLE}"')
        assert table.column_names == schema_of(record).names
    assert duck.query([], "SELECT * FROM step").num_rows == 0


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "SELEC",
        "SELECT 1; SELECT 2",
        "DROP VIEW caveat",
        "COPY caveat TO '/tmp/never.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SET enable_external_access=true",
        "ATTACH '/tmp/never.db'",
        "INSTALL httpfs",
        "SELECT nothing FROM caveat",
    ],
)
def test_only_reading_the_runs(runs: list[RunDirectory], sql: str) -> None:
    with pytest.raises(UsageError) as caught:
        duck.query(runs, sql)
    assert caught.value.hint
    assert not Path("/tmp/never.csv").exists()
