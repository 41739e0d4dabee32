"""Short programs: the system's own, and Ceph's inside a lab's root file system if it has one."""

from __future__ import annotations

import dataclasses

from bathyscope.errors import LabError
from bathyscope.host import Completed, Host, ProcessRequest
from bathyscope.host.local import LocalHost

# A shell that has `bathy lab env` of another lab, or a real cluster, must not reach into this one.
# Empty is not unset: an empty CEPH_KEYRING switches cephx off.
FOREIGN_VARIABLES = ("CEPH_ARGS", "CEPH_CONF", "CEPH_KEYRING")
_CLEAN = ("env", *(word for variable in FOREIGN_VARIABLES for word in ("-u", variable)))


def system(*argv: str, timeout_s: float = 30.0) -> Completed:
    """Run a program of this machine (losetup, mount). Raises EnvironmentError_ when it is not installed."""
    return LocalHost().run(ProcessRequest(label=argv[0], argv=argv, timeout_s=timeout_s))


def last_line(stderr: bytes) -> str:
    """Return the last line of what a program said, for an error message."""
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"


@dataclasses.dataclass(frozen=True, slots=True)
class Tools:
    """Short programs of the lab's release."""

    host: Host
    root: str | None

    def run(self, *argv: str, stdin: bytes | None = None, timeout_s: float = 120.0) -> bytes:
        """Run a program and return its stdout. It ends with this program. Raises LabError when it fails."""
        completed = self.host.run(
            ProcessRequest(
                label=argv[0],
                argv=(*_CLEAN, *argv),
                stdin=stdin,
                timeout_s=timeout_s,
                root=self.root,
            )
        )
        if completed.timed_out:
            raise LabError(f"{argv[0]} did not end within {timeout_s:.0f} s")
        if completed.exit_code != 0:
            words = " ".join(argv[:3])
            raise LabError(f"{words} failed ({completed.exit_code}): {last_line(completed.stderr)}")
        return completed.stdout
