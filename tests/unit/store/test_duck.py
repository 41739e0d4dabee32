"""SQL over any number of runs, and nothing but reading them."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.signals import Signalled

from bathyscope.errors import UsageError
from bathyscope.interruption import interruptible
from bathyscope.records import RECORDS_BY_TABLE, Caveat
from bathyscope.store import RunDirectory, Workspace, duck, step_name
from bathyscope.store.tables import stored_schema


@pytest.fixture
def runs(tmp_path: Path) -> list[RunDirectory]:
    workspace = Workspace(tmp_path / "it's a space")
    made = []
    for number in range(2):
        with workspace.create_run(kind="bench", started_ns=number + 1) as run:
            for index in range(3):
                with run.begin_segment(step_name(index)) as writer:
                    writer.table(Caveat, [Caveat(index, "a", "note", "t", "s")])
                    writer.commit()
            if number:
                run.compact()
            made.append(run)
    return made


def test_one_view_per_record_over_finished_and_unfinished_runs(runs: list[RunDirectory]) -> None:
    rows = duck.query(runs, "SELECT run_id, count(*) AS n FROM caveat GROUP BY run_id ORDER BY run_id").to_pylist()
    assert [row["n"] for row in rows] == [3, 3]
    assert {row["run_id"] for row in rows} == {run.id for run in runs}


def test_every_view_exists_and_has_its_columns(runs: list[RunDirectory]) -> None:
    for name, record in RECORDS_BY_TABLE.items():
        table = duck.query(runs, f'FROM "{name}"')
        assert table.column_names == stored_schema(record).names
    assert duck.query([], "SELECT * FROM step").num_rows == 0


def test_a_table_that_no_record_describes_is_a_view_too(runs: list[RunDirectory]) -> None:
    for number, run in enumerate(runs):
        place = run.path / "tables" if number else next(iter(run.segments().values())).path
        pq.write_table(pa.table({"run_id": [run.id], "answer": [number]}), place / "somebody_s_own.parquet")
    assert duck.query(runs, "SELECT sum(answer) AS a FROM somebody_s_own").to_pylist() == [{"a": 1}]


def test_a_large_sort_spills_where_nobody_sees_it(
    runs: list[RunDirectory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spill"))
    (tmp_path / "spill").mkdir()
    monkeypatch.setattr(duck, "_QUERY_MEMORY", "64MB")
    sql = "SELECT h FROM (SELECT hash(i) AS h, i FROM range(6000000) AS t(i) ORDER BY h, i) LIMIT 1 OFFSET 3000000"
    assert duck.query(runs, sql).num_rows == 1
    assert not (tmp_path / ".tmp").exists()
    assert list((tmp_path / "spill").iterdir()) == []
    assert not [path for run in runs for path in run.path.iterdir() if path.name.startswith(".")]


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


# It takes some minutes.
_LONG = "SELECT count(*) FROM range(10000000) AS a, range(10000000) AS b WHERE (a.range * b.range) % 7919 = 3"


def test_a_query_that_takes_too_long_is_ended(runs: list[RunDirectory]) -> None:
    with pytest.raises(UsageError, match=r"took longer than 0\.1 s") as caught:
        duck.query(runs, _LONG, bounds=duck.Bounds(0.1, 10))
    assert "--timeout" in str(caught.value.hint)


@pytest.mark.timeout(120)
def test_a_query_ends_wherever_a_signal_comes(runs: list[RunDirectory]) -> None:
    place, sent = 0, True
    while sent:
        signalled = Signalled(place)
        with contextlib.suppress(SystemExit), interruptible(), signalled():
            duck.query(runs, "SELECT 1", bounds=duck.Bounds(60.0, 5))
        sent, place = signalled.was_sent, place + 3
    assert place > 20


def test_of_an_answer_one_row_more_than_its_bounds_is_read(runs: list[RunDirectory]) -> None:
    def rows(sql: str, limit: int) -> list[int]:
        return [int(row["n"]) for row in duck.query(runs, sql, bounds=duck.Bounds(60.0, limit)).to_pylist()]

    assert rows("SELECT range AS n FROM range(1000000000000)", 100_000) == list(range(100_001))
    assert rows("SELECT range AS n FROM range(5) ORDER BY n DESC", 5) == [4, 3, 2, 1, 0]
    assert rows("SELECT range AS n FROM range(0)", 5) == []
    assert duck.query(runs, "EXPLAIN SELECT 1", bounds=duck.Bounds(60.0, 5)).num_rows > 0
