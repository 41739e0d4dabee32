"""Processes that outlive the tool, and the certainty that only these are ever signalled.

A process is signalled through a pidfd that was opened before its identity was checked, so that no other process can
take its pid in between.

`start` forks a shell that waits for one line before it becomes the program. The line is sent after the journal
holds its identity; if the tool dies first, the shell reads end-of-file and ends without having done anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bathyscope import files
from bathyscope.host import Host
from bathyscope.host.local import LocalHost
from bathyscope.host.process import NOBODY, ProcessIdentity, identity_of, is_alive

_HERE = LocalHost()
_HOLD = 'read -r go && exec "$@" </dev/null'


def kill(identity: ProcessIdentity, signal_number: int = signal.SIGKILL, host: Host = _HERE) -> bool:
    """Signal exactly this process; return False, having signalled nothing, when it no longer exists."""
    if identity == NOBODY:
        return False
    try:
        descriptor = os.pidfd_open(identity.pid)
    except (ProcessLookupError, FileNotFoundError, ValueError):
        # FileNotFoundError (Linux 6.15 and later): the number now belongs to a thread of another process.
        return False
    try:
        if not is_alive(host, identity):
            return False
        signal.pidfd_send_signal(descriptor, signal_number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def end_all(
    identities: Iterable[ProcessIdentity], timeout_s: float = 10.0, signal_number: int = signal.SIGKILL
) -> list[ProcessIdentity]:
    """Signal the given processes and wait until they are gone; return those that are not after `timeout_s`."""
    left = [identity for identity in identities if kill(identity, signal_number)]
    deadline = time.monotonic() + timeout_s
    while left and time.monotonic() < deadline:
        for identity in left:
            if identity.pid in _children:
                # A child of this very process must be collected, or it would stay as a zombie.
                _children[identity.pid].poll()
        left = [identity for identity in left if is_alive(_HERE, identity)]
        if left:
            time.sleep(0.02)
    return left


# Children by pid, kept so that a Popen is not finalised while its process goes on.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclasses.dataclass(slots=True)
class Started:
    """A process that was started here. `stop` of the tool does not end it."""

    identity: ProcessIdentity
    child: subprocess.Popen[bytes]


def start(
    argv: Sequence[str],
    *,
    log: Path,
    announce: Callable[[ProcessIdentity], None],
    root: Path | None = None,
    wrapper: Sequence[str] = (),
    announce_wrapper: Callable[[ProcessIdentity], None] = lambda _: None,
    without: Sequence[str] = (),
) -> Started:
    """Start `argv` in a session of its own, after `announce` has written its identity down.

    Output is appended to `log`; variables named in `without` are not inherited.
    With `wrapper`, a program that runs another one as its only child and ends with its exit code, the process is that
    child; the wrapper is announced, too.
    With `root`, the program runs inside that root file system (needs privilege).
    Raises FileNotFoundError when the shell does not exist; a program that is missing shows as exit code 127.
    """
    command = ["chroot", str(root), *argv] if root is not None else list(argv)
    with os.fdopen(files.open_plain(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as output:
        child = subprocess.Popen(
            [*wrapper, "/bin/sh", "-c", _HOLD, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name not in without},
            cwd="/",
        )
    _children[child.pid] = child
    assert child.stdin is not None  # noqa: S101 - asked for as a pipe
    try:
        identity = identity_of(_HERE, child.pid)
        if identity is not None and wrapper:
            announce_wrapper(identity)
            identity = _only_child(child)
        if identity is None:
            raise ProcessLookupError(f"{argv[0]} ended before it began")
        announce(identity)
        child.stdin.write(b"go\n")
        child.stdin.flush()
    finally:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
    return Started(identity, child)


def _only_child(parent: subprocess.Popen[bytes], timeout_s: float = 10.0) -> ProcessIdentity | None:
    """Return the child of a process that is about to have one; None when the process ends, or has none in time."""
    deadline = time.monotonic() + timeout_s
    while parent.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text(encoding="ascii").split()
            if children:
                return identity_of(_HERE, int(children[0]))
        time.sleep(0.002)
    return None
