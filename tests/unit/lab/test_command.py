from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bathyscope.commands import lab as command
from bathyscope.errors import BathyscopeError
from bathyscope.lab import profile, requirements, spec
from bathyscope.units import format_size_short

application = typer.Typer()
command.register(application)
application.callback()(lambda: None)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # pytest's own temporary paths are too long for the sockets of a lab.
    with tempfile.TemporaryDirectory(prefix="bathy-", dir="/tmp") as directory:
        monkeypatch.setenv("XDG_STATE_HOME", directory)
        yield Path(directory)


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--device", "hdd=x"],
        ["up", "--device", "floppy=1"],
        ["up", "--release", "jewel"],
        ["up", "--replicas", "0"],
        ["up", "--replicas", "4"],
        ["up", "--nodes", "99"],
        ["up", "--db", "hdd"],
        ["up", "--db", "ssd", "--db-size", "1M"],
        ["up", "--wal", "floppy"],
        ["up", "--db-size", "4G"],
        ["up", "--wal-size", "1G"],
        ["up", "--vm-size", "2G"],
        ["up", "--ec", "2"],
        ["up", "--ec", "4+2"],
        ["up", "--name", "a/b"],
        ["up", "--osd-size", "10M"],
        ["up", "--osd-size", "big"],
        ["up", "--profile", "/nonexistent.yaml"],
        ["status"],
        ["env", "--name", "absent"],
        ["down", "--name", "absent"],
        ["down", "--name", "../../etc"],
    ],
)
def test_what_a_user_can_get_wrong_is_one_error_and_leaves_nothing(arguments: list[str], home: Path) -> None:
    result = CliRunner().invoke(application, ["lab", *arguments])
    assert isinstance(result.exception, BathyscopeError), result.exception
    assert [path for path in home.rglob("*") if path.is_file()] == []


def test_missing_gateway_is_reported_before_anything_is_made(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    found = requirements.find_program
    monkeypatch.setattr(requirements, "find_program", lambda name: None if name == "radosgw" else found(name) or name)
    monkeypatch.setattr(requirements, "installed_major", lambda: 16)
    result = CliRunner().invoke(application, ["lab", "up", "--rgw"])
    assert isinstance(result.exception, BathyscopeError)
    assert result.exception.message == "not installed: radosgw"
    assert (result.exception.hint or "").endswith("apt-get install --no-install-recommends radosgw")
    assert [path for path in home.rglob("*") if path.is_file() and path.name != ".ports.lock"] == []


def test_missing_ceph_names_the_apt_command(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr("bathyscope.lab.requirements.find_program", lambda _name: None)
    result = CliRunner().invoke(application, ["lab", "up"])
    assert isinstance(result.exception, BathyscopeError)
    assert "apt-get install" in (result.exception.hint or "")
    for package in ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph-common"):
        assert package in (result.exception.hint or "")
    assert [path for path in home.rglob("*") if path.is_file()] == []


def test_no_labs() -> None:
    result = CliRunner().invoke(application, ["lab", "list"])
    assert (result.exit_code, result.stdout) == (0, "")
    result = CliRunner().invoke(application, ["lab", "list", "--output", "json"])
    assert json.loads(result.stdout) == []
    assert CliRunner().invoke(application, ["lab", "down", "--all"]).exit_code == 0


def test_help_documents_every_profile() -> None:
    text = CliRunner().invoke(application, ["lab", "up", "--help"]).stdout
    for name, device in profile.BUILT_IN.items():
        assert name in text
        assert device.sentence() in text
    for release in spec.RELEASES:
        assert release in text


def test_help_has_the_sizes_that_a_lab_has_by_default() -> None:
    text = CliRunner().invoke(application, ["lab", "up", "--help"], env={"COLUMNS": "200"}).stdout
    for option, size_bytes in (
        ("--db-size", spec.DEFAULT_DB_SIZE_BYTES),
        ("--wal-size", spec.DEFAULT_WAL_SIZE_BYTES),
        ("--vm-size", spec.DEFAULT_VM_SIZE_BYTES),
        ("--osd-size", spec.DEFAULT_OSD_SIZE_BYTES),
    ):
        assert re.search(rf" {option} .*default:? {format_size_short(size_bytes)}\b", text), text
