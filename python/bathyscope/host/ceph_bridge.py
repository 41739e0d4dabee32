"""The other end of host/ceph.py: holds the connection to the cluster.

It runs under the system's Python (>= 3.6), beside the `rados` module of the Ceph
release that is measured, perhaps in another root file system; its source comes over stdin. Standard library and
rados only; nothing of bathyscope is importable here.

It speaks lines of JSON over stdio. First line in: {"conf", "keyring", "client", "timeout_s", "answer_bytes"}: a longer
answer is -EFBIG instead. First line out:
{"ready": true, "fsid"} or {"ready": false, "phase": "module" | "conf" | "connect", "errno", "message"}; for a failed
"connect" also "keyrings": [[path, "absent" | "unreadable" | "no key" | "key"]] and "monitors": [[address, state]],
where state is "ceph", "refused", "silent", "no ceph" or the system's word for why it cannot be reached.
Then requests {"id", "daemon", "command"} in any number, and answers in any order: a line
{"id", "code", "out_bytes", "err_bytes"} followed by that many raw bytes. End of input ends the process.

The daemon "pool.NAME" stands for the objects of a pool. Its commands are these: "access" (which operations the caps
allow, tried on an object `name` that does not exist), "image ls" and "image rm", "objects ls" and "objects rm" (of
`count` objects `name`.0, `name`.1, …: [`name`] when any of them exists, or existed); "images" (what each image is, of
at most `count`) and "image watchers" (who has `images` open, [[namespace, name]]), which take about `seconds` at most.
"""

# The rados module may be missing; every failure is an answer; and Python 3.6 must be able to read this.
# ruff: noqa: PLC0415, BLE001, UP006, UP035, UP037, UP045
import errno
import itertools
import json
import os
import queue
import re
import resource
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterator, List, Optional, Tuple

# Enough for one command to each OSD of a node at once; a command that hangs holds one thread, not the bridge.
THREADS_MAX = 32

# Objects that are removed, or read, side by side.
OBJECTS_AT_ONCE = 64

# An OSD gives no more keys than this in one answer, unless it is set to.
OMAP_KEYS = 1000
# What an image's header says of its shape.
HEADER_KEYS = ("size", "order", "stripe_unit", "stripe_count", "data_pool_id", "parent")

# librbd writes some 300 bytes for an image. Whoever may write to a pool can write more.
ENTRY_BYTES = 4096
# How long those are counted that there is no time to look at.
COUNTING_S = 10.0

# Images that are opened side by side.
OPEN_AT_ONCE = 8

# What librados may take, for itself and for the two copies of an answer that it makes: it has no bound of its own for
# what a daemon sends. Beyond it this process dies, which its other end calls the loss of the connection.
MEMORY_BYTES = 4 << 30
ERROR_BYTES = 64 << 10

# A monitor greets before it is spoken to; one that does not within this time hangs.
MONITOR_ANSWER_S = 2.0
MONITORS_MAX = 16

# host, port of 10.0.0.1, mon1:6789, [v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0] and [v2:[fd00::1]:3300/0].
MONITOR_ADDRESS = re.compile(r"(?:v[12]:|any:)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::(\d+))?(?:/\d+)?")


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
        answer = {"ready": False, "phase": phase, "errno": abs(getattr(error, "errno", None) or 0)}
        answer["message"] = str(error)
        if phase == "connect":
            try:
                answer.update(keyrings=keyrings(cluster, settings["client"]), monitors=monitors(cluster))
            except Exception as second:
                # The first error counts; what lies behind it is then not known.
                answer["unknown"] = str(second)
        return None, answer


def keyrings(cluster: Any, client: str) -> List[Tuple[str, str]]:
    """Return the keyring files that were looked at, and what each says of the key of `client`."""
    states = []
    for path in re.split("[,; ]+", cluster.conf_get("keyring") or ""):
        try:
            state = "key" if f"[{client}]" in Path(path).read_text("utf-8", "replace") else "no key"
        except OSError as error:
            state = "absent" if error.errno == errno.ENOENT else "unreadable"
        if path:
            states.append((path, state))
    return states


def monitors(cluster: Any) -> List[Tuple[str, str]]:
    """Return the monitors' addresses by the configuration, and what is found at each."""
    places = []
    for host, port in MONITOR_ADDRESS.findall(cluster.conf_get("mon_host") or ""):
        places += [(host.strip("[]"), int(number)) for number in ([port] if port else [3300, 6789])]
    answers = {}  # type: Dict[Tuple[str, int], str]
    threads = [threading.Thread(target=look_for_monitor, args=(p, answers), daemon=True) for p in places[:MONITORS_MAX]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(MONITOR_ANSWER_S + 1)
    return [(f"{address[0]}:{address[1]}", answers.get(address, "silent")) for address in places[:MONITORS_MAX]]


def look_for_monitor(address: Tuple[str, int], answers: Dict[Tuple[str, int], str]) -> None:
    """Write into `answers` what listens at an address."""
    try:
        with socket.create_connection(address, MONITOR_ANSWER_S) as connection:
            banner = connection.recv(16)
        answers[address] = "ceph" if banner.startswith(b"ceph v") else "no ceph"
    except ConnectionRefusedError:
        answers[address] = "refused"
    except socket.timeout:  # noqa: UP041 - another class before Python 3.10
        answers[address] = "silent"
    except OSError as error:
        answers[address] = error.strerror or str(error)


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
    elif kind == "pool":
        code, out, err = 0, json.dumps(of_pool(cluster, name, request["command"])).encode(), ""
    else:
        code, out, err = -22, b"", "no way to command the daemon " + daemon
    # The mgr answers a refused tell with a positive number on some releases.
    return -abs(code), out or b"", err.decode("utf-8", "replace") if isinstance(err, bytes) else err or ""


def of_pool(cluster: Any, pool: str, words: Dict[str, Any]) -> Any:
    """Return the answer to a command for the objects of a pool. Raises what librados and librbd raise."""
    prefix = words["prefix"]
    ioctx = cluster.open_ioctx(pool)
    try:
        if prefix == "access":
            return access(ioctx, words["name"])
        if prefix.startswith("objects "):
            return of_objects(ioctx, words["name"], words["count"], remove=prefix == "objects rm")
        if prefix == "images":
            return images(ioctx, words["count"], words["seconds"])
        if prefix == "image watchers":
            return watchers(cluster, pool, words["images"], words["seconds"])
        import rbd

        if prefix == "image rm":
            return rbd.RBD().remove(ioctx, words["name"])
        return rbd.RBD().list(ioctx)
    finally:
        ioctx.close()


def access(ioctx: Any, name: str) -> Dict[str, bool]:
    """Return which operations the caps allow; the object `name` does not exist, so none of them does anything.

    "initialised": `rbd pool init` was run, so that the first image changes nothing of the pool.
    """

    def answered(operation: Any, *arguments: Any) -> int:
        try:
            operation(*arguments)
        except Exception as error:
            return abs(int(getattr(error, "errno", None) or errno.EIO))
        return 0

    tried = {
        "read": answered(ioctx.stat, name),
        "write": answered(ioctx.remove_object, name),
        "execute": answered(ioctx.execute, name, "rbd", "get_id", b""),
    }
    allowed = {what: number not in (errno.EPERM, errno.EACCES) for what, number in tried.items()}
    return dict(allowed, initialised=answered(ioctx.stat, "rbd_info") == 0)


def of_objects(ioctx: Any, name: str, count: int, *, remove: bool) -> List[str]:
    """Remove objects, or look for one of them. Return [name] when any was there, or is there."""
    is_there = False
    for first in range(0, count, OBJECTS_AT_ONCE):
        batch = [f"{name}.{number}" for number in range(first, min(count, first + OBJECTS_AT_ONCE))]
        asked = [
            ioctx.aio_remove(object_name) if remove else ioctx.aio_stat(object_name, lambda *_: None)
            for object_name in batch
        ]
        for completion in asked:
            completion.wait_for_complete()
        codes = [completion.get_return_value() for completion in asked]
        for code in codes:
            if code not in (0, -errno.ENOENT):
                raise OSError(-code, os.strerror(-code))
        is_there = is_there or 0 in codes
        if is_there and not remove:
            break
    return [name] if is_there else []


def images(ioctx: Any, count: int, seconds: float) -> Dict[str, Any]:
    """Return the images of a pool as librbd wrote them down, without librbd: it would open each one.

    "images": [namespace, object that lists it, id, entry there, {key: value of its header}], bytes as hexadecimal
    digits. "left": how many were not looked at, because there are more than `count`, the time was over, or they have
    more to say than librbd writes. At some time counting them ends, too.
    """
    ends = time.monotonic() + seconds
    listed = []  # type: List[List[Any]]
    left = 0
    for namespace, place, batch in listed_images(ioctx, ends + COUNTING_S):
        fitting = [(image, entry) for image, entry in batch if len(image) + len(entry) <= ENTRY_BYTES]
        left += len(batch) - len(fitting)
        if len(listed) + len(fitting) > count or time.monotonic() > ends:
            left += len(fitting)
            continue
        headers = read_headers(ioctx, [image for image, _ in fitting])
        for (image, entry), header in zip(fitting, headers):  # noqa: B905 - not before Python 3.10
            # One that was removed meanwhile has none.
            if header is None:
                continue
            if sum(map(len, header.values())) > 2 * ENTRY_BYTES:
                left += 1
            else:
                listed.append([namespace, place, image, entry.hex(), header])
    return {"images": listed, "left": left}


def listed_images(ioctx: Any, until: float) -> Iterator[Tuple[str, str, List[Tuple[str, bytes]]]]:
    """Yield (namespace, object that lists them, [id and entry there]), some at a time, for as long as there is time.

    Whoever may write to the pool decides how many there are: only some are held.
    """
    for namespace in itertools.chain(
        [""], (key[len("name_") :] for key, _ in omap(ioctx, "", "rbd_namespace", "name_"))
    ):
        for place in ("rbd_directory", "rbd_trash"):
            entries = ((key[len("id_") :], entry) for key, entry in omap(ioctx, namespace, place, "id_"))
            batch = list(itertools.islice(entries, OBJECTS_AT_ONCE))
            while batch:
                ioctx.set_namespace(namespace)
                yield namespace, place, batch
                if time.monotonic() > until:
                    return
                batch = list(itertools.islice(entries, OBJECTS_AT_ONCE))


def omap(ioctx: Any, namespace: str, name: str, prefix: str) -> Iterator[Tuple[str, bytes]]:
    """Yield the keys of an object that begin with `prefix`, and their values; none when there is no such object."""
    import rados

    last = ""
    while True:
        # Between two pages it may have been set to another one.
        ioctx.set_namespace(namespace)
        with rados.ReadOpCtx() as operation:
            pairs, _ = ioctx.get_omap_vals(operation, last, prefix, OMAP_KEYS)
            try:
                ioctx.operate_read_op(operation, name)
            except rados.Error as error:
                # An erasure-coded pool has no omaps.
                if getattr(error, "errno", None) in (errno.ENOENT, errno.EOPNOTSUPP):
                    return
                raise
            page = [(key, value or b"") for key, value in pairs]
        if not page:
            return
        yield from page
        last = page[-1][0]


def read_headers(ioctx: Any, names: List[str]) -> List[Optional[Dict[str, str]]]:
    """Return what the headers of images say, None for one that is not there."""
    asked = []  # type: List[Tuple[Any, Any, Any]]
    try:
        for name in names:
            operation = ioctx.create_read_op()
            pairs, _ = ioctx.get_omap_vals_by_keys(operation, HEADER_KEYS)
            asked.append((operation, pairs, ioctx.operate_aio_read_op(operation, "rbd_header." + name)))
    finally:
        # The answers are written into `pairs`: they must stay until all are there.
        for _, _, completion in asked:
            completion.wait_for_complete()
    headers = []  # type: List[Optional[Dict[str, str]]]
    for operation, pairs, completion in asked:
        code = completion.get_return_value()
        if code not in (0, -errno.ENOENT):
            raise OSError(-code, os.strerror(-code))
        headers.append({key: (value or b"").hex() for key, value in pairs} if code == 0 else None)
        ioctx.release_read_op(operation)
    return headers


def watchers(cluster: Any, pool: str, named: List[List[str]], seconds: float) -> List[List[Any]]:
    """Return [namespace, name, error number, [address of each client that has the image open]] of images.

    They are opened for reading, which takes no lock and is no watcher. Raises the error of all of them.
    """
    import rbd

    ends = time.monotonic() + seconds

    def look(request: List[str]) -> List[Any]:
        namespace, name = request
        if time.monotonic() > ends:
            return [namespace, name, errno.ETIMEDOUT, []]
        try:
            with cluster.open_ioctx(pool) as ioctx:
                ioctx.set_namespace(namespace)
                with rbd.Image(ioctx, name, read_only=True) as image:
                    return [namespace, name, 0, [str(watcher["addr"]) for watcher in image.watchers_list()]]
        except Exception as error:
            return [namespace, name, abs(int(getattr(error, "errno", None) or errno.EIO)), []]

    with ThreadPoolExecutor(OPEN_AT_ONCE) as threads:
        seen = list(threads.map(look, named))
    numbers = [number for _, _, number, _ in seen]
    if numbers and not {0, errno.ENOENT}.intersection(numbers):
        raise OSError(numbers[0], os.strerror(numbers[0]))
    return seen


def answer_to(cluster: Any, request: Dict[str, Any], most_bytes: int) -> Tuple[int, bytes, bytes]:
    """Return (code, out, err) of one command; every failure is one, and so is an answer that is too long."""
    try:
        code, out, err = perform(cluster, request)
    except Exception as error:
        number = getattr(error, "errno", None)
        code, out, err = -abs(number if isinstance(number, int) and number else 5), b"", str(error)
    if len(out) > most_bytes:
        err = f"its answer of {len(out) >> 20} MiB is longer than the {most_bytes >> 20} MiB that are taken"
        code, out = -errno.EFBIG, b""
    return code, out, err.encode("utf-8", "replace")[:ERROR_BYTES]


def work(
    answer: Callable[[Dict[str, Any]], Tuple[int, bytes, bytes]],
    todo: "queue.Queue[Dict[str, Any]]",
    idle: threading.Semaphore,
    out: IO[bytes],
    lock: threading.Lock,
) -> None:
    """Perform commands one after the other, for as long as the process lives."""
    while True:
        request = todo.get()
        code, *payloads = answer(request)
        sizes = [len(payload) for payload in payloads]
        say(out, lock, {"id": request["id"], "code": code, "out_bytes": sizes[0], "err_bytes": sizes[1]}, *payloads)
        idle.release()


def main() -> None:
    """Connect, greet, and answer until the input ends."""
    out = os.fdopen(os.dup(1), "wb")
    # librados and its plugins may print; what they print must not get between the answers.
    os.dup2(2, 1)
    lock = threading.Lock()
    settings = json.loads(sys.stdin.buffer.readline())
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most == resource.RLIM_INFINITY or most > MEMORY_BYTES:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    cluster, greeting = connect(settings)
    say(out, lock, greeting)
    if cluster is None:
        os._exit(1)

    def answer(request: Dict[str, Any]) -> Tuple[int, bytes, bytes]:
        return answer_to(cluster, request, settings["answer_bytes"])

    todo: "queue.Queue[Dict[str, Any]]" = queue.Queue()
    idle, threads = threading.Semaphore(0), 0
    while True:
        line = sys.stdin.buffer.readline()
        if not line:
            # No orderly shutdown: it can hang on a cluster that does not answer, and holds nothing worth saving.
            os._exit(0)
        if not idle.acquire(blocking=False) and threads < THREADS_MAX:
            threads += 1
            threading.Thread(target=work, args=(answer, todo, idle, out, lock), daemon=True).start()
        todo.put(json.loads(line))


if __name__ == "__main__":
    main()
