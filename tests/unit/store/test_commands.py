"""`bathy runs`, `bathy schema` and `bathy compare` as a user meets them: output, exit codes, no traceback."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.analysis.builders import Load, RunBuilder
from tests.unit.waiting import until

from bathyscope import cli
from bathyscope.commands.compare import parse_share
from bathyscope.errors import UsageError
from bathyscope.records import RECORDS_BY_TABLE, RawAnswer
from bathyscope.store import Workspace, step_name

# It takes some minutes.
LONG_QUERY = "SELECT count(*) FROM range(10000000) AS a, range(10000000) AS b WHERE (a.range * b.range) % 7919 = 3"


@dataclasses.dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def bathy(workspace: Path, *words: str) -> Done:
    """Run the command line inside this process."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setenv("BATHY_WORKSPACE", str(workspace))
        patch.setattr(sys, "argv", ["bathy", *words])
        patch.setattr(sys, "stdin", io.StringIO())
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
    return Done(code, out.getvalue(), err.getvalue())


def test_the_program_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bathyscope.cli", "runs", "show", "last", "-w", str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"bathy: there is no run in {tmp_path}"
    assert done.stderr.splitlines()[1].startswith("hint: ")


def add_run(workspace: Path, *, factor: float = 1.0, seed: int = 1, depths: tuple[int, ...] = (1, 16)) -> str:
    """Write a run through the store as a bench would: a segment for each step, then joined."""
    with Workspace(workspace).create_run(
        kind="bench", name="quick", spec_text="layers: [rbd]\n", started_ns=1_790_000_000_000_000_000 + seed * 10**10,
        target={"name": "lab demo"}, versions={"bathy": "0.1.0"}, step_count=3 * len(depths),
    ) as run:  # fmt: skip
        builder = RunBuilder(run.id, seed=seed)
        builder.add_osds("hdd", 3)
        builder.add_run()
        for repeat in range(3):
            for depth in depths:
                index = builder.add_step(Load(queue_depth=depth, iops=200.0 * factor, op_rows=3), repeat)
                with run.begin_segment(step_name(index)) as writer:
                    writer.raw("load", [answer(f"fio#{number}") for number in range(2)])
                    writer.commit()
        with run.begin_segment("run") as writer:
            for name, table in builder.tables().items():
                writer.table(RECORDS_BY_TABLE[name], table)
            writer.commit()
        run.compact()
        run.update(status="done", ended_ns=run.info.started_ns + 90 * 10**9)
        return run.id


def answer(label: str) -> RawAnswer:
    files = (("log", b"1, 2\n"), ("other", b"3\n"))
    return RawAnswer(label, ("fio", "--x"), (), 1, f"{label} \u00e9\n".encode() + b"\xff", b"oh\n", 5, 2_000_005, files)


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    path = tmp_path_factory.mktemp("space")
    ids = [add_run(path, seed=1), add_run(path, seed=2), add_run(path, seed=3, factor=0.7, depths=(1,))]
    return path, ids


def test_list(space: tuple[Path, list[str]]) -> None:
    path, ids = space
    done = bathy(path, "runs", "list", "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["id"] for row in rows] == ids
    assert rows[0]["steps"] == "6/6"
    assert {row["kind"] for row in rows} == {"bench"}
    assert rows[0]["duration"] == "1 min 30 s"
    text = bathy(path, "runs", "list").stdout
    assert all(run_id in text for run_id in ids)
    assert "lab demo" in text
    parsed = list(csv.DictReader(io.StringIO(bathy(path, "runs", "list", "-o", "csv").stdout)))
    assert [row["status"] for row in parsed] == ["done"] * 3


def test_list_of_an_empty_workspace(tmp_path: Path) -> None:
    done = bathy(tmp_path / "none", "runs", "list")
    assert (done.returncode, done.stdout.startswith("no runs in")) == (0, True)
    assert json.loads(bathy(tmp_path / "none", "runs", "list", "-o", "json").stdout) == []
    assert not (tmp_path / "none").exists()


def test_show_and_path(space: tuple[Path, list[str]]) -> None:
    path, ids = space
    shown = bathy(path, "runs", "show", ids[0])
    assert "rows in result" in shown.stdout
    assert "steps finished" in shown.stdout
    assert "layers: [rbd]" in shown.stdout
    assert Path(bathy(path, "runs", "path", "last").stdout.strip()).name == ids[2]


def test_sql(space: tuple[Path, list[str]]) -> None:
    path, _ = space
    query = "SELECT run_id, count(*) AS steps FROM step GROUP BY run_id ORDER BY run_id"
    rows = json.loads(bathy(path, "runs", "sql", query, "-o", "json").stdout)
    assert [row["steps"] for row in rows] == [6, 6, 3]
    assert json.loads(bathy(path, "runs", "sql", "-r", "last", query, "-o", "json").stdout)[0]["steps"] == 3
    twice = json.loads(bathy(path, "runs", "sql", "SELECT 1 AS a, 2 AS a", "-o", "json").stdout)
    assert sorted(twice[0].values()) == [1, 2]
    bad = bathy(path, "runs", "sql", "DELETE FROM step")
    assert bad.returncode == 2
    assert "hint:" in bad.stderr
    assert "Traceback" not in bad.stderr


def test_raw_answers_are_listed_and_printed(space: tuple[Path, list[str]]) -> None:
    path, ids = space
    everything = json.loads(bathy(path, "runs", "raw", ids[0], "-o", "json").stdout)
    assert [(row["segment"], row["source"]) for row in everything] == [(step_name(n), "load") for n in range(6)]
    (one,) = json.loads(bathy(path, "runs", "raw", ids[0], "step-00003", "-o", "json").stdout)
    assert one["size_bytes"] > 0
    listed = json.loads(bathy(path, "runs", "raw", ids[0], "step-00003", "load", "-o", "json").stdout)
    assert [(row["answer"], row["label"], row["ms"], row["exit"]) for row in listed] == [
        (1, "fio#0", 2.0, 1),
        (2, "fio#1", 2.0, 1),
    ]


def test_a_raw_answer_is_printed_byte_for_byte(space: tuple[Path, list[str]]) -> None:
    command = [
        sys.executable,
        "-m",
        "bathyscope.cli",
        "runs",
        "raw",
        space[1][0],
        "step-00003",
        "load",
        "-w",
        str(space[0]),
    ]

    def printed(*words: str) -> tuple[bytes, bytes]:
        done = subprocess.run([*command, *words], capture_output=True, timeout=60, check=True)
        return done.stdout, done.stderr

    shown, said = printed("-a", "2")
    assert (shown, said) == (answer("fio#1").stdout + b"==> log <==\n1, 2\n==> other <==\n3\n", b"oh\n")
    assert printed("-a", "1", "-f", "other") == (b"3\n", b"")


@pytest.mark.parametrize(
    "words",
    [
        ("nothing",),
        ("step-00000", "nothing"),
        ("step-00000", "load", "-a", "3"),
        ("step-00000", "load", "-f", "nothing"),
        ("step-00000", "-a", "1"),
        ("-f", "x"),
    ],
)
def test_raw_answers_that_are_not_there(space: tuple[Path, list[str]], words: tuple[str, ...]) -> None:
    done = bathy(space[0], "runs", "raw", space[1][0], *words)
    assert done.returncode == 2
    assert "hint:" in done.stderr or "must be 1 to 2" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_of_format_1_is_listed_with_what_is_wrong(tmp_path: Path) -> None:
    run_id = add_run(tmp_path, depths=(1,))
    old = tmp_path / "runs" / "20250101-000000-aaaaaa"
    old.mkdir()
    (old / "run.json").write_text('{"format_version": 1, "id": "20250101-000000-aaaaaa"}')
    listed = bathy(tmp_path, "runs", "list")
    assert run_id in listed.stdout
    assert "earlier bathyscope (format 1, not 2)" in listed.stderr
    queried = bathy(tmp_path, "runs", "sql", "SELECT count(*) FROM step")
    assert (queried.returncode, "is left out" in queried.stderr) == (0, True)
    shown = bathy(tmp_path, "runs", "show", old.name)
    assert (shown.returncode, "hint: run it again" in shown.stderr) == (2, True)
    assert bathy(tmp_path, "runs", "rm", old.name, "--yes").returncode == 0


def test_help_has_examples() -> None:
    for verb in ("list", "show", "path", "rm", "sql", "raw", "reparse"):
        assert "Example" in bathy(Path("/nonexistent"), "runs", verb, "--help").stdout


def test_rm_asks_and_then_deletes(tmp_path: Path) -> None:
    run_id = add_run(tmp_path)
    asked = bathy(tmp_path, "runs", "rm", run_id)
    assert (asked.returncode, "--yes" in asked.stderr) == (2, True)
    assert Workspace(tmp_path).runs()
    assert bathy(tmp_path, "runs", "rm", run_id, "--yes").returncode == 0
    assert Workspace(tmp_path).runs() == []


def test_schema() -> None:
    everything = json.loads(bathy(Path("/nonexistent"), "schema", "-o", "json").stdout)
    assert {row["table"] for row in everything} == set(RECORDS_BY_TABLE)
    assert [row["column"] for row in everything if row["table"] == "run"].count("run_id") == 1
    assert next(row["column"] for row in everything if row["table"] == "step") == "run_id"
    assert all(row["help"] for row in everything)
    one = bathy(Path("/nonexistent"), "schema", "histogram").stdout
    assert "bucket_ns" in one
    wrong = bathy(Path("/nonexistent"), "schema", "histogramm")
    assert wrong.returncode == 2
    assert "did you mean 'histogram'?" in wrong.stderr


def test_compare_equal_runs(space: tuple[Path, list[str]]) -> None:
    path, ids = space
    done = bathy(path, "compare", ids[0], ids[1], "--fail-on", "any", "-o", "json")
    assert done.returncode == 0, done.stderr
    finding = json.loads(done.stdout)
    assert {effect["verdict"] for effect in finding["effects"]} == {"inconclusive"}


def test_compare_as_a_gate(space: tuple[Path, list[str]]) -> None:
    path, ids = space
    done = bathy(path, "compare", ids[0], "last", "--fail-on", "slower")
    assert done.returncode == 1
    assert "rbd/hdd/randread-4K-qd1 is slower" in done.stderr
    assert "rbd/hdd/randread-4K-qd16 has a figure in A and none in B" in done.stderr
    assert "slower" in done.stdout
    assert bathy(path, "compare", ids[0], "last").returncode == 0
    # The other way round everything is faster, and nothing that A had is gone.
    assert bathy(path, "compare", "last", ids[0], "--fail-on", "slower").returncode == 0
    assert bathy(path, "compare", "last", "last~2", "--fail-on", "any").returncode == 1


@pytest.mark.parametrize(
    "words",
    [
        ("last", "nothing"),
        ("last", "last", "--threshold", "much"),
        ("last", "last~9"),
        ("last", "last", "--metric", "speed"),
    ],
)
def test_compare_errors(space: tuple[Path, list[str]], words: tuple[str, ...]) -> None:
    done = bathy(space[0], "compare", *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("text", "value"), [("5%", 0.05), ("5 %", 0.05), ("0.05", 0.05), ("0", 0.0), (" 12% ", 0.12)])
def test_shares(text: str, value: float) -> None:
    assert parse_share(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "%", "five", "100%", "-1%", "nan", "inf", "1e9"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(UsageError):
        parse_share(text)


def test_sql_says_when_it_was_cut(space: tuple[Path, list[str]]) -> None:
    path, _ = space
    done = bathy(path, "runs", "sql", "SELECT * FROM range(7)", "--limit", "3", "-o", "json")
    assert [row["range"] for row in json.loads(done.stdout)] == [0, 1, 2]
    assert done.stderr == "only the first 3 rows are printed: --limit\n"
    whole = bathy(path, "runs", "sql", "SELECT * FROM range(7)", "--limit", "7", "-o", "json")
    assert (len(json.loads(whole.stdout)), whole.stderr) == (7, "")
    late = bathy(path, "runs", "sql", LONG_QUERY, "--timeout", "100ms")
    assert (late.returncode, late.stdout) == (2, "")
    assert late.stderr.startswith("bathy: the query was ended: it took longer than 0.1 s\nhint: ")
    assert bathy(path, "runs", "sql", "SELECT 1", "--timeout", "0s").returncode == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_query(space: tuple[Path, list[str]], number: signal.Signals) -> None:
    path, ids = space
    assert list(Path(path, "runs", ids[0]).glob(".partial-sql-*")) == []
    process = subprocess.Popen(
        ["env", "--default-signal=INT,TERM", sys.executable, "-m", "bathyscope.cli", "runs", "sql", LONG_QUERY,
         "-r", ids[0], "-w", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip

    def is_asking() -> bool:
        # Its directory for what does not fit in memory is there as soon as the query is.
        return catches(process.pid, signal.SIGTERM) and any(Path(path, "runs", ids[0]).glob(".partial-sql-*"))

    until(lambda: is_asking() or process.poll() is not None, 60)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + number, "", "bathy: interrupted\n")
    assert list(Path(path, "runs", ids[0]).glob(".partial-sql-*")) == []


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal. Python itself has none for SIGTERM."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
