"""`bathy cache source`: the directories that a cache accelerates."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bathyscope.commands.options import CacheOption, CacheRootOption, OutputOption
from bathyscope.commands.talk import say
from bathyscope.errors import CacheDownError, CacheError, UsageError
from bathyscope.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from bathyscope.cache.config import CacheConfig, Places, Source, Unread
    from bathyscope.cache.daemon import Daemon
    from bathyscope.cache.devices import Found
    from bathyscope.cache.snapshots import Snapshot
    from bathyscope.spec.cache_plan import CachePlanFile

_CREATE_HELP = """Accelerate a directory in place. If its cache is running, this takes effect at once.

Stop the OSD of the directory first, and start it afterwards: nobody may have a file of the directory open, since what \
was opened before goes past the cache. For /var/lib/ceph/osd/ceph-N a file is written that \
makes systemd start the cache before the OSD, if the unit bathyd@.service is installed; its path is printed, and \
`source delete` removes it. Stopping the cache's unit then stops its OSDs: start them again afterwards.

What the links block, block.db and block.wal of an OSD lead to is shown and, when that is confirmed, written to the \
configuration: nothing else is ever served in their place.
"""
_CREATE_EXAMPLES = """Examples:

\b
  systemctl stop ceph-osd@0
  bathy cache source create ceph0 /var/lib/ceph/osd/ceph-0 --cache fast --size 95G
  systemctl start ceph-osd@0
  bathy cache source create --from-plan plan.json --cache fast

\b
Modes:
  write-through  what is read or written enters the cache, but for long runs of writes (default)
  write-around   what is read enters it; a write updates what is cached
  read-only      what is read enters it; what is written leaves it
  pass-through   nothing is cached
"""
Name = Annotated[str, typer.Argument(metavar="NAME", help="The source's name.")]
Size = Annotated[str | None, typer.Option("--size", help="Its share of the cache, as an upper limit; default: none.")]
ModeOption = Annotated[
    str | None, typer.Option("--mode", help="write-through, write-around, read-only or pass-through.")
]


PlaintextOption = Annotated[
    bool,
    typer.Option("--plaintext", help="Even if it is encrypted (dm-crypt): the cache then holds its data as plaintext."),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask whether its devices are the right ones.")]


def add_to(group: typer.Typer) -> None:
    """Attach the verbs."""
    sources = typer.Typer(
        no_args_is_help=True,
        help="Directories that a cache accelerates.",
        epilog="Example: bathy cache source create osd3 /var/lib/ceph/osd/ceph-3 --cache fast",
    )
    sources.command("create", help=_CREATE_HELP, epilog=_CREATE_EXAMPLES)(create)
    sources.command("list", epilog="Example: bathy cache source list --output csv")(list_)
    sources.command("start", epilog="Example: bathy cache source start ceph0")(start)
    sources.command("stop", epilog="Example: bathy cache source stop ceph0")(stop)
    sources.command("set", epilog="Example: bathy cache source set ceph0 --mode write-around --size 120G")(set_)
    sources.command("delete", epilog="Example: bathy cache source delete ceph0")(delete)
    group.add_typer(sources, name="source")


def create(  # noqa: PLR0917 - one parameter for each option
    cache: Annotated[str, typer.Option("--cache", metavar="CACHE", help="The cache.")],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The source's name.")] = None,
    # No Path: it would be touched while the command line is read, and may be a mount that hangs.
    directory: Annotated[str | None, typer.Argument(metavar="DIR", help="The directory.")] = None,
    size: Size = None,
    mode: ModeOption = None,
    plaintext: PlaintextOption = False,
    yes: YesOption = False,
    from_plan: Annotated[
        Path | None, typer.Option("--from-plan", metavar="FILE", help="The OSDs of a plan: bathy cache plan -o json.")
    ] = None,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NODE", help="The plan's node; default: this machine, or its only one."),
    ] = None,
    root: CacheRootOption = Path("/"),
) -> None:
    """See _CREATE_HELP."""
    from bathyscope.cache import devices
    from bathyscope.cache import directory as directories
    from bathyscope.cache.config import Places

    plan = None
    if from_plan is not None:
        from bathyscope.spec.cache_plan import load_cache_plan

        if (name, directory, size) != (None, None, None):
            raise UsageError("a plan names sources, directories and sizes", hint="leave out NAME, DIR and --size")
        plan = load_cache_plan(from_plan)
    wanted = _wanted(name, directory, size, mode) if plan is None else _planned(plan, node, mode)
    places = Places(root)
    with places.changing():
        daemon, configs = _daemon(places, cache), places.load_all(say) | {cache: places.load(cache)}
        config, looked_at = configs[cache], []
        if plan is not None:
            _say_if_other(config, plan)
        # All are looked at before the first is served.
        for wanted_source in wanted:
            if wanted_source.name in {other.name for other in configs[cache].entries}:
                hint = "bathy cache source list"
                raise UsageError(f"the cache '{cache}' has a source '{wanted_source.name}' already", hint=hint)
            checked = directories.checked_directory(wanted_source.directory, [*configs.values()], daemon.host)
            _check_share(wanted_source, config)
            placed = dataclasses.replace(wanted_source, directory=checked)
            looked_at.append((placed, devices.find(places, daemon.host, cache, checked)))
            devices.check(*looked_at[-1], plaintext=plaintext)
            configs[cache] = configs[cache].with_source(placed)
        _confirm(looked_at, yes=yes)
        sources = [devices.configured(source, device, plaintext=plaintext) for source, device in looked_at]
        for source in sources:
            config = _add(places, daemon, config, source)
    if not daemon.is_up():
        say(f"served when the cache runs: bathy cache start {cache}")


def _confirm(looked_at: list[tuple[Source, Found]], *, yes: bool) -> None:
    """Show what links lead to, and ask whether that is right. Raises UsageError, or Abort for a no."""
    served = 0
    for source, device in looked_at:
        for link in device.links:
            if link.configured is None:
                say(f"not served: {source.directory}/{link.problem}")
                continue
            served += 1
            size = "" if link.size_bytes is None else f", {format_bytes(link.size_bytes)}"
            say(f"{source.directory}/{link.name} leads to {link.target}{size}: {link.identity}")
    if not served or yes:
        return
    what = "this device" if served == 1 else f"these {served} devices"
    if not sys.stdin.isatty():
        raise UsageError(f"nobody can be asked whether to serve {what}", hint="look at them, then say --yes")
    typer.confirm(f"serve {what}?", abort=True, err=True)


def _wanted(name: str | None, directory: str | None, size: str | None, mode: str | None) -> list[Source]:
    from bathyscope.cache.config import Source, check_mode, check_name
    from bathyscope.spec.cache import DEFAULT_MODE

    if name is None or directory is None:
        raise UsageError("NAME and DIR are needed, or --from-plan", hint="bathy cache source create --help")
    return [
        Source(
            check_name(name, "source"),
            directory,
            check_mode(mode or DEFAULT_MODE),
            None if size is None else parse_bytes(size),
        )
    ]


def _planned(plan: CachePlanFile, node: str | None, mode: str | None) -> list[Source]:
    import socket

    from bathyscope.cache.config import Source, check_mode, check_name

    here = socket.gethostname()
    if node is None and here in {planned.node for planned in plan.caches}:
        node = here
    mode = check_mode(mode or plan.mode)
    return [
        Source(
            check_name(planned.name, "source"),
            planned.directory or f"/var/lib/ceph/osd/ceph-{planned.osd}",
            mode,
            planned.flash_bytes,
        )
        for planned in plan.sources_of(node)
    ]


def _say_if_other(config: CacheConfig, plan: CachePlanFile) -> None:
    from bathyscope.spec.cache import CacheSettings

    if others := CacheSettings.of(config.rest["cache"]).differences(plan.settings):
        names = ", ".join(others)
        say(f"the cache '{config.name}' has other {names} than the plan simulated ({plan.words}): its hits will differ")


def _add(places: Places, daemon: Daemon, config: CacheConfig, source: Source) -> CacheConfig:
    """Write a source down, serve it if its cache runs, and return the new configuration. On error nothing is left."""
    from bathyscope.cache import osd_units
    from bathyscope.cache.daemon import UNIT_TEMPLATE

    added = config.with_source(source)
    places.save(added)
    try:
        waits = osd_units.write_drop_in(
            places, daemon.host, config.name, source.directory, say, notices_changes=config.notices_changes
        )
        is_served = _tell(daemon, command="start_source", source=source.document())
    except BaseException:
        # First of all: it is what the next start serves.
        places.save(config)
        try:
            osd_units.remove_drop_in(places, daemon.host, source.directory, say)
        except CacheError as error:
            say(error.message)
        raise
    say(
        f"the source '{source.name}' of the cache '{config.name}' is {source.directory}"
        + (", and is served" if is_served else "")
    )
    if waits is not None:
        without = "on the plain directory if that fails" if config.notices_changes else "and not without it"
        say(f"written: {waits} (the OSD starts after its cache, {without}, and stops with it)")
    elif (osd := osd_units.osd_of(source.directory)) is not None:
        say(
            f"systemd does not know {UNIT_TEMPLATE}: start the cache before the OSD {osd} yourself; "
            "or install the unit, then delete the source and create it again"
        )
    return added


def list_(
    cache: Annotated[str | None, typer.Option("--cache", metavar="CACHE", help="Of this cache only.")] = None,
    root: CacheRootOption = Path("/"),
    output: OutputOption = "table",
) -> None:
    """List the sources of all caches."""
    from bathyscope import views
    from bathyscope.cache.config import Places, Source

    places = Places(root)
    rows: list[dict[str, object]] = []
    for name, config in (places.load_all(say) if cache is None else {cache: places.load(cache, say)}).items():
        served: set[str] | None = None
        try:
            served = _served(_daemon(places, name))
        except CacheError as error:
            say(error.message)
        rows += [
            {
                "source": entry.name,
                "cache": name,
                "served": None if served is None else entry.name in served,
                "mode": entry.mode if isinstance(entry, Source) else None,
                "size_bytes": entry.size_bytes if isinstance(entry, Source) else None,
                "directory": entry.directory,
            }
            for entry in config.entries
        ]
    make = f"bathy cache source create NAME DIR --cache {cache or 'CACHE'}"
    views.render(rows, output, empty=f"no sources; make one: {make}")


def start(name: Name, cache: CacheOption = None, root: CacheRootOption = Path("/")) -> None:
    """Serve a source that was stopped. Nobody may have a file of its directory open."""
    from bathyscope.cache import directory as directories

    config, source, daemon = _found(root, name, cache)
    if name not in _served(daemon):
        directories.must_not_be_open(source.directory)
    daemon.ask(command="start_source", source=source.document())
    say(f"the source '{name}' of the cache '{config.name}' is served")


def stop(
    name: Name,
    cache: CacheOption = None,
    force: Annotated[bool, typer.Option("--force", help="Even while files are open: they are served on.")] = False,
    root: CacheRootOption = Path("/"),
) -> None:
    """Serve a source no longer: its directory is the plain one again, until the source or the cache is started."""
    config, _, daemon = _found_entry(root, name, cache)
    daemon.ask(command="stop_source", name=name, **({"force": True} if force else {}))
    say(f"the source '{name}' of the cache '{config.name}' is stopped: its directory is the plain one")


def set_(  # noqa: PLR0917 - one parameter for each option
    name: Name,
    mode: ModeOption = None,
    size: Annotated[str | None, typer.Option("--size", help='Its share of the cache; "none" for no limit.')] = None,
    devices: Annotated[
        bool, typer.Option("--devices", help="Serve what its links block, block.db and block.wal lead to now.")
    ] = False,
    plaintext: PlaintextOption = False,
    yes: YesOption = False,
    cache: CacheOption = None,
    root: CacheRootOption = Path("/"),
) -> None:
    """Change the mode or the share of a source; if it is served, at once, else from its next start on.

    Its devices can be changed only while it is stopped: what its links lead to is shown, and asked for.
    """
    from bathyscope.cache.config import Places, check_mode

    if mode is None and size is None and not devices and not plaintext:
        raise UsageError("nothing to change", hint="say --mode, --size, --devices or --plaintext")
    places = Places(root)
    with places.changing():
        config, source, daemon = _found(root, name, cache)
        is_served = name in _served(daemon)
        if mode is not None:
            source = dataclasses.replace(source, mode=check_mode(mode))
        if devices or plaintext:
            if is_served:
                hint = f"stop it first: bathy cache source stop {name}"
                raise CacheError(f"the source '{name}' is served with the devices that it has", hint=hint)
            source = _with_devices(places, daemon, config, source, plaintext=plaintext, yes=yes)
        if size is not None:
            source = dataclasses.replace(source, size_bytes=None if size == "none" else parse_bytes(size))
            _check_share(source, config)
        if mode is not None and is_served:
            daemon.ask(command="set_mode", name=name, mode=mode)
        if size is not None and is_served:
            daemon.ask(command="set_size", name=name, size_bytes=source.size_bytes)
        places.save(config.with_source(source))
    say(f"the source '{name}' of the cache '{config.name}' is changed")


def _with_devices(
    places: Places, daemon: Daemon, config: CacheConfig, source: Source, *, plaintext: bool, yes: bool
) -> Source:
    """Return a source that is not served with what its links lead to now."""
    from bathyscope.cache import devices
    from bathyscope.cache import directory as directories

    directories.must_not_be_dead(source.directory, config.name, daemon.host)
    plaintext = plaintext or dict(source.other).get("plaintext") is True
    device = devices.find(places, daemon.host, config.name, source.directory)
    devices.check(source, device, plaintext=plaintext)
    _confirm([(source, device)], yes=yes)
    return devices.configured(source, device, plaintext=plaintext)


def delete(
    name: Name,
    cache: CacheOption = None,
    force: Annotated[bool, typer.Option("--force", help="Even while files are open: they are served on.")] = False,
    root: CacheRootOption = Path("/"),
) -> None:
    """Accelerate a directory no longer. Nothing in it changes."""
    from bathyscope.cache import directory as directories
    from bathyscope.cache.config import Places

    places = Places(root)
    with places.changing():
        config, entry, daemon = _found_entry(root, name, cache)
        if name in _served(daemon) or name in _failed(daemon):
            daemon.ask(command="stop_source", name=name, **({"force": True} if force else {}))
        if not daemon.is_up():
            directories.must_not_be_dead(entry.directory, config.name, daemon.host)
        remaining = config.without(entry)
        places.save(remaining)
        # An entry that is not understood may name the directory of another source.
        is_used = entry.directory in {*remaining.directories, *places.directories_of_others(config.name)}
        if not is_used:
            remove_drop_in(places, daemon, entry.directory)
    plain = "" if is_used or not entry.directory else f": {entry.directory} is a plain directory"
    say(f"the source '{name}' of the cache '{config.name}' is deleted{plain}")


def remove_drop_in(places: Places, daemon: Daemon, directory: str) -> None:
    """Remove the file that makes an OSD wait for its cache, if there is one, and say so. Raises CacheError."""
    from bathyscope.cache import osd_units

    if (path := osd_units.remove_drop_in(places, daemon.host, directory, say)) is not None:
        say(f"removed: {path}")


def _check_share(source: Source, config: CacheConfig) -> None:
    """Refuse a share that is smaller than a line, and say of one that is larger than the SSD. Raises UsageError."""
    size_bytes = source.size_bytes
    if size_bytes is None:
        return
    if size_bytes < config.line_bytes:
        line = format_bytes(config.line_bytes)
        problem = f"--size must be at least {line}, one line of the cache (got {format_bytes(size_bytes)})"
        raise UsageError(problem, hint="95G; or leave it out for no limit")
    _say_if_above(source, config)


def _say_if_above(source: Source, config: CacheConfig) -> None:
    from bathyscope.cache.ssd import size_of

    ssd_bytes = size_of(Path(config.ssd))
    if source.size_bytes is not None and ssd_bytes is not None and source.size_bytes > ssd_bytes:
        say(
            f"--size {format_bytes(source.size_bytes)} is more than {config.ssd} has ({format_bytes(ssd_bytes)}): "
            f"the source '{source.name}' has no limit of its own"
        )


def _found(root: Path, name: str, cache: str | None) -> tuple[CacheConfig, Source, Daemon]:
    from bathyscope.cache.config import Places

    places = Places(root)
    config, source = places.find_source(name, cache, say)
    return config, source, _daemon(places, config.name)


def _found_entry(root: Path, name: str, cache: str | None) -> tuple[CacheConfig, Source | Unread, Daemon]:
    from bathyscope.cache.config import Places

    places = Places(root)
    config, entry = places.find_entry(name, cache, say)
    return config, entry, _daemon(places, config.name)


def _daemon(places: Places, cache: str) -> Daemon:
    from bathyscope.cache.daemon import Daemon
    from bathyscope.host.local import LocalHost

    return Daemon(LocalHost(), places, cache)


def _tell(daemon: Daemon, **request: object) -> bool:
    """Give a command to a daemon that runs; return whether one does. Raises CacheError when it refuses."""
    try:
        daemon.ask(**request)
    except CacheDownError:
        return False
    return True


def _served(daemon: Daemon) -> set[str]:
    snapshot = _snapshot(daemon)
    return set() if snapshot is None else set(snapshot.sources())


def _failed(daemon: Daemon) -> set[str]:
    """Return the names of sources that a running daemon could not serve."""
    snapshot = _snapshot(daemon)
    return set() if snapshot is None else {name for name, entry in snapshot.stopped() if entry.get("problem")}


def _snapshot(daemon: Daemon) -> Snapshot | None:
    from bathyscope.cache.snapshots import Snapshot

    try:
        return Snapshot(daemon.name, daemon.host.now_ns(), daemon.status())
    except CacheDownError:
        return None
