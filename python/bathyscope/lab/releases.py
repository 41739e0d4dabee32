"""Root file systems of other Ceph releases: built once from Debian's packages, cached, and entered by chroot.

A Debian release carries one Ceph release, so the root is that Debian's minimal system with its Ceph. Packages come
from the mirror that this machine's apt already uses, with apt's own options for it (proxy, certificates, frozen
mirrors). A root is built beside its place and moved there by rename: what is in the cache is complete.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from bathyscope import files
from bathyscope.errors import EnvironmentError_, LabError
from bathyscope.fields import last_line, load_json
from bathyscope.host import ProcessRequest
from bathyscope.host.local import LocalHost
from bathyscope.lab import journal, mount, requirements
from bathyscope.lab.layout import Layout, roots_directory
from bathyscope.lab.run import system
from bathyscope.lab.spec import LabSpec, Release

SUITES: dict[Release, str] = {"pacific": "bookworm", "reef": "trixie", "tentacle": "sid"}
PACKAGES = (
    *("ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph-common", "ceph-fuse"),
    *("rbd-nbd", "fio", "python3-rados", "python3-rbd"),
)
CLIENT_PROGRAMS = ("ceph", "rados", "rbd", "rbd-nbd", "ceph-fuse", "fio", "radosgw-admin")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Raise it when a root that was built before lacks something that the lab now needs.
ROOT_FORMAT = 1
_BUILD_TIMEOUT_S = 1800.0
_BCRYPT_STAND_IN = '''"""Stands in for bcrypt, which cannot be loaded in a subinterpreter."""


def gensalt(*_arguments):
    raise NotImplementedError("bcrypt is not available in this root file system")


hashpw = gensalt
'''
_PASSED_OPTIONS = re.compile(r'^(Acquire::(?:Check-Valid-Until|Check-Date|https?::[^ ]*)) "([^"]+)";$')


@dataclasses.dataclass(frozen=True, slots=True)
class Root:
    """A root file system and the Ceph in it."""

    path: Path
    major: int


def mirror(targets: str) -> str:
    """Return the address of the Debian archive from the output of `apt-get indextargets` in our format.

    Lines are "REPO_URI|RELEASE|COMPONENT|ORIGIN". The suite's main archive is wanted, not security or updates.
    Raises EnvironmentError_ when there is none.
    """
    for line in targets.splitlines():
        uri, release, component, origin = [*line.split("|"), "", "", "", ""][:4]
        # Before the first `apt-get update` the origin is not known yet and stays a placeholder.
        debian = origin == "Debian" or origin.startswith("$(")
        if debian and component == "main" and "-" not in release and uri.startswith(("http", "file:", "ftp", "copy:")):
            return uri
    raise EnvironmentError_(
        "apt knows no Debian archive to build another release from",
        hint="a root of another Ceph release needs a Debian machine with a mirror in its apt sources",
    )


def passed_options(dump: str) -> list[str]:
    """Return those lines of `apt-config dump` that the mirror needs: dates of frozen mirrors, proxy, certificates."""
    return [line for line in dump.splitlines() if _PASSED_OPTIONS.match(line)]


def needed(release: Release | None, installed: int | None) -> bool:
    """Whether `release` has to come from a root file system, given the installed major version (None: no Ceph)."""
    if release is None:
        return False
    return installed is None or requirements.release_name(installed) != release


def find(spec: LabSpec, progress: Callable[[str], None]) -> tuple[int, Root | None]:
    """Return the major version of the Ceph to run, and its root where it is not the installed one.

    Raises EnvironmentError_ when there is none.
    """
    installed = requirements.installed_major()
    if spec.release is not None and needed(spec.release, installed):
        root = ensure(spec.release, progress, ("radosgw",) if spec.rgw else ())
        return root.major, root
    programs = ["ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "rbd", "ceph-authtool", "monmaptool"]
    requirements.require(
        programs + (["ceph-mds"] if spec.fs else []) + (["radosgw", "radosgw-admin"] if spec.rgw else [])
    )
    assert installed is not None  # noqa: S101 - ceph-osd was required above
    return installed, None


def ensure(release: Release, progress: Callable[[str], None], more: tuple[str, ...] = ()) -> Root:
    """Return the cached root of `release`, building it first if need be (about a minute). Raises EnvironmentError_.

    One with `more` packages is another root: few need them.
    """
    if os.geteuid() != 0:
        raise EnvironmentError_(f"a lab of release {release} needs root (chroot)", hint="run it with sudo")
    root = roots_directory() / "-".join([release, platform.machine(), str(ROOT_FORMAT), *more])
    facts = root.with_suffix(".json")
    files.own_directory(root.parent, make=True)
    with files.FileLock(root.with_suffix(".lock"), f"the root file system of {release}", wait=True):
        if not (root.is_dir() and facts.is_file()):
            requirements.require(["mmdebstrap", "unshare", "chroot"])
            progress(f"building a root file system with Ceph {release} (once, about a minute)")
            facts.unlink(missing_ok=True)
            _build(release, root, more)
            version = _version_in(root)
            files.write_file(facts, json.dumps({"release": release, "major": version}).encode())
        # Programs of the root are run as root.
        files.own_directory(root)
        major = int(load_json(files.read_own(facts))["major"])
    return Root(root, major)


def _build(release: Release, root: Path, more: tuple[str, ...]) -> None:
    partial = root.with_suffix(".partial")
    for remains in (partial, root):
        if remains.exists():
            if mount.below(remains):
                raise LabError(f"something is mounted below {remains}", hint="umount it, then try again")
            shutil.rmtree(remains)
    listing = system(
        *("apt-get", "indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)"),
        "Created-By: Packages",
    )
    dump = system("apt-config", "dump")
    options = [f"--aptopt={line}" for line in passed_options(dump.stdout.decode(errors="replace"))]
    completed = LocalHost().run(
        ProcessRequest(
            label="mmdebstrap",
            argv=(
                # In namespaces of its own: however the build ends, none of its processes or mounts stays.
                *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
                *("mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES + more)}"),
                *("--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*"),
                *options,
                *(SUITES[release], str(partial), mirror(listing.stdout.decode(errors="replace"))),
            ),
            timeout_s=_BUILD_TIMEOUT_S,
        )
    )
    if completed.exit_code != 0:
        errors = [line for line in completed.stderr.splitlines() if line.startswith(b"E:")] or [completed.stderr]
        shutil.rmtree(partial, ignore_errors=True)
        raise EnvironmentError_(
            f"the root file system for {release} could not be built: {last_line(errors[0])}",
            hint=f"check that the mirror in this machine's apt sources has the suite {SUITES[release]}",
        )
    _adapt(partial)
    partial.rename(root)


def _adapt(root: Path) -> None:
    """Keep the manager's modules loadable where they import bcrypt, a PyO3 module.

    PyO3 refuses subinterpreters, in which the manager runs its modules, so on Debian 13 all of Reef's modules fail
    (https://tracker.ceph.com/issues/64213). Later releases of Ceph do without it. Only the passwords of dashboard users
    need bcrypt; a module that stands in for it comes first in the manager's path.
    """
    modules = root / "usr/share/ceph/mgr"
    utilities = modules / "mgr_util.py"
    if utilities.is_file() and "\nimport bcrypt\n" in utilities.read_text(encoding="utf-8"):
        (modules / "bcrypt.py").write_text(_BCRYPT_STAND_IN, encoding="utf-8")


def _version_in(root: Path) -> int:
    completed = system("chroot", str(root), "ceph-osd", "--version")
    major = requirements.major_of(completed)
    if major is None:
        raise LabError(f"ceph-osd in {root} does not run: {last_line(completed.stderr)}")
    return major


def mount_view(root: Root, layout: Layout, book: journal.Journal) -> None:
    """Mount a private view of the root in the lab's directory, with that directory inside it.

    All mounts lie below the lab's directory, so another lab of the same release never sees or loses them.
    """
    view = layout.root
    view.mkdir()
    inside = view / str(layout.directory).lstrip("/")
    for ancestor in [Path(*inside.parts[: n + 1]) for n in range(len(view.parts), len(inside.parts))]:
        in_cache = root.path / ancestor.relative_to(view)
        if not in_cache.exists():
            book.directory(in_cache)
    (root.path / inside.relative_to(view)).mkdir(parents=True, exist_ok=True)
    pairs = [(root.path, view), *((Path(f"/{name}"), view / name) for name in ("proc", "sys", "dev"))]
    for source, target in [*pairs, (layout.directory, inside)]:
        book.mount(target)
        mount.bind(source, target)


def write_wrappers(layout: Layout) -> None:
    """Write a small program for each client program that runs it inside the view.

    They are needed because clients of one release cannot always read the keys of another (Tentacle's are longer).
    """
    for program in CLIENT_PROGRAMS:
        path = layout.bin / program
        # The wrappers are visible inside the view, too, so PATH must not lead back to them.
        path.write_text(
            f'#!/bin/sh\nPATH={_SYSTEM_PATH} exec chroot {shlex.quote(str(layout.root))} {program} "$@"\n',
            encoding="utf-8",
        )
        path.chmod(0o755)
