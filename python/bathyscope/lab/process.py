"""Processes that outlive the tool, and the certainty that only these are ever signalled.

A pid alone names nothing: it may be reused. An `Identity` is pid, start time (field 22 of /proc/PID/stat, in clock
ticks since boot) and boot id. A process is signalled through a pidfd that was opened before the identity was
checked, so that it cannot be swapped in between.

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

PROC = Path("/proc")
_HOLD = 'read -r go && exec "$@" </dev/null'


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """One process among all that ever ran on this machine."""

    pid: int
    start_ticks: int
    boot_id: str


def read_identity(pid: int, proc: Path = PROC) -> Identity | None:
    """Return the identity of the process that has `pid` now; None when there is none, or only a zombie."""
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
        boot_id = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command may contain spaces and parentheses; the fields after it start behind the last ')'.
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return Identity(pid, int(fields[19]), boot_id)


def alive(identity: Identity, proc: Path = PROC) -> bool:
    """Whether exactly this process still runs."""
    return read_identity(identity.pid, proc) == identity


def kill(identity: Identity, signal_number: int = signal.SIGKILL, proc: Path = PROC) -> bool:
    """Signal exactly this process; return False, having signalled nothing, when it no longer exists."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except (ProcessLookupError, FileNotFoundError, ValueError):
        # FileNotFoundError (Linux 6.15 and later): the number now belongs to a thread of another process.
        return False
    try:
        if not alive(identity, proc):
            return False
        signal.pidfd_send_signal(descriptor, signal_number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def end_all(identities: Iterable[Identity], timeout_s: float = 10.0) -> list[Identity]:
    """Kill the given processes and wait until they are gone; return those that are not after `timeout_s`."""
    left = [identity for identity in identities if kill(identity)]
    deadline = time.monotonic() + timeout_s
    while left and time.monotonic() < deadline:
        for identity in left:
            if identity.pid in _children:
                # A child of this very process must be collected, or it would stay as a zombie.
                _children[identity.pid].poll()
        left = [identity for identity in left if alive(identity)]
        if left:
            time.sleep(0.02)
    return left


# Children by pid, kept so that a Popen is not finalised while its process goes on.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclasses.dataclass(slots=True)
class Started:
    """A process that was started here. `stop` of the tool does not end it."""

    identity: Identity
    child: subprocess.Popen[bytes]


def start(
    argv: Sequence[str],
    *,
    log: Path,
    announce: Callable[[Identity], None],
    root: Path | None = None,
    without: Sequence[str] = (),
) -> Started:
    """Start `argv` in a session of its own, after `announce` has written its identity down.

    Output is appended to `log`; variables named in `without` are not inherited.
    With `root`, the program runs inside that root file system (needs privilege).
    Raises FileNotFoundError when the shell does not exist; a program that is missing shows as exit code 127.
    """
    command = ["chroot", str(root), *argv] if root is not None else list(argv)
    with log.open("ab") as output:
        child = subprocess.Popen(
            ["/bin/sh", "-c", _HOLD, "sh", *command],
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
        identity = read_identity(child.pid)
        if identity is None:
            raise ProcessLookupError(f"{argv[0]} ended before it began")
        announce(identity)
        child.stdin.write(b"go\n")
        child.stdin.flush()
    finally:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
    return Started(identity, child)
