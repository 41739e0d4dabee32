"""The daemon of a cache: asking it, starting it and stopping what was started, with systemd or without."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bathyscope import files
from bathyscope.cache.config import Places
from bathyscope.errors import CacheDownError, CacheError, ParseError
from bathyscope.fields import as_dict, as_int, as_list, last_line, load_json, parsing
from bathyscope.host import Completed, Host, ProcessRequest, SocketAnswer, SocketRequest, outliving
from bathyscope.host.local import FOREIGN_VARIABLES
from bathyscope.host.process import NOBODY, ProcessIdentity, is_alive, own_program, resident_memory

_LOG, _PROCESS = "bathyd.log", "process.json"
_POLL_S = 0.05
# A large cache reads its table first.
START_LIMIT_S = 300.0
STOP_LIMIT_S = 60.0
# Unmounting lazily and stopping lets what is open finish first. A query is answered at once, or its daemon hangs.
_COMMAND_TIMEOUT_S = 120.0
QUERY_TIMEOUT_S = 5.0


_OF_PROCESS = re.compile(r"/proc/([0-9]+)/")
UNIT_TEMPLATE = "bathyd@.service"


def unit(cache: str) -> str:
    """Return the unit of systemd that serves a cache."""
    return UNIT_TEMPLATE.replace("@", f"@{cache}")


def command(config: Path) -> tuple[str, ...]:
    """Return the program that serves a cache in the foreground."""
    return own_program("bathyscope.bathyd", str(config))


def _ignored(_: ProcessIdentity) -> None:
    """Hear of a process, and do nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """How a daemon is started in the background: by a `wrapper`, a program that runs it as its only child.

    `announce` is told of the daemon before it runs, `announce_wrapper` of the wrapper.
    """

    wrapper: tuple[str, ...] = ()
    announce: Callable[[ProcessIdentity], None] = _ignored
    announce_wrapper: Callable[[ProcessIdentity], None] = _ignored


@dataclasses.dataclass(frozen=True, slots=True)
class Daemon:
    """The daemon of the cache `name`, running or not."""

    host: Host
    places: Places
    name: str
    launch: Launch = Launch()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to a query or a command. Raises CacheDownError, CacheError with the daemon's own hint."""
        return self._asked(request)[0]

    def _asked(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], SocketAnswer]:
        path = str(self.places.socket(self.name))
        timeout_s = QUERY_TIMEOUT_S if "query" in request else _COMMAND_TIMEOUT_S
        line = SocketRequest("bathyd", path, json.dumps(request), timeout_s=timeout_s, process_file="status")
        try:
            said = self.host.exchange(line)
        except (FileNotFoundError, ConnectionError):
            raise self.down() from None
        except PermissionError as error:
            raise CacheError(f"{path}: permission denied", hint="the daemon answers root: use sudo") from error
        except OSError as error:
            hint = f"look at its log: {self.log_hint()}"
            raise CacheError(f"the daemon of the cache '{self.name}' does not answer ({error})", hint=hint) from error
        if not said.line:
            raise self.down()
        with parsing(f"the answer of the daemon of the cache '{self.name}'"):
            answer = as_dict(load_json(said.line))
            if answer["ok"]:
                return as_dict(answer.get("answer") or {}), said
            raise CacheError(f"cache '{self.name}': {answer['error']}", hint=answer.get("hint"))

    def status(self) -> dict[str, Any]:
        """Return what it says of itself, and the kernel of its `process`. Raises CacheDownError, CacheError."""
        answer, said = self._asked({"query": "status"})
        memory = resident_memory(said.files)
        return answer if memory is None else answer | {"process": memory}

    def is_up(self) -> bool:
        """Return whether it answers. Raises CacheError when it cannot be known."""
        try:
            self.status()
        except CacheDownError:
            return False
        return True

    def _pids(self) -> list[int]:
        """Return the daemon's process id as it says it, and as the kernel does: in a container they differ."""
        answer, said = self._asked({"query": "status"})
        pids = [] if answer.get("pid") is None else [as_int(answer["pid"])]
        return pids + [int(match[1]) for path, _ in said.files if (match := _OF_PROCESS.match(path)) is not None]

    def _is_served_by(self, identity: ProcessIdentity) -> bool:
        try:
            return identity.pid in self._pids()
        except CacheError:
            # Not yet.
            return False

    def down(self) -> CacheDownError:
        """Return the error that nobody serves the cache."""
        hint = f"start it: bathy cache start {self.name}"
        return CacheDownError(f"the cache '{self.name}' is not running", hint=hint)

    def is_supervised(self) -> bool:
        """Return whether systemd runs here and knows the unit; it is not asked for caches below another root."""
        return self.places.are_systemds and self._systemctl("cat").exit_code == 0

    def start(self, note: Callable[[str], None]) -> None:
        """Start it and wait until it serves. Raises CacheError with what it said."""
        self.places.make_directories(self.name)
        # Who starts it at the same time waits here, and then finds it running.
        with files.directory_lock(self.places.state(self.name)):
            self._start(note)

    def _start(self, note: Callable[[str], None]) -> None:
        if self.is_up():
            raise CacheError(f"the cache '{self.name}' is running already", hint=f"bathy cache status {self.name}")
        if is_alive(self.host, earlier := self.started()):
            problem = f"process {earlier.pid} of the cache '{self.name}' still serves files that are open"
            raise CacheError(problem, hint=f"bathy cache stop {self.name} --force")
        note("starting")
        if self.is_supervised():
            # Starts by hand count for the unit's limit as well. A unit that never failed has nothing to be reset.
            self._systemctl("reset-failed")
            if (done := self._systemctl("start")).exit_code != 0:
                raise CacheError(f"systemd cannot start {unit(self.name)}: {last_line(done.stderr)}",
                                 hint=self.log_hint())  # fmt: skip
            return
        log = self.places.state(self.name) / _LOG
        before = log.stat().st_size if log.exists() else 0
        started = outliving.start(
            command(self.places.config(self.name)), log=log, announce=self._remember,
            wrapper=self.launch.wrapper, announce_wrapper=self.launch.announce_wrapper,
            without=("NOTIFY_SOCKET", *FOREIGN_VARIABLES),
        )  # fmt: skip
        try:
            self._wait_for(started, log, before)
        except BaseException:
            # It must not mount over the files later. SIGTERM lets it unmount what it has mounted already.
            if outliving.end_all([started.identity], signal_number=signal.SIGTERM):
                outliving.end_all([started.identity])
            raise

    def _wait_for(self, started: outliving.Started, log: Path, log_length: int) -> None:
        deadline_ns = self.host.monotonic_ns() + START_LIMIT_S * 1e9
        while not self._is_served_by(started.identity):
            if started.child.poll() is not None:
                raise _said(files.read_end(log, log_length), self.name, str(log))
            if self.host.monotonic_ns() > deadline_ns:
                raise CacheError(f"the cache '{self.name}' did not serve within {START_LIMIT_S:.0f} s", hint=str(log))
            self.host.sleep(_POLL_S)

    def stop(self, note: Callable[[str], None], *, force: bool = False) -> None:
        """Stop what `start` started, and wait until it has ended. Raises CacheDownError, CacheError."""
        if self.is_supervised() and self._systemctl("is-active").exit_code == 0:
            note(f"stopping{self._in_use()}")
            if (done := self._systemctl("stop")).exit_code != 0:
                raise CacheError(f"systemd cannot stop {unit(self.name)}: {last_line(done.stderr)}",
                                 hint=self.log_hint())  # fmt: skip
            return
        identity = self.started()
        try:
            pids = self._pids()
        except CacheError:
            # It may serve what is open, or hang: the signal ends both.
            if not is_alive(self.host, identity):
                raise
        else:
            if identity.pid not in pids:
                hint = "stop it where it was started"
                process = pids[0] if pids else "not known"
                raise CacheError(f"the cache '{self.name}' was not started by bathy (process {process})", hint=hint)
        note("stopping")
        outliving.kill(identity, signal.SIGTERM)
        if self._has_ended(identity, STOP_LIMIT_S / 10 if force else STOP_LIMIT_S):
            return
        if not force:
            raise CacheError(
                f"the cache '{self.name}' is unmounted, and still serves files that are open or a container's view",
                hint=f"it ends with the last of them; or: bathy cache stop {self.name} --force",
            )
        # The second signal ends it; lines that were being written are lost, the files are complete.
        outliving.kill(identity, signal.SIGTERM)
        if not self._has_ended(identity, STOP_LIMIT_S):
            raise CacheError(f"process {identity.pid} does not end", hint=self.log_hint())

    def _in_use(self) -> str:
        """Say that files are open, if some are."""
        try:
            sources = as_list(self.status()["sources"])
        except (CacheError, KeyError, TypeError):
            return ""
        opened = sum(as_int((as_dict(source).get("in_use") or {}).get("open_files") or 0) for source in sources)
        return f"; {opened} open files are served until they are closed" if opened else ""

    def log_hint(self) -> str:
        """Return where it logs."""
        if self.is_supervised():
            return f"journalctl -u {unit(self.name)} -n 20"
        return str(self.places.state(self.name) / _LOG)

    def _has_ended(self, identity: ProcessIdentity, limit_s: float) -> bool:
        deadline_ns = self.host.monotonic_ns() + limit_s * 1e9
        while is_alive(self.host, identity):
            if self.host.monotonic_ns() > deadline_ns:
                return False
            self.host.sleep(_POLL_S)
        return True

    def _remember(self, identity: ProcessIdentity) -> None:
        content = json.dumps(dataclasses.asdict(identity)).encode()
        files.write_file(self.places.state(self.name) / _PROCESS, content)
        self.launch.announce(identity)

    def started(self) -> ProcessIdentity:
        """Return the process that `start` started last in the background, running or not; NOBODY if there was none."""
        try:
            with parsing("process.json"):
                return ProcessIdentity.of(load_json(files.read_own(self.places.state(self.name) / _PROCESS)))
        except (OSError, ParseError):
            return NOBODY

    def _systemctl(self, verb: str) -> Completed:
        return self.host.run(ProcessRequest(f"systemctl {verb}", ("systemctl", verb, unit(self.name))))


def bathyd(host: Host, *words: str) -> bytes:
    """Run a verb of bathyd to its end and return what it printed. Raises CacheError with what it said."""
    request = ProcessRequest(f"bathyd {words[0]}", own_program("bathyscope.bathyd", *words))
    done = host.run(request)
    if done.exit_code != 0:
        raise _said(done.stderr, "", "bathyd")
    return done.stdout


def _said(log: bytes, cache: str, where: str) -> CacheError:
    """Return the error that bathyd ended with, which it writes as a line and a `hint:` line."""
    text = log.decode("utf-8", "replace")
    match = re.search(r"^bathyd: (.*)\nhint: (.*)", text, re.MULTILINE)
    if match is None:
        return CacheError(f"bathyd ended: {last_line(log)}", hint=where)
    return CacheError(f"cache '{cache}': {match[1]}" if cache else match[1], hint=match[2])
