"""What the daemon of a cache answered, as values, and what was counted between two answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bathyscope.fields import as_dict, as_float, as_list, parsing

if TYPE_CHECKING:
    from bathyscope.cache.config import CacheConfig, Source, Unread

RUNNING = "running"
# Upper bounds of latencies are powers of two, so a percentile from buckets can be twice the true one.
BUCKET_FACTOR = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """A status of a cache's daemon at `at_ns`, nanoseconds since the Unix epoch."""

    cache: str
    at_ns: int
    answer: dict[str, Any]

    @classmethod
    def of_down(cls, cache: str, at_ns: int, state: str, problem: str, config: CacheConfig | None) -> Snapshot:
        """Return what is known of a cache that no daemon answers for; `config` is None where it cannot be read."""
        answer = {
            "state": state,
            "uptime_s": 0.0,
            "cache": {"ssd": None if config is None else config.ssd, "problem": problem},
            "sources": [] if config is None else [_unserved(source, problem) for source in config.sources],
        }
        down = cls(cache, at_ns, answer)
        return down if config is None else down.with_sources_of(config)

    def with_sources_of(self, config: CacheConfig) -> Snapshot:
        """Return it with the sources that are configured and that the daemon does not name.

        They were stopped since its start, or are not understood.
        """
        sources = {*self.sources(), *(name for name, _ in self.stopped())}
        stopped = "stopped; serve it: bathy cache source start"
        missing = [
            *(_unserved(source, f"{stopped} {source.name}") for source in config.sources if source.name not in sources),
            *(_unserved(entry, entry.problem) for entry in config.unread if entry.name not in sources),
        ]
        return dataclasses.replace(self, answer=self.answer | {"sources": [*self._entries(), *missing]})

    def with_bad_configuration(self, problem: str) -> Snapshot:
        """Return it with what is wrong with a configuration that the next start of the daemon would refuse."""
        return dataclasses.replace(self, answer=self.answer | {"configuration_problem": problem})

    @property
    def state(self) -> str:
        """What the daemon does: it is running, or why it is not."""
        return str(self.answer.get("state", RUNNING))

    def is_served(self, source: str | None = None) -> bool:
        """Return whether the cache is, with its sources or the one that is named, without a problem of theirs.

        Of a source that is served, a device may not be. With a bad configuration none is after the next start. Raises
        ParseError.
        """
        served = self.sources()
        troubled = {name for name, _ in self.stopped() if name not in served}
        troubled |= {name for name, entry in served.items() if entry.get("problem")}
        is_up = self.state == RUNNING and not self.answer.get("configuration_problem")
        return is_up and not any(source in {None, name} for name in troubled)

    @property
    def uptime_s(self) -> float:
        """How long the daemon had run. Raises ParseError."""
        with parsing(f"the status of the cache '{self.cache}'"):
            return as_float(self.answer["uptime_s"])

    def sources(self) -> dict[str, dict[str, Any]]:
        """Return what it said of each source that is served, by name. Raises ParseError."""
        with parsing(f"the status of the cache '{self.cache}'"):
            return {source_name(entry): entry for entry in self._entries() if is_served(entry)}

    def stopped(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what it said of sources that were stopped while files were open, with their names. Raises ParseError.

        A source can be among them and be served anew, and it can be among them more than once.
        """
        with parsing(f"the status of the cache '{self.cache}'"):
            return [(source_name(entry), entry) for entry in self._entries() if not is_served(entry)]

    def _entries(self) -> list[dict[str, Any]]:
        return [as_dict(entry) for entry in as_list(self.answer["sources"])]


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A thing (a source, a cache) from one answer to a later one; `before` is None from the daemon's start on.

    `uptime_s` is how long the daemon had run at the later answer.
    """

    cache: str
    name: str
    seconds: float
    uptime_s: float
    now: dict[str, Any]
    before: dict[str, Any] | None = None

    def gauge(self, path: str) -> float | None:
        """Return a value as it is now; None where it is not known. Raises ParseError."""
        return _number(self.now, path)

    def text(self, path: str) -> str | None:
        """Return a text as it is now; None where there is none."""
        value = _at(self.now, path)
        return None if value is None else str(value)

    def count(self, path: str) -> float | None:
        """Return by how much a counter has grown; None where it is not known, or has begun anew. Raises ParseError."""
        now = _number(self.now, path)
        before = 0.0 if self.before is None else _number(self.before, path)
        return None if now is None or before is None or now < before else now - before

    def rate(self, path: str) -> float | None:
        """Return by how much a counter has grown a second."""
        grown = self.count(path)
        return None if grown is None or self.seconds <= 0 else grown / self.seconds

    def mean_ns(self, path: str) -> float | None:
        """Return the mean latency of the requests between the answers; None without requests."""
        requests = self.count(f"{path}.requests")
        total = latency_total_ns(self.now, path)
        before = 0.0 if self.before is None else latency_total_ns(self.before, path)
        return None if not requests or total is None or before is None else max(0.0, total - before) / requests

    def percentile_ns(self, path: str, name: str, share: float) -> float | None:
        """Return a percentile of latencies: the daemon's own from its start on, else the bound of its bucket."""
        if self.before is None and (latency_ns := _number(self.now, f"{path}.latency_ns_{name}")) is not None:
            return latency_ns
        requests = self.count(f"{path}.requests")
        if not requests:
            return None
        bounds, before = latency_buckets(self.now, path), dict(latency_buckets(self.before or {}, path))
        return next((upper for upper, count in bounds if count - before.get(upper, 0.0) >= share * requests), None)


def _unserved(source: Source | Unread, problem: str) -> dict[str, Any]:
    return {**source.document(), "is_served": False, "problem": problem}


def is_served(entry: dict[str, Any]) -> bool:
    """Return whether a source in an answer is served to all, and not only to those who have its files open."""
    return entry.get("is_served", True) is True


def source_name(entry: dict[str, Any]) -> str:
    """Return the name of a source in an answer, as a configuration without one names it. Raises KeyError."""
    return str(entry.get("name") or str(entry["dir"]).rpartition("/")[2])


def spans(
    snapshots: Iterator[tuple[Snapshot, Snapshot | None]] | list[tuple[Snapshot, Snapshot | None]],
) -> tuple[list[Span], list[Span]]:
    """Return the spans of caches and of their sources that are served, from (later, earlier answer)."""
    caches, sources = [], []
    for now, before in snapshots:
        seconds = now.uptime_s if before is None else now.uptime_s - before.uptime_s
        earlier_answer = None if before is None else before.answer
        caches.append(Span(now.cache, now.cache, seconds, now.uptime_s, now.answer, earlier_answer))
        earlier = {} if before is None else before.sources()
        for name, entry in sorted(now.sources().items()):
            sources.append(Span(now.cache, name, seconds, now.uptime_s, entry, earlier.get(name)))
    return caches, sources


def is_continued(now: Snapshot, before: Snapshot) -> bool:
    """Return whether both answers are of one run of the daemon, so that counters have grown between them."""
    # The time between two answers is known a little later than the answers themselves.
    same_process = now.answer.get("pid") == before.answer.get("pid")
    return same_process and now.uptime_s >= before.uptime_s


def _at(document: dict[str, Any], path: str) -> Any:
    value: Any = document
    for key in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _number(document: dict[str, Any], path: str) -> float | None:
    value = _at(document, path)
    if value is None or isinstance(value, bool):
        return None
    with parsing(f"'{path}' in the answer of a cache's daemon"):
        return value if isinstance(value, int) else as_float(value)


def latency_total_ns(document: dict[str, Any], path: str) -> float | None:
    """Return the sum of all latencies; 0 before the first request, None where they are not measured."""
    requests, mean = _number(document, f"{path}.requests"), _number(document, f"{path}.latency_ns_mean")
    return 0.0 if requests == 0 else None if requests is None or mean is None else requests * mean


def latency_buckets(document: dict[str, Any], path: str) -> list[tuple[float, float]]:
    """Return (upper bound in ns, requests up to it) since the daemon's start. Raises ParseError."""
    with parsing(f"'{path}.buckets' in the answer of a cache's daemon"):
        pairs = as_list(_at(document, f"{path}.buckets") or [])
        return [(as_float(upper), as_float(count)) for upper, count in pairs]
