"""fio: what it printed → results, intervals, histograms. Read with 3.33, 3.39 and 3.41.

What a reader of fio's output must know, and what is done about it here:

* Engine messages and "terminating on signal 2" stand before or after the JSON on the same stream, and in client
  mode every server's chatter does → the JSON object is searched for, the rest is kept as messages.
* `error` may be 0 while the exit code is not → the exit code counts as an error too (`check`).
* With `--client` the list is called `client_stats`, and its "All clients" row has neither percentiles nor bins
  before 3.39 → that row is dropped; analysis adds up the bins of the single clients.
* `percentile` and `bins` are missing when N is 0; `disk_util` is missing sometimes and, with the Ceph engines,
  lists unrelated local disks → neither is used: percentiles come from the bins, devices from /proc/diskstats.
* `usr_cpu`/`sys_cpu` are the job thread's alone; librbd and librados work in other threads → they are reported
  only where the job thread does everything (`own_cpu`), else left to the /proc sampler.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bathyscope.errors import ParseError, ToolError
from bathyscope.fields import as_dict, as_float, as_int, as_list, json_after_noise, last_lines, parsing
from bathyscope.load.base import LoadTables
from bathyscope.load.fio_log import (
    DIRECTIONS,
    EPOCH_MS,
    LogClock,
    Series,
    first_end_ms,
    intervals,
    last_latency_ms,
    read_series,
    usual_length_ms,
)
from bathyscope.records import Histogram, Interval, RawAnswer, Result, build_table, to_table

_KINDS = ("slat", "clat", "lat")


@dataclasses.dataclass(frozen=True, slots=True)
class FioOutput:
    """The JSON of one fio process: its job rows, and the lines that stood around it."""

    jobs: tuple[dict[str, Any], ...]
    timestamp_ms: int | None
    messages: tuple[str, ...]


def read_output(answer: RawAnswer) -> FioOutput:
    """Return the structure of what fio printed. Raises ParseError."""
    value, messages = json_after_noise(answer.stdout, answer.label)
    messages += last_lines(answer.stderr)
    with parsing(f"the output of {answer.label}"):
        rows = [as_dict(row) for row in as_list(value["jobs"] if "jobs" in value else value["client_stats"])]
        single = [row for row in rows if row.get("jobname") != "All clients"]
        if not single:
            raise ParseError(f"{answer.label} reported no job")
        stamp = value.get("timestamp_ms")
        return FioOutput(
            jobs=tuple(single),
            timestamp_ms=None if stamp is None else as_int(stamp),
            messages=tuple(messages),
        )


def check(answer: RawAnswer) -> None:
    """Raise ToolError when fio failed so that there is no number: a crash, no JSON, or an error and no I/O."""
    if answer.exit_code == 0:
        return
    hint = "try the command by hand: `bathy bench run` with the same options and --dry-run prints it"
    try:
        output = read_output(answer)
        moved = any(as_int(as_dict(job[name])["total_ios"]) > 0 for job in output.jobs for name in DIRECTIONS)
    except (ParseError, KeyError, TypeError, ValueError):
        said = [*last_lines(answer.stdout), *last_lines(answer.stderr)]
        lines = [line for line in said if not line.startswith(("{", '"'))]
        ended = f"was ended by signal {-answer.exit_code}" if answer.exit_code < 0 else f"failed ({answer.exit_code})"
        raise ToolError(f"fio {ended}: {' | '.join(lines[-2:])[:300] or 'no message'}", hint=hint) from None
    if not moved:
        text = " | ".join(output.messages[-2:])[:300] or "no message"
        raise ToolError(f"fio failed ({answer.exit_code}) without one I/O: {text}", hint=hint)


def parse(
    answer: RawAnswer, *, step_index: int, client: str, expected: Sequence[str] = (), own_cpu: bool = False
) -> LoadTables:
    """Return what one fio process reported.

    `client` names it in the rows (several jobs in one process get a suffix). `expected` directions get a result
    row even when nothing moved. `own_cpu`: the job thread does all the work, so its CPU is the load's.
    Raises ParseError.
    """
    output = read_output(answer)
    results: list[Result] = []
    buckets: list[tuple[str, str, str, int, int]] = []
    with parsing(f"the output of {answer.label}"):
        for index, job in enumerate(output.jobs):
            name = client if len(output.jobs) == 1 else f"{client}.{index}"
            for direction in DIRECTIONS:
                side = as_dict(job[direction])
                if as_int(side["total_ios"]) == 0 and direction not in expected:
                    continue
                results.append(_result(step_index, name, direction, job, answer.exit_code, own_cpu=own_cpu))
                buckets += [(name, direction, *bucket) for bucket in _buckets(side)]
        window_ns = max([r.runtime_ns for r in results], default=0)
        series = _own_lines(read_series(answer.files), answer)
        clock = _clock(answer, output, series, window_ns // 1_000_000)
        tables = {
            Result: to_table(Result, results),
            Interval: intervals(step_index, client, series, clock),
            Histogram: _histograms(step_index, buckets),
        }
        start_ns = clock.start_ms * 1_000_000 or _ended_ms(answer, output) * 1_000_000 - window_ns
    return LoadTables(tables, start_ns, start_ns + window_ns)


def _result(
    step_index: int, client: str, direction: str, job: dict[str, Any], exit_code: int, *, own_cpu: bool
) -> Result:
    """Return the totals of one direction of one job."""
    side = as_dict(job[direction])
    latency = as_dict(side["lat_ns"])
    counted = as_int(latency.get("N", side["total_ios"])) > 0
    failed = as_int(job.get("total_err", 0)) or (1 if as_int(job.get("error", 0)) or exit_code != 0 else 0)
    cpu_s = as_int(job.get("job_runtime", 0)) / 1000 / 100

    def figure(name: str) -> float | None:
        return as_float(latency[name]) if counted else None

    # fio counts I/Os from their start and bytes from their end: after a ramp, the bytes of those that were in flight at
    # its end come on top, a queue depth of them, which were partly moved before the measured window.
    io_count, io_bytes = as_int(side["total_ios"]), as_int(side["io_bytes"])
    block = str(as_dict(job.get("job options", {})).get("bs", ""))
    own_bytes = min(io_bytes, io_count * int(block)) if block.isdecimal() else io_bytes
    return Result(
        step_index=step_index,
        client=client,
        direction=direction,
        io_count=io_count,
        io_bytes=own_bytes,
        error_count=failed,
        runtime_ns=as_int(side["runtime"]) * 1_000_000,
        iops=as_float(side["iops"]),
        bandwidth_bytes_per_s=as_float(side["bw_bytes"]) * (own_bytes / io_bytes if io_bytes else 1.0),
        latency_ns_mean=figure("mean"),
        latency_ns_stddev=figure("stddev"),
        latency_ns_min=figure("min"),
        latency_ns_max=figure("max"),
        cpu_user_s=as_float(job["usr_cpu"]) * cpu_s if own_cpu else None,
        cpu_system_s=as_float(job["sys_cpu"]) * cpu_s if own_cpu else None,
        cpu_thread_s=(as_float(job["usr_cpu"]) + as_float(job["sys_cpu"])) * cpu_s,
    )


def _buckets(side: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return (kind, value in ns, count) of the buckets of the three latencies that hold anything."""
    buckets = []
    for kind in _KINDS:
        bins = as_dict(as_dict(side.get(f"{kind}_ns", {})).get("bins", {}))
        buckets += [(kind, as_int(value), as_int(count)) for value, count in bins.items()]
    return [bucket for bucket in buckets if bucket[2] > 0]


def _histograms(step_index: int, buckets: Sequence[tuple[str, str, str, int, int]]) -> pa.Table:
    """Return the table of (client, direction, kind, value in ns, count)."""
    names = ("client", "direction", "kind", "bucket_ns", "count")
    columns = {name: [bucket[index] for bucket in buckets] for index, name in enumerate(names)}
    return build_table(Histogram, {"step_index": step_index, **columns})


def _own_lines(series: Series, answer: RawAnswer) -> Series:
    """Return the log lines of this process. fio appends to a log that exists, so an earlier one's may be there.

    A remote server's clock is not ours; its logs are sent whole and written anew by our side.
    """
    first_ms = first_end_ms(series)
    if first_ms is None or first_ms < EPOCH_MS or any(word.startswith("--client=") for word in answer.argv):
        return series
    # A second of grace: fio rounds the end of the last interval.
    from_ms, to_ms = answer.started_ns // 1_000_000, answer.ended_ns // 1_000_000 + 1000
    return {key: [line for line in lines if from_ms <= line[0] <= to_ms] for key, lines in series.items()}


def _clock(answer: RawAnswer, output: FioOutput, series: Series, window_ms: int) -> LogClock:
    """Return how to read the times of the logs, and thereby when the measured window began.

    With absolute times the first interval ends one length after the start. But intervals without an I/O have no
    line, and a line is written by the first I/O that ends after its interval, so the window cannot have begun later
    than its length before the last latencies, which fio writes when the job ends (within 1 ms of `job_start`, which
    only 3.39 and later print), or before fio wrote its JSON. Times that are not absolute count from the start of the
    window themselves.
    """
    options = as_dict(output.jobs[0].get("job options", {}))
    length_ms = as_int(options["log_avg_msec"]) if "log_avg_msec" in options else usual_length_ms(series)
    first_ms = first_end_ms(series)
    if first_ms is None or first_ms < EPOCH_MS:
        return LogClock(0, length_ms)
    ended_ms = min(_ended_ms(answer, output), last_latency_ms(series) or EPOCH_MS**2)
    latest_ms = ended_ms - window_ms
    return LogClock(min(first_ms - length_ms, max(latest_ms, answer.started_ns // 1_000_000)), length_ms)


def _ended_ms(answer: RawAnswer, output: FioOutput) -> int:
    """Return when the load ended: fio's own time stamp, right after the last I/O, or when its process had ended."""
    return output.timestamp_ms if output.timestamp_ms is not None else answer.ended_ns // 1_000_000
