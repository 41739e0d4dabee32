"""A run from its first step to its last on a layer of the test's own: prolonged, interrupted, resumed, refused."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.unit.signals import ended_by_a_signal

from bathyscope.analysis.compare import compare
from bathyscope.bench import conductor, session
from bathyscope.bench.conductor import Watcher
from bathyscope.bench.run_records import reparse
from bathyscope.errors import BusyError, StoreError, ToolError, UnreachableError, UsageError
from bathyscope.host import ProcessRequest
from bathyscope.host.fake import FakeAnswer, FakeHost
from bathyscope.layers import LAYERS, Layer, LoadTables, traits
from bathyscope.records import Histogram, Interval, Result, from_table, to_table
from bathyscope.records import Step as StepRecord
from bathyscope.records.finding import LayerView
from bathyscope.spec import DiskTarget, StepSpec, Target
from bathyscope.spec.plan_file import parse_plan
from bathyscope.store import RunDirectory, Workspace, raw

STEADY = (100.0,) * 10
UNSTEADY = (10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0, 140.0, 160.0, 180.0)
S = 1_000_000_000


@dataclasses.dataclass
class ScriptedLayer(Layer):
    """A layer whose loads report the rates of a script, one entry for each load.

    A step is parsed twice, to see whether it is steady and to be judged: the loads are told apart by their number.
    """

    view = LayerView("disk", "Disk", "the disk", 0, 0, "square", (1, 0))
    load_generators: ClassVar[Mapping[str, str]] = {"fio": "libaio"}

    script: list[tuple[float, ...]]
    before_load: Callable[[int], None] = lambda _: None
    needs_cluster: bool = False  # type: ignore[misc]
    loads: int = 0
    ramps: list[float] = dataclasses.field(default_factory=list)

    def plan(self, step: StepSpec, context: Any) -> tuple[ProcessRequest, ...]:
        self.ramps.append(step.ramp_s)
        self.before_load(self.loads)
        self.loads += 1
        return (ProcessRequest("load", ("load", step.key, str(self.loads - 1))),)

    def parse(self, step_index: int, step: StepSpec, answers: Any) -> LoadTables:
        rates = self.script[min(int(answers[0].argv[-1]), len(self.script) - 1)]
        index = step_index
        count = round(sum(rates))
        total = Result(index, "fio#0", "read", count, count * 4096, 0, len(rates) * S, count / len(rates),
                       4096.0 * count / len(rates), 1e6, 0.0, 1e6, 1e6, None, None)  # fmt: skip
        series = [
            Interval(index, "fio#0", "read", (i + 1) * S, S, rate, rate * 4096, 1e6) for i, rate in enumerate(rates)
        ]
        bucket = Histogram(index, "fio#0", "read", "lat", 1_000_000, count)
        return LoadTables({
            Result: to_table(Result, [total]),
            Interval: to_table(Interval, series),
            Histogram: to_table(Histogram, [bucket]),
        })  # fmt: skip


class Talk(Watcher):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.begun: list[int] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step_begins(self, number: int, total: int, step: StepSpec) -> None:
        self.begun.append(number)


@pytest.fixture
def host() -> FakeHost:
    def fio(request: ProcessRequest) -> FakeAnswer:
        return FakeAnswer(b"fio-3.33\n" if "--version" in request.argv else b"libaio\n")

    return FakeHost({"fio": fio, "load": FakeAnswer(b"{}", duration_s=10)}, {"/etc/os-release": b"ID=debian\n"})


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: FakeHost) -> Callable[..., RunDirectory]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(4096))
    target = Target(name="disk", kind="disk", disks={"": DiskTarget(path=str(disk))})

    def begin(
        layer: ScriptedLayer,
        *,
        resume: bool = False,
        watcher: Watcher | None = None,
        keep: bool = False,
        phases: str = "",
        **changes: Any,
    ) -> RunDirectory:
        monkeypatch.setitem(LAYERS, "disk", layer)
        text = (
            "name: t\nlayers: [disk]\npatterns: [randread-4K-qd1, randread-4K-qd2]\nrepeats: 2\n"
            "ramp: 1s\nruntime: 10s\n"
            f"device_classes: [all]\nlimits: {{prolong: 2}}\ncapture: {{processes: false}}\n{phases}"
        )
        workspace = Workspace(tmp_path / "ws")
        if resume:
            return session.resume(host, workspace, "last", watcher or Talk())
        plan = parse_plan(text, name="t", layers=traits(), overrides=[f"{k}={v}" for k, v in changes.items()])
        return session.begin(host, workspace, plan, target, watcher or Talk(), keep=keep)

    return begin


def steps(run: RunDirectory) -> list[StepRecord]:
    return sorted(from_table(StepRecord, run.tables()["step"]), key=lambda step: step.step_index)


def last(tmp_path: Path) -> RunDirectory:
    return Workspace(tmp_path / "ws").open_run("last")


def assert_parsed_again_is_the_same(run: RunDirectory) -> None:
    """What a run writes while it goes on is what its raw answers give without any of its tables."""
    tables, info = run.tables(), run.info
    for file in run.path.rglob("*.parquet"):
        file.unlink()
    with Workspace(run.path.parents[1]).open_run(run.id, exclusive=True) as found:
        reparse(found)
    again = RunDirectory(run.path)
    assert again.tables() == tables
    assert again.info == info


def test_a_run_keeps_every_step_once_in_plan_order_and_leaves_no_journal(start: Any, tmp_path: Path) -> None:
    run = start(ScriptedLayer([STEADY]))
    assert run.status == "done"
    assert [(s.step_index, s.step_key, s.repeat_index) for s in steps(run)] == [
        (0, "disk/all/randread-4K-qd1", 0), (1, "disk/all/randread-4K-qd2", 0),
        (2, "disk/all/randread-4K-qd1", 1), (3, "disk/all/randread-4K-qd2", 1),
    ]  # fmt: skip
    assert {s.prolonged_count for s in steps(run)} == {0}
    assert (run.path / "tables" / "step.parquet").exists()
    assert not list((tmp_path / "state").rglob("*.jsonl"))


def test_an_unsteady_step_is_run_on_without_ramp_until_it_is_steady(start: Any) -> None:
    layer = ScriptedLayer([UNSTEADY, STEADY, STEADY])
    run = start(layer, repeats=1)
    assert [s.prolonged_count for s in steps(run)] == [1, 0]
    assert layer.ramps == [1.0, 0.0, 1.0]
    assert_parsed_again_is_the_same(run)
    # What is kept is the steady part alone.
    results = from_table(Result, run.step_segments()[0].table(Result))
    assert [row.iops for row in results] == [100.0]
    assert not [row for row in run.tables()["caveat"].to_pylist() if row["code"] == "unsteady"]


def test_prolonging_ends_at_the_limit_and_leaves_a_warning(start: Any) -> None:
    layer = ScriptedLayer([UNSTEADY])
    run = start(layer, repeats=1)
    assert [s.prolonged_count for s in steps(run)] == [2, 2]
    assert layer.loads == 6
    warned = [row["step_index"] for row in run.tables()["caveat"].to_pylist() if row["code"] == "unsteady"]
    assert sorted(warned) == [0, 1]


def test_a_load_that_fails_is_kept_with_its_words_and_the_run_goes_on(start: Any, host: FakeHost) -> None:
    def load(request: ProcessRequest) -> FakeAnswer:
        broken = request.argv[1].endswith("qd1")
        return FakeAnswer(b"{}", b"a\nfio: device gone\n" if broken else b"", exit_code=int(broken), duration_s=1)

    host.programs["load"] = load
    run = start(ScriptedLayer([STEADY]), repeats=1)
    first, second = steps(run)
    assert first.status == "failed"
    assert "device gone" in (first.reason or "")
    assert second.status == "done"


def test_an_interrupted_run_keeps_what_is_finished_and_repeats_nothing(start: Any, tmp_path: Path) -> None:
    def interrupt(load: int) -> None:
        if load == 2:
            raise KeyboardInterrupt

    talk = Talk()
    with pytest.raises(KeyboardInterrupt):
        start(ScriptedLayer([STEADY], before_load=interrupt), watcher=talk)
    run = last(tmp_path)
    assert run.status == "interrupted"
    assert list(run.step_segments()) == [0, 1]
    assert any("2 of 4 steps are kept" in note for note in talk.notes)
    assert any(run.id in note for note in talk.notes)
    assert [row["status"] for row in run.tables()["run"].to_pylist()] == ["interrupted"]
    assert_parsed_again_is_the_same(run)
    before = steps(run)
    layer, talk = ScriptedLayer([STEADY]), Talk()
    resumed = start(layer, resume=True, watcher=talk)
    assert resumed.status == "done"
    assert layer.loads == 2
    assert talk.begun == [3, 4]
    assert steps(resumed)[:2] == before
    assert [s.step_index for s in steps(resumed)] == [0, 1, 2, 3]
    # A third time there is nothing to do.
    layer = ScriptedLayer([STEADY])
    assert start(layer, resume=True).status == "done"
    assert layer.loads == 0


def test_a_disk_that_is_full_keeps_the_finished_steps_and_names_what_to_do(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = raw.write_raw

    def full(path: Path, answers: Any) -> None:
        if "step-00001" in str(path):
            raise StoreError("cannot write: No space left on device", hint="free space there")
        real(path, answers)

    monkeypatch.setattr(raw, "write_raw", full)
    with pytest.raises(StoreError, match="No space left") as error:
        start(ScriptedLayer([STEADY]))
    assert error.value.hint
    assert list(last(tmp_path).step_segments()) == [0]
    assert last(tmp_path).info.status == "interrupted"
    monkeypatch.setattr(raw, "write_raw", real)
    assert len(steps(start(ScriptedLayer([STEADY]), resume=True))) == 4


def test_a_run_that_fails_its_checks_leaves_no_run_behind(start: Any, tmp_path: Path, host: FakeHost) -> None:
    del host.programs["fio"]
    with pytest.raises(Exception, match="fio is not installed"):
        start(ScriptedLayer([STEADY]))
    assert not list((tmp_path / "ws" / "runs").glob("*"))
    assert not list((tmp_path / "state").rglob("*.jsonl"))


def test_a_second_run_in_the_workspace_is_refused_while_the_first_goes_on(start: Any, tmp_path: Path) -> None:
    problems: list[BaseException] = []

    def second(load: int) -> None:
        if load == 1:
            try:
                start(ScriptedLayer([STEADY]))
            except BusyError as error:
                problems.append(error)
            try:
                start(ScriptedLayer([STEADY]), resume=True)
            except BusyError as error:
                problems.append(error)

    assert start(ScriptedLayer([STEADY], before_load=second)).status == "done"
    assert len(problems) == 2


def test_a_plan_that_needs_a_cluster_is_refused_on_a_disk(start: Any) -> None:
    with pytest.raises(UsageError, match="only a disk was named"):
        start(ScriptedLayer([STEADY], needs_cluster=True))


def test_a_run_that_keeps_its_pools_restores_the_settings_all_the_same(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored: list[Any] = []
    monkeypatch.setattr(conductor.Conductor, "_restore_settings", lambda self: restored.append(self))  # noqa: PLW0108
    monkeypatch.setattr(conductor.Conductor, "clean_up", lambda self: pytest.fail("what was made is kept"))
    start(ScriptedLayer([STEADY]), keep=True)
    assert len(restored) == 1


def test_each_change_that_cannot_be_undone_is_noted_and_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a run that keeps its pools ends with it, and one that was killed does not go on."""
    monkeypatch.setattr(conductor.cleanup, "undo_all", lambda *_, **__: ["a: denied", "b: denied"])
    talk, run = Talk(), object.__new__(conductor.Conductor)
    run._host, run._session, run._journal, run._watcher = Any, Any, Any, talk  # type: ignore[assignment]
    with pytest.raises(ToolError, match="2 changes could not be undone: a: denied"):
        run._restore_settings()
    assert talk.notes == ["not undone: a: denied", "not undone: b: denied"]


def test_what_an_interrupted_run_cannot_restore_is_noted(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(load: int) -> None:
        raise KeyboardInterrupt

    def lost(_: Any) -> None:
        raise UnreachableError("no monitor answered")

    monkeypatch.setattr(conductor.Conductor, "_restore_settings", lost)
    talk = Talk()
    with pytest.raises(KeyboardInterrupt):
        start(ScriptedLayer([STEADY], before_load=interrupt), watcher=talk)
    assert any("no monitor answered; what is left is restored by: bathy bench cleanup" in note for note in talk.notes)


def test_a_signal_ends_a_run_in_its_load_and_not_where_something_is_half_done(start: Any, tmp_path: Path) -> None:
    done: list[str] = []

    def interrupt(load: int) -> None:
        if load == 2:
            os.kill(os.getpid(), signal.SIGINT)
            done.append("all of it")

    with ended_by_a_signal():
        start(ScriptedLayer([STEADY], before_load=interrupt))
    assert done == ["all of it"]
    assert last(tmp_path).status == "interrupted"
    assert list(last(tmp_path).step_segments()) == [0, 1]


def test_an_interrupted_run_restores_before_it_writes_to_a_workspace_that_may_be_full(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def full(self: Any) -> None:
        order.append("note")
        raise StoreError("cannot write: No space left on device")

    def interrupt(load: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(conductor.Conductor, "_restore_settings", lambda self: order.append("restore"))
    monkeypatch.setattr(conductor.Conductor, "_note_interruption", full)
    with pytest.raises(KeyboardInterrupt):
        start(ScriptedLayer([STEADY], before_load=interrupt))
    assert order == ["restore", "note"]


def test_a_machine_that_the_run_has_loaded_is_not_said_to_have_been_busy_before_it(
    start: Callable[..., RunDirectory], host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each phase the machine is looked at; what the phase before did to it is no caveat of the run."""
    host.files |= {"/proc/cpuinfo": b"processor\t: 0\n", "/proc/loadavg": b"0.10 0.10 0.10 1/100 1\n"}

    def busy(load: int) -> None:
        host.files["/proc/loadavg"] = f"{load + 9}.0 1.0 1.0 1/100 1\n".encode()

    monkeypatch.setattr("bathyscope.bench.phases.check", lambda *_: None)
    run = start(ScriptedLayer([STEADY], before_load=busy), phases="phases: [{name: a}, {name: b}]")
    assert sum(name.startswith("start-") for name in run.segments()) == 4
    assert "client_busy" not in {row["code"] for row in run.tables()["caveat"].to_pylist()}


def test_what_is_precise_enough_is_not_measured_again(start: Callable[..., RunDirectory]) -> None:
    """The first pattern is the same each time; the second never agrees, so it has all repeats."""
    layer = ScriptedLayer([rate if number % 2 else STEADY for number, rate in enumerate(_DIFFERENT)])
    run = start(layer, repeats=6, precision=0.05, **{"limits.prolong": 0})
    rows = run.tables()["step"].to_pylist()
    counted = [sum(row["queue_depth"] == depth for row in rows) for depth in (1, 2)]
    assert counted == [3, 6]
    assert run.info.status == "done"
    # Whoever shows its intervals says what they are worth, also when the run is parsed again.
    for _ in range(2):
        codes = [row["code"] for row in run.tables()["caveat"].to_pylist()]
        assert codes.count("stopped_when_precise") == len(rows)
        assert "hold the true median in about 92 % of the cases" in compare(run.tables(), run.tables()).headline
        with Workspace(run.path.parents[1]).open_run(run.id, exclusive=True) as again:
            reparse(again)
        run = Workspace(run.path.parents[1]).open_run(run.id)


_DIFFERENT = tuple((50.0 * (1 + number),) * 10 for number in range(12))
