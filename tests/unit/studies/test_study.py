"""A study: what its recorded steps come to, how expectations are judged, and that one more is one more file."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.views import golden

from bathyscope import cli, studies
from bathyscope.analysis.compare import compare
from bathyscope.analysis.study import build
from bathyscope.bench import prediction
from bathyscope.commands.report import finding_of, loads_of
from bathyscope.discovery import members
from bathyscope.errors import BusyError, LabError, UsageError
from bathyscope.host.local import LocalHost
from bathyscope.layers import LAYERS, LayerContext, traits
from bathyscope.recording.journal import Journal, journal_directory
from bathyscope.records import HERE, Caveat, ProcessSample, Result, Step, schema_of, to_table
from bathyscope.records.figure import Figure
from bathyscope.records.study_finding import StudyFinding
from bathyscope.run_kinds import kind_of
from bathyscope.spec import Target
from bathyscope.spec.plan import expand
from bathyscope.spec.plan_file import dump_plan, parse_plan
from bathyscope.spec.study import Expectation, StudyDesign
from bathyscope.store import Workspace
from bathyscope.studies import STUDIES
from bathyscope.views import as_text, pictures

RECORDED = Path(__file__).parents[2] / "fixtures" / "study" / "vm-fleet"
RUN = "20261123-160940-c882d1"
VM_FLEET = STUDIES["vm-fleet"]
SECOND_NS = 10**9
READ, WRITE = "randread-4K-qd8", "randwrite-4K-qd8"
DESIGN = StudyDesign(
    name="x",
    title="X",
    phases=("no-cache", "repeated"),
    expectations=(
        Expectation(pattern=READ, phase="repeated", ratio_min=8),
        Expectation(pattern=WRITE, phase="repeated", ratio_min=0.9),
    ),
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace with the recorded run, whose tables are made of its raw answers."""
    runs = Workspace(tmp_path)
    shutil.copytree(RECORDED, runs.runs_directory / RUN)
    tmp_path.chmod(0o700)
    with runs.open_run(RUN, exclusive=True) as run:
        reparse = kind_of(run).reparse
        assert reparse is not None
        assert reparse(run) == "12 steps were parsed and judged again; 0 got another status"
    return runs


def recorded(workspace: Workspace) -> StudyFinding:
    found = finding_of(workspace.open_run(RUN))
    assert isinstance(found, StudyFinding)
    return found


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_a_recorded_run(workspace: Workspace, output: str) -> None:
    golden.check(f"study.{'txt' if output == 'table' else output}", as_text(recorded(workspace), output))


def test_what_fio_and_the_caches_said_is_what_is_shown(workspace: Workspace) -> None:
    """Counted from the raw answers by other means than the product's."""
    run = workspace.open_run(RUN)
    cells = {(row.pattern, cell.phase): cell for row in recorded(workspace).rows for cell in row.cells}
    assert len(cells) == 12
    for segment in run.step_segments().values():
        about = segment.context()
        pattern = about["spec"]["pattern"]
        size = f"{pattern['block_size_bytes'] >> 10}K"
        phase = about["spec"]["phase"]
        cell = cells[f"{pattern['op']}-{size}-qd{pattern['queue_depth']}", phase]
        side = "read" if "read" in pattern["op"] else "write"
        jobs = [json.loads(answer.stdout)["jobs"][0][side] for answer in segment.raw("load")]
        rates = [job["total_ios"] / job["runtime"] * 1000 for job in jobs]
        assert cell.iops.value == pytest.approx(sum(rates), rel=1e-4)
        looks = [json.loads(answer.stdout)["answer"]["cache"]["engine"]["reads"] for answer in segment.raw("caches")]
        assert len(looks) == (0 if phase == "no-cache" else 6)
        if looks and side == "read":
            read, hit = (
                sum(one[name] for one in looks[3:]) - sum(one[name] for one in looks[:3])
                for name in ("bytes", "bytes_hit")
            )
            assert cell.read_hit_ratio == pytest.approx(hit / read, abs=0.01)
        else:
            assert cell.read_hit_ratio is None


def test_the_page_and_the_picture(workspace: Workspace) -> None:
    found = recorded(workspace)
    page = as_text(found, "html")
    assert all(expectation.sentence in page for expectation in found.expectations)
    ((name, content),) = pictures.draw(found, "svg")
    assert name == "001-study.svg"
    assert b"repeated" in content


def step(index: int, phase: str, pattern: str, repeat: int = 0, **changes: Any) -> Step:
    """Return the row of a step; what is not given is 0, or as if it were alright."""
    plain: dict[str, Any] = {
        field.name: None if field.nullable else "" if field.type == pa.string() else 0 for field in schema_of(Step)
    }
    known = {"step_index": index, "step_key": f"rbd/hdd/{pattern}-j3-{phase}", "repeat_index": repeat, "phase": phase}
    return Step(**{**plain, **known, "block_size_bytes": 4096, "osds": "0", "status": "done", **changes})


def found_in(
    steps: Sequence[Step],
    clients: Mapping[int, Sequence[float]],
    *,
    is_judged: bool = True,
    errors: int = 0,
    steal: Mapping[int, float] | None = None,
    caveats: Sequence[Caveat] = (),
) -> StudyFinding:
    """Return the finding of steps with the IOPS of each client over ten seconds; `steal` by step, if known."""
    of_steps: dict[int, dict[str, pa.Table]] = {}
    for one in steps:
        direction = "write" if "write" in one.step_key else "read"
        results = [
            Result(one.step_index, f"fio#{number}", direction, round(iops * 10), 0, errors, 10 * SECOND_NS,
                   iops, iops * 4096, 1e6, 0.0, 1e6, 1e6, None, None, None)
            for number, iops in enumerate(clients[one.step_index])
        ]  # fmt: skip
        of_steps[one.step_index] = {"result": to_table(Result, results)}
        if steal is not None:
            stolen_s = steal.get(one.step_index, 0.0) * 10
            host = ProcessSample(10 * SECOND_NS, 10 * SECOND_NS, HERE, "host", 0.0, 0.0, None, 1, stolen_s)
            of_steps[one.step_index]["process_sample"] = to_table(ProcessSample, [host])
    tables = {"step": to_table(Step, steps), "caveat": to_table(Caveat, caveats)}
    tables["result"] = pa.concat_tables([own["result"] for own in of_steps.values()])
    return build(tables, of_steps, DESIGN, "run", is_judged=is_judged)


def judged(
    rates: dict[tuple[str, str], list[float]],
    *,
    steal: Mapping[tuple[str, str], float] | None = None,
    **more: Any,
) -> StudyFinding:
    """Return the finding of (phase, pattern) → IOPS of each client; `steal` likewise."""
    places = list(rates)
    steps = [step(index, *place) for index, place in enumerate(places)]
    by_step = None if steal is None else {places.index(place): ratio for place, ratio in steal.items()}
    return found_in(steps, dict(enumerate(rates.values())), steal=by_step, **more)


def rates(read: float, write: float) -> dict[tuple[str, str], list[float]]:
    return {
        ("no-cache", READ): [50.0, 52.0, 48.0],
        ("no-cache", WRITE): [30.0, 31.0, 29.0],
        ("repeated", READ): [50.0 * read, 52.0 * read, 48.0 * read],
        ("repeated", WRITE): [30.0 * write, 31.0 * write, 29.0 * write],
    }


@pytest.mark.parametrize(
    ("read", "write", "met"), [(8.0, 0.9, [True, True]), (7.9, 1.0, [False, True]), (20.0, 0.8, [True, False])]
)
def test_an_expectation_is_met_from_its_bound_on(read: float, write: float, met: list[bool]) -> None:
    found = judged(rates(read, write))
    assert [expectation.met for expectation in found.expectations] == met
    assert found.passed is all(met)
    ratio = found.expectations[0].ratio
    assert ratio.value == pytest.approx(read)
    # All clients have the same ratio.
    assert (ratio.low, ratio.high) == (pytest.approx(read), pytest.approx(read))
    # Nothing is judged where the expectations do not hold.
    assert judged(rates(read, write), is_judged=False).passed


def test_clients_are_compared_with_themselves() -> None:
    """Clients that differ tenfold from each other, and all of which become ten times as fast, leave no doubt."""
    known = {("no-cache", READ): [10.0, 50.0, 100.0], ("repeated", READ): [101.0, 499.0, 1000.0]}
    expectation = judged(known).expectations[0]
    assert expectation.ratio.low is not None
    assert expectation.ratio.low > 9.5
    assert expectation.sentence.endswith(": met")
    doubtful = judged(known | {("repeated", READ): [20.0, 499.0, 2000.0]})
    assert doubtful.expectations[0].sentence.endswith(": met, not certain")
    assert doubtful.expectations[0].met


def test_over_a_rate_of_zero_there_is_no_ratio() -> None:
    """fio divides by milliseconds: one I/O that took less has none."""
    expectation = judged({("no-cache", READ): [0.0], ("repeated", READ): [100.0]}).expectations[0]
    assert (expectation.ratio.value, expectation.met) == (None, None)


def test_without_the_first_phase_nothing_is_over_it() -> None:
    found = judged({key: value for key, value in rates(10.0, 1.0).items() if key[0] == "repeated"})
    assert found.base is None
    assert "over" not in as_text(found, "table").splitlines()[1]
    assert list(pictures.draw(found, "svg")) == []
    assert not found.passed


def test_what_was_not_measured_is_not_met() -> None:
    only = {key: value for key, value in rates(10.0, 1.0).items() if key != ("repeated", WRITE)}
    found = judged(only)
    assert [expectation.met for expectation in found.expectations] == [True, None]
    assert not found.passed
    assert "not measured" in found.expectations[1].sentence


def test_repeats_are_compared_round_by_round() -> None:
    """The cluster became twice as slow from round to round; the ratio of each round is ten."""
    steps = [step(0, "no-cache", READ), step(1, "repeated", READ), step(2, "no-cache", READ, 1)]
    steps += [step(3, "repeated", READ, 1), step(4, "no-cache", READ, 2), step(5, "repeated", READ, 2)]
    known = {0: [100.0], 1: [1000.0], 2: [50.0], 3: [500.0], 4: [25.0], 5: [250.0]}
    found = found_in(steps, known)
    cells = {cell.phase: cell for cell in found.rows[0].cells}
    assert cells["repeated"].ratio == Figure(pytest.approx(10), "×", pytest.approx(10), pytest.approx(10), samples=3)
    assert (cells["no-cache"].iops.value, cells["no-cache"].iops.samples) == (50.0, 3)
    assert "one_run" not in [caveat.code for caveat in found.caveats]
    assert "one_run" in [caveat.code for caveat in found_in(steps[:2], known).caveats]


def test_what_holds_for_the_whole_run_is_shown_in_every_output() -> None:
    """Of the cluster before each phase, as a benchmark shows it, once; a step's own stands in its row alone."""
    steps = [step(0, "no-cache", READ), step(1, "repeated", READ)]
    caveats = [
        Caveat(None, "scrubbing", "warning", "3 placement groups were being scrubbed before the run", "preflight"),
        Caveat(None, "scrubbing", "warning", "3 placement groups were being scrubbed before the run", "preflight"),
        Caveat(1, "unsteady", "warning", "not steady", "trust"),
    ]
    found = found_in(steps, {0: [100.0], 1: [1000.0]}, caveats=caveats)
    assert [(c.code, len(c.step_keys)) for c in found.caveats] == [("scrubbing", 0), ("unsteady", 1), ("one_run", 0)]
    for output in ("table", "json", "html"):
        assert "being scrubbed before the run" in " ".join(as_text(found, output).split()), output
    assert f"warning: not steady ({steps[1].step_key})" in as_text(found, "table")
    first, second = csv.DictReader(as_text(found, "csv").splitlines())
    assert (first["step_key"], second["step_key"]) == (steps[0].step_key, steps[1].step_key)
    # Codes: the texts are of all steps together.
    assert first["caveats"] == "scrubbing; one_run"
    assert second["caveats"] == "scrubbing; unsteady; one_run"


def test_a_step_that_was_refused_has_no_figure() -> None:
    steps = [step(0, "no-cache", READ), step(1, "repeated", READ, status="refused", reason="it is thin")]
    caveats = [
        Caveat(1, "thin_image", "refused", "it is thin", "trust"),
        Caveat(1, "x", "note", "a note", "trust"),
        Caveat(0, "cache_hits", "warning", "from memory", "trust"),
        Caveat(0, "stopped_when_precise", "note", "92 %", "trust"),
    ]
    found = found_in(steps, {0: [100.0], 1: [1000.0]}, caveats=caveats)
    assert [cell.iops.value for cell in found.rows[0].cells] == [100.0, None]
    (expectation,) = found.expectations
    assert expectation.met is None
    assert "repeated randread-4K-qd8 has no figure: it is thin" in expectation.sentence
    assert [c.code for c in found.caveats if c.severity != "note"] == ["thin_image", "cache_hits"]
    assert ("stopped_when_precise", "92 %") in [(c.code, c.text) for c in found.caveats]


@pytest.mark.parametrize(
    ("ratio", "phase", "met"),
    [(0.88, "repeated", None), (0.8, "repeated", False), (0.92, "repeated", True),
     (0.92, "no-cache", None), (1.2, "no-cache", True), (0.88, "no-cache", False)],
)  # fmt: skip
def test_what_a_hypervisor_can_have_done_is_not_judged(ratio: float, phase: str, met: bool | None) -> None:
    """A tenth of the processors was away in one phase: 0.88 could have been 0.98, or 0.92 only 0.83."""
    found = judged(rates(8.0, ratio), steal={(phase, WRITE): 0.1})
    expectation = found.expectations[1]
    assert expectation.met is met
    assert expectation.ratio.value == pytest.approx(ratio)
    shares = " in repeated, ".join(
        ("10 % of the time", "0.0 %") if phase == "repeated" else ("0.0 % of the time", "10 %")
    )
    said = f"cannot tell: the processors waited for the hypervisor {shares} in no-cache (steal)"
    assert expectation.sentence.endswith(said) is (met is None)
    assert found.passed is (met is True)
    assert ("1 cannot be judged" in found.sentence) is (met is None)
    (caveat,) = [one for one in found.caveats if one.code == "cpu_steal"]
    assert f"for 0.0 % to 10 % of the time of a step (steal), longest in {phase} {WRITE}." in caveat.text
    # Less than is told turns nothing.
    assert judged(rates(8.0, 0.89), steal={("repeated", WRITE): 0.015}).expectations[1].met is False


def test_failed_ios_are_a_warning() -> None:
    assert [c.code for c in judged(rates(8.0, 1.0), errors=3).caveats if c.severity == "warning"] == ["failed_ios"]


def test_one_more_study_is_one_more_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tide.py").write_text(
        "import dataclasses\n"
        "from bathyscope.studies import vm_fleet\n"
        "design = vm_fleet.DESIGN.model_copy(update={'name': 'tide'})\n"
        "STUDY = dataclasses.replace(vm_fleet.STUDY, design=design)\n"
    )
    monkeypatch.setattr(studies, "__path__", [*studies.__path__, str(tmp_path)])
    assert {"tide", "vm-fleet"} <= set(members(studies, "STUDY"))


def bathy(*words: str) -> None:
    cli.app(list(words), standalone_mode=False)


def test_the_list_has_every_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    bathy("study", "list", "--output", "json")
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert "are for labs" in rows[0]["what"]
    named = {(row["study"], row["parameter"]) for row in rows}
    assert named == {(s.name, p) for s in STUDIES.values() for p in ("", *s.parameters.model_fields)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["vm-flet"], "there is no study 'vm-flet'"),
        (["vm-fleet", "--set", "image=3"], "--set must be NAME=VALUE"),
        (["vm-fleet", "--set", "phases=first,second"], r"phases must be .* \(got second\)"),
        (["vm-fleet", "--set", "phases=no-cache, repeated", "--set", "images=0"], "images must be greater"),
        (["vm-fleet", "--set", "precision=0.1"], r"precision needs repeats=4 or more \(got 1\)"),
        (["vm-fleet", "--set", "images=0"], "images must be greater than or equal to 1"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_before_a_lab_is_made(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bathyscope.lab.up", lambda *_: pytest.fail("a lab was started"))
    with pytest.raises(UsageError, match=message):
        bathy("study", *words)


def test_a_lab_on_which_a_run_is_under_way_is_not_taken_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    target = Target(name="bathy-study", kind="lab")
    Journal.create(journal_directory(), RUN, "/ws/x", target, LocalHost(), fsid="f-s-i-d")
    monkeypatch.setattr("bathyscope.lab.simdisk.possible", lambda: True)
    monkeypatch.setattr("bathyscope.lab.list_labs", lambda: ["bathy-study"])
    monkeypatch.setattr("bathyscope.lab.down", lambda *_: pytest.fail("the lab was taken down"))
    monkeypatch.setattr("bathyscope.lab.up", lambda *_: pytest.fail("a lab was started"))
    with pytest.raises(BusyError, match=f"run {RUN} uses the lab 'bathy-study' now"):
        bathy("study", "vm-fleet")


def test_a_lab_that_comes_up_for_another_study_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("bathyscope.lab.simdisk.possible", lambda: True)
    monkeypatch.setattr("bathyscope.lab.list_labs", list)

    def second(*_: Any) -> None:
        # While the first one brings its lab up, there is no run yet whose journal would say so.
        with pytest.raises(BusyError, match="the lab 'bathy-study' is in use"):
            bathy("study", "vm-fleet")
        raise LabError("no port")

    monkeypatch.setattr("bathyscope.lab.up", second)
    with pytest.raises(LabError, match="no port"):
        bathy("study", "vm-fleet")


@pytest.mark.parametrize("words", [["explain", RUN], ["report", RUN], ["runs", "reparse", RUN]])
def test_a_run_of_before_phases_is_named(words: list[str], tmp_path: Path) -> None:
    run = Workspace(tmp_path).create_run(
        kind="study", name="vm-fleet", spec_text='{"osds":3,"phases":["no-cache"]}', started_ns=1,
        target=Target(name="bathy-study", kind="lab").model_dump(mode="json"), versions={"bathy": "0.1"},
    )  # fmt: skip
    with run:
        run.update(status="done", ended_ns=2)
    words = [run.id if word == RUN else word for word in words]
    with pytest.raises(UsageError, match="recorded by a version before phases; its tables cannot be read"):
        bathy(*words, "--workspace", str(tmp_path))


def test_without_fuse_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bathyscope.lab.simdisk.possible", lambda: False)
    monkeypatch.setattr("bathyscope.lab.up", lambda *_: pytest.fail("a lab was started"))
    with pytest.raises(Exception, match="root and /dev/fuse"):
        bathy("study", "vm-fleet")


def test_what_is_done_on_labs_only_is_refused_on_a_cluster() -> None:
    with pytest.raises(
        UsageError,
        match=r"caches over OSDs \(first, repeated\) and restarts of OSDs \(no-cache, repeated\) are for labs",
    ):
        bathy("study", "vm-fleet", "--conf", "/nowhere/ceph.conf")


def test_a_dry_run_needs_no_lab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("bathyscope.lab.up", lambda *_: pytest.fail("a lab was started"))
    bathy("study", "vm-fleet", "--dry-run", "--set", "patterns=randread-4K-qd8", "--output", "json")
    found = json.loads(capsys.readouterr().out)
    assert found["cost"]["step_count"] == 3
    assert [pool["replicas"] for pool in found["pools"]] == [2]
    done = {change["change"]: change for change in found["changes"]}
    assert next(iter(done)) == "the lab bathy-study comes up: 3 hdd OSDs"
    assert "before no-cache: config set who=osd name=bluestore_default_buffered_read value=false" in done
    put_on = done["before first: each gets a cache of 4.00 GiB and starts again"]
    assert {"before repeated: all start again", "at the end: each loses its cache and starts again"} <= done.keys()
    assert (put_on["count"], put_on["undone_by"]) == (1, "each loses its cache and starts again")
    warming = [row for row in found["commands"] if row["step_key"] == "warm-repeated#0"]
    assert len(warming) == 8
    assert any("are for labs, where bathy has started the OSDs itself" in note for note in found["notes"])
    assumed = ("the OSDs of a lab start again in 8.0 s", "a lab comes up in 20 s")
    assert found["cost"]["assumptions"][-2:] == list(assumed)
    # A study without what its phases do takes less by just that, and by its steps.
    seconds = sum(change["expected_s"] * change["count"] for change in done.values())
    loads_s = 3 * prediction.step_s(expand(VM_FLEET.plan(VM_FLEET.parameters()), ("hdd",), traits())[0])
    assert found["cost"]["expected_s"] > seconds + loads_s > 4 * put_on["expected_s"] + loads_s


def test_a_dry_run_of_rounds_until_they_are_precise_says_the_least_and_the_most(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("study", "vm-fleet", "--dry-run", "--set", "patterns=randread-4K-qd8", "--set", "repeats=20")
    bathy(*words, "--set", "precision=0.1", "--output", "json")
    found = json.loads(capsys.readouterr().out)
    cost = found["cost"]
    assert (found["repeats_min"], found["repeats"], cost["step_count_min"], cost["step_count"]) == (3, 20, 9, 60)
    # The caches go and come back in each round.
    counts = {change["change"].partition(" ")[2]: change["count"] for change in found["changes"]}
    assert counts["no-cache: each loses its cache and starts again"] == 19
    assert counts["first: each gets a cache of 4.00 GiB and starts again"] == 20
    bathy(*words, "--set", "precision=0.1")
    shown = capsys.readouterr().out
    assert "3 to 20 repeats = 9 to 60 steps" in shown
    assert "(up to 20 times, about 8.0 s each)" in shown
    bathy(*words, "--output", "json")
    always = json.loads(capsys.readouterr().out)
    assert (always["repeats_min"], always["cost"]["expected_min_s"]) == (20, always["cost"]["expected_s"])
    assert cost["expected_min_s"] < cost["expected_s"] == always["cost"]["expected_s"]


def test_a_plan_is_made_of_each_set_of_parameters() -> None:
    """The patterns have parts of their own, the image has room for all, and the plan is what its run keeps."""
    given = VM_FLEET.parameters.model_validate({"part_size": "6M", "patterns": ["write-64K-qd64", READ], "repeats": 2})
    plan = VM_FLEET.plan(given)
    assert parse_plan(dump_plan(plan), name="a run", layers=traits()) == plan
    steps = expand(plan, ("hdd",), traits())
    assert [(s.phase, s.offset_bytes >> 20) for s in steps[:3]] == [("no-cache", 0), ("no-cache", 6), ("first", 0)]
    assert len(steps) == 2 * 3 * 2
    for each in steps:
        LAYERS["rbd"].check(each, LayerContext(Target(name="x"), "bathy-x", "/tmp/x"))


def test_a_run_of_an_unknown_study_says_so(workspace: Workspace) -> None:
    with workspace.open_run(RUN, exclusive=True) as run:
        run.update(name="tide")
    with pytest.raises(UsageError, match="study 'tide'"):
        finding_of(workspace.open_run(RUN))


def test_a_study_is_explained_and_compared_as_every_run(workspace: Workspace) -> None:
    run = workspace.open_run(RUN)
    loads = {point.step_key: point.iops.value for group in loads_of(run).groups for point in group.points}
    cells = [(row.pattern, cell) for row in recorded(workspace).rows for cell in row.cells]
    # A load has the same IOPS in the study and in the ladder.
    assert loads == {f"rbd/hdd/{pattern}-j2-{cell.phase}": cell.iops.value for pattern, cell in cells}
    assert len(loads) == 12
    finding = compare(run.tables(), run.tables(), metric="iops", threshold=0.05)
    assert {effect.step_key for effect in finding.effects} == set(loads)
