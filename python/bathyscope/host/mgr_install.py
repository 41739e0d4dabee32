"""Puts the module bathyscope (mgr_module.py) beside the manager's own modules, and takes it away again.

Files can be written for managers that run on this machine outside of containers; for others a person, or cephadm, does
it. All managers need them: any of them can become the active one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.resources
import json
import os
import re
import shlex
import shutil
import textwrap
from pathlib import Path
from typing import Any

from bathyscope import files
from bathyscope.errors import BathyscopeError, ClusterError, EnvironmentError_, LabError
from bathyscope.fields import as_dict, as_list, parsing
from bathyscope.host.base import CephRequest, CephSession, Host, answer_json
from bathyscope.spec import Target

MODULE = "bathyscope"
STOCK_PATH = "/usr/share/ceph/mgr"
# With an older version a tenant can end the manager by the name of an object (SECURITY.md).
SAFE_VERSION = 3
# A manager starts itself again when its modules change.
_RESTART_S = 90.0
_INIT = b"from .module import Module  # noqa: F401\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Manager:
    """A ceph-mgr. `here`: its files are this machine's."""

    name: str
    host: str
    active: bool
    here: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """What the cluster says of its managers and of the module; `status` is the module's own answer, if it gives one."""

    managers: tuple[Manager, ...]
    path: str
    enabled: bool
    status: dict[str, Any] | None


def module_source() -> bytes:
    """Return the text of the module."""
    return (importlib.resources.files("bathyscope.host") / "mgr_module.py").read_bytes()


def source_version() -> int:
    """Return the version of the module's text."""
    match = re.search(rb"^VERSION = (\d+)$", module_source(), re.MULTILINE)
    assert match is not None  # noqa: S101 - a test holds it
    return int(match[1])


def difference(version: int) -> str | None:
    """Return how the version of a module that answered differs from this program's, in words; None where it does not.

    What an older module counts may be less, or otherwise, than what is said of it here.
    """
    ours = source_version()
    if version == ours:
        return None
    if not is_safe(version):
        return (
            f"the manager's module bathyscope has version {version}: while it counts, a client that may write to a "
            f"pool can end the manager. It is not asked; `bathy mgr install` replaces it by version {ours}"
        )
    advice = "`bathy mgr install` replaces it" if version < ours else "upgrade bathyscope"
    return f"the manager's module bathyscope has version {version}, this program's is version {ours}: {advice}"


def is_safe(version: int) -> bool:
    """Return whether a module of this version may be made to count."""
    return version >= SAFE_VERSION


def contents() -> dict[str, bytes]:
    """Return name → content of the module's files."""
    return {"__init__.py": _INIT, "module.py": module_source()}


def look(session: CephSession, target: Target) -> Look:
    """Ask the cluster. Raises what `answer_json` raises."""
    with parsing("mgr dump"):
        dump = as_dict(session.json("mon", "mgr dump"))
        active = str(dump["active_name"])
        names = [name for name in (active, *(str(row["name"]) for row in as_list(dump.get("standbys", [])))) if name]
        about = {row.get("name", row.get("id")): row for row in as_list(session.json("mon", "mgr metadata"))}
        enabled = MODULE in as_list(as_dict(session.json("mon", "mgr module ls"))["enabled_modules"])
    machine = os.uname().nodename
    managers = []
    for name in names:
        row = as_dict(about.get(name, {}))
        contained = bool(target.ceph_prefix) or "container_image" in row
        host = str(row.get("hostname", ""))
        managers.append(Manager(name, host, active=name == active, here=not contained and host == machine))
    return Look(tuple(managers), _module_path(session, active), enabled, status(session) if enabled else None)


def install(host: Host, session: CephSession, target: Target, seen: Look) -> dict[str, Any]:
    """Write the files, enable the module, and return its status as soon as it answers.

    Whatever fails, the module is disabled and its files are deleted. Raises ClusterError, EnvironmentError_, LabError.
    """
    directory = _directory(target, seen)
    try:
        if seen.enabled:
            # What is loaded already would stay.
            _disable(host, session)
        directory.mkdir(exist_ok=True)
        # Managers run as another user; the umask is not theirs.
        directory.chmod(0o755)
        for name, content in contents().items():
            files.write_file(directory / name, content)
            (directory / name).chmod(0o644)
        _switch(session, on=True)
        return _awaited(host, session, there=True)
    except BaseException as error:
        with contextlib.suppress(BathyscopeError):
            _switch(session, on=False)
        shutil.rmtree(directory, ignore_errors=True)
        if isinstance(error, OSError):
            raise EnvironmentError_(f"{directory} cannot be written: {error.strerror}") from error
        raise


def remove(host: Host, session: CephSession, target: Target, seen: Look) -> None:
    """Disable the module, and delete its files on this machine. Raises ClusterError, EnvironmentError_, LabError."""
    if seen.enabled:
        # First: a module that is enabled and cannot be loaded is a health warning.
        _disable(host, session)
    if seen.managers and all(manager.here for manager in seen.managers):
        directory = _directory(target, seen)
        if directory.exists():
            try:
                shutil.rmtree(directory)
            except OSError as error:
                raise EnvironmentError_(f"{directory} cannot be deleted: {error.strerror}") from error


def by_hand(seen: Look) -> list[str]:
    """Return the commands that install the module on hosts that are not this machine.

    Names and paths are what a manager says of itself, and the commands are for a shell: every word is quoted, once more
    for the shell over there.
    """
    source, place = importlib.resources.files("bathyscope.host") / "mgr_module.py", f"{seen.path}/{MODULE}"
    over_there, init = shlex.quote(place), _INIT.decode().split("  #")[0]
    commands = []
    for host in sorted({manager.host for manager in seen.managers}):
        make = f'mkdir -p {over_there} && echo "{init}" > {over_there}/__init__.py'
        commands += [
            shlex.join(["ssh", "--", host, make]),
            shlex.join(["scp", "--", str(source), f"{host}:{over_there}/module.py"]),
        ]
    return [*commands, f"ceph mgr module enable {MODULE} --force"]


def by_hand_removed(seen: Look) -> list[str]:
    """Return the commands that undo those of `by_hand`."""
    hosts = sorted({manager.host for manager in seen.managers})
    remove_there = ["rm", "-r", shlex.quote(f"{seen.path}/{MODULE}")]
    return [
        f"ceph mgr module disable {MODULE}",
        *(shlex.join(["ssh", "--", host, *remove_there]) for host in hosts),
    ]


def cephadm_spec(seen: Look) -> str:
    """Return a service specification of cephadm that gives the managers the module's files, on their hosts of today."""
    lines = ["# Needs Ceph 17.2. In the form that cephadm documents; not tried on a cluster of cephadm's."]
    lines += ["service_type: mgr", "placement:", "  hosts:"]
    # A string of JSON is one of YAML.
    lines += [f"    - {json.dumps(host)}" for host in sorted({manager.host for manager in seen.managers})]
    lines.append("custom_configs:")
    for name, content in contents().items():
        lines += [f"  - mount_path: {STOCK_PATH}/{MODULE}/{name}", "    content: |"]
        lines += textwrap.indent(content.decode(), " " * 6).splitlines()
    return "\n".join(lines) + "\n"


def _module_path(session: CephSession, manager: str) -> str:
    """Return the directory of the manager's modules; Ceph's usual one if it does not say."""
    command = (("prefix", "config show"), ("who", f"mgr.{manager}"), ("key", "mgr_module_path"))
    answer = session.command(CephRequest("mgr_module_path", "mgr", command))
    text = answer.stdout.decode(errors="replace").strip().strip('"')
    return text if answer.exit_code == 0 and text.startswith("/") else STOCK_PATH


def _directory(target: Target, seen: Look) -> Path:
    """Return where the module's files are on this machine. Raises LabError, EnvironmentError_."""
    path = Path(target.outside(seen.path))
    if target.kind == "lab" and Path(target.conf or "").parent not in Path(seen.path).parents:
        raise LabError(
            f"the manager of the lab '{target.name}' has its modules in {seen.path}, which is not the lab's own",
            hint="the lab was made by an older version; make it again",
        )
    directory = path / MODULE
    first = module_source().splitlines()[0]
    module = directory / "module.py"
    if directory.exists() and not (module.is_file() and files.read_bounded(module).startswith(first)):
        raise EnvironmentError_(f"{directory} is there, and is not the module of bathyscope", hint="look at it")
    if not path.is_dir():
        raise EnvironmentError_(f"the manager's modules are in {path}, which this machine does not have")
    return directory


def _switch(session: CephSession, *, on: bool) -> None:
    """Enable or disable the module."""
    # Until a manager has looked for modules again, it does not report the new one.
    force = (("force", "--force"),) if on else ()
    prefix = f"mgr module {'enable' if on else 'disable'}"
    answer_json(session.command(CephRequest(prefix, "mon", (("prefix", prefix), ("module", MODULE), *force), 30.0)))


def status(session: CephSession) -> dict[str, Any] | None:
    """Return the module's own answer; None when there is none."""
    try:
        return as_dict(session.json("mgr", f"{MODULE} status"))
    except (BathyscopeError, TypeError):
        return None


def _disable(host: Host, session: CephSession) -> None:
    """Disable the module, and wait until no manager has it. Raises ClusterError."""
    _switch(session, on=False)
    _awaited(host, session, there=False)


def _awaited(host: Host, session: CephSession, *, there: bool) -> dict[str, Any]:
    """Return the module's answer when it answers; or nothing, when it answers no longer. Raises ClusterError."""
    ends_ns = host.monotonic_ns() + round(_RESTART_S * 1e9)
    while ((answer := status(session)) is not None) != there:
        if host.monotonic_ns() > ends_ns:
            raise ClusterError(
                f"the module {MODULE} still answers" if answer else f"the module {MODULE} does not answer",
                hint=f"{_RESTART_S:.0f} s were not enough for the managers; the log of the active one says why",
            )
        host.sleep(0.5)
    if answer is not None and answer["refused"]:
        raise ClusterError(f"the module refuses to work: {answer['refused']}")
    return answer or {}
