"""The first program of every child: it ties the child's life to ours, places it, and becomes the real program.

The source below runs with the same interpreter that runs us (`-I -S`, so nothing of the user's is imported) and
does four things before it calls exec, because none of them can be done safely between fork and exec of a
multi-threaded program:

1. PR_SET_PDEATHSIG = SIGKILL, so that the child cannot outlive us however we end, `kill -9` included. The
   setting survives exec. It fires when the *thread* that forked ends, so `local` forks from one thread that
   lives as long as the program; see prctl(2).
2. Joins the control group, so that its throttles hold from the first I/O.
3. Enters the root file system.
4. Gives signals back their default meaning: Python ignores SIGPIPE and SIGXFSZ, and exec would hand that on.
"""

from __future__ import annotations

import os
import sys

LAUNCH_FAILED = 126

# `warnings` is what execvp imports at its first call: inside another root it would not be found any more.
_SOURCE = """
import ctypes, os, sys, warnings, _signal
parent, cgroup, root = int(sys.argv[1]), sys.argv[2], sys.argv[3]
doing = "tie its life to ours"
try:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    if ctypes.CDLL(None, use_errno=True).prctl(1, 9, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        os._exit(126)
    if cgroup:
        doing = "join the control group " + cgroup
        with open(cgroup + "/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
    if root:
        doing = "enter the root file system " + root
        os.chroot(root)
        os.chdir("/")
    doing = "run " + sys.argv[4]
    os.execvp(sys.argv[4], sys.argv[4:])
except OSError as error:
    sys.stderr.write("bathy: cannot %s: %s\\n" % (doing, error.strerror))
    sys.stderr.flush()
    os._exit(126)
"""


def launch_argv(argv: tuple[str, ...], *, cgroup: str | None = None, root: str | None = None) -> list[str]:
    """Return the argument vector that starts `argv` through the launcher, as a child of this process.

    The launcher ends with exit code LAUNCH_FAILED and one line on stderr when it cannot do its work.
    """
    prefix = [sys.executable, "-I", "-S", "-c", _SOURCE, str(os.getpid()), cgroup or "", root or ""]
    return [*prefix, *argv]
