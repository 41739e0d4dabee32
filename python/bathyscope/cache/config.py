"""Configurations of caches: /etc/bathyscope/cache/NAME.json, as bathyd reads it. Fields not known here are kept."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

from bathyscope import files
from bathyscope.errors import BathyscopeError, CacheError, ParseError, UntrustedError, UsageError
from bathyscope.fields import as_dict, as_int, as_list, load_json, parsing
from bathyscope.spec.cache import DEFAULT_LINE_BYTES, DEFAULT_MODE, Mode

Note = Callable[[str], None]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# sockaddr_un has room for 107 bytes.
_SOCKET_PATH_BYTES_MAX = 107
# Thousands of sources take less.
_CONFIG_BYTES_MAX = 16 << 20


def _ignore(_: str) -> None:
    """Hear what is noted, and say nothing."""


def check_name(name: str, what: str) -> str:
    """Return a name that is safe in paths, units and metrics. Raises UsageError."""
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"'{name:.80}' is not a valid name of a {what}",
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
class Unread:
    """An entry of a configuration that is not understood, by the name that bathyd gives it, and as it stands there."""

    name: str
    directory: str
    problem: str
    entry: Any

    @classmethod
    def of(cls, entry: Any, index: int, problem: str) -> Unread:
        """Return what can be said of an entry, whatever it is."""
        fields = entry if isinstance(entry, dict) else {}
        name, directory = (value if isinstance(value := fields.get(key), str) else "" for key in ("name", "dir"))
        return cls(name or Path(directory).name or f"source-{index + 1}", directory, problem, entry)

    def document(self) -> dict[str, Any]:
        """Return what is known of the source."""
        return {"name": self.name, "dir": self.directory}


@dataclasses.dataclass(frozen=True, slots=True)
class CacheConfig:
    """A cache: its SSD, the entries of the directories that it accelerates, and the rest of the file, verbatim.

    An entry that is not understood is kept as it stands, so that who changes another one loses nothing.
    """

    name: str
    ssd: str
    entries: tuple[Source | Unread, ...]
    rest: dict[str, Any]

    @classmethod
    def parse(cls, name: str, content: bytes, note: Note = _ignore) -> CacheConfig:
        """Return what a file of this name holds; `note` is told of entries that are not understood. Raises ParseError.

        bathyd serves the others of these, so nobody may refuse a whole configuration for one of its entries.
        """
        what, entries = f"the configuration of the cache '{name}'", list[Source | Unread]()
        with parsing(what):
            document = as_dict(load_json(content))
            for index, entry in enumerate(as_list(document["sources"])):
                try:
                    entries.append(_source(what, content, index, entry))
                except ParseError as error:
                    note(f"not served: {error.message}")
                    entries.append(Unread.of(entry, index, error.message))
            return cls(name, str(document["cache"]["ssd"]), tuple(entries), document)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources that are understood."""
        return tuple(entry for entry in self.entries if isinstance(entry, Source))

    @property
    def unread(self) -> tuple[Unread, ...]:
        """The entries that are not understood."""
        return tuple(entry for entry in self.entries if isinstance(entry, Unread))

    @property
    def directories(self) -> list[str]:
        """The directories that its entries name, each once; none of an entry that does not say it as a path."""
        return [*dict.fromkeys(entry.directory for entry in self.entries if entry.directory.startswith("/"))]

    def content(self) -> bytes:
        """Return the file."""
        entries = [entry.entry if isinstance(entry, Unread) else entry.document() for entry in self.entries]
        return json.dumps(self.rest | {"sources": entries}, indent=2).encode() + b"\n"

    @property
    def is_detached(self) -> bool:
        """Whether the cache starts without its SSD."""
        return self.rest["cache"].get("is_detached") is True

    @property
    def line_bytes(self) -> int:
        """The line size of the cache that is made with it."""
        return as_int(self.rest["cache"].get("line_bytes", DEFAULT_LINE_BYTES))

    @property
    def notices_changes(self) -> bool:
        """Whether a start notices what was written past the cache: `verify` trusts that nothing was."""
        return bool(self.rest["cache"].get("after_unclean") != "verify")

    def with_ssd(self, ssd: str, *, is_detached: bool) -> CacheConfig:
        """Return it with this SSD, attached or not."""
        cache = {key: value for key, value in self.rest["cache"].items() if key != "is_detached"} | {"ssd": ssd}
        if is_detached:
            cache["is_detached"] = True
        return dataclasses.replace(self, ssd=ssd, rest=self.rest | {"cache": cache})

    def entry(self, name: str) -> Source | Unread | None:
        """Return the entry of this name, if there is one: of two, the one that is understood."""
        named = [entry for entry in self.entries if entry.name == name]
        return next((entry for entry in named if isinstance(entry, Source)), named[0] if named else None)

    def with_source(self, source: Source) -> CacheConfig:
        """Return it with a source added, or put in the place of the one with its name."""
        present = self.entry(source.name)
        if not isinstance(present, Source):
            return dataclasses.replace(self, entries=(*self.entries, source))
        return dataclasses.replace(self, entries=tuple(source if entry is present else entry for entry in self.entries))

    def without(self, entry: Source | Unread) -> CacheConfig:
        """Return it without an entry."""
        return dataclasses.replace(self, entries=tuple(other for other in self.entries if other != entry))


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """Where caches lie below `root`, which is / unless this is a test or a lab."""

    root: Path = Path("/")

    @property
    def are_systemds(self) -> bool:
        """Whether these are the machine's own places, which systemd's units know, and systemd runs here."""
        return self.root == Path("/") and Path("/run/systemd/system").is_dir()

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
                names = [path.stem for path in self.configs.iterdir() if path.suffix == ".json"]
            except FileNotFoundError:
                return []
            return sorted(name for name in names if _NAME.fullmatch(name))

    def load(self, name: str, note: Note = _ignore) -> CacheConfig:
        """Return the configuration of a cache; `note` is told of entries that are not understood.

        Raises UsageError, CacheError, ParseError, UntrustedError.
        """
        path = self.config(name)
        with _as_root(path):
            try:
                return CacheConfig.parse(name, files.read_own(path), note)
            except FileNotFoundError:
                raise self._missing(name) from None
            except ParseError as error:
                hint = f"correct {path}, or: bathy cache delete {name}"
                raise ParseError(error.message, hint=hint) from error

    def check(self, name: str) -> str:
        """Return the name of a cache that there is, whatever its configuration holds. Raises UsageError, CacheError."""
        if not os.path.lexists(self.config(name)):
            raise self._missing(name)
        return name

    def _missing(self, name: str) -> UsageError:
        names = ", ".join(self.names())
        hint = f"caches of this machine: {names}" if names else f"make one: bathy cache create {name} DEVICE"
        return UsageError(f"there is no cache '{name}'", hint=hint)

    def served_before(self, name: str) -> list[str]:
        """Return the directories that the daemon of a cache has served, by its own notes; none where these are lost.

        Those that other caches serve by now, by configurations that can be read, are left out.
        """
        with contextlib.suppress(OSError, BathyscopeError), parsing("session.json"):
            sources = as_dict(load_json(files.read_own(self.state(name) / "session.json")))["sources"]
            taken = self.directories_of_others(name)
            # As bathyd escapes them; a directory of other bytes than text is a source of nobody here.
            return [directory for directory in as_dict(sources) if "\\" not in directory and directory not in taken]
        return []

    def directories_of_others(self, name: str) -> set[str]:
        """Return the directories of all other caches whose configurations can be read. Raises CacheError."""
        others = (config for other, config in self.load_all().items() if other != name)
        return {directory for config in others for directory in config.directories}

    def may_trust_changes(self, name: str) -> bool:
        """Return whether the cache of a configuration that cannot be read may trust that nothing is written past it.

        What a damaged one says of that cannot be told; that it says nothing of it can. Raises CacheError.
        """
        with _as_root(self.config(name)):
            try:
                with os.fdopen(files.open_plain(self.config(name)), "rb") as file:
                    content = file.read(_CONFIG_BYTES_MAX + 1)
            except UntrustedError:
                return True
        return len(content) > _CONFIG_BYTES_MAX or b'"verify"' in content

    def load_all(self, note: Note = _ignore) -> dict[str, CacheConfig]:
        """Return the configurations by name; one that cannot be read is noted and left out. Raises CacheError."""
        configs = {}
        for name in self.names():
            try:
                configs[name] = self.load(name, note)
            except BathyscopeError as error:
                note(f"the cache '{name}' is left out: {error.message}")
        return configs

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

    def find_source(self, source: str, cache: str | None, note: Note) -> tuple[CacheConfig, Source]:
        """Return a source that is understood, and its cache, as `find_entry` does. Raises UsageError."""
        config, entry = self.find_entry(source, cache, note)
        if isinstance(entry, Unread):
            problem = f"the source '{source}' of the cache '{config.name}' is not understood: {entry.problem}"
            raise UsageError(
                problem, hint=f"correct {self.config(config.name)}, or: bathy cache source delete {source}"
            )
        return config, entry

    def find_entry(self, source: str, cache: str | None, note: Note) -> tuple[CacheConfig, Source | Unread]:
        """Return an entry and its cache; without `cache` only one may have the name. Raises UsageError.

        `note` is told of caches whose configuration cannot be read, and of entries that are not understood.
        """
        check_name(source, "source")
        configs = [self.load(cache, note)] if cache is not None else [*self.load_all(note).values()]
        entries = [(config, entry) for config in configs if (entry := config.entry(source)) is not None]
        if len(entries) > 1:
            names = ", ".join(config.name for config, _ in entries)
            raise UsageError(f"several caches have a source '{source}': {names}", hint="name one: --cache CACHE")
        if not entries:
            where = f"the cache '{cache}' has" if cache is not None else "no cache has"
            no = " no" if cache is not None else ""
            raise UsageError(f"{where}{no} source '{source}'", hint="bathy cache source list")
        return entries[0]

    def remove(self, name: str) -> None:
        """Delete the configuration of a cache and what was kept apart from its SSD. Raises CacheError."""
        with _as_root(self.configs):
            self.config(name).unlink(missing_ok=True)
            files.fsync_path(self.configs)
            files.remove_directory(self.state(name))


def _source(what: str, content: bytes, index: int, entry: Any) -> Source:
    """Return the source of an entry of the configuration `what`; a wrong one names its line. Raises ParseError."""
    try:
        with parsing(f"source {index + 1}"):
            return Source.of(entry)
    except ParseError as error:
        raise ParseError(f"{what}, line {_line_of(content.decode(), index)}: {error.message}") from error


def _line_of(text: str, index: int) -> int:
    """Return the line in which the entry at this place of the list of sources begins."""
    decoder, at = json.JSONDecoder(), text.index("[", text.index('"sources"')) + 1
    for _ in range(index):
        _, at = decoder.raw_decode(text, _entry_at(text, at))
    return text.count("\n", 0, _entry_at(text, at)) + 1


def _entry_at(text: str, at: int) -> int:
    return next(index for index in range(at, len(text)) if text[index] not in " \t\r\n,")


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
