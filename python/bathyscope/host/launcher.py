"""The first program of every child: it ties the child's life to ours, places it, and becomes the real program.

The source below runs with the same interpreter that runs us (`-I -S`, so nothing of the user's is imported) and
does five things before it calls exec, because none of them can be done safely between fork and exec of a
multi-threaded program:

1. Joins the control group, so that its throttles hold from the first I/O.
2. Enters the root file system.
3. Enters the directory that the program is confined to, and gives up root: the user nobody, no group, no way back
   (PR_SET_NO_NEW_PRIVS), and a limit for every file that it writes, its output included.
4. PR_SET_PDEATHSIG = SIGKILL, so that the child cannot outlive us however we end, `kill -9` included. The
   setting survives exec, but not a change of the user, so it comes after that. It fires when the *thread* that forked
   ends, so `local` forks from one thread that lives as long as the program; see prctl(2).
5. Gives signals back their default meaning: Python ignores SIGPIPE and SIGXFSZ, and exec would hand that on.
"""

from __future__ import annotations

import os
import sys

LAUNCH_FAILED = 126

# The user and group without rights, by number: another root file system need not know their names.
NOBODY_ID = 65534

# More than any log of a load; what a confined program writes is at the mercy of another machine.
_FILE_LIMIT_BYTES = 1 << 30

# `warnings` is what execvp imports at its first call: inside another root it would not be found any more.
_SOURCE = """
import ctypes, os, resource, sys, warnings, _signal
parent, nobody, file_limit, cgroup, root, confined = *map(int, sys.argv[1:4]), *sys.argv[4:7]
prctl = ctypes.CDLL(None, use_errno=True).prctl
doing = "give signals their default meaning"
try:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    if cgroup:
        doing = "join the control group " + cgroup
        with open(cgroup + "/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
    if root:
        doing = "enter the root file system " + root
        os.chroot(root)
        os.chdir("/")
    if confined:
        doing = "give up its privileges in " + confined
        os.chdir(confined)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(nobody)
            os.setuid(nobody)
        if prctl(38, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    doing = "tie its life to ours"
    if prctl(1, 9, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        os._exit(126)
    doing = "run " + sys.argv[7]
    os.execvp(sys.argv[7], sys.argv[7:])
except OSError as error:
    sys.stderr.write("bathy: cannot %s: %s\\n" % (doing, error.strerror))
    sys.stderr.flush()
    os._exit(126)
"""


def launch_argv(
    argv: tuple[str, ...], *, cgroup: str | None = None, root: str | None = None, confined: str | None = None
) -> list[str]:
    """Return the argument vector that starts `argv` through the launcher, as a child of this process.

    The launcher ends with exit code LAUNCH_FAILED and one line on stderr when it cannot do its work.
    """
    numbers = map(str, (os.getpid(), NOBODY_ID, _FILE_LIMIT_BYTES))
    return [sys.executable, "-I", "-S", "-c", _SOURCE, *numbers, cgroup or "", root or "", confined or "", *argv]
