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
from bathyscope.errors import BathyscopeError, CacheDownError, CacheError, UsageError
from bathyscope.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from bathyscope.cache.config import CacheConfig, Places
    from bathyscope.cache.daemon import Daemon

_HELP = """Accelerate directories in place, such as the data directories of OSDs, with an SSD (or a file) as a cache.

A daemon mounts over each directory. What is below stays byte for byte what applications wrote: stop the cache, and \
the plain, complete directory is there. Writes are acknowledged when the directory below has them.
"""
_CREATE_EXAMPLES = """Examples:

\b
  bathy cache create fast /dev/disk/by-id/nvme-…-part1
  bathy cache create fast /srv/cache.img --size 40G    a new file of 40 GiB
  bathy cache create fast /dev/sdx --force             what it held is lost
"""
# ceph-volume fills the directories of BlueStore OSDs at each start of a machine, side by side with the caches' start.
_ACTIVATION_LIMIT_S = 120.0


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    group.command("create", epilog=_CREATE_EXAMPLES)(create)
    group.command("list", epilog="Example: bathy cache list --output json")(list_)
    group.command("delete", epilog="Example: bathy cache delete fast --yes")(delete)
    group.command("run", epilog="Example: bathy cache run fast")(run)
    group.command("start", epilog="Example: bathy cache start fast")(start)
    group.command("stop", epilog="Example: bathy cache stop fast")(stop)
    group.command("plan", help=cache_plan.PLAN_HELP, epilog=cache_plan.PLAN_EXAMPLES)(cache_plan.plan)
    cache_ssd.add_to(group)
    cache_source.add_to(group)
    cache_reports.add_to(group)
    app.add_typer(group, name="cache")


def create(  # noqa: PLR0917 - one parameter for each option
    name: CacheArgument,
    ssd: Annotated[Path, typer.Argument(metavar="DEVICE|FILE", help="The SSD; a file that is not there is made.")],
    size: Annotated[str | None, typer.Option(help="Use so much of it; default: all. A new file needs it.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="Which lines stay: s3-fifo, clock2q+ or lru; default: s3-fifo.")
    ] = None,
    fetch: Annotated[
        str | None, typer.Option(help="What a miss fetches: adaptive, or blocks of 4K to 64K; default: adaptive.")
    ] = None,
    admission: Annotated[
        str | None,
        typer.Option(
            help="What may enter: all, 2-hit, budget:50G (a day), bypass:1M (longer runs go past), write-bypass:1M "
            "(of writes alone); joined by +; in place of the default: write-bypass."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Even if it holds something: that is lost.")] = False,
    root: CacheRootOption = Path("/"),
) -> None:
    """Make a cache. It has no sources yet: bathy cache source create."""
    from bathyscope.cache import ssd as ssds
    from bathyscope.cache.config import Places, check_name
    from bathyscope.host.local import LocalHost
    from bathyscope.spec.cache import CacheSettings
    from bathyscope.spec.values import checked

    check_name(name, "cache")
    size_bytes = None if size is None else parse_bytes(size)
    settings = checked(CacheSettings, policy=policy, fetch=fetch, admission=admission)
    places = Places(root)
    with places.changing():
        configs = [*places.load_all(say).values()]
        path = ssds.checked_place(ssd, size_bytes, configs)
        config = places.new(name, str(path), **settings.document())
        places.add(config)
        try:
            created = ssds.create(LocalHost(), places.config(name), path, size_bytes, force=force)
        except BaseException:
            places.remove(name)
            raise
    room = f" of {format_bytes(created['capacity_bytes'])}" if created.get("capacity_bytes") else ""
    say(f"the cache '{name}'{room} is on {path}; configuration: {places.config(name)}")
    say(f"accelerate a directory: bathy cache source create NAME DIR --cache {name}")


def list_(root: CacheRootOption = Path("/"), output: OutputOption = "table") -> None:
    """List the caches of this machine."""
    from bathyscope import views
    from bathyscope.cache.config import Places

    places = Places(root)
    rows = [_row(places, name) for name in places.names()]
    if not rows and output == "table":
        say("no caches; make one: bathy cache create NAME DEVICE")
        return
    views.render(rows, output, columns=("name", "state", "sources", "ssd"))


def _row(places: Places, name: str) -> dict[str, Any]:
    from bathyscope.cache import directory

    row: dict[str, Any] = {"name": name}
    try:
        config = places.load(name)
        row |= {"sources": len(config.sources), "ssd": config.ssd}
        daemon = _daemon(places, name)
        if daemon.is_up():
            return row | {"state": "running"}
        problem = directory.problem_of(daemon)
        return row | {"state": "stopped" if problem is None else f"killed: {problem.message}"}
    except BathyscopeError as error:
        return row | {"state": f"unusable: {error.message}"}


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
        config = places.load(name)
        daemon = _daemon(places, name)
        if daemon.is_up():
            raise CacheError(f"the cache '{name}' is running", hint=f"stop it first: bathy cache stop {name}")
        for source in config.sources:
            directory.must_not_be_dead(source.directory, name, daemon.host)
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError(f"nobody can be asked whether to delete '{name}'", hint="say --yes")
            typer.confirm(f"delete the cache '{name}' with {len(config.sources)} sources?", abort=True, err=True)
        for source in config.sources:
            cache_source.say_removed(directory.remove_drop_in(places, daemon.host, source.directory))
        places.remove(name)
    say(f"the cache '{name}' is deleted; {config.ssd} still has its data: it can be used again with --force")


def run(name: CacheArgument, root: CacheRootOption = Path("/")) -> None:
    """Serve a cache in the foreground until SIGTERM: what the systemd unit calls."""
    from bathyscope.cache import daemon as daemons
    from bathyscope.cache.config import Places

    places = Places(root)
    config = places.load(name)
    daemon = _daemon(places, name)
    if daemon.is_up():
        raise CacheError(f"the cache '{name}' is running already", hint=f"bathy cache status {name}")
    _wait_for_activation(config, daemon)
    places.make_directories(name)
    argv = daemons.command(places.config(name))
    os.execv(argv[0], argv)  # noqa: S606 - signals, readiness and exit code are the daemon's own


def _wait_for_activation(config: CacheConfig, daemon: Daemon) -> None:
    from bathyscope.cache import directory

    deadline_ns = daemon.host.monotonic_ns() + _ACTIVATION_LIMIT_S * 1e9
    while missing := directory.not_activated(config, daemon.host):
        if daemon.host.monotonic_ns() > deadline_ns:
            directories = ", ".join(source.directory for source in missing)
            raise CacheError(
                f"{directories}: ceph-volume has not activated the OSD within {_ACTIVATION_LIMIT_S:.0f} s",
                hint=f"if it is gone for good: bathy cache source delete {missing[0].name} --cache {config.name}",
            )
        daemon.host.sleep(0.5)


def start(name: CacheArgument, root: CacheRootOption = Path("/")) -> None:
    """Start a cache: by systemd where its unit is installed, else as a process in the background."""
    from bathyscope.cache import directory
    from bathyscope.cache.config import Places
    from bathyscope.cache.looks import is_served

    places = Places(root)
    config = places.load(name)
    daemon = _daemon(places, name)
    if not daemon.is_up():
        for source in config.sources:
            directory.must_not_be_open(source.directory)
    with status_line() as show:
        daemon.start(show)
    unserved = {entry["dir"]: entry for entry in daemon.status()["sources"] if not is_served(entry)}
    served = [one.directory for one in config.sources if one.directory not in unserved]
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

    Where systemd runs it, its OSDs are stopped with it (Requires=): start them again afterwards.
    """
    from bathyscope.cache import directory
    from bathyscope.cache.config import Places

    places = Places(root)
    places.load(name)
    daemon = _daemon(places, name)
    with status_line() as show:
        try:
            daemon.stop(show, force=force)
        except CacheDownError as error:
            raise (directory.problem_of(daemon) or error) from None
    say(f"the cache '{name}' is stopped")


def _daemon(places: Places, name: str) -> Daemon:
    from bathyscope.cache.daemon import Daemon
    from bathyscope.host.local import LocalHost

    return Daemon(LocalHost(), places, name)
