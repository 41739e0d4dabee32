"""The other end of host/ssh.py: reads files of another machine when it is asked to.

It runs under that machine's own Python (>= 3.6); its source comes over stdin, so that nothing is
installed, and it ends with its stdin, so that nothing stays. It only reads. Standard library only; nothing of
bathyscope is importable here.

It greets with the line GREETING. Then a line in, an answer out. A line is JSON: {"id", "paths": [path]} to read files,
{"id", "daemons": name, "beside": [path]} to read what identifies the processes of that name (and the files `beside`, as
each of them sees them, in directories that it has open). An answer is a line {"id", "before_ns", "after_ns",
"clock_ticks_per_s", "page_bytes", "files": [[path, bytes]]}, followed by the contents in that order. The times are this
machine's, before and after the reading. A path that cannot be read is left out. One with an asterisk stands for all
that match it; /proc/PID/cgroup/*/NAME|NAME for these files of each control group that a process is in, of the groups
above it too.
"""

# Python 3.6 must be able to read this.
# ruff: noqa: PTH116, PTH120, PTH123, PTH207, PTH208, UP006, UP035, UP045
import glob
import json
import os
import sys
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

GREETING = b"bathy node sampler 1"
STAT = "/proc/stat"
IDENTITY = ("stat", "cmdline", "cgroup")
FILE_MAX = 1 << 20
GROUPS = "/sys/fs/cgroup"
OF_GROUPS = "/cgroup/*/"


def now_ns() -> int:
    """Return the nanoseconds since the Unix epoch (Python 3.6 has no time_ns)."""
    return int(time.time() * 1e9)


def content_of(path: str) -> bytes:
    """Return a file's bytes; of /proc/stat only the processors, and only the first line in figures.

    The rest of it, the interrupts above all, is tens of kilobytes on a large machine.
    """
    with open(path, "rb", opener=at_once) as file:
        content = file.read(FILE_MAX)
    if path != STAT:
        return content
    first, *others = [line for line in content.splitlines() if line.startswith(b"cpu")] or [b""]
    return b"".join([first + b"\n"] + [line.split(b" ")[0] + b" \n" for line in others])


def at_once(path: str, flags: int) -> int:
    """Open a file; a pipe that its owner put in the place of an OSD's file is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def matching(pattern: str) -> List[str]:
    """Return the paths that match a pattern with asterisks; those of control groups may not be there."""
    process, of_groups, names = pattern.partition(OF_GROUPS)
    if not of_groups:
        return sorted(glob.glob(pattern))
    try:
        with open(process + "/cgroup", "rb") as file:
            text = file.read(FILE_MAX).decode("utf-8", "replace")
    except OSError:
        return []
    wanted = names.split("|")
    groups = {controller: group_paths(text, controller) for controller in {name.split(".")[0] for name in wanted}}
    return [path + "/" + name for name in wanted for path in groups[name.split(".")[0]]]


def group_paths(text: str, controller: str) -> List[str]:
    """Return the directories of the control groups whose limits hold for a process, from its own upwards.

    `text` is /proc/PID/cgroup. A controller is used by one version at a time; blkio is version 1, whose throttle knows
    no groups above, io is version 2.
    """
    lines = [line.split(":", 2) for line in text.splitlines() if line.count(":") > 1]
    attached = {name for _, names, _ in lines for name in names.split(",") if name}
    for _, names, path in lines:
        levels = path.rstrip("/").split("/")
        if controller in names.split(","):
            mount = GROUPS + "/" + controller
        elif not names and controller != "blkio" and not attached & {controller, "blk" + controller}:
            mount = GROUPS + "/unified" if attached else GROUPS
        else:
            continue
        # A group outside of our own namespace of groups begins with "..": it cannot be seen.
        if ".." in levels:
            break
        above = [mount + "/".join(levels[:end]) for end in range(len(levels), 0, -1)]
        return above[:1] if controller == "blkio" else above
    return []


def resolved(paths: Iterable[str], match: Callable[[str], List[str]] = matching) -> List[str]:
    """Return the paths, in place of each pattern those that match it, each once: processes share groups."""
    return list(dict.fromkeys(each for asked in paths for each in (match(asked) if "*" in asked else [asked])))


def read(paths: List[str]) -> List[Tuple[str, bytes]]:
    """Return the files that can be read."""
    contents = []
    for path in resolved(paths):
        try:
            contents.append((path, content_of(path)))
        except OSError:
            continue
    return contents


def identities(name: str, beside: List[str]) -> List[str]:
    """Return the paths of what identifies each process of a name."""
    paths = ["/proc/sys/kernel/hostname"]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/{}/comm".format(pid), "rb") as file:  # noqa: UP032 - one way for both uses
                command = file.read().decode("utf-8", "replace").strip()
        except OSError:
            continue
        if command == name:
            paths += ["/proc/{}/{}".format(pid, kind) for kind in IDENTITY]  # noqa: UP032
            paths += beside_open("/proc/" + pid, beside)
    return paths


def beside_open(process: str, beside: List[str]) -> List[str]:
    """Return the paths of the files in directories that a process has open: its own data, and not another's."""
    try:
        opened = {identity(process + "/fd/" + number) for number in os.listdir(process + "/fd")}
    except OSError:
        return []
    seen = [process + "/root" + path for path in beside]
    return [path for path in seen if identity(os.path.dirname(path)) in opened - {None}]


def identity(path: str) -> Optional[Tuple[int, int]]:
    """Return which file a path leads to, None when it leads to none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def answer(question: Dict[str, Any]) -> Tuple[Dict[str, Any], List[bytes]]:
    """Return the answer to a line: its header and the contents."""
    before_ns = now_ns()
    paths = question["paths"] if "paths" in question else identities(question["daemons"], question["beside"])
    files = read(paths)
    header = {"id": question["id"], "before_ns": before_ns, "after_ns": now_ns()}
    header.update(clock_ticks_per_s=os.sysconf("SC_CLK_TCK"), page_bytes=os.sysconf("SC_PAGE_SIZE"))
    header.update(files=[(path, len(content)) for path, content in files])
    return header, [content for _, content in files]


def main() -> None:
    """Greet, and answer until the input ends."""
    out = sys.stdout.buffer
    out.write(GREETING + b"\n")
    out.flush()
    while True:
        line = sys.stdin.buffer.readline()
        if not line:
            return
        header, contents = answer(json.loads(line.decode()))
        out.write(json.dumps(header).encode() + b"\n" + b"".join(contents))
        out.flush()


if __name__ == "__main__":
    main()
