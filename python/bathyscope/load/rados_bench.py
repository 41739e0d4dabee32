"""rados bench: the cross-check of fio on the RADOS layer.

Its JSON goes to a file (`-o`), because stdout begins with "hints = 1" before ceph PR 66936. All values are text;
bandwidth is in MiB/s, latency in seconds. `stddev_iops` of a write is garbage (a double printed with %d), so
spreads are computed from `datas` where they are needed, never read. There are no percentiles, hence no
histograms. The last second is missing from `datas`. SIGINT loses everything.

`seq` and `rand` read what an earlier write with the same run name left, with that write's block size: -b is
ignored there. So a read step first writes with the block size under test. `--max-objects` bounds what a write
can leave in the pool. Nothing is cleaned up by `rados cleanup`: with missing metadata it removes the objects of
other people's runs; the pool is ours and is deleted whole.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bathyscope.errors import ParseError, ToolError
from bathyscope.fields import as_dict, as_float, as_int, as_list, last_line, load_json, parsing
from bathyscope.host import ProcessRequest
from bathyscope.load.base import LoadTables, Place
from bathyscope.records import Interval, RawAnswer, Result, build_table, to_table

_MARGIN_S = 60.0


def command(
    label: str,
    mode: str,
    *,
    access: tuple[str, ...],
    pool: str,
    seconds: int,
    queue_depth: int,
    block_size_bytes: int,
    object_size_bytes: int,
    run_name: str,
    output: str,
    place: Place,
    objects_max: int,
) -> ProcessRequest:
    """Return the process for one `rados bench`; `mode` is write, seq or rand; `access` the options to connect."""
    argv = ["rados", *access, "-p", pool, "bench", str(seconds), mode, "-t", str(queue_depth)]
    if mode == "write":
        argv += ["-b", str(block_size_bytes), "-O", str(object_size_bytes), "--max-objects", str(objects_max)]
    argv += ["--run-name", run_name, "--no-cleanup", "--format", "json", "-o", output]
    return ProcessRequest(
        label=label,
        argv=tuple(argv),
        environment=place.environment,
        timeout_s=seconds + _MARGIN_S,
        root=place.root,
    )


def output_paths(request: ProcessRequest) -> tuple[str, ...]:
    """Return the path of the file that a rados bench request writes, as the tool sees it; () for another request."""
    return (request.argv[request.argv.index("-o") + 1],) if "-o" in request.argv else ()


def check(answer: RawAnswer) -> None:
    """Raise ToolError when rados bench failed."""
    if answer.exit_code != 0:
        raise ToolError(f"rados bench failed ({answer.exit_code}): {last_line(answer.stderr or answer.stdout)}")


def parse(answer: RawAnswer, *, step_index: int, client: str) -> LoadTables:
    """Return the totals and the per-second series of one rados bench; it has no histograms. Raises ParseError."""
    if not answer.files or not answer.files[0][1].strip():
        raise ParseError(f"{answer.label} left no output; was it interrupted?")
    with parsing(f"the output of {answer.label}"):
        value = as_dict(load_json(answer.files[0][1]))
        # An older release writes the key with the colon of its text output.
        value = {key.rstrip(":"): item for key, item in value.items()}
        direction = "write" if "total_writes_made" in value else "read"
        count = as_int(value[f"total_{direction}s_made"])
        size_bytes = as_int(value[f"{direction}_size"])
        runtime_s = as_float(value["total_time_run"])
        if runtime_s <= 0:
            raise ValueError(f"a runtime of {runtime_s} s")
        deviation = value.get("stddev_latency")
        result = Result(
            step_index=step_index,
            client=client,
            direction=direction,
            io_count=count,
            io_bytes=as_int(count * size_bytes),
            error_count=0,
            runtime_ns=as_int(runtime_s * 1e9),
            # average_iops is cut to a whole number.
            iops=count / runtime_s,
            bandwidth_bytes_per_s=count * size_bytes / runtime_s,
            latency_ns_mean=as_float(value["average_latency"]) * 1e9,
            latency_ns_stddev=None if deviation is None else as_float(deviation) * 1e9,
            latency_ns_min=as_float(value["min_latency"]) * 1e9,
            latency_ns_max=as_float(value["max_latency"]) * 1e9,
            cpu_user_s=None,
            cpu_system_s=None,
        )
        tables = {Result: to_table(Result, [result]), Interval: _intervals(result, as_list(value["datas"]), size_bytes)}
    return LoadTables(tables, answer.started_ns, answer.ended_ns)


def _intervals(result: Result, datas: list[Any], size_bytes: int) -> pa.Table:
    """Return the differences of the running count, second by second."""
    ends_ns, durations_ns, rates = [], [], []
    finished, second = 0, 0
    for data in datas:
        now, done = as_int(data["sec"]), as_int(data["finished"])
        if now <= second:
            continue
        ends_ns.append(now * 1_000_000_000)
        durations_ns.append((now - second) * 1_000_000_000)
        rates.append((done - finished) / (now - second))
        finished, second = done, now
    columns = {
        "step_index": result.step_index,
        "client": result.client,
        "direction": result.direction,
        "offset_ns": ends_ns,
        "duration_ns": durations_ns,
        "iops": rates,
        "bandwidth_bytes_per_s": [rate * size_bytes for rate in rates],
        # It reports the latency of the last I/O and a running mean, neither of which is the interval's.
        "latency_ns_mean": None,
    }
    return build_table(Interval, columns)
