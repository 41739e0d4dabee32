"""`bathy cache detach|attach|resize`: its SSD goes, comes or gets another size while directories are served."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bathyscope.commands.options import CacheArgument, CacheRootOption, Output, OutputOption
from bathyscope.commands.talk import say
from bathyscope.errors import CacheDownError, CacheError, UsageError
from bathyscope.units import format_bytes, parse_some_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from bathyscope.cache.config import Places
    from bathyscope.cache.daemon import Daemon

_DETACH_HELP = """Take the SSD from a cache. Its directories are served without it; nobody who uses them sees an error.

The cache stays detached until `bathy cache attach`, also when it is started again. The SSD keeps what is cached for \
as long as the cache runs; if that is stopped or killed meanwhile it begins empty.
"""
_ATTACH_HELP = """Give a cache its SSD again, or another one: an empty device or file, or the same one under a new path.

A cache that was only detached has what it had, apart from files that were changed meanwhile; a large one, such as \
the device of an OSD, is compared with the cache first. Another SSD begins \
empty, and so does one that was given up, or whose cache was stopped or killed while it was detached.
"""
_RESIZE_HELP = """Change how much of its SSD a cache takes. A cache in a file gets a file of that size.

What is cached stays, apart from what lies in the part that goes. Requests to a running cache wait while it is done; \
one that does not run must have been stopped, not killed.
"""


def add_to(group: typer.Typer) -> None:
    """Attach the verbs."""
    group.command("detach", help=_DETACH_HELP, epilog="Example: bathy cache detach fast")(detach)
    group.command("attach", help=_ATTACH_HELP, epilog="Example: bathy cache attach fast /dev/disk/by-id/nvme-…")(attach)
    group.command("resize", help=_RESIZE_HELP, epilog="Example: bathy cache resize fast --size 200G")(resize)


def detach(name: CacheArgument, root: CacheRootOption = Path("/"), output: OutputOption = "table") -> None:
    """See _DETACH_HELP."""
    from bathyscope.cache.config import Places

    places = Places(root)
    with places.changing():
        config = places.load(name, say)
        daemon = _daemon(places, name)
        answer = _told(
            daemon, is_done=lambda status: not config.is_detached and _is(status, "detached"), command="detach"
        )
        if answer is None and config.is_detached:
            raise CacheError(f"the cache '{name}' is detached already", hint=f"bathy cache attach {name}")
        places.save(config.with_ssd(config.ssd, is_detached=True))
    if answer is None:
        text = f"the cache '{name}' is not running; it will start without {config.ssd}, which then begins empty"
    elif answer.get("is_content_kept"):
        text = f"{config.ssd} is detached from the cache '{name}'; what it has is used again when it is attached"
    else:
        text = f"{config.ssd} is detached from the cache '{name}'; what it has cannot be used again"
    row = {"name": name, "ssd": config.ssd, "is_running": answer is not None, **(answer or {})}
    _show(row, output, text)


def attach(
    name: CacheArgument,
    ssd: Annotated[Path | None, typer.Argument(metavar="DEVICE|FILE", help="Another SSD; default: its own.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if the other SSD holds something: that is lost.")
    ] = False,
    root: CacheRootOption = Path("/"),
    output: OutputOption = "table",
) -> None:
    """See _ATTACH_HELP."""
    from bathyscope.cache import ssd as ssds
    from bathyscope.cache.config import Places

    places = Places(root)
    with places.changing():
        config = places.load(name, say)
        path = config.ssd
        asked: dict[str, Any] = {"command": "attach"}
        if ssd is not None:
            if not ssd.exists():
                raise UsageError(f"{ssd} does not exist", hint=f"a new file is made by: truncate -s 40G {ssd}")
            others = [other for other in places.load_all(say).values() if other.name != name]
            path = str(ssds.checked_place(ssd, None, others))
            asked |= {"ssd": path, "force": force}
        elif force:
            raise UsageError("--force is for another SSD", hint=f"bathy cache attach {name} DEVICE --force")
        daemon = _daemon(places, name)
        is_new = config.is_detached or path != config.ssd
        answer = _told(
            daemon,
            is_done=lambda status: is_new and _is(status, "attached") and status["cache"].get("ssd") == path,
            **asked,
        )
        if answer is None:
            if ssd is not None:
                raise daemon.down()
            if not config.is_detached:
                raise CacheError(f"the cache '{name}' is not detached", hint=f"start it: bathy cache start {name}")
        places.save(config.with_ssd(path, is_detached=False))
    content = (answer or {}).get("found")
    text = f"{path} is attached to the cache '{name}': {content}"
    if answer is None:
        text = f"the cache '{name}' is not running; it will start with {path}: bathy cache start {name}"
    _show({"name": name, "ssd": path, "is_running": answer is not None, "found": content}, output, text)


def resize(
    name: CacheArgument,
    size: Annotated[str, typer.Option("--size", help="Take so much of the SSD from now on: 200G.")],
    root: CacheRootOption = Path("/"),
    output: OutputOption = "table",
) -> None:
    """See _RESIZE_HELP."""
    from bathyscope.cache import ssd as ssds
    from bathyscope.cache.config import Places

    size_bytes = parse_some_bytes("--size", size, hint="--size 200G")
    places = Places(root)
    with places.changing():
        config = places.load(name, say)
        daemon = _daemon(places, name)
        answer = _told(daemon, is_done=lambda _: False, command="resize", size_bytes=size_bytes)
        is_running = answer is not None
        if answer is None:
            if config.is_detached:
                raise CacheError(f"the cache '{name}' has no SSD", hint=f"attach it first: bathy cache attach {name}")
            answer = ssds.resize(daemon.host, places.config(name), size_bytes)
    capacity_bytes = answer.get("capacity_bytes")
    room = "" if capacity_bytes is None else f", with room for {format_bytes(capacity_bytes)}"
    row = {"name": name, "size_bytes": size_bytes, "capacity_bytes": capacity_bytes, "is_running": is_running}
    _show(row, output, f"the cache '{name}' takes {format_bytes(size_bytes)} of {config.ssd}{room}")


def _show(row: dict[str, Any], output: Output, text: str) -> None:
    from bathyscope import views

    if output == "table":
        say(text)
    else:
        views.render([row], output, columns=tuple(row))


def _told(daemon: Daemon, is_done: Callable[[dict[str, Any]], bool], **command: Any) -> dict[str, Any] | None:
    """Return what a daemon says to a command; None when it does not run. Raises CacheError.

    A command whose answer nobody saw, because it took too long or was interrupted, has perhaps been carried out: if the
    status `is_done` it counts as that, now or when it is repeated, so that the configuration follows.
    """
    try:
        return daemon.ask(**command)
    except CacheDownError:
        return None
    except CacheError as error:
        try:
            status = daemon.status()
        except CacheError:
            raise error from None
        if not is_done(status):
            raise
        return {"found": status["cache"].get("found")}


def _is(status: dict[str, Any], state: str) -> bool:
    return (status["cache"].get("attachment") or {}).get("state") == state


def _daemon(places: Places, name: str) -> Daemon:
    from bathyscope.cache.daemon import Daemon
    from bathyscope.host.local import LocalHost

    return Daemon(LocalHost(), places, name)
