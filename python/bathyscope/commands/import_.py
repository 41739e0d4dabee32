"""`bathy import`: runs made of what others recorded."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bathyscope.commands.options import OutputOption, WorkspaceOption
from bathyscope.commands.talk import progress_bar, say
from bathyscope.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from bathyscope.osd_log import OsdLogReport, OsdLogs
    from bathyscope.store import RunDirectory

SEGMENT_OPS = 1_000_000
"""A segment ends after the batch with which it has as many operations."""

_BAR_AFTER_S = 2.0
_EPOCH, _MICROSECOND = datetime.datetime.fromtimestamp(0, tz=datetime.UTC), datetime.timedelta(microseconds=1)

_HELP = """Make a run of the operations in OSD logs, and show the busiest images of each OSD.

FILE: logs of one or more OSDs, plain or compressed (.gz .xz .zst), with their rotated parts in any order. They must \
have been written at debug_osd 15 (all about an operation in one line; latencies to the microsecond) or at debug_ms 1 \
(cheaper; latencies are as coarse as the times in the log, 1 to 4 ms). An operation that is logged at both levels \
counts once. `bathy runs sql` asks the run for more, and `bathy size` sizes a cache for it.

Images are shown by their ids (`rbd info` shows the id of an image at block_name_prefix); all other objects of a pool \
are one line without an id. Bytes and latencies are those of operations that succeeded; the p99 is from a histogram \
with buckets of 1 %.
"""

_EXAMPLES = """Examples:

\b
  ceph tell osd.3 config set debug_ms 1; sleep 30; ceph tell osd.3 config unset debug_ms
  bathy import osd-log /var/log/ceph/ceph-osd.3.log
  bathy import osd-log ceph-osd.*.log* --since 2026-11-21T14:00 --until 2026-11-21T15:00
  journalctl -o short-iso-precise -u ceph-osd@3 > osd.3.txt; bathy import osd-log osd.3.txt --output csv
"""

_COLUMNS = ("osd", "pool", "image_id", "op", "count", "size_bytes", "mean_ns", "p99_ns", "failed")

# Memory holds a bucket and not an operation each, as a log may have hundreds of millions.
_BUSIEST = """
    WITH buckets AS (
        SELECT osd, pool_id, coalesce(image_id, '') AS image_id, op, coalesce(result, 0) >= 0 AS good,
               CASE WHEN good THEN ceil(ln(greatest(duration_ns, 1)) / ln(1.01)) END AS bucket,
               count(*) AS n, coalesce(sum(length_bytes), 0) AS size, sum(duration_ns) AS ns,
               max(duration_ns) AS greatest_ns
        FROM op GROUP BY ALL
    ), counted AS (
        SELECT *, sum(CASE WHEN good THEN n END) OVER (line ORDER BY bucket) AS below,
               sum(CASE WHEN good THEN n END) OVER line AS good_n
        FROM buckets WINDOW line AS (PARTITION BY osd, pool_id, image_id, op)
    )
    SELECT osd, pool_id AS pool, image_id, op, CAST(sum(n) AS BIGINT) AS count,
           CAST(coalesce(sum(size) FILTER (WHERE good), 0) AS BIGINT) AS size_bytes,
           CAST(round(sum(ns) FILTER (WHERE good) / sum(n) FILTER (WHERE good)) AS BIGINT) AS mean_ns,
           min(greatest_ns) FILTER (WHERE good AND below >= 0.99 * good_n) AS p99_ns,
           CAST(coalesce(sum(n) FILTER (WHERE NOT good), 0) AS BIGINT) AS failed
    FROM counted GROUP BY osd, pool_id, image_id, op
    ORDER BY count DESC, size_bytes DESC, osd, pool, image_id, op
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    group = typer.Typer(no_args_is_help=True, help="Make runs of what others recorded.")
    group.command("osd-log", help=_HELP, epilog=_EXAMPLES, no_args_is_help=True)(osd_log)
    app.add_typer(group, name="import")


def osd_log(  # noqa: PLR0917 - one parameter for each option
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", show_default=False)],
    osd: Annotated[
        int | None, typer.Option(min=0, help="OSD that wrote the logs. Default: as the lines or the file names say.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only operations that began then or later: 2026-11-21T14:00, in UTC.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only operations that began before.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many lines are shown.")] = 20,
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
) -> None:
    """See _HELP."""
    from bathyscope import views
    from bathyscope.osd_log import OsdLogs
    from bathyscope.store import Workspace, duck

    paths = [path.expanduser() for path in files]
    for path in paths:
        if not path.is_file():
            problem = f"{path} is not a file" if path.exists() else f"there is no log file {path}"
            raise UsageError(problem, hint="give logs of OSDs: /var/log/ceph/ceph-osd.3.log")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a log is given twice", hint="its operations would count twice")
    logs = OsdLogs(paths, osd=osd, since_ns=_moment_ns("--since", since), until_ns=_moment_ns("--until", until))
    started_ns = time.time_ns()
    with _operations(logs) as tables:
        first = next(tables, None)
        if first is None:
            raise _nothing_found(logs.report)
        names = [str(path.absolute()) for path in paths]
        title = paths[0].name if len(paths) == 1 else f"{paths[0].name} and {len(paths) - 1} more"
        run = Workspace(workspace).create_run(
            kind="collect", name=title, started_ns=started_ns, context={"imported_from": names}
        )
        with run:
            _write(run, itertools.chain([first], tables))
            run.update(status="done", ended_ns=time.time_ns())
    _tell(run.id, logs.report)
    rows = duck.query([run], f"{_BUSIEST} LIMIT {top}").to_pylist()
    # Where nothing failed, 80 columns do without saying so.
    without_failed = output == "table" and not any(row["failed"] for row in rows)
    views.render(rows, output, columns=_COLUMNS[:-1] if without_failed else _COLUMNS)


def _moment_ns(option: str, text: str | None) -> int | None:
    """Return a moment in ns since the Unix epoch; without a zone it is UTC, as it is in logs. Raises UsageError."""
    if text is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{option} must be a time (got '{text}')", hint="2026-11-21T14:00 or 2026-11-21T15:00+01:00"
        ) from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
    return max(0, (moment - _EPOCH) // _MICROSECOND * 1000)


@contextlib.contextmanager
def _operations(logs: OsdLogs) -> Iterator[Iterator[pa.Table]]:
    """Give the tables that have operations, with a progress bar on a terminal when it takes longer."""
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(), TextColumn("{task.percentage:3.0f}%"), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
    )  # fmt: skip
    with progress_bar(*columns) as bar:

        def tables() -> Iterator[pa.Table]:
            started, task = time.monotonic(), None
            for table in logs.tables():
                if table.num_rows:
                    yield table
                seconds = time.monotonic() - started
                if bar is None or seconds < _BAR_AFTER_S:
                    continue
                report = logs.report
                task = bar.add_task("", total=logs.size_bytes, rate="") if task is None else task
                bar.update(task, completed=report.file_bytes_read, rate=f"{report.bytes_read / seconds / 1e6:.0f} MB/s")

        yield tables()


def _write(run: RunDirectory, tables: Iterator[pa.Table]) -> None:
    """Write the operations as segments of a bounded size."""
    from bathyscope.records import Op

    for number in itertools.count():
        table = next(tables, None)
        if table is None:
            return
        with run.begin_segment(f"import-{number:05d}") as segment:
            rows = 0
            while table is not None:
                segment.table(Op, table)
                rows += table.num_rows
                table = next(tables, None) if rows < SEGMENT_OPS else None
            segment.commit()


def _nothing_found(report: OsdLogReport) -> UsageError:
    if report.ops_outside:
        return UsageError(f"all {report.ops_outside:,} operations began before --since, or at --until and later")
    if report.lines_bad:
        return UsageError(f"no operation can be read: {report.first_errors[0]}")
    return UsageError(
        "the logs hold no operations of clients",
        hint="they are logged after `ceph tell osd.N config set debug_ms 1`, or `debug_osd 15`",
    )


def _tell(run_id: str, report: OsdLogReport) -> None:
    """Say what was read, how it was counted, and what was left out."""
    of_replies = report.ops - report.ops_of_stats
    if not of_replies:
        source = "from log_op_stats lines (debug_osd 15)"
    elif not report.ops_of_stats:
        source = "from requests and their replies (debug_ms 1); their latencies are as coarse as the times in the log"
    else:
        source = f"{report.ops_of_stats:,} from log_op_stats lines, {of_replies:,} from replies to requests without one"
    say(f"run {run_id}: {report.ops:,} operations, {source}")
    if report.replies_left_out and not report.ops_of_stats:
        say(f"{report.replies_left_out:,} replies are left out: their requests came before the log")
    if report.ops_outside:
        say(f"{report.ops_outside:,} operations are left out by --since and --until")
    if report.requests_forgotten:
        say(f"{report.requests_forgotten:,} requests are left out: too many waited for their reply")
    if report.lines_bad:
        say(f"{report.lines_bad:,} lines cannot be read and are left out, the first: {report.first_errors[0]}")
