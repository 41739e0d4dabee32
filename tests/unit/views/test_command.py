from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from bathyscope.commands import report
from bathyscope.errors import StoreError, UsageError

from . import samples


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """Return the verb over a run whose ladder is small and known."""
    finding = samples.ladder()
    small = dataclasses.replace(finding, groups=finding.groups[:1], series=(), distributions=())
    (tmp_path / "run").mkdir()
    run = SimpleNamespace(path=tmp_path / "run")
    monkeypatch.setattr("bathyscope.store.Workspace", lambda _: SimpleNamespace(open_run=lambda _ref: run))
    monkeypatch.setattr(report, "finding_of", lambda _: small)
    app = typer.Typer()
    report.register(app)
    return app


def test_the_page_goes_into_the_run_and_its_path_to_stdout(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["last"])
    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path / 'run' / 'report.html'}\n"
    assert "HDD: the disks are the limit" in (tmp_path / "run" / "report.html").read_text()


def test_an_output_that_is_a_directory_gets_the_page(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert CliRunner().invoke(app, ["last", "-o", str(tmp_path / "out")]).exit_code == 0
    assert (tmp_path / "out" / "report.html").exists()


def test_pictures_go_into_a_directory(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["last", "--format", "svg", "-o", str(tmp_path / "charts")])
    assert result.exit_code == 0
    assert len(list((tmp_path / "charts").glob("*.svg"))) == 6


def test_pictures_do_not_replace_a_file(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    result = CliRunner().invoke(app, ["last", "--format", "png", "-o", str(tmp_path / "file")])
    assert isinstance(result.exception, UsageError)
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("file_format", ["html", "svg"])
def test_a_place_that_cannot_be_written_is_an_error(app: typer.Typer, tmp_path: Path, file_format: str) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["last", "--format", file_format, "-o", str(tmp_path / "file" / "report")])
    assert isinstance(result.exception, StoreError)
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_help_ends_with_examples(app: typer.Typer) -> None:
    assert "bathy report last --open" in CliRunner().invoke(app, ["--help"]).stdout
