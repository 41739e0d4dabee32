"""The systemd unit: systemd takes it, what it runs is a command of ours, and it has no privileges."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from bathyscope.cli import app

PLACE = Path(__file__).parents[3] / "packaging" / "systemd"
UNIT = PLACE / "bathy-collect.service"
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


def setting(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(value)


def test_what_it_runs_is_a_command_of_ours() -> None:
    default = re.findall(r'^Environment="BATHY_OPTIONS=(.*)"$', UNIT.read_text(), re.MULTILINE)
    program, verb, *words = shlex.split(setting("ExecStart").replace("$BATHY_OPTIONS", default[0]))
    assert (Path(program).name, verb) == ("bathy", "collect")
    command = get_command(app)
    with command.make_context("bathy", [verb], resilient_parsing=True) as context:
        collect = command.get_command(context, verb)  # type: ignore[attr-defined]
        parsed = collect.make_context(verb, words, parent=context)
    assert parsed.params["follow"] is True
    assert parsed.params["client"] == "client.bathy"
    assert Path(parsed.params["workspace"]).is_relative_to(Path("/var/lib", setting("StateDirectory")))


def test_its_user_is_the_one_that_is_made() -> None:
    kind, name, number, _, home = shlex.split((PLACE / "bathy.sysusers.conf").read_text(), comments=True)
    assert (kind, name, number, home) == ("u", setting("User"), "-", f"/var/lib/{setting('StateDirectory')}")


@needs_systemd
def test_systemd_takes_it_and_finds_little_exposed(tmp_path: Path) -> None:
    # The program need not be installed here, nor the user be there.
    text = re.sub("^ExecStart=[^ ]+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE)
    copy = tmp_path / UNIT.name
    copy.write_text(text)

    def analyze(*words: str) -> str:
        done = subprocess.run(
            ["systemd-analyze", *words, str(copy)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout + done.stderr

    assert UNIT.name not in analyze("verify", "--man=no")
    # 10 is a service without any protection.
    exposure = re.search(r"exposure level for .*: ([0-9.]+)", analyze("security", "--offline=yes", "--no-pager"))
    assert exposure is not None
    assert float(exposure[1]) <= 3.0
