"""fio: command lines. Every choice that changes what is measured is made and explained here.

* `--thread`: the job runs in fio's own process, so that one pid carries all its CPU and one signal ends it.
* `direct=1` for files and devices; the Ceph engines know no page cache.
* `norandommap=1`: every random I/O is drawn independently. With fio's map each block is touched once before any
  is touched again, which makes the hit ratio of the caches below depend on the runtime.
* `randrepeat=0` with a stated `randseed`, another one for each repeat and job: repeats must not read the same
  blocks in the same order (the second would find them cached), yet every run can be repeated exactly.
* Buffers: fio fills them with random bytes once and changes each a little (`scramble_buffers`, its default), so
  blocks are unique and do not compress. `refill_buffers` would cost the client about 1 s of CPU per GB and
  matters only where the pool compresses or deduplicates; `buffer_compress_percentage` sets how well.
* `time_based` + `runtime` + `ramp_time`, or `number_ios`: an exact count has no ramp, because fio's counting
  includes it, and `io_size` is raised so that the size of the target is not the limit.
* Logs carry absolute times (`log_unix_epoch`), so that fio's measured window can be laid over /proc samples.
* One process per image: several librbd jobs in one process hung with librbd 18.2 (fio issue 1778).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import PurePosixPath

from bathyscope.errors import UsageError
from bathyscope.host import ProcessRequest
from bathyscope.load.base import Place
from bathyscope.spec import FioClient, StepSpec

LOG_KINDS = ("iops", "bw", "slat", "clat", "lat")

Options = Mapping[str, str | int | float | None]


def seed_of(step: StepSpec, job: int) -> int:
    """Return the random seed of a job: the same for the same configuration, repeat and job, on every machine."""
    digest = hashlib.sha256(f"{step.key}#{step.repeat_index}#{job}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


def load_options(step: StepSpec, job: int, log_prefix: str) -> dict[str, str | int | float | None]:
    """Return the options that do not depend on the engine, in the order of printing. None: a bare flag."""
    pattern = step.pattern
    options: dict[str, str | int | float | None] = {
        "thread": None,
        "rw": pattern.op,
        "bs": pattern.block_size_bytes,
        "iodepth": pattern.queue_depth,
        "randrepeat": 0,
        "randseed": seed_of(step, job),
    }
    if pattern.op == "randrw":
        options["rwmixread"] = pattern.read_percent
    if pattern.op.startswith("rand"):
        options["norandommap"] = 1
    if step.rate_iops is not None:
        options |= {"rate_iops": step.rate_iops, "rate_process": "poisson"}
    options["runtime"] = f"{round(step.runtime_s * 1000)}ms"
    if step.io_count_limit is None:
        options["time_based"] = 1
        if step.ramp_s > 0:
            options["ramp_time"] = f"{round(step.ramp_s * 1000)}ms"
    else:
        options |= {"number_ios": step.io_count_limit, "io_size": step.io_count_limit * pattern.block_size_bytes}
    options |= {"slat_percentiles": 1, "clat_percentiles": 1, "lat_percentiles": 1}
    options |= {"write_iops_log": log_prefix, "write_bw_log": log_prefix, "write_lat_log": log_prefix}
    # A second, or less so that a short step has about ten intervals.
    interval_ms = max(100, min(1000, math.floor(step.runtime_s * 100)))
    return options | {"log_avg_msec": interval_ms, "log_unix_epoch": 1, "per_job_logs": 0}


def command(
    label: str,
    options: Options,
    *,
    place: Place,
    client: FioClient | None = None,
    scratch: str | None = None,
    readonly: bool = False,
    timeout_s: float | None = None,
) -> ProcessRequest:
    """Return the fio process for one job named `label`.

    On this machine the options stand on the command line. For a remote `fio --server` they must be a job file;
    it is given on stdin, so that nothing is written anywhere. fio's client does what its server says: it sends any file
    that it can read (FIO_NET_CMD_SENDFILE) and writes logs under names that the server chooses, and nobody knows who
    answers at a port. So it is confined to `scratch`, and its job names its logs relative to that.
    """
    for name, value in options.items():
        if isinstance(value, str) and ("\n" in value or "\0" in value):
            raise UsageError(f"the fio option {name} cannot hold a line break")
    head = ["fio", "--output-format=json+", "--eta=never"]
    if readonly:
        head.append("--readonly")
    if client is None:
        words = [f"--{name}" if value is None else f"--{name}={value}" for name, value in options.items()]
        argv, stdin = (*head, f"--name={label}", *words), None
    else:
        lines = [name if value is None else f"{name}={value}" for name, value in options.items()]
        argv = (*head, f"--client={client.host},{client.port}", "/dev/stdin")
        stdin = "\n".join([f"[{label}]", *lines, ""]).encode()
    return ProcessRequest(
        label=label,
        argv=argv,
        environment=place.environment,
        stdin=stdin,
        timeout_s=timeout_s,
        root=place.root,
        # A remote server does the I/O; only a local process can be placed.
        cgroup=place.cgroup if client is None else None,
        confined=scratch if client is not None or place.elsewhere is not None else None,
        elsewhere=place.elsewhere,
    )


def log_paths(request: ProcessRequest) -> tuple[str, ...]:
    """Return the paths of the log files that a fio request writes, as the tool sees them; () when it writes none.

    fio in client mode receives the server's logs and appends the server's name to theirs.
    """
    words = list(request.argv[1:])
    suffix = ""
    for word in request.argv:
        if word.startswith("--client="):
            suffix = "." + word.removeprefix("--client=").rsplit(",", 1)[0]
            words = ["--" + line for line in (request.stdin or b"").decode().splitlines()]
    for word in words:
        if word.startswith("--write_iops_log="):
            prefix = str(PurePosixPath(request.confined or "") / word.removeprefix("--write_iops_log="))
            return tuple(f"{prefix}_{kind}.log{suffix}" for kind in LOG_KINDS)
    return ()
