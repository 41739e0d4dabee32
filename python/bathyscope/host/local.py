"""This machine: processes that cannot outlive us, files, clocks."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import fcntl
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from bathyscope import interruption
from bathyscope.errors import EnvironmentError_
from bathyscope.host import http, node_sampler, remote
from bathyscope.host.base import (
    Completed,
    HttpRequest,
    NodeAnswer,
    NodeRequest,
    ProcessRequest,
    Running,
    SocketAnswer,
    SocketRequest,
)
from bathyscope.host.launcher import NOBODY_ID, launch_argv
from bathyscope.host.ssh import Nodes

# A shell that has `bathy lab env`, or another cluster, must not reach into the one that is asked.
# Empty is not unset: an empty CEPH_KEYRING switches cephx off.
FOREIGN_VARIABLES = ("CEPH_ARGS", "CEPH_CONF", "CEPH_KEYRING")

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_INSTALL_HINTS = {
    "fio": "install it: apt install fio",
    "ceph": "install the Ceph client programs: apt install ceph-common",
    "rados": "install the Ceph client programs: apt install ceph-common",
    "ssh": "install it: apt install openssh-client",
    "rbd": "install the Ceph client programs: apt install ceph-common",
}

_PIECE_BYTES = 1 << 30
# What a child may write to stdout, and to stderr: many times what any program that we start has to say. Some of them
# pass on what another machine sends.
OUTPUT_BYTES = 256 << 20
# What is read of a file: no raw answer can have more.
_FILE_BYTES = 1 << 30
_PART_BYTES = 64 << 10
# struct ucred: pid, uid, gid.
_UCRED_BYTES = 12
# Of one that is talked to over pipes, stderr is only for its last words.
_LAST_WORDS_BYTES = 1 << 20
# The kernel refuses the whole piece of a write that would cross the end of a file that cannot grow; pieces are smaller.
_MARGIN_BYTES = 4 << 20

# The one thread that forks. PR_SET_PDEATHSIG fires when the forking thread ends, so it must be a thread that
# ends only with the program.
_FORKING_THREAD = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="bathy-fork")


def find_program(name: str, root: str | None = None) -> str | None:
    """Return the path of a program as seen inside `root`, or None. A name with a slash is looked up as it is."""
    path = os.environ.get("PATH", DEFAULT_PATH) + os.pathsep + DEFAULT_PATH
    if root is None:
        return shutil.which(name, path=path)
    base = Path(root)
    candidates = [name] if "/" in name else [f"{directory}/{name}" for directory in DEFAULT_PATH.split(":")]
    for candidate in candidates:
        inside = base / candidate.lstrip("/")
        # A link may point to an absolute path that only exists inside the root; it is not followed here.
        if inside.is_symlink() or (inside.is_file() and os.access(inside, os.X_OK)):
            return candidate
    return None


def _environment(request: ProcessRequest) -> dict[str, str]:
    """Return the child's environment: ours, in the C locale so that numbers have a decimal point.

    Our search path says nothing about another root, so the usual one is used there. What our shell says of a cluster
    says nothing about the request's.
    """
    paths = [] if request.root is not None else [os.environ.get("PATH", "")]
    ours = {name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES}
    path = os.pathsep.join([*filter(None, paths), DEFAULT_PATH])
    return {**ours, "PATH": path, "LC_ALL": "C.UTF-8", **dict(request.environment)}


def _check(request: ProcessRequest) -> None:
    """Raise EnvironmentError_ when the program, the control group or the root cannot be there."""
    if request.root is not None and not Path(request.root).is_dir():
        raise EnvironmentError_(f"there is no root file system {request.root}")
    if request.cgroup is not None and not Path(request.cgroup, "cgroup.procs").exists():
        raise EnvironmentError_(
            f"there is no control group {request.cgroup}", hint="check that the lab is up: bathy lab status"
        )
    for path in request.exclusive:
        _check_unused(path)
    program = request.argv[0]
    if find_program(program, request.root) is None:
        where = f" in {request.root}" if request.root else ""
        raise EnvironmentError_(f"the program {program} is not installed{where}", hint=_INSTALL_HINTS.get(program))


def _check_unused(path: str) -> None:
    """Raise EnvironmentError_ when `path` is a block device that something has in use.

    The kernel refuses an exclusive open of a device that is mounted, swapped to, part of a volume or RAID, whose
    partition is, or that a daemon (an OSD) opened exclusively. fio's own check knows mounts only, and not all.
    """
    try:
        if not stat.S_ISBLK(Path(path).stat().st_mode):
            return
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            hint = "writing to it would destroy what uses it; name an unused device or a file"
            raise EnvironmentError_(
                f"{path} is in use: mounted, part of a volume, or held by a daemon", hint=hint
            ) from error
        raise EnvironmentError_(f"cannot open {path}: {error.strerror}") from error


def _make_confinement(directory: Path) -> None:
    """Make the empty directory of a confined program, which belongs to nobody when we can give it away."""
    try:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(directory, NOBODY_ID, NOBODY_ID)
    except OSError as error:
        raise EnvironmentError_(f"cannot make the directory {directory}: {error.strerror}") from error


def _spawn(
    request: ProcessRequest, *, stdin: int | IO[bytes], stdout: int | IO[bytes], stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a request from the forking thread, in its own session."""
    _check(request)
    if request.confined is not None:
        _make_confinement(Path((request.root or "") + request.confined))

    def fork() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            launch_argv(request.argv, cgroup=request.cgroup, root=request.root, confined=request.confined),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=_environment(request),
            start_new_session=True,
        )

    try:
        return _FORKING_THREAD.submit(fork).result()
    except OSError as error:
        raise EnvironmentError_(f"cannot start {request.argv[0]}: {error.strerror}") from error


def _memory_file(name: str, limit_bytes: int | None = None) -> IO[bytes]:
    """Return an anonymous file in memory: output needs no reader, and no disk can fill up.

    With a limit no write goes beyond it, whoever has the file: it has that size from the start, as a hole, and cannot
    grow. How far it was written is the offset, which all processes share that have inherited it.
    """
    file = os.fdopen(os.memfd_create(f"bathy-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b")
    if limit_bytes is not None:
        os.ftruncate(file.fileno(), limit_bytes + _MARGIN_BYTES)
        fcntl.fcntl(file.fileno(), fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    return file


def _written_bytes(file: IO[bytes]) -> int:
    return os.lseek(file.fileno(), 0, os.SEEK_CUR)


def _content(file: IO[bytes], limit_bytes: int) -> bytes:
    """Return what was written to `file`, `limit_bytes` of it at most; one pread gives 2 GiB at most."""
    size = min(_written_bytes(file), limit_bytes)
    return b"".join(
        os.pread(file.fileno(), min(_PIECE_BYTES, size - offset), offset) for offset in range(0, size, _PIECE_BYTES)
    )


class LocalRunning:
    """A child under way. A thread of its own waits for it, so its end is timed when it happens."""

    @interruption.held()
    def __init__(self, request: ProcessRequest, *, stdin_stays_open: bool = False) -> None:
        self._request = request
        self._stdout = _memory_file("stdout", OUTPUT_BYTES)
        self._stderr = _memory_file("stderr", OUTPUT_BYTES)
        self._stdin: IO[bytes] | None = None
        stdin: int | IO[bytes] = subprocess.DEVNULL
        if request.stdin is not None and stdin_stays_open:
            # A pipe takes 64 KiB at once. It ends with this process, or with the child.
            reading, writing = os.pipe()
            stdin, self._stdin = os.fdopen(reading, "rb"), os.fdopen(writing, "wb", buffering=0)
            os.set_blocking(writing, False)
            if self._stdin.write(request.stdin) != len(request.stdin):
                raise EnvironmentError_(f"{request.label}: more than 64 KiB are to be sent")
        elif request.stdin is not None:
            stdin = _memory_file("stdin")
            stdin.write(request.stdin)
            stdin.seek(0)
        self._started_ns = time.time_ns()
        try:
            self._process = _spawn(request, stdin=stdin, stdout=self._stdout, stderr=self._stderr)
        except BaseException:
            self._stdout.close()
            self._stderr.close()
            raise
        finally:
            if not isinstance(stdin, int):
                stdin.close()
        # Until the waiting thread has started, nobody reaps the child, so the pid is still the child's.
        self._pidfd = os.pidfd_open(self._process.pid)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._timed_out = False
        self._completed: Completed | None = None
        threading.Thread(target=self._watch, name=f"bathy-wait-{request.label}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id of the started program (the launcher becomes it by exec)."""
        return self._process.pid

    def _watch(self) -> None:
        """Wait for the end, enforce the request's time limit, and collect what was written."""
        try:
            exit_code = self._process.wait(self._request.timeout_s)
        except subprocess.TimeoutExpired:
            self._timed_out = True
            threading.Thread(target=self.stop, daemon=True).start()
            exit_code = self._process.wait()
        ended_ns = time.time_ns()
        with self._lock:
            os.close(self._pidfd)
            self._pidfd = -1
        stderr = _content(self._stderr, OUTPUT_BYTES)
        if max(map(_written_bytes, (self._stdout, self._stderr))) > OUTPUT_BYTES:
            # Half an answer is none, whatever the program made of the write that failed.
            exit_code = exit_code or 1
            stderr += f"\nits output was cut off at {OUTPUT_BYTES >> 20} MiB\n".encode()
        self._completed = Completed(
            request=self._request,
            exit_code=exit_code,
            stdout=_content(self._stdout, OUTPUT_BYTES),
            stderr=stderr,
            started_ns=self._started_ns,
            ended_ns=ended_ns,
            timed_out=self._timed_out,
        )
        self._stdout.close()
        self._stderr.close()
        if self._stdin is not None:
            self._stdin.close()
        self._ended.set()

    def stdout(self, limit_bytes: int) -> bytes:
        """Return the first bytes that it has written so far; nothing any more when it has ended."""
        with contextlib.suppress(ValueError):
            return _content(self._stdout, limit_bytes)
        return b""

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to exactly this child; a pidfd can never mean a later process with the same number."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)

    def wait(self, timeout_s: float | None = None) -> Completed | None:
        """Return what came back, or None when it is still running after `timeout_s`."""
        interruption.wait(self._ended.wait, timeout_s)
        return self._completed

    @interruption.held()
    def stop(self, grace_s: float = 1.5) -> Completed:
        """Ask it to end (SIGINT: fio then still reports), insist (SIGTERM), end it (SIGKILL) after `grace_s`."""
        for number, patience_s in ((signal.SIGINT, grace_s * 0.7), (signal.SIGTERM, grace_s * 0.3)):
            self._signal(number)
            if self._ended.wait(patience_s):
                break
        else:
            self._signal(signal.SIGKILL)
        self._ended.wait()
        assert self._completed is not None  # noqa: S101 - set before the event, always
        return self._completed


class LocalPipe:
    """A child that is talked to over its stdin and stdout; its stderr is kept in memory."""

    @interruption.held()
    def __init__(self, request: ProcessRequest) -> None:
        self._stderr = _memory_file("stderr", _LAST_WORDS_BYTES)
        self._process = _spawn(request, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr)
        assert self._process.stdin is not None  # noqa: S101 - both were asked for as pipes
        assert self._process.stdout is not None  # noqa: S101
        self.stdin: IO[bytes] = self._process.stdin
        self.stdout: IO[bytes] = self._process.stdout

    def stderr(self) -> bytes:
        """Return what the child has written to stderr so far."""
        return _content(self._stderr, _LAST_WORDS_BYTES)

    def close(self, grace_s: float = 1.0) -> int:
        """Close its stdin, which asks it to end; end it after `grace_s`. Return its exit code."""
        with contextlib.suppress(OSError):
            self.stdin.close()
        try:
            return self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class LocalHost:
    """The machine that this program runs on. Thread-safe."""

    def __init__(self) -> None:
        self._nodes = Nodes(self.open_pipe)

    def run(self, request: ProcessRequest) -> Completed:
        """Run a process to its end, or to its time limit. Raises EnvironmentError_ when it cannot be started."""
        running = self.start(request)
        try:
            completed = running.wait()
        except BaseException:
            running.stop()
            raise
        assert completed is not None  # noqa: S101 - wait without a time limit returns at the end
        return completed

    def start(self, request: ProcessRequest) -> Running:
        """Start a process; it dies with this program. Raises EnvironmentError_ when it cannot be started."""
        if request.elsewhere is not None:
            return remote.RemoteRunning(request, LocalRunning(remote.ssh_request(request), stdin_stays_open=True))
        return LocalRunning(request)

    def open_pipe(self, request: ProcessRequest) -> LocalPipe:
        """Start a process that is talked to over pipes. Raises EnvironmentError_ when it cannot be started."""
        return LocalPipe(request)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file. Raises OSError."""
        # Half of what a Path costs: a reading has hundreds of files.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            parts, left_bytes = [], _FILE_BYTES
            while part := os.read(descriptor, _PART_BYTES):
                parts.append(part)
                left_bytes -= len(part)
                if left_bytes < 0:
                    raise OSError(errno.EFBIG, f"it is larger than {_FILE_BYTES >> 30} GiB", path)
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def matching(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern with asterisks, as `node_sampler` says."""
        return node_sampler.matching(pattern)

    def read_own(self, pid: int, path: str) -> bytes:
        """Return the bytes of a file in a directory that a process has open. Raises OSError."""
        for seen in node_sampler.beside_open(f"/proc/{pid}", [path]):
            return self.read(seen)
        raise FileNotFoundError(errno.ENOENT, f"process {pid} does not have its directory open", path)

    def exchange(self, request: SocketRequest) -> SocketAnswer:
        """Send a line to a Unix socket and return what is answered. Raises OSError."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(request.timeout_s)
            channel.connect(request.path)
            channel.sendall(request.line.encode() + b"\n")
            with channel.makefile("rb") as lines:
                line = lines.readline(OUTPUT_BYTES)
            if request.process_file is None:
                return SocketAnswer(line)
            # The kernel says who listens, by the number that it has here: 0 for one of a container around this one.
            (pid,) = struct.unpack_from("i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED_BYTES))
        path = f"/proc/{pid}/{request.process_file}"
        try:
            return SocketAnswer(line, ((path, self.read(path)),))
        except OSError:
            return SocketAnswer(line)

    def ask_nodes(self, requests: Sequence[NodeRequest]) -> list[NodeAnswer]:
        """Ask several machines at once; answers in the order of the requests. A failure is an answer."""
        return self._nodes.ask(requests)

    def leave_nodes(self) -> None:
        """End the connections to other machines."""
        self._nodes.close()

    def fetch(self, requests: Sequence[HttpRequest]) -> list[Completed]:
        """Ask HTTP servers side by side; answers in the order of the requests. A failure is an answer."""
        return http.fetch(requests)

    def now_ns(self) -> int:
        """Return the nanoseconds since the Unix epoch."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Return nanoseconds of a clock that never steps back."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Wait. A signal that is held off comes here."""
        ends_s = time.monotonic() + seconds
        while (left_s := ends_s - time.monotonic()) > 0:
            time.sleep(min(interruption.SOON_S, left_s))
            interruption.check()
