"""The other end of host/remote.py: runs one program on another machine, which ends with its connection.

It runs under that machine's own Python (>= 3.6); its source comes over stdin, so that nothing is installed. Standard
library only; nothing of bathyscope is importable here.

Its input goes on with a line of JSON {"argv", "environment", "files": [[variable, path, bytes]]} and the contents of
these files. The program finds each by the variable, and by arguments that are the path or OPTION=path. The file itself
has no name in any directory: whatever is killed, no key stays behind. The program runs in an empty directory of its
own. The first line of the output is GREETING and the process id, then, when the program has ended, a line {"exit_code",
"stdout", "stderr", "files": [[name, bytes]]} and the contents in that order: all files that the program has left. When
the input ends before, so does the program.
"""

# Python 3.6 must be able to read this.
# ruff: noqa: PTH123, PTH118, PTH208, UP006, UP035, PLW1509
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, BinaryIO, Dict, List, Tuple

GREETING = b"bathy load runner 1"
PR_SET_PDEATHSIG = 1


def tie() -> None:
    """End the program with this one, however this one ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Run what is asked for, and answer."""
    source = sys.stdin.buffer
    asked = json.loads(source.readline().decode())
    environment = dict(os.environ, **asked["environment"])
    with contextlib.ExitStack() as stack:
        held = []
        argv = asked["argv"]
        for variable, path, size in asked["files"]:
            # Without a name: O_TMPFILE, or unlinked at once.
            file = stack.enter_context(tempfile.TemporaryFile())
            file.write(source.read(size))
            file.flush()
            held.append(file.fileno())
            environment[variable] = opened = f"/proc/self/fd/{file.fileno()}"
            argv = [word[: -len(path)] + opened if word == path or word.endswith("=" + path) else word for word in argv]
        directory = tempfile.mkdtemp(prefix="bathy-load-")
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        try:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=directory, env=environment,
                pass_fds=held, preexec_fn=tie,
            )  # fmt: skip
        except OSError as error:
            sys.exit("cannot run {}: {}".format(asked["argv"][0], error.strerror))
        stack.callback(child.kill)
        say(GREETING + b" %d\n" % child.pid)
        threading.Thread(target=watch, args=(child,), daemon=True).start()
        code = child.wait()
        send(code, out, err, directory)


def watch(child: "subprocess.Popen[bytes]") -> None:
    """End the program when the connection has ended. Nothing more is sent, so nothing is in the buffer."""
    os.read(sys.stdin.fileno(), 1)
    child.kill()


def send(code: int, out: BinaryIO, err: BinaryIO, directory: str) -> None:
    """Send what came of the program."""
    contents: List[bytes] = []
    files: List[Tuple[str, int]] = []
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            contents.append(file.read())
        files.append((name, len(contents[-1])))
    streams = []
    for stream in (out, err):
        stream.seek(0)
        streams.append(stream.read())
    header: Dict[str, Any] = {"exit_code": code, "stdout": len(streams[0]), "stderr": len(streams[1]), "files": files}
    say(json.dumps(header).encode() + b"\n" + b"".join(streams + contents))


def say(data: bytes) -> None:
    """Write to the connection."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def leave(*_: object) -> None:
    """End in order, so that nothing is left."""
    raise SystemExit(1)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, leave)
    main()
