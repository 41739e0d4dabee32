"""`bathy cache status|io|usage|iops|stats|files|objects|curve|metrics`: what the daemons of caches report."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bathyscope.commands.options import (
    CacheRootOption,
    ClientOption,
    ConfOption,
    KeyringOption,
    LabOption,
    Output,
    OutputOption,
    TableOption,
    WorkspaceOption,
)
from bathyscope.commands.talk import say
from bathyscope.errors import BathyscopeError, UsageError
from bathyscope.units import parse_seconds

if TYPE_CHECKING:
    from bathyscope.cache.config import Places
    from bathyscope.cache.daemon import Daemon
    from bathyscope.cache.reports import Name
    from bathyscope.cache.snapshots import Snapshot
    from bathyscope.cache.top_objects import Kind
    from bathyscope.records.activity_finding import ActivityFinding

_METRICS_EXAMPLES = """Examples:

\b
  bathy cache metrics                          once, to stdout: for node_exporter's textfile collector
  bathy cache metrics --listen 127.0.0.1:9780  serve http://127.0.0.1:9780/metrics until interrupted
"""
Cache = Annotated[str | None, typer.Argument(metavar="CACHE", help="A cache; default: all.")]
SourceOption = Annotated[str | None, typer.Option("--source", metavar="NAME", help="This source only.")]
Watch = Annotated[bool, typer.Option("--watch", help="Print the rates of each interval until interrupted.")]
WatchList = Annotated[
    bool, typer.Option("--watch", help="Print the report again after each interval until interrupted.")
]
Interval = Annotated[str, typer.Option(help="Time between the lines of --watch: 1s to 60s.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="So many of each source.")]
# An OSD's directory has some twenty files, of which its device need not be among the busiest.
_FILES_OF_AN_OSD = 64
_CLEAR = "\x1b[H\x1b[2J"

_REPORTS: dict[Name, str] = {
    "status": "Show caches and their sources: what is served, how full, how often reads are hits.",
    "io": "Show bytes read from and written to the cache and the directory below, by source.",
    "usage": "Show how much of the cache each source uses, and the files that are cached.",
    "iops": "Show operations, bytes and latencies of the cache and of the directory below, by source.",
    "stats": "Show files, segments (cache lines), hits and misses of reads, writes, attributes and links.",
}
_OBJECTS_HELP = """Show the Ceph objects with the most requests, their RBD images, and what is cached of them.

On FileStore OSDs a file is an object. For BlueStore OSDs name a run with operations: --recording RUN (bathy collect \
--depth deep). OSDs of Ceph 20 or later are then asked where its busiest objects lie on their devices, for which the \
key needs osd 'allow *'; nothing is changed. Snapshots, namespaces and erasure-coded pools are not shown there, and \
there is no --watch.
"""
_OBJECTS_EXAMPLES = """Examples:

\b
  bathy cache objects fast --source ceph0 --limit 20   FileStore
  bathy cache objects fast --recording last            BlueStore: objects of the newest run, which has operations
"""


def add_to(group: typer.Typer) -> None:
    """Attach the verbs."""
    for name, words in _REPORTS.items():
        group.command(name, help=words, epilog=f"Example: bathy cache {name} --watch --interval 5s")(_verb(name))
    group.command("files", epilog="Example: bathy cache files fast --source ceph0 --watch")(files)
    group.command("objects", help=_OBJECTS_HELP, epilog=_OBJECTS_EXAMPLES)(objects)
    group.command("curve", epilog="Example: bathy cache curve fast --source ceph0 --output csv")(curve)
    group.command("metrics", epilog=_METRICS_EXAMPLES)(metrics)


def _verb(name: Name) -> Callable[..., None]:
    def report(  # noqa: PLR0917 - one parameter for each option
        cache: Cache = None,
        source: SourceOption = None,
        watch: Watch = False,
        interval: Interval = "2s",
        root: CacheRootOption = Path("/"),
        output: OutputOption = "table",
        table: TableOption = None,
    ) -> None:
        _report(name, cache, source, parse_seconds(interval) if watch else None, root, output, table)

    return report


def _report(  # noqa: PLR0917 - what the options say
    name: Name,
    cache: str | None,
    source: str | None,
    interval_s: float | None,
    root: Path,
    output: Output,
    table: str | None,
) -> None:
    from bathyscope import views
    from bathyscope.cache.reports import report

    daemons = _daemons(root, cache)
    earlier: dict[str, Snapshot] = {}

    def finding_of(snapshots: list[Snapshot], remarks: list[str]) -> ActivityFinding | None:
        pairs = [(snapshot, earlier.get(snapshot.cache)) for snapshot in snapshots]
        # The first snapshot of a watch is where its first interval begins.
        is_beginning = interval_s is not None and not earlier
        earlier.update({snapshot.cache: snapshot for snapshot in snapshots})
        finding = report(name, pairs, source=source, remarks=remarks, as_one_table=output == "csv")
        if is_beginning:
            # A table that it has not is refused now.
            views.as_text(finding, output, table=table)
            return None
        return finding

    _show(daemons, cache, source, interval_s, output, finding_of, of_all=name == "status", table=table)


def _show(  # noqa: PLR0917 - what the options say
    daemons: list[Daemon],
    cache: str | None,
    source: str | None,
    interval_s: float | None,
    output: Output,
    finding_of: Callable[[list[Snapshot], list[str]], ActivityFinding | None],
    *,
    of_all: bool = False,
    table: str | None = None,
) -> None:
    """Print the finding of the daemons that are up, once or after each interval; a watch sees them come and go.

    `of_all`: those of caches that are down, too; the exit code is 1 if one of them, or of their sources, is not served.
    """
    from bathyscope import views
    from bathyscope.cache.states import sentence, snapshots_of, snapshots_of_all

    if interval_s is not None and not 1 <= interval_s <= 60:
        raise UsageError(f"--interval must be from 1s to 60s (got {interval_s:g} s)", hint="--interval 5s")
    is_first = True
    for turn in itertools.count():
        remarks: list[str] = []
        if of_all:
            snapshots = snapshots_of_all(daemons)
        else:
            snapshots, remarks = snapshots_of(daemons, may_be_down=cache is None or turn > 0, may_all_be_down=turn > 0)
        if turn == 0:
            _check_source(source, snapshots)
        finding = None
        try:
            finding = finding_of(snapshots, remarks) if snapshots else None
        except BathyscopeError as error:
            # It ended between two questions, or does not answer.
            if turn == 0:
                raise
            remarks.append(sentence(error))
        if interval_s is None:
            if finding is not None:
                views.render(finding, output, table=table)
            if of_all and not all(snapshot.is_served(source) for snapshot in snapshots):
                raise typer.Exit(1)
            return
        if finding is not None:
            _show_interval(finding, output, table, is_first=is_first)
            is_first = False
        elif remarks:
            say("\n".join(remarks))
        daemons[0].host.sleep(interval_s)


def _show_interval(finding: ActivityFinding, output: Output, table: str | None, *, is_first: bool) -> None:
    """Print an interval of a watch: a terminal shows the last one, CSV has one heading and the time of each row."""
    from bathyscope import views
    from bathyscope.cache.reports import with_time

    if output == "csv":
        text = views.as_text(with_time(finding), "csv", table=table)
        sys.stdout.write(text if is_first else text.partition("\n")[2])
    else:
        if output == "table" and sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        views.render(finding, output, table=table)
    sys.stdout.flush()


def files(  # noqa: PLR0917 - one parameter for each option
    cache: Cache = None,
    source: SourceOption = None,
    limit: Limit = 20,
    watch: WatchList = False,
    interval: Interval = "2s",
    root: CacheRootOption = Path("/"),
    output: OutputOption = "table",
) -> None:
    """Show the files with the most requests: reads, hits, what is cached of them, when they were used last."""
    _top_objects("files", cache, source, limit, parse_seconds(interval) if watch else None, root, output)


def objects(  # noqa: PLR0917 - one parameter for each option
    cache: Cache = None,
    source: SourceOption = None,
    limit: Limit = 20,
    watch: WatchList = False,
    interval: Interval = "2s",
    recording: Annotated[
        str | None,
        typer.Option(metavar="RUN", help='For BlueStore: a run with operations: its id, its path, or "last".'),
    ] = None,
    workspace: WorkspaceOption = None,
    lab: LabOption = None,
    conf: ConfOption = None,
    client: ClientOption = None,
    keyring: KeyringOption = None,
    root: CacheRootOption = Path("/"),
    output: OutputOption = "table",
) -> None:
    """See _OBJECTS_HELP."""
    if recording is not None:
        from bathyscope import views
        from bathyscope.cache.states import snapshots_of
        from bathyscope.commands.cache_objects import cached_objects
        from bathyscope.commands.targets import find_target
        from bathyscope.store import Workspace

        if watch:
            raise UsageError("--watch is not for the objects of a recording", hint="leave --watch or --recording out")
        target = find_target(lab=lab, conf=conf, client=client, keyring=keyring)
        run = Workspace(workspace).open_run(recording)
        daemons = _daemons(root, cache)
        snapshots, remarks = snapshots_of(daemons, may_be_down=cache is None)
        _check_source(source, snapshots)
        answers = _asked(daemons, snapshots, query="files", limit=_FILES_OF_AN_OSD, **_only(source))
        up = [daemon for daemon in daemons if daemon.name in answers]
        views.render(cached_objects(up, answers, run, target, limit=limit, remarks=remarks), output)
    else:
        cluster = {"--workspace": workspace, "--lab": lab, "--conf": conf, "--client": client, "--keyring": keyring}
        if named := [name for name, value in cluster.items() if value is not None]:
            raise UsageError(f"{named[0]} is for --recording alone", hint="add --recording RUN, or leave it out")
        _top_objects("objects", cache, source, limit, parse_seconds(interval) if watch else None, root, output)


def _top_objects(  # noqa: PLR0917 - what the options say
    kind: Kind,
    cache: str | None,
    source: str | None,
    limit: int,
    interval_s: float | None,
    root: Path,
    output: Output,
) -> None:
    from bathyscope.cache.top_objects import top_objects

    daemons = _daemons(root, cache)

    def finding_of(snapshots: list[Snapshot], remarks: list[str]) -> ActivityFinding:
        answers = _asked(daemons, snapshots, query="files", limit=limit, **_only(source))
        return top_objects(kind, snapshots, answers, source=source, limit=limit, remarks=remarks)

    _show(daemons, cache, source, interval_s, output, finding_of)


def _only(source: str | None) -> dict[str, str]:
    return {} if source is None else {"source": source}


def _asked(daemons: list[Daemon], snapshots: list[Snapshot], **question: Any) -> dict[str, dict[str, Any]]:
    """Return what the daemons that are up answer to a question, by the names of their caches."""
    up = {snapshot.cache for snapshot in snapshots}
    return {daemon.name: daemon.ask(**question) for daemon in daemons if daemon.name in up}


def curve(  # noqa: PLR0917 - one parameter for each option
    cache: Cache = None,
    source: SourceOption = None,
    watch: WatchList = False,
    interval: Interval = "2s",
    root: CacheRootOption = Path("/"),
    output: OutputOption = "table",
) -> None:
    """Show what read hit ratio other sizes of a cache, and of each source alone, would give, by its own reads."""
    from bathyscope.cache.curves import curve as curve_of

    daemons = _daemons(root, cache)

    def finding_of(snapshots: list[Snapshot], remarks: list[str]) -> ActivityFinding:
        _check_source(source, snapshots)
        snapshots = [snapshot for snapshot in snapshots if source is None or source in snapshot.sources()]
        return curve_of(snapshots, _asked(daemons, snapshots, query="curve"), source=source, remarks=remarks)

    _show(daemons, cache, source, parse_seconds(interval) if watch else None, output, finding_of)


def metrics(
    cache: Cache = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="ADDRESS:PORT", help="Serve it over HTTP, without a password.")
    ] = None,
    root: CacheRootOption = Path("/"),
) -> None:
    """Print the counters of all reports as Prometheus text, or serve them."""
    from bathyscope.cache.curves import curves
    from bathyscope.cache.metrics import CONTENT_TYPE, exposition
    from bathyscope.cache.states import sentence, snapshots_of

    daemons = _daemons(root, cache)

    def text() -> str:
        snapshots, remarks = snapshots_of(daemons, may_be_down=True, may_all_be_down=True)
        curves_shown = []
        for daemon in daemons:
            try:
                for name, answer in _asked([daemon], snapshots, query="curve").items():
                    curves_shown += curves(name, answer)[0]
            except BathyscopeError as error:
                # It ended since, or is another version: what is known is shown.
                remarks.append(f"{daemon.name}: {sentence(error)}")
        if remarks and listen is None:
            say("\n".join(remarks))
        return exposition(snapshots, [daemon.name for daemon in daemons], curves_shown)

    if listen is None:
        sys.stdout.write(text())
        return
    from bathyscope.host.http_server import serve_text

    serve_text(listen, "/metrics", CONTENT_TYPE, text, note=say)


def _daemons(root: Path, cache: str | None) -> list[Daemon]:
    from bathyscope.cache.config import Places
    from bathyscope.cache.daemon import Daemon
    from bathyscope.host.local import LocalHost

    places = Places(root)
    host = LocalHost()
    daemons = [Daemon(host, places, name) for name in _names(places, cache)]
    if not daemons:
        raise UsageError("there is no cache on this machine", hint="make one: bathy cache create NAME DEVICE")
    return daemons


def _names(places: Places, cache: str | None) -> list[str]:
    if cache is None:
        return places.names()
    # An unknown name is an error of its own, and not a daemon that is down.
    return [places.check(cache)]


def _check_source(source: str | None, snapshots: list[Snapshot]) -> None:
    sources = sorted({name for snapshot in snapshots for name in snapshot.sources()})
    stopped = {name for snapshot in snapshots for name, _ in snapshot.stopped()}
    if source is not None and source not in {*sources, *stopped}:
        raise UsageError(f"no source '{source}' is served", hint=f"one of {', '.join(sources)}" if sources else None)
