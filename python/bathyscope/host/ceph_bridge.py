"""The other end of host/ceph.py: holds the connection to the cluster.

It runs under the system's Python (>= 3.6), beside the `rados` module of the Ceph
release that is measured, perhaps in another root file system; its source is passed by -c. Standard library and
rados only; nothing of bathyscope is importable here.

It speaks lines of JSON over stdio. First line in: {"conf", "keyring", "client", "timeout_s"}. First line out:
{"ready": true, "fsid"} or {"ready": false, "phase": "module" | "conf" | "connect", "errno", "message"}.
Then requests {"id", "daemon", "command"} in any number, and answers in any order: a line
{"id", "code", "out_bytes", "err_bytes"} followed by that many raw bytes. End of input ends the process.
"""

# The rados module may be missing; every failure is an answer; and Python 3.6 must be able to read this.
# ruff: noqa: PLC0415, BLE001, UP006, UP035, UP037
import json
import os
import queue
import sys
import threading
from typing import IO, Any, Dict, Tuple

# Enough for one command to each OSD of a node at once; a command that hangs holds one thread, not the bridge.
THREADS_MAX = 32


def say(out: IO[bytes], lock: threading.Lock, header: Dict[str, Any], *payloads: bytes) -> None:
    """Write one answer whole: a line, then its raw bytes."""
    with lock:
        out.write(json.dumps(header).encode() + b"\n")
        for payload in payloads:
            out.write(payload)
        out.flush()


def connect(settings: Dict[str, Any]) -> Tuple[Any, Dict[str, Any]]:
    """Return a connected rados.Rados, or the answer that says why not."""
    try:
        import rados
    except ImportError as error:
        return None, {"ready": False, "phase": "module", "errno": 0, "message": str(error)}
    phase = "conf"
    try:
        # A whole number: releases before Reef take no fraction.
        timeout = str(max(1, int(settings["timeout_s"])))
        conf = {"client_mount_timeout": timeout, "rados_mon_op_timeout": "60", "rados_osd_op_timeout": "60"}
        # The connection serves for administration only; it must not open sockets or logs beside the user's.
        conf.update({"admin_socket": "", "log_file": "", "log_to_stderr": "false", "err_to_stderr": "false"})
        if settings.get("keyring"):
            conf["keyring"] = settings["keyring"]
        cluster = rados.Rados(name=settings["client"], conffile=settings["conf"], conf=conf)
        phase = "connect"
        cluster.connect()
        return cluster, {"ready": True, "fsid": cluster.get_fsid()}
    except Exception as error:
        number = getattr(error, "errno", None) or 0
        return None, {"ready": False, "phase": phase, "errno": abs(number), "message": str(error)}


def perform(cluster: Any, request: Dict[str, Any]) -> Tuple[int, bytes, str]:
    """Return (code, out, err) of one command; code is 0 or -errno."""
    command = json.dumps(request["command"])
    daemon = request["daemon"]
    kind, _, name = daemon.partition(".")
    if daemon == "mon":
        code, out, err = cluster.mon_command(command, b"")
    elif daemon == "mgr":
        code, out, err = cluster.mgr_command(command, b"")
    elif kind == "mon":
        code, out, err = cluster.mon_command(command, b"", 0, name)
    elif kind == "osd" and name.isdigit():
        code, out, err = cluster.osd_command(int(name), command, b"")
    else:
        code, out, err = -22, b"", "no way to command the daemon " + daemon
    # The mgr answers a refused tell with a positive number on some releases.
    return -abs(code), out or b"", err.decode("utf-8", "replace") if isinstance(err, bytes) else err or ""


def work(
    cluster: Any, todo: "queue.Queue[Dict[str, Any]]", idle: threading.Semaphore, out: IO[bytes], lock: threading.Lock
) -> None:
    """Perform commands one after the other, for as long as the process lives."""
    while True:
        request = todo.get()
        try:
            code, answer, err = perform(cluster, request)
        except Exception as error:
            number = getattr(error, "errno", None)
            code, answer, err = -abs(number if isinstance(number, int) and number else 5), b"", str(error)
        text = err.encode("utf-8", "replace")
        header = {"id": request["id"], "code": code, "out_bytes": len(answer), "err_bytes": len(text)}
        say(out, lock, header, answer, text)
        idle.release()


def main() -> None:
    """Connect, greet, and answer until the input ends."""
    out = os.fdopen(os.dup(1), "wb")
    # librados and its plugins may print; what they print must not get between the answers.
    os.dup2(2, 1)
    lock = threading.Lock()
    settings = json.loads(sys.stdin.buffer.readline())
    cluster, greeting = connect(settings)
    say(out, lock, greeting)
    if cluster is None:
        os._exit(1)
    todo: "queue.Queue[Dict[str, Any]]" = queue.Queue()
    idle, threads = threading.Semaphore(0), 0
    while True:
        line = sys.stdin.buffer.readline()
        if not line:
            # No orderly shutdown: it can hang on a cluster that does not answer, and holds nothing worth saving.
            os._exit(0)
        if not idle.acquire(blocking=False) and threads < THREADS_MAX:
            threads += 1
            threading.Thread(target=work, args=(cluster, todo, idle, out, lock), daemon=True).start()
        todo.put(json.loads(line))


if __name__ == "__main__":
    main()
