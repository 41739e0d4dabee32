"""Configurations of caches: /etc/bathyscope/cache/NAME.json, as bathyd reads it. Fields not known here are kept."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from bathyscope import files
from bathyscope.errors import BathyscopeError, CacheError, UsageError
from bathyscope.fields import as_dict, as_int, as_list, parsing

Mode = Literal["write-through", "write-around", "read-only", "pass-through"]
DEFAULT_MODE: Mode = "write-through"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# sockaddr_un has room for 107 bytes.
_SOCKET_PATH_BYTES_MAX = 107


def check_name(name: str, what: str) -> str:
    """Return a name that is safe in paths, units and metrics. Raises UsageError."""
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"'{name:.80}' is no name of a {what}",
            hint="up to 64 letters, digits, '.', '_' and '-', the first a letter or digit",
        )
    return name


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A directory that a cache accelerates. `size_bytes` is its share of the cache; None has no limit of its own."""

    name: str
    directory: str
    mode: str = DEFAULT_MODE
    size_bytes: int | None = None
    other: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, entry: Any) -> Source:
        """Return the source of an entry of the configuration. Raises KeyError, TypeError, ValueError."""
        fields = dict(as_dict(entry))
        directory, size_bytes = str(fields.pop("dir")), fields.pop("size_bytes", None)
        name = str(fields.pop("name", Path(directory).name))
        mode = str(fields.pop("mode"))
        return cls(name, directory, mode, None if size_bytes is None else as_int(size_bytes), tuple(fields.items()))

    def document(self) -> dict[str, Any]:
        """Return the entry of the configuration."""
        size = {} if self.size_bytes is None else {"size_bytes": self.size_bytes}
        return {"name": self.name, "dir": self.directory, "mode": self.mode, **size, **dict(self.other)}


@dataclasses.dataclass(frozen=True, slots=True)
class CacheConfig:
    """A cache: its SSD, the directories that it accelerates, and the rest of the file, verbatim."""

    name: str
    ssd: str
    sources: tuple[Source, ...]
    rest: dict[str, Any]

    @classmethod
    def parse(cls, name: str, content: bytes) -> CacheConfig:
        """Return what a file of this name holds. Raises ParseError."""
        with parsing(f"the configuration of the cache '{name}'"):
            document = as_dict(json.loads(content))
            sources = tuple(Source.of(entry) for entry in as_list(document["sources"]))
            return cls(name, str(document["cache"]["ssd"]), sources, document)

    def content(self) -> bytes:
        """Return the file."""
        document = self.rest | {"sources": [source.document() for source in self.sources]}
        return json.dumps(document, indent=2).encode() + b"\n"

    @property
    def is_detached(self) -> bool:
        """Whether the cache starts without its SSD."""
        return self.rest["cache"].get("is_detached") is True

    def with_ssd(self, ssd: str, *, is_detached: bool) -> CacheConfig:
        """Return it with this SSD, attached or not."""
        cache = {key: value for key, value in self.rest["cache"].items() if key != "is_detached"} | {"ssd": ssd}
        if is_detached:
            cache["is_detached"] = True
        return dataclasses.replace(self, ssd=ssd, rest=self.rest | {"cache": cache})

    def source(self, name: str) -> Source:
        """Return the source of this name. Raises UsageError."""
        for source in self.sources:
            if source.name == name:
                return source
        raise UsageError(f"the cache '{self.name}' has no source '{name}'", hint="bathy cache source list")

    def with_source(self, source: Source) -> CacheConfig:
        """Return it with a source added, or put in the place of the one with its name."""
        kept = tuple(source if one.name == source.name else one for one in self.sources)
        return dataclasses.replace(self, sources=kept if source in kept else (*kept, source))

    def without_source(self, name: str) -> CacheConfig:
        """Return it without a source."""
        return dataclasses.replace(self, sources=tuple(one for one in self.sources if one.name != name))


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """Where caches lie below `root`, which is / unless this is a test or a lab."""

    root: Path = Path("/")

    @property
    def is_system(self) -> bool:
        """Whether these are the machine's own places, which systemd's units know."""
        return self.root == Path("/")

    @property
    def configs(self) -> Path:
        """Return the directory of the configurations."""
        return self.root / "etc/bathyscope/cache"

    def config(self, name: str) -> Path:
        """Return the configuration of a cache."""
        return self.configs / f"{check_name(name, 'cache')}.json"

    def state(self, name: str) -> Path:
        """Return the directory of what bathyd keeps apart from the SSD."""
        return self.root / "var/lib/bathyscope/cache" / check_name(name, "cache")

    @property
    def sockets(self) -> Path:
        """Return the directory of the sockets."""
        return self.root / "run/bathyscope/cache"

    def socket(self, name: str) -> Path:
        """Return the socket of the daemon."""
        return self.sockets / f"{check_name(name, 'cache')}.sock"

    def names(self) -> list[str]:
        """Return the names of all caches. Raises CacheError."""
        with _as_root(self.configs):
            try:
                found = [path.stem for path in self.configs.iterdir() if path.suffix == ".json"]
            except FileNotFoundError:
                return []
            return sorted(name for name in found if _NAME.fullmatch(name))

    def load(self, name: str) -> CacheConfig:
        """Return the configuration of a cache. Raises UsageError, CacheError, ParseError, UntrustedError."""
        path = self.config(name)
        with _as_root(path):
            try:
                return CacheConfig.parse(name, files.read_own(path))
            except FileNotFoundError:
                known = ", ".join(self.names())
                hint = f"caches of this machine: {known}" if known else f"make one: bathy cache create {name} DEVICE"
                raise UsageError(f"there is no cache '{name}'", hint=hint) from None

    def load_all(self, note: Callable[[str], None]) -> dict[str, CacheConfig]:
        """Return the configurations by name; one that cannot be read is noted and left out. Raises CacheError."""
        found = {}
        for name in self.names():
            try:
                found[name] = self.load(name)
            except BathyscopeError as error:
                note(f"the cache '{name}' is left out: {error.message}")
        return found

    def new(self, name: str, ssd: str, **settings: Any) -> CacheConfig:
        """Return the configuration of a cache without sources; `settings` say how it works. Raises UsageError."""
        socket = self.socket(name)
        if len(os.fsencode(socket)) > _SOCKET_PATH_BYTES_MAX:
            raise UsageError(f"{socket} is too long for a socket", hint="choose a shorter name or root")
        cache = {"name": name, "ssd": ssd, **settings}
        document = {"socket": str(socket), "state": str(self.state(name)), "cache": cache}
        return CacheConfig(name, ssd, (), document)

    def add(self, config: CacheConfig) -> None:
        """Put a new configuration and the directories of its cache in place. Raises UsageError, CacheError."""
        self.make_directories(config.name)
        with _as_root(self.configs):
            try:
                files.create_file(self.config(config.name), config.content())
            except FileExistsError:
                hint = "choose another name, or: bathy cache delete " + config.name
                raise UsageError(f"there is a cache '{config.name}' already", hint=hint) from None

    def make_directories(self, name: str) -> None:
        """Make the directories of a cache where they are missing; /run is empty after each start of the machine."""
        for directory in (self.configs, self.state(name), self.socket(name).parent):
            with _as_root(directory):
                files.own_directory(directory, make=True)

    def save(self, config: CacheConfig) -> None:
        """Put a changed configuration in place, whole or not at all. Raises CacheError."""
        with _as_root(self.configs):
            files.write_file(self.config(config.name), config.content())

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock on all configurations while one is read and written. Raises CacheError."""
        with contextlib.ExitStack() as stack:
            with _as_root(self.configs):
                files.own_directory(self.configs, make=True)
                stack.enter_context(files.directory_lock(self.configs))
            yield

    def find_source(self, source: str, cache: str | None, note: Callable[[str], None]) -> tuple[CacheConfig, Source]:
        """Return a source and its cache; without `cache` only one source may have the name. Raises UsageError.

        `note` is told of caches whose configuration cannot be read.
        """
        check_name(source, "source")
        configs = [self.load(cache)] if cache is not None else [*self.load_all(note).values()]
        found = [(config, one) for config in configs for one in config.sources if one.name == source]
        if len(found) > 1:
            names = ", ".join(config.name for config, _ in found)
            raise UsageError(f"several caches have a source '{source}': {names}", hint="name one: --cache CACHE")
        if not found:
            where = f"the cache '{cache}' has" if cache is not None else "no cache has"
            no = " no" if cache is not None else ""
            raise UsageError(f"{where}{no} source '{source}'", hint="bathy cache source list")
        return found[0]

    def remove(self, name: str) -> None:
        """Delete the configuration of a cache and what was kept apart from its SSD. Raises CacheError."""
        with _as_root(self.configs):
            self.config(name).unlink(missing_ok=True)
            files.fsync_path(self.configs)
            files.remove_directory(self.state(name))


def check_mode(mode: str) -> str:
    """Return a mode that there is. Raises UsageError."""
    if mode not in get_args(Mode):
        hint = "bathy cache source create --help describes them"
        raise UsageError(f"--mode must be one of {', '.join(get_args(Mode))} (got '{mode:.40}')", hint=hint)
    return mode


@contextlib.contextmanager
def _as_root(path: Path) -> Iterator[None]:
    """Say of what the system refuses that root is needed. Raises CacheError."""
    try:
        yield
    except PermissionError as error:
        raise CacheError(f"{error.filename or path}: permission denied", hint="caches are root's: use sudo") from error
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        raise CacheError(f"{error.filename or path}: {error.strerror}", hint="look at the file system") from error
