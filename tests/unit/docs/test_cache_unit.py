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
from bathyscope.cache.directory import write_drop_in
from bathyscope.cli import app
from bathyscope.host.fake import FakeHost

UNIT = Path(__file__).parents[3] / "packaging" / "systemd" / "bathyd@.service"
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")

# systemd.exec(5): each of these gives the service a mount namespace whose mounts do not reach the host.
_OWN_VIEW = re.compile(
    r"^(PrivateTmp|PrivateDevices|PrivateMounts|PrivateUsers|ProtectSystem|ProtectHome|ProtectProc|ProcSubset"
    r"|ProtectKernel\w+|ProtectControlGroups|ProtectHostname|ReadWritePaths|ReadOnlyPaths|InaccessiblePaths|ExecPaths"
    r"|NoExecPaths|BindPaths|BindReadOnlyPaths|TemporaryFileSystem|RootDirectory|RootImage|MountImages|MountFlags"
    r"|LogNamespace|DynamicUser|\w*CredentialEncrypted|LoadCredential|SetCredential)=",
    re.MULTILINE,
)


def setting(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(value)


def test_what_it_runs_is_a_verb_of_ours() -> None:
    program, *words = shlex.split(setting("ExecStart"))
    assert (Path(program).name, words) == ("bathy", ["cache", "run", "%i"])
    command = get_command(app)
    with command.make_context("bathy", ["cache"], resilient_parsing=True) as context:
        cache = command.get_command(context, "cache")  # type: ignore[attr-defined]
        run = cache.commands["run"].make_context("run", ["fast"], parent=context)
    assert run.params["name"] == "fast"


def test_nothing_keeps_its_mounts_from_the_host() -> None:
    assert _OWN_VIEW.search("ProtectSystem=strict\n")
    assert _OWN_VIEW.search(UNIT.read_text()) is None


def test_its_name_is_the_one_that_the_verbs_start() -> None:
    assert unit("fast") == UNIT.name.replace("@", "@fast")
    assert setting("Type") == "notify"


@needs_systemd
def test_systemd_takes_it_and_the_osds_drop_in(tmp_path: Path) -> None:
    # The program need not be installed here.
    text = re.sub("^ExecStart=[^ ]+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE)
    place = tmp_path / "etc/systemd/system"
    place.mkdir(parents=True)
    (place / "bathyd@.service").write_text(text)
    drop_in = write_drop_in(Places(tmp_path), FakeHost(), "fast", "/var/lib/ceph/osd/ceph-3")
    assert drop_in is not None
    (place / "bathyd@fast.service").write_text(text)
    (place / "ceph-osd@3.service").write_text("[Service]\nExecStart=/bin/true\n")
    for name in ("bathyd@fast.service", "ceph-osd@3.service"):
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(place / name)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        assert "bathyd@" not in done.stderr + done.stdout
        assert "bathyscope" not in done.stderr + done.stdout
