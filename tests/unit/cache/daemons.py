"""A daemon that answers as the protocol says, and whose counters a test sets."""

from __future__ import annotations

import contextlib
import copy
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MIB = 1 << 20


def latencies(requests: int, mean_ns: float = 0, buckets: list[list[int]] | None = None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"requests": requests, "bytes": requests * 4096, "buckets": buckets or []}
    return found | ({"latency_ns_mean": mean_ns} if requests else {}) | more


def ops(requests: int = 0, hit: int = 0, partial: int = 0) -> dict[str, int]:
    return {"requests": requests, "requests_hit": hit, "requests_partial": partial,
            "bytes": requests * 4096, "bytes_hit": hit * 4096}  # fmt: skip


def source(name: str = "ceph0", **more: Any) -> dict[str, Any]:
    return {
        "name": name, "dir": f"/var/lib/ceph/osd/{name}", "mode": "write-through", "size_bytes": 95 * MIB,
        "is_served": True, "in_use": {"open_files": 1},
        "io": {"cache_read_bytes": 30 * MIB, "cache_write_bytes": 2 * MIB,
               "source_read_bytes": 10 * MIB, "source_write_bytes": MIB, "compared_bytes": 4 * MIB},
        "usage": {"capacity_bytes": 95 * MIB, "used_bytes": 19 * MIB, "used_bytes_max": 38 * MIB, "files": 7,
                  "cached_bytes": 2 * MIB},
        "iops": {
            "cache": {"reads": latencies(300, 30_000, [[32768, 290], [65536, 300]], latency_ns_p50=29_000,
                                         latency_ns_p99=60_000, latency_ns_p999=61_000, latency_ns_max=62_000),
                      "writes": latencies(0)},
            "source": {"reads": latencies(100, 8_000_000, [[8388608, 60], [16777216, 100]], latency_ns_p99=16e6),
                       "writes": latencies(50, 4_000_000, [[8388608, 50]])},
        },
        "stats": {"files": 7, "segments_cached": 304, "segments_present": 300, "segments_uncached": 4,
                  "reads": ops(400, 300, 20) | {"bytes": 40 * MIB, "bytes_hit": 30 * MIB}, "writes": ops(50, 5),
                  "attribute_reads": {"hits": None, "misses": 12}, "attribute_writes": {"hits": None, "misses": 3},
                  "links": {"cached": None, "hits": None, "misses": 1}, "pending": 2,
                  "bypassed": {"stream": 9, "error": 0}},
    } | more  # fmt: skip


def status(*sources: dict[str, Any], uptime_s: float = 100.0, pid: int = 7, **cache: Any) -> dict[str, Any]:
    engine = {"capacity_bytes": 1024 * MIB, "used_bytes": 19 * MIB, "ssd_write_bytes": 5 * MIB, "evictions": 3,
              "refused": 11, "ssd_writes": {"data_bytes": 4 * MIB, "line_table_bytes": MIB},
              "file_table": {"files": 1000, "files_max": 1024, "evictions": 1976, "evicted_lines": 2001},
              "memory_bytes": MIB, "is_bypassed": False, "policy": "s3-fifo", "line_bytes": 65536}  # fmt: skip
    about = {"name": "fast", "ssd": "/dev/sdz", "problem": None, "found": "clean", "engine": engine} | cache
    return {"protocol": 1, "uptime_s": uptime_s, "pid": pid, "cache": about, "sources": [*(sources or [source()])]}


class FakeDaemon:
    """Serves a socket; `answers` maps a query or command to its answer or to an error as (text, hint)."""

    def __init__(self, socket: Path, **answers: Any) -> None:
        self.socket = socket
        self.answers: dict[str, Any] = {"status": status(), **answers}
        self.asked: list[dict[str, Any]] = []

    def reply(self, line: bytes) -> dict[str, Any]:
        request = json.loads(line)
        self.asked.append(request)
        found = self.answers.get(request.get("query") or request["command"], ("not known", "another version"))
        if callable(found):
            found = found(request)
        if isinstance(found, tuple):
            return {"ok": False, "error": found[0], "hint": found[1]}
        return {"ok": True, "answer": copy.deepcopy(found)}

    @property
    def commands(self) -> list[dict[str, Any]]:
        return [request for request in self.asked if "command" in request]


@contextlib.contextmanager
def serving(socket: Path, **answers: Any) -> Iterator[FakeDaemon]:
    daemon = FakeDaemon(socket, **answers)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                self.wfile.write(json.dumps(daemon.reply(line)).encode() + b"\n")

    socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    server = socketserver.ThreadingUnixStreamServer(str(socket), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield daemon
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        socket.unlink()
