"""Processes cannot outlive us, end when told, and are kept verbatim."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bathyscope.errors import EnvironmentError_
from bathyscope.host import ProcessRequest, local, node_sampler
from bathyscope.host.launcher import LAUNCH_FAILED
from bathyscope.host.local import FOREIGN_VARIABLES, LocalHost, find_program

STUBBORN = "import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(60)"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def python(code: str, **options: object) -> ProcessRequest:
    return ProcessRequest("python", (sys.executable, "-c", code), **options)  # type: ignore[arg-type]


def test_output_and_exit_code_are_kept_verbatim() -> None:
    code = "import sys; sys.stdout.buffer.write(bytes(range(256))); sys.stderr.write('talk'); sys.exit(7)"
    completed = LocalHost().run(python(code))
    assert (completed.exit_code, completed.stdout, completed.stderr) == (7, bytes(range(256)), b"talk")
    assert completed.started_ns < completed.ended_ns
    assert not completed.timed_out


def test_a_large_output_needs_no_reader() -> None:
    completed = LocalHost().run(python("import sys; sys.stdout.write('x' * 5_000_000)"))
    assert len(completed.stdout) == 5_000_000


def test_an_output_without_end_is_cut_off_and_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "OUTPUT_BYTES", 1 << 20)
    for stream in ("stdout", "stderr"):
        code = f"import sys\nwhile True: sys.{stream}.buffer.write(b'x' * 50_000)"
        completed = LocalHost().run(python(code, timeout_s=60.0))
        assert not completed.timed_out
        assert completed.exit_code != 0
        assert len(completed.stdout) == (1 << 20 if stream == "stdout" else 0)
        assert len(completed.stderr) < (1 << 20) + 100_000
        assert completed.stderr.endswith(b"its output was cut off at 1 MiB\n")
    # Also when the program did not mind.
    code = "import os\ntry:\n    while True: os.write(1, bytes(50_000))\nexcept OSError: pass"
    assert LocalHost().run(python(code)).exit_code == 1


def test_stdin_is_given_and_can_be_opened_by_name() -> None:
    request = ProcessRequest("cat", ("cat", "-", "/dev/stdin"), stdin=b"job file\n")
    assert LocalHost().run(request).stdout == b"job file\njob file\n"


def test_the_environment_is_c_locale_with_additions() -> None:
    code = "import os; print(os.environ['LC_ALL'], os.environ['CEPH_CONF'])"
    assert LocalHost().run(python(code, environment=(("CEPH_CONF", "/c"),))).stdout == b"C.UTF-8 /c\n"


def test_what_our_shell_says_of_a_cluster_does_not_reach_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FOREIGN_VARIABLES:
        monkeypatch.setenv(name, "of another cluster")
    code = "import os; print(sorted(name for name in os.environ if name.startswith('CEPH')))"
    assert LocalHost().run(python(code)).stdout == b"[]\n"
    assert LocalHost().run(python(code, environment=(("CEPH_CONF", "/c"),))).stdout == b"['CEPH_CONF']\n"


def test_a_missing_program_is_an_error_with_a_hint() -> None:
    with pytest.raises(EnvironmentError_, match="not installed") as raised:
        LocalHost().run(ProcessRequest("x", ("no-such-program",)))
    assert raised.value.hint is None
    os.environ["PATH"], saved = "", os.environ["PATH"]
    try:
        assert find_program("sh") is not None
    finally:
        os.environ["PATH"] = saved


def test_a_missing_control_group_or_root_is_an_error() -> None:
    with pytest.raises(EnvironmentError_, match="control group"):
        LocalHost().run(ProcessRequest("x", ("true",), cgroup="/sys/fs/cgroup/bathy-absent"))
    with pytest.raises(EnvironmentError_, match="root file system"):
        LocalHost().run(ProcessRequest("x", ("true",), root="/absent"))


def test_what_the_launcher_cannot_do_is_said(tmp_path: Path) -> None:
    # A "program" that exec refuses: the launcher reports it, instead of a traceback.
    bad = tmp_path / "bad"
    bad.write_bytes(b"\x00\x01")
    bad.chmod(0o755)
    completed = LocalHost().run(ProcessRequest("x", (str(bad),)))
    assert completed.exit_code == LAUNCH_FAILED
    assert completed.stderr.startswith(b"bathy: cannot run")


def test_signals_have_their_default_meaning() -> None:
    ignored = LocalHost().run(ProcessRequest("x", ("cat", "/proc/self/status"))).stdout
    line = next(line for line in ignored.splitlines() if line.startswith(b"SigIgn"))
    mask = int(line.split()[1], 16)
    # Python ignores the last two; what else our own parent ignores (nohup, a shell's background job) is its choice.
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        assert not mask & (1 << (number - 1)), number


def test_the_time_limit_ends_a_process() -> None:
    began = time.monotonic()
    completed = LocalHost().run(ProcessRequest("sleep", ("sleep", "60"), timeout_s=0.3))
    assert completed.timed_out
    assert completed.exit_code == -signal.SIGINT
    assert time.monotonic() - began < 3


def test_stop_asks_first_and_keeps_what_was_said() -> None:
    code = (
        "import signal, time\n"
        "def end(*_): print('report', flush=True); raise SystemExit(0)\n"
        "signal.signal(2, end)\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    running = LocalHost().start(python(code))
    time.sleep(0.5)
    completed = running.stop()
    assert completed.exit_code == 0
    assert completed.stdout == b"ready\nreport\n"


def test_stop_ends_a_stubborn_process_within_two_seconds() -> None:
    running = LocalHost().start(python(STUBBORN))
    time.sleep(0.5)
    began = time.monotonic()
    assert running.stop().exit_code == -signal.SIGKILL
    assert time.monotonic() - began < 2
    assert not alive(running.pid)


def test_wait_with_a_limit_returns_none_and_stop_after_the_end_is_harmless() -> None:
    running = LocalHost().start(ProcessRequest("sleep", ("sleep", "0.4")))
    assert running.wait(0.05) is None
    completed = running.wait()
    assert completed is not None
    assert completed.exit_code == 0
    assert running.stop() == completed


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_children_die_with_us_however_we_end(end: signal.Signals) -> None:
    code = (
        "import sys, threading, time\n"
        "from bathyscope.host.local import LocalHost\n"
        "from bathyscope.host import ProcessRequest\n"
        "def begin():\n"
        "    running = LocalHost().start(ProcessRequest('sleep', ('sleep', '60')))\n"
        "    print(running.pid, flush=True)\n"
        # The thread that asked for the child ends at once; the child must live on.
        "thread = threading.Thread(target=begin); thread.start(); thread.join()\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.5)
        assert alive(pid)
        parent.send_signal(end)
        parent.wait()
    deadline = time.monotonic() + 3
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(pid)


def test_an_exception_while_waiting_stops_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    host, started = LocalHost(), []
    start = host.start

    def remember(request: ProcessRequest) -> object:
        running = start(request)
        started.append(running.pid)
        monkeypatch.setattr(running, "wait", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        return running

    monkeypatch.setattr(host, "start", remember)
    with pytest.raises(KeyboardInterrupt):
        host.run(ProcessRequest("sleep", ("sleep", "60")))
    assert not alive(started[0])


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_a_process_runs_inside_another_root(tmp_path: Path) -> None:
    # A root with nothing in it but one static program is enough; busybox is not everywhere, so the dynamic
    # loader and libc of /bin/cat are bound in by copying.
    for needed in ("/bin/cat", "/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"):
        if not Path(needed).exists():
            pytest.skip(f"no {needed}")
        target = tmp_path / needed.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(needed).read_bytes())
        target.chmod(0o755)
    (tmp_path / "inside").write_text("yes")
    completed = LocalHost().run(ProcessRequest("cat", ("cat", "/inside"), root=str(tmp_path)))
    assert (completed.exit_code, completed.stdout) == (0, b"yes")


@pytest.mark.parametrize("read", [LocalHost().read, node_sampler.content_of])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(read: Callable[[str], bytes], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "whoami")
    assert read(str(tmp_path / "whoami")) == b""


def test_a_file_without_an_end_is_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_FILE_BYTES", 1 << 20)
    (tmp_path / "whoami").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="it is larger than"):
        LocalHost().read(str(tmp_path / "whoami"))


def test_a_file_is_a_process_s_own_while_it_has_the_directory_open(tmp_path: Path) -> None:
    (tmp_path / "fsid").write_text("mine")
    host = LocalHost()
    with pytest.raises(FileNotFoundError):
        host.read_own(os.getpid(), str(tmp_path / "fsid"))
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        assert host.read_own(os.getpid(), str(tmp_path / "fsid")) == b"mine"
        with pytest.raises(FileNotFoundError):
            host.read_own(os.getpid(), str(tmp_path.parent / "fsid"))
    finally:
        os.close(descriptor)
