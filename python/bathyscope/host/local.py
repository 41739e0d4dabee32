"""This machine: processes that cannot outlive us, files, clocks."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import os
import shutil
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import IO

from bathyscope.errors import EnvironmentError_
from bathyscope.host.base import Completed, ProcessRequest
from bathyscope.host.launcher import launch_argv

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_INSTALL_HINTS = {
    "fio": "install it: apt install fio",
    "ceph": "install the Ceph client programs: apt install ceph-common",
    "rados": "install the Ceph client programs: apt install ceph-common",
    "rbd": "install the Ceph client programs: apt install ceph-common",
}

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

    Our search path says nothing about another root, so the usual one is used there.
    """
    paths = [] if request.root is not None else [os.environ.get("PATH", "")]
    environment = {**os.environ, "PATH": os.pathsep.join([*filter(None, paths), DEFAULT_PATH]), "LC_ALL": "C.UTF-8"}
    environment.update(request.environment)
    return environment


def _check(request: ProcessRequest) -> None:
    """Raise EnvironmentError_ when the program, the control group or the root cannot be there."""
    if not request.argv:
        raise EnvironmentError_(f"nothing to run for {request.label}")
    if request.root is not None and not Path(request.root).is_dir():
        raise EnvironmentError_(f"there is no root file system {request.root}")
    if request.cgroup is not None and not Path(request.cgroup, "cgroup.procs").exists():
        raise EnvironmentError_(
            f"there is no control group {request.cgroup}", hint="is the lab still up? bathy lab status"
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


def _spawn(
    request: ProcessRequest, *, stdin: int | IO[bytes], stdout: int | IO[bytes], stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a request from the forking thread, in its own session."""
    _check(request)

    def fork() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            launch_argv(request.argv, cgroup=request.cgroup, root=request.root),
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


def _memory_file(name: str) -> IO[bytes]:
    """Return an anonymous file in memory: output is kept whole, needs no reader, and no disk can fill up."""
    return os.fdopen(os.memfd_create(f"bathy-{name}"), "w+b")


def _content(file: IO[bytes]) -> bytes:
    """Return all that was written to `file`, by whichever process."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0) if size < 1 << 30 else b"".join(_pieces(file.fileno(), size))


def _pieces(descriptor: int, size: int) -> list[bytes]:
    step = 1 << 28
    return [os.pread(descriptor, step, offset) for offset in range(0, size, step)]


class LocalRunning:
    """A child under way. A thread of its own waits for it, so its end is timed when it happens."""

    def __init__(self, request: ProcessRequest) -> None:
        self._request = request
        self._stdout = _memory_file("stdout")
        self._stderr = _memory_file("stderr")
        stdin: int | IO[bytes] = subprocess.DEVNULL
        if request.stdin is not None:
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
            exit_code = self._end(grace_s=1.5)
        ended_ns = time.time_ns()
        with self._lock:
            os.close(self._pidfd)
            self._pidfd = -1
        self._completed = Completed(
            request=self._request,
            exit_code=exit_code,
            stdout=_content(self._stdout),
            stderr=_content(self._stderr),
            started_ns=self._started_ns,
            ended_ns=ended_ns,
            timed_out=self._timed_out,
        )
        self._stdout.close()
        self._stderr.close()
        self._ended.set()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to exactly this child; a pidfd can never mean a later process with the same number."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)

    def _end(self, grace_s: float) -> int:
        """Send SIGINT, SIGTERM and SIGKILL until the child has ended; return its exit code (watching thread only)."""
        for number, patience_s in ((signal.SIGINT, grace_s * 0.7), (signal.SIGTERM, grace_s * 0.3)):
            self._signal(number)
            try:
                return self._process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue
        self._signal(signal.SIGKILL)
        return self._process.wait()

    def wait(self, timeout_s: float | None = None) -> Completed | None:
        """Return what came back, or None when it is still running after `timeout_s`."""
        self._ended.wait(timeout_s)
        return self._completed

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

    def __init__(self, request: ProcessRequest) -> None:
        self._stderr = _memory_file("stderr")
        self._process = _spawn(request, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr)
        assert self._process.stdin is not None  # noqa: S101 - both were asked for as pipes
        assert self._process.stdout is not None  # noqa: S101
        self.stdin: IO[bytes] = self._process.stdin
        self.stdout: IO[bytes] = self._process.stdout

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    def stderr(self) -> bytes:
        """Return what the child has written to stderr so far."""
        return _content(self._stderr)

    def close(self, grace_s: float = 1.0) -> int:
        """Close its stdin, which asks it to end; end it after `grace_s`. Return its exit code."""
        with contextlib.suppress(OSError):
            self.stdin.close()
        try:
            exit_code = self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            exit_code = self._process.wait()
        return exit_code


class LocalHost:
    """The machine that this program runs on. Thread-safe."""

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

    def start(self, request: ProcessRequest) -> LocalRunning:
        """Start a process; it dies with this program. Raises EnvironmentError_ when it cannot be started."""
        return LocalRunning(request)

    def open_pipe(self, request: ProcessRequest) -> LocalPipe:
        """Start a process that is talked to over pipes. Raises EnvironmentError_ when it cannot be started."""
        return LocalPipe(request)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file. Raises OSError."""
        return Path(path).read_bytes()

    def now_ns(self) -> int:
        """Return the nanoseconds since the Unix epoch."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Return nanoseconds of a clock that never steps back."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
