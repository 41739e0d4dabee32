"""Small Parquet files that would become gigabytes are refused before they are decoded, alone and together."""

from __future__ import annotations

import contextlib
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bathyscope.errors import StoreError
from bathyscope.records import Caveat, PgIo
from bathyscope.store import RunDirectory, Workspace, duck, parquet_bounds, step_name, tables
from bathyscope.store.tables import stored_schema

MIB = 1 << 20


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    with Workspace(tmp_path).create_run(kind="bench", started_ns=1) as run, run.begin_segment(step_name(0)) as writer:
        writer.table(Caveat, [Caveat(0, "a", "note", "t", "s")])
        writer.commit()
    return run


def texts(path: Path) -> None:
    """4,096 rows that all refer to one text of half a MiB: 2 GiB."""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4096, np.int32)), pa.array(["x" * (MIB // 2)]))
    other = {name: pa.repeat("a", 4096) for name in stored_schema(Caveat).names if name not in ("step_index", "text")}
    table = pa.table({**other, "step_index": pa.nulls(4096, pa.int64()), "text": text})
    pq.write_table(table.select(stored_schema(Caveat).names), path, compression="zstd", store_schema=False)


def nothings(path: Path, rows: int = 25_000_000, columns: int = 1) -> None:
    """Rows without a value: 8 bytes each in memory, and none in the file."""
    pq.write_table(pa.table({f"c{i}": pa.nulls(rows, pa.int64()) for i in range(columns)}), path, row_group_size=rows)


def zeros(path: Path) -> None:
    """Five pages of zeros: 40 MiB."""
    table = pa.table({"zero": np.zeros(5 * MIB, np.int64)})
    whole = {"data_page_size": 1 << 30, "max_rows_per_page": 1 << 30}
    pq.write_table(table, path, compression="zstd", use_dictionary=False, column_encoding="PLAIN", **whole)


def test_a_text_that_each_row_refers_to_counts_for_each_row(run: RunDirectory) -> None:
    path = next(iter(run.segments().values())).path / "caveat.parquet"
    texts(path)
    assert path.stat().st_size < 10_000
    # The footer claims that it is small.
    assert pq.read_metadata(path).row_group(0).total_byte_size < MIB
    before = pa.total_allocated_bytes()
    for read in (
        lambda: run.table(Caveat),
        run.tables,
        lambda: duck.query([run], "SELECT * FROM caveat"),
        lambda: tables.check("caveat", path, whole=True),
        lambda: RunDirectory(run.path).segments()[step_name(0)].table(Caveat),
    ):
        with pytest.raises(StoreError, match=r"would take [0-9,]+ MiB of memory, and may take 256 MiB") as caught:
            read()
        assert caught.value.hint
    assert pa.total_allocated_bytes() - before < MIB
    # The other runs are asked.
    told: list[str] = []
    answer = duck.query([run], "SELECT count(*) AS n FROM caveat", left_out=lambda _, error: told.append(str(error)))
    assert (answer.to_pylist(), len(told)) == ([{"n": 0}], 1)


def test_rows_without_values_count(tmp_path: Path) -> None:
    path = tmp_path / "none.parquet"
    nothings(path, 20_000_000, columns=2)
    assert path.stat().st_size < 100_000
    with pytest.raises(StoreError, match=r"would take 30[0-9] MiB"):
        tables.read("none", [path])
    # Columns that a file lacks are empty in each of its rows.
    nothings(path)
    tables.must_fit([path])
    with pytest.raises(StoreError, match="may take 256 MiB"):
        list(tables.scan("pg_io", [path], stored_schema(PgIo)))


def test_tables_that_fit_alone_may_not_fit_together(run: RunDirectory) -> None:
    segment = next(iter(run.segments().values())).path
    nothings(segment / "a0.parquet")
    for number in range(1, 12):
        shutil.copy(segment / "a0.parquet", segment / f"a{number}.parquet")
    assert duck.query([run], "SELECT count(*) AS n FROM a0").to_pylist() == [{"n": 25_000_000}]
    with pytest.raises(StoreError, match="what is read with it"):
        run.tables()
    with pytest.raises(StoreError, match="what is read with it"):
        duck.query([run], "SELECT count(*) FROM a0, a1")


def test_the_header_of_a_page_counts_and_not_the_footer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_bounds, "DECODED_BYTES", 100 * MIB)
    path = tmp_path / "zeros.parquet"
    zeros(path)
    content = path.read_bytes()
    tables.must_fit([path])
    at = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    # Field 1, a number: 0, a data page. Field 2, a number: the bytes that it unpacks to, 8 MiB and then 128.
    assert content[at : at + 3] == b"\x15\x00\x15"
    path.write_bytes(content[: at + 3] + b"\xfe\xff\xff\x7f" + content[at + 7 :])
    assert pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size < 41 * MIB
    with pytest.raises(StoreError, match=r"would take 200 MiB of memory"):
        tables.read("zeros", [path])


def test_honest_tables_fit(tmp_path: Path) -> None:
    path = tmp_path / "honest.parquet"
    # 30 bytes a row, of which no two are alike: the longest of them counts for each, and not the whole dictionary.
    names = pa.array([f"rbd_data.{number:020x}" for number in range(1 << 17)])
    table = pa.table({"object": names, "time": np.arange(1 << 17), "is_read": [True, False] * (1 << 16)})
    for options in ({}, {"compression": "NONE"}, {"compression": "snappy", "data_page_version": "2.0"}):
        pq.write_table(table, path, **options)
        assert tables.read("honest", [path]).equals(table)
    pq.write_table(pa.table({"list": [[1, 2], [], None], "text": ["a", None, ""]}), path)
    assert tables.read("honest", [path]).num_rows == 3


@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_an_error(
    tmp_path: Path, mutate: Callable[[bytes, st.DataObject], bytes], data: st.DataObject
) -> None:
    path = tmp_path / "damaged.parquet"
    pq.write_table(pa.table({"a": ["x", "y", None], "b": [1, 2, 3]}), path, compression="zstd")
    path.write_bytes(mutate(path.read_bytes(), data))
    with contextlib.suppress(StoreError):
        tables.must_fit([path])


def test_more_tables_are_read_than_the_soft_limit_of_open_files(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = next(iter(run.segments().values())).path / "caveat.parquet"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = (len(list(Path("/proc/self/fd").iterdir())) + 8, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, few)
        with parquet_bounds.opened([path] * 64) as names:
            assert len(set(names)) == 64
        # Where it cannot be raised.
        resource.setrlimit(resource.RLIMIT_NOFILE, few)
        monkeypatch.setattr(parquet_bounds, "_make_room_for", lambda _: None)
        with pytest.raises(StoreError, match="Too many open files") as caught, parquet_bounds.opened([path] * 64):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "ulimit -n" in str(caught.value.hint)
