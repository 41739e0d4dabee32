"""What the links of an OSD's directory lead to, as bathyd finds it: shown to who makes a source, and written down.

bathyd serves a device because the configuration names it, by path and identity, and not because a link leads there:
anybody who can write to the directory can make a link.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from bathyscope.cache.config import Places, Source
from bathyscope.cache.daemon import bathyd
from bathyscope.errors import CacheError, UsageError
from bathyscope.fields import as_dict, as_list, load_json, parsing
from bathyscope.host import Host


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A link (`block`, `block.db`, `block.wal`) that leads out of its directory; how the configuration names it."""

    name: str
    target: str
    identity: str | None
    size_bytes: int | None
    configured: dict[str, Any] | None
    problem: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The links of a directory; what of it is encrypted, if the SSD is not; what is mounted below."""

    links: tuple[Link, ...]
    encrypted: str | None
    mounts_below: tuple[str, ...]

    def served(self) -> list[Link]:
        """Return the links that can be served."""
        return [link for link in self.links if link.configured is not None]


def find(places: Places, host: Host, cache: str, directory: str) -> Found:
    """Return what bathyd finds in a directory that is to be a source of a cache. Raises CacheError, ParseError."""
    with parsing("what bathyd says of devices"):
        answer = as_dict(load_json(bathyd(host, "devices", str(places.config(cache)), directory)))
        return Found(
            tuple(_link(as_dict(entry)) for entry in as_list(answer["devices"])),
            answer["encrypted"],
            tuple(str(path) for path in as_list(answer["mounts_below"])),
        )


def _link(entry: dict[str, Any]) -> Link:
    configured = entry["configured"]
    size_bytes = None if configured is None else int(configured["identity"]["size_bytes"])
    return Link(str(entry["name"]), str(entry["target"]), entry["is"], size_bytes, configured, entry["problem"])


def check(source: Source, device: Found, *, plaintext: bool) -> None:
    """Raise CacheError for a directory with file systems below, UsageError for what must not be cached as plaintext."""
    if device.mounts_below:
        below = ", ".join(device.mounts_below)
        hint = "unmount it, or make sources of directories without mounts below them"
        raise CacheError(f"file systems are mounted below {source.directory}: {below}", hint=hint)
    if device.encrypted is not None and source.mode != "pass-through" and not plaintext:
        raise UsageError(
            f"{source.directory}: {device.encrypted}, and the cache would hold its data as plaintext",
            hint="make the cache on an encrypted device (cryptsetup), or allow it: --plaintext",
        )


def configured(source: Source, device: Found, *, plaintext: bool) -> Source:
    """Return the source with its devices, and whether it may be cached as plaintext."""
    kept = {key: value for key, value in source.other if key not in {"devices", "plaintext"}}
    kept["devices"] = {link.name: link.configured for link in device.served()}
    if plaintext:
        kept["plaintext"] = True
    return dataclasses.replace(source, other=tuple(kept.items()))
