"""`bathy cache`: an SSD as a cache over directories, such as the data directories of OSDs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bathyscope.commands import cache_plan, cache_reports, cache_source, cache_ssd
from bathyscope.commands.options import CacheArgument, CacheRootOption, OutputOption
from bathyscope.commands.talk import say, status_line
from bathyscope.errors import BathyscopeError, CacheDownError, CacheError, ParseError, UntrustedError, UsageError
from bathyscope.units import format_bytes, format_line_size, parse_some_bytes

if TYPE_CHECKING:
    from bathyscope.cache.config import CacheConfig, Places
    from bathyscope.cache.daemon import Daemon

_HELP = """Accelerate directories in place, such as the data directories of OSDs, with an SSD (or a file) as a cache.

A daemon mounts over each directory. What is below stays byte for byte what applications wrote: stop the cache, and \
the plain, complete directory is there. Writes are acknowledged when the directory below has them.
"""
_RELEASE_HELP = """Make the directories of a cache whose daemon cannot run plain ones, as bathyd-release@ does.

Nothing in them changes, and OSDs can run on them without the cache. At its next start the cache drops or compares \
what may have been changed meanwhile.
"""
_GROUP_EXAMPLES = """Examples:

\b
  bathy cache create fast /dev/disk/by-id/nvme-…-part1
  bathy cache source create osd3 /var/lib/ceph/osd/ceph-3 --cache fast
  bathy cache start fast
  bathy cache status
"""
_CREATE_EXAMPLES = """Examples:

\b
  bathy cache create fast /dev/disk/by-id/nvme-…-part1
  bathy cache create fast /srv/cache.img --size 40G    a new file of 40 GiB
  bathy cache create fast /dev/sdx --line-size 256K    what `bathy cache plan` found best
  bathy cache create fast /dev/sdx --force             what it held is lost
"""
# ceph-volume fills the directories of BlueStore OSDs at each start of a machine, side by side with the caches' start.
_ACTIVATION_LIMIT_S = 120.0


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    group = typer.Typer(no_args_is_help=True, help=_HELP, epilog=_GROUP_EXAMPLES)
    group.command("create", epilog=_CREATE_EXAMPLES)(create)
    group.command("list", epilog="Example: bathy cache list --output json")(list_)
    group.command("delete", epilog="Example: bathy cache delete fast --yes")(delete)
    group.command("run", epilog="Example: bathy cache run fast")(run)
    group.command("start", epilog="Example: bathy cache start fast")(start)
    group.command("stop", epilog="Example: bathy cache stop fast")(stop)
    group.command("release", help=_RELEASE_HELP, epilog="Example: bathy cache release fast --start-osds")(release)
    group.command("plan", help=cache_plan.PLAN_HELP, epilog=cache_plan.PLAN_EXAMPLES)(cache_plan.plan)
    cache_ssd.add_to(group)
    cache_source.add_to(group)
    cache_reports.add_to(group)
    app.add_typer(group, name="cache")


def create(  # noqa: PLR0917 - one parameter for each option
    name: CacheArgument,
    ssd: Annotated[Path, typer.Argument(metavar="DEVICE|FILE", help="The SSD; a file that is not there is made.")],
    size: Annotated[str | None, typer.Option(help="Use so much of it; default: all. A new file needs it.")] = None,
    line_size: Annotated[
        str | None,
        typer.Option(help="Size of a cache line: 16K, 64K or 256K; default: 64K. It cannot be changed later."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Which lines stay: s3-fifo, clock2q+ or lru; default: s3-fifo.")
    ] = None,
    fetch: Annotated[
        str | None,
        typer.Option(help="What a miss fetches: adaptive, or blocks of 4K to the line size; default: adaptive."),
    ] = None,
    admission: Annotated[
        str | None,
        typer.Option(
            help="What may enter: all, 2-hit, budget:50G (a day), bypass:1M (longer runs go past), write-bypass:1M "
            "(of writes alone); joined by +; in place of the default: write-bypass."
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory that its daemon may take: 8G; default: the smaller of 4G and a quarter of the machine's, in "
            "steps of 64M. A cache that needs more is refused."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Even if it holds something: that is lost.")] = False,
    root: CacheRootOption = Path("/"),
) -> None:
    """Make a cache. It has no sources yet: bathy cache source create."""
    from bathyscope.cache import ssd as ssds
    from bathyscope.cache.config import Places, check_name
    from bathyscope.host.local import LocalHost
    from bathyscope.spec.cache import DEFAULT_LINE_BYTES, CacheSettings
    from bathyscope.spec.values import checked

    check_name(name, "cache")
    size_bytes = None if size is None else parse_some_bytes("--size", size, hint="--size 40G")
    settings = checked(CacheSettings, line_bytes=line_size, policy=policy, fetch=fetch, admission=admission)
    places = Places(root)
    with places.changing():
        configs = [*places.load_all(say).values()]
        path = ssds.checked_place(ssd, size_bytes, configs)
        config = places.new(name, str(path), **settings.document(), **_memory(memory))
        places.add(config)
        try:
            created = ssds.create(LocalHost(), places.config(name), path, size_bytes, force=force)
        except BaseException:
            places.remove(name)
            raise
    room = f" of {format_bytes(created['capacity_bytes'])}" if created.get("capacity_bytes") else ""
    lines = format_line_size(settings.line_bytes or DEFAULT_LINE_BYTES)
    say(f"the cache '{name}'{room} with {lines} lines is on {path}; configuration: {places.config(name)}")
    say(f"accelerate a directory: bathy cache source create NAME DIR --cache {name}")


def _memory(text: str | None) -> dict[str, int]:
    """Return the setting of the configuration. Raises UsageError."""
    if text is None:
        return {}
    return {"memory_bytes": parse_some_bytes("--memory", text, hint="leave it out for the default")}


def list_(root: CacheRootOption = Path("/"), output: OutputOption = "table") -> None:
    """List the caches of this machine."""
    from bathyscope import views
    from bathyscope.cache.config import Places

    places = Places(root)
    rows = [_row(places, name) for name in places.names()]
    if not rows and output == "table":
        say("no caches; make one: bathy cache create NAME DEVICE")
        return
    views.render(rows, output, columns=("name", "state", "sources", "line", "ssd"))


def _row(places: Places, name: str) -> dict[str, Any]:
    from bathyscope.cache import directory

    row: dict[str, Any] = {"name": name}
    daemon, unusable = _daemon(places, name), None
    try:
        # As bathyd does: a source that is not understood is not served, and the others are.
        config = places.load(name)
        row |= {"sources": len(config.sources) + len(config.unread), "line": format_line_size(config.line_bytes)}
        row |= {"ssd": config.ssd}
    except BathyscopeError as error:
        unusable = error.message
    try:
        if daemon.is_up():
            return row | {"state": "running" if unusable is None else f"running, cannot be started again: {unusable}"}
    except BathyscopeError as error:
        unusable = error.message
    if unusable is not None:
        return row | {"state": f"unusable: {unusable}"}
    problem = directory.problem_of(daemon)
    return row | {"state": "stopped" if problem is None else f"killed: {problem.message}"}


def delete(
    name: CacheArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    root: CacheRootOption = Path("/"),
) -> None:
    """Delete a cache that is stopped. Its sources are plain directories; what the SSD holds is left as it is."""
    from bathyscope.cache import directory
    from bathyscope.cache.config import Places

    places = Places(root)
    with places.changing():
        served, ssd, _ = _configured(places, name)
        daemon = _daemon(places, name)
        if daemon.is_up():
            raise CacheError(f"the cache '{name}' is running", hint=f"stop it first: bathy cache stop {name}")
        for path in served:
            directory.must_not_be_dead(path, name, daemon.host)
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError(f"nobody can be asked whether to delete '{name}'", hint="say --yes")
            typer.confirm(f"delete the cache '{name}' with {len(served)} sources?", abort=True, err=True)
        for path in served:
            cache_source.remove_drop_in(places, daemon, path)
        places.remove(name)
    say(f"the cache '{name}' is deleted; {ssd} still has its data: it can be used again with --force")


def _configured(places: Places, name: str) -> tuple[list[str], str, bool]:
    """Return the directories and the SSD of a cache, and whether it notices changes past it.

    Where not all of a configuration is understood, the directories that its daemon has served are returned as well:
    what is damaged need not say them. Those of other caches are left to these.
    """
    try:
        config = places.load(name, say)
    except (ParseError, UntrustedError) as error:
        say(error.message)
        return places.served_before(name), "its SSD", not places.may_trust_changes(name)
    directories = config.directories
    if config.unread:
        others, understood = places.directories_of_others(name), {source.directory for source in config.sources}
        directories = [path for path in directories if path in understood or path not in others]
        directories += places.served_before(name)
    return [*dict.fromkeys(directories)], config.ssd, config.notices_changes


def run(name: CacheArgument, root: CacheRootOption = Path("/")) -> None:
    """Serve a cache in the foreground until SIGTERM: what the systemd unit calls."""
    from bathyscope.cache import daemon as daemons
    from bathyscope.cache import osd_units
    from bathyscope.cache.config import Places

    places = Places(root)
    config = places.load(name, say)
    daemon = _daemon(places, name)
    if daemon.is_up():
        raise CacheError(f"the cache '{name}' is running already", hint=f"bathy cache status {name}")
    # OSDs wait for the cache as this version has it. What keeps that from being written keeps nobody else.
    directories = [source.directory for source in config.sources]
    for error in osd_units.renew_drop_ins(
        places, daemon.host, name, directories, say, notices_changes=config.notices_changes
    ):
        say(error.message)
    _wait_for_activation(config, daemon)
    places.make_directories(name)
    argv = daemons.command(places.config(name))
    os.execv(argv[0], argv)  # noqa: S606 - signals, readiness and exit code are the daemon's own


def _wait_for_activation(config: CacheConfig, daemon: Daemon) -> None:
    from bathyscope.cache import directory

    deadline_ns = daemon.host.monotonic_ns() + _ACTIVATION_LIMIT_S * 1e9
    while missing := directory.not_activated(config, daemon.host):
        if daemon.host.monotonic_ns() > deadline_ns:
            # bathyd serves the others, and says of these why it does not.
            for source in missing:
                say(
                    f"{source.directory}: ceph-volume has not activated the OSD within {_ACTIVATION_LIMIT_S:.0f} s; "
                    f"if it is gone for good: bathy cache source delete {source.name} --cache {config.name}"
                )
            return
        daemon.host.sleep(0.5)


def start(name: CacheArgument, root: CacheRootOption = Path("/")) -> None:
    """Start a cache: by systemd where its unit is installed, else as a process in the background."""
    from bathyscope.cache import directory
    from bathyscope.cache.config import Places
    from bathyscope.cache.snapshots import is_served

    places = Places(root)
    # bathyd says of a source that it does not understand that it is not served.
    config = places.load(name)
    daemon = _daemon(places, name)
    if not daemon.is_up():
        for source in config.sources:
            directory.must_not_be_open(source.directory)
    with status_line() as show:
        daemon.start(show)
    unserved = {entry["dir"]: entry for entry in daemon.status()["sources"] if not is_served(entry)}
    served = [source.directory for source in config.sources if source.directory not in unserved]
    say(f"the cache '{name}' serves {', '.join(served) or 'no directory yet'}")
    for entry in unserved.values():
        say(f"not served: {entry.get('problem')}; {entry.get('hint')}")
    if unserved:
        raise typer.Exit(2)


def stop(
    name: CacheArgument,
    force: Annotated[bool, typer.Option("--force", help="Do not wait until open files are closed.")] = False,
    root: CacheRootOption = Path("/"),
) -> None:
    """Stop a cache: its directories are plain ones again, and it is warm at its next start.

    Where systemd runs it, its OSDs are stopped with it (PartOf=): start them again afterwards.
    """
    from bathyscope.cache import directory
    from bathyscope.cache.config import Places

    places = Places(root)
    daemon = _daemon(places, name)
    try:
        places.load(name, say)
    except (ParseError, UntrustedError) as error:
        # What runs is stopped whatever became of its configuration.
        say(error.message)
    except UsageError:
        if not daemon.is_up():
            raise
    with status_line() as show:
        try:
            daemon.stop(show, force=force)
        except CacheDownError as error:
            raise (directory.problem_of(daemon) or error) from None
    say(f"the cache '{name}' is stopped")


def release(
    name: CacheArgument,
    start_osds: Annotated[bool, typer.Option("--start-osds", help="Start the OSDs of the directories.")] = False,
    root: CacheRootOption = Path("/"),
) -> None:
    """See _RELEASE_HELP."""
    from bathyscope.cache import directory, osd_units
    from bathyscope.cache.config import Places

    places = Places(root)
    with places.changing():
        served, _, notices_changes = _configured(places, name)
        daemon = _daemon(places, name)
        if daemon.is_up():
            raise CacheError(f"the cache '{name}' is running", hint=f"stop it: bathy cache stop {name}")
        if not notices_changes:
            hint = f'start it: bathy cache start {name}; or remove "after_unclean" from {places.config(name)} first'
            raise CacheError(f"the cache '{name}' would not notice what is written past it (after_unclean)", hint=hint)
        # The trouble of one directory must not keep the OSDs of the others down, nor one step the next of the same.
        unreleased = directory.release(served, name, daemon.host)
        failures: list[BathyscopeError] = [*unreleased.values()]
        plain = [path for path in served if path not in unreleased]
        for one in plain:
            say(f"NOT CACHED: {one} is a plain directory, since the daemon of the cache '{name}' cannot run")
        # With a drop-in of an earlier version the OSD would require the unit that has failed.
        failures += osd_units.renew_drop_ins(places, daemon.host, name, plain, say, notices_changes=notices_changes)
        for osd in [osd for osd in map(osd_units.osd_of, plain) if osd is not None and start_osds]:
            try:
                osd_units.start_osd(osd, daemon.host)
            except BathyscopeError as error:
                failures.append(error)
        if failures:
            raise CacheError("; ".join(error.message for error in failures), hint=failures[0].hint)
    say(f"when the cause is mended: bathy cache start {name}, with its OSDs stopped; its log: {daemon.log_hint()}")


def _daemon(places: Places, name: str) -> Daemon:
    from bathyscope.cache.daemon import Daemon
    from bathyscope.host.local import LocalHost

    return Daemon(LocalHost(), places, name)
