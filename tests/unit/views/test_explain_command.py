from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from bathyscope.commands import explain, report
from bathyscope.errors import BathyscopeError, UsageError
from bathyscope.records.account import Prediction
from bathyscope.records.finding import LadderFinding, PointFinding

from . import samples

KEY = "rbd/ssd/randread-4K-qd16"


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """Return the verb over a run whose ladder is known, with a prediction that is known."""
    bench = SimpleNamespace(info=SimpleNamespace(kind="bench"))
    monkeypatch.setattr("bathyscope.store.Workspace", lambda _: SimpleNamespace(open_run=lambda _: bench))
    monkeypatch.setattr(explain, "loads_of", lambda _: samples.ladder())

    def predict_in_run(ladder: LadderFinding, point: PointFinding, change: str) -> Prediction:
        assert ladder == samples.ladder()
        assert point.step_key == KEY
        if "=" not in change and change != "even":
            raise UsageError(f"--what-if must be a change such as osd.cpu=2x (got '{change}')")
        return samples.prediction(change)

    monkeypatch.setattr("bathyscope.analysis.what_if.predict_in_run", predict_in_run)
    app = typer.Typer()
    explain.register(app)
    return app


def refused(app: typer.Typer, *words: str) -> UsageError:
    error = CliRunner().invoke(app, list(words)).exception
    assert isinstance(error, UsageError)
    return error


def test_all_loads_are_listed_once(app: typer.Typer) -> None:
    plain = json.loads(CliRunner().invoke(app, ["last", "-o", "json"]).stdout)
    keys = [point["step_key"] for point in plain["points"]]
    assert plain["finding"] == "AccountsFinding"
    assert len(keys) == len(set(keys)) == 37


def test_caveats_are_shown_beside_all_loads_and_beside_one(app: typer.Typer) -> None:
    """Those of the whole run, and those of each load; a load alone has its own and those of the run."""
    of_run = next(caveat for caveat in samples.ladder().caveats if not caveat.step_keys)
    of_load = next(caveat for caveat in samples.ladder().caveats if caveat.step_keys)
    shown = " ".join(CliRunner().invoke(app, ["last"]).stdout.split())
    assert f"{of_run.severity}: {of_run.text}" in shown
    assert f"{of_load.text} ({of_load.step_keys[0]})" in shown
    rows = csv.DictReader(CliRunner().invoke(app, ["last", "-o", "csv"]).stdout.splitlines())
    codes = {row["step_key"]: row["caveats"].split("; ") for row in rows}
    # Codes, each once: the texts are of all steps together, and stand in the other outputs.
    assert all(of_run.code in each and len(set(each)) == len(each) for each in codes.values())
    assert {key for key, each in codes.items() if of_load.code in each} == set(of_load.step_keys)
    assert not any(" " in code for each in codes.values() for code in each)
    shown = " ".join(CliRunner().invoke(app, ["last", KEY]).stdout.split())
    assert f"{of_run.severity}: {of_run.text}" in shown


def test_a_part_of_a_key_names_a_step(app: typer.Typer) -> None:
    for step in (KEY, "rbd/ssd/randread-4K-qd16", "bd/ssd/randread-4K-qd16"):
        plain = json.loads(CliRunner().invoke(app, ["last", step, "-o", "json"]).stdout)
        assert plain["point"]["step_key"] == KEY
    # The key of one step may be the beginning of another's.
    whole = "rados/ssd/randwrite-4K-qd16"
    assert json.loads(CliRunner().invoke(app, ["last", whole, "-o", "json"]).stdout)["point"]["step_key"] == whole


def test_a_wrong_step_is_refused_and_those_near_are_named(app: typer.Typer) -> None:
    error = refused(app, "last", "rbd/ssd/randraed-4K-qd16")
    assert "has no step 'rbd/ssd/randraed-4K-qd16'" in error.message
    assert KEY in (error.hint or "")
    assert refused(app, "last", "xyzzy").hint == "bathy explain last lists the steps"


def test_a_part_of_several_keys_is_refused_and_they_are_named(app: typer.Typer) -> None:
    error = refused(app, "last", "rbd/ssd/randread")
    assert error.message == "'rbd/ssd/randread' is a part of 2 step keys"
    assert error.hint == "one of rbd/ssd/randread-4K-qd1, rbd/ssd/randread-4K-qd16"
    assert (refused(app, "last", "qd16").hint or "").endswith("and 17 more")


def test_each_change_has_its_prediction(app: typer.Typer) -> None:
    done = CliRunner().invoke(app, ["last", KEY, "--what-if", "osd.cpu=2x", "--what-if", "even"])
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    assert text.index("osd.cpu=2x 21.4k ±12% 748µs 1.77×") < text.index(" even 21.4k")
    assert "osd.cpu=2x assumes: The CPU time of an I/O stays as it is. The load keeps 16 I/Os in flight." in text


def test_a_wrong_change_is_refused(app: typer.Typer) -> None:
    assert "osd.cpu=2x (got 'faster')" in refused(app, "last", KEY, "--what-if", "faster").message
    assert refused(app, "last", "--what-if", "even").message == "--what-if needs a STEP"
    assert "no account" in refused(app, "last", "disk/ssd/randread-4K-qd16", "--what-if", "even").message
    assert "the image is thin" in refused(app, "last", "rbd/hdd/read-64K-qd16", "--what-if", "even").message


def test_a_run_of_another_kind_has_no_loads(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    sizing = SimpleNamespace(id="last", info=SimpleNamespace(kind="size"))
    monkeypatch.setattr("bathyscope.store.Workspace", lambda _: SimpleNamespace(open_run=lambda _: sizing))
    monkeypatch.setattr(explain, "loads_of", report.loads_of)
    assert "it has no loads to explain" in refused(app, "last").message


def test_a_part_of_a_benchmark_is_a_step(app: typer.Typer) -> None:
    for option in ("--since", "--until", "--image", "--pool"):
        assert "is not a recording" in refused(app, "last", KEY, option, "1").message


def test_a_wrong_run_is_refused(tmp_path: Path) -> None:
    app = typer.Typer()
    explain.register(app)
    error = CliRunner().invoke(app, ["nosuchrun", "-w", str(tmp_path)]).exception
    assert isinstance(error, BathyscopeError)
    assert "nosuchrun" in error.message


def test_help_ends_with_examples(app: typer.Typer) -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert "bathy explain last rbd/ssd/randwrite-4K-qd16" in shown
