"""The systemd unit of caches: systemd takes it, it runs a verb of ours, and mounts can reach the host."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from bathyscope.cache.config import Places
from bathyscope.cache.daemon import unit
from bathyscope.cache.osd_units import write_drop_in
from bathyscope.cli import app
from bathyscope.host.fake import FakeHost

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "packaging" / "systemd" / "bathyd@.service"
RELEASE = UNIT.with_name("bathyd-release@.service")
GUIDE = ROOT / "docs" / "guide" / "cache-an-osd.md"
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")

# systemd.exec(5): each of these gives the service a mount namespace whose mounts do not reach the host.
_OWN_VIEW = re.compile(
    r"^(PrivateTmp|PrivateDevices|PrivateMounts|PrivateUsers|ProtectSystem|ProtectHome|ProtectProc|ProcSubset"
    r"|ProtectKernel\w+|ProtectControlGroups|ProtectHostname|ReadWritePaths|ReadOnlyPaths|InaccessiblePaths|ExecPaths"
    r"|NoExecPaths|BindPaths|BindReadOnlyPaths|TemporaryFileSystem|RootDirectory|RootImage|MountImages|MountFlags"
    r"|LogNamespace|DynamicUser|\w*CredentialEncrypted|LoadCredential|SetCredential)=",
    re.MULTILINE,
)


def setting(name: str, of: Path = UNIT) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", of.read_text(), re.MULTILINE)
    return str(value)


@pytest.mark.parametrize(
    ("of", "expected"), [(UNIT, ["run", "%i"]), (RELEASE, ["release", "%i", "--start-osds"])], ids=["unit", "release"]
)
def test_what_it_runs_is_a_verb_of_ours_where_the_guide_installs_it(of: Path, expected: list[str]) -> None:
    program, verb, *words = shlex.split(setting("ExecStart", of))
    assert (verb, words) == ("cache", expected)
    command = get_command(app)
    with command.make_context("bathy", ["cache"], resilient_parsing=True) as context:
        cache = command.get_command(context, "cache")  # type: ignore[attr-defined]
        found = cache.commands[words[0]].make_context(words[0], ["fast", *words[2:]], parent=context)
    assert found.params["name"] == "fast"
    guide = GUIDE.read_text()
    assert f'ln -s "$(command -v bathy)" {program}' in guide
    assert f"packaging/systemd/{of.name}" in guide


def test_an_osd_uses_the_plain_directory_when_its_cache_cannot_run() -> None:
    assert setting("OnFailure") == RELEASE.name.replace("@", "@%i")
    # The limit of starts is what makes it fail for good: OnFailure= is nothing before.
    assert int(setting("StartLimitBurst")) > 1
    assert setting("Restart") == "on-failure"
    assert setting("SyslogLevel", RELEASE) == "alert"


def test_nothing_keeps_its_mounts_from_the_host() -> None:
    assert _OWN_VIEW.search("ProtectSystem=strict\n")
    assert _OWN_VIEW.search(UNIT.read_text()) is None


def test_its_name_is_the_one_that_the_verbs_start() -> None:
    assert unit("fast") == UNIT.name.replace("@", "@fast")
    assert setting("Type") == "notify"


@needs_systemd
def test_systemd_takes_it_and_the_osds_drop_in(tmp_path: Path) -> None:
    # The program need not be installed here.
    place = tmp_path / "etc/systemd/system"
    place.mkdir(parents=True)
    for of in (RELEASE, UNIT):
        text = re.sub("^ExecStart=[^ ]+", "ExecStart=/bin/true", of.read_text(), flags=re.MULTILINE)
        (place / of.name).write_text(text)
        (place / of.name.replace("@", "@fast")).write_text(text)
    drop_in = write_drop_in(
        Places(tmp_path), FakeHost(), "fast", "/var/lib/ceph/osd/ceph-3", lambda _: None, notices_changes=True
    )
    assert drop_in is not None
    (place / "ceph-osd@3.service").write_text("[Service]\nExecStart=/bin/true\n")
    for name in ("bathyd@fast.service", "bathyd-release@fast.service", "ceph-osd@3.service"):
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(place / name)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        assert "bathyd@" not in done.stderr + done.stdout
        assert "bathyscope" not in done.stderr + done.stdout
