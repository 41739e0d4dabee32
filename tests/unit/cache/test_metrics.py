"""Metrics: what Prometheus reads is what the daemon counted; the server answers one path."""

from __future__ import annotations

import re
import socket
import sys
import threading
import urllib.error
import urllib.request

import pytest

from bathyscope.cache.curves import Curve, Point
from bathyscope.cache.metrics import CONTENT_TYPE, exposition
from bathyscope.cache.snapshots import Snapshot
from bathyscope.errors import CacheError, EnvironmentError_, UsageError
from bathyscope.host.http_server import server

from .daemons import MIB, source, status

_LINE = re.compile(r'bathy_cache_([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\} (-?[0-9.e+-]+)')


def samples(text: str) -> dict[tuple[str, str], float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = _LINE.fullmatch(line)
            assert match is not None, line
            found[match[1], match[2]] = float(match[3])
    return found


def test_every_series_is_what_the_daemon_counted() -> None:
    found = samples(exposition([Snapshot("fast", 0, status())], ["fast", "down"]))
    own = 'cache="fast",source="ceph0"'
    assert found["up", 'cache="fast"'] == 1
    assert found["up", 'cache="down"'] == 0
    assert found["read_bytes_total", f'{own},device="cache"'] == 30 * MIB
    assert found["read_bytes_total", f'{own},device="source"'] == 10 * MIB
    assert found["requests_total", f'{own},op="read"'] == 400
    assert found["evictions_total", 'cache="fast"'] == 3
    assert found["lines_refused_total", 'cache="fast"'] == 11
    assert found["file_evictions_total", 'cache="fast"'] == 1976
    assert found["file_evicted_lines_total", 'cache="fast"'] == 2001
    assert found["file_table_files_max", 'cache="fast"'] == 1024
    assert found["request_bytes_total", f'{own},op="read"'] == source()["stats"]["reads"]["bytes"]
    assert found["source_served", own] == 1
    assert found["source_lines", own] == source()["stats"]["segments_present"]
    assert found["attribute_requests_total", f'{own},op="write"'] == source()["stats"]["attribute_writes"]["misses"]
    # Not known, so not there.
    assert ("ssd_errors_total", 'cache="fast"') not in found


def test_a_source_that_cannot_be_served_is_there_and_one_that_drains_is_not() -> None:
    missing = {"name": "gone", "dir": "/gone", "is_served": False, "problem": "/gone: No such file", "hint": "make it"}
    draining = source("old") | {"is_served": False}
    found = samples(exposition([Snapshot("fast", 0, status(source(), missing, draining))], ["fast"]))
    served = {labels: value for (name, labels), value in found.items() if name == "source_served"}
    assert served == {'cache="fast",source="ceph0"': 1, 'cache="fast",source="gone"': 0}


def test_histograms_are_cumulative_in_seconds_and_end_with_all_requests() -> None:
    found = samples(exposition([Snapshot("fast", 0, status())], ["fast"]))
    own = 'cache="fast",source="ceph0",device="source",op="read"'
    assert found["request_duration_seconds_bucket", f'{own},le="0.008388608"'] == 60
    assert found["request_duration_seconds_bucket", f'{own},le="0.016777216"'] == 100
    assert found["request_duration_seconds_bucket", f'{own},le="+Inf"'] == 100
    assert found["request_duration_seconds_count", own] == 100
    assert found["request_duration_seconds_sum", own] == pytest.approx(0.8)


def test_metrics_are_declared_once_and_samples_of_one_stand_together() -> None:
    text = exposition([Snapshot("fast", 0, status(source("a"), source("b")))], ["fast"])
    places: dict[str, list[int]] = {}
    for number, line in enumerate(text.splitlines()):
        if line.startswith("# TYPE"):
            name = line.split(" ")[2]
            assert name not in places
            places[name] = [number]
        elif not line.startswith("#"):
            name = line.partition("{")[0]
            places[name if name in places else re.sub("_(bucket|sum|count)$", "", name)].append(number)
    for name, numbers in places.items():
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), name
    counters = [line.split(" ")[2] for line in text.splitlines() if line.endswith(" counter")]
    assert all(name.endswith("_total") for name in counters)


def test_curves_of_caches_and_sources_are_series_by_multiples_of_the_size() -> None:
    whole = Curve("fast", None, (Point(49, 0.5, 0.25), Point(99, 1, 0.5), Point(792, 8, 1.0)), 9, 7, "lru", None)
    own = Curve("fast", "ceph0", (Point(0, 0.25, None), Point(3, 1, 0.75)), 5, 5, "lru", None)
    hostile = Curve("x", 'a"} 1\nevil{x="', (Point(1, 1, 0.5),), 1, 1, "lru", None)
    text = exposition([Snapshot("fast", 0, status())], ["fast"], [whole, own, hostile])
    assert not any(line.startswith("evil") for line in text.splitlines())
    found = samples(text)
    assert {key: value for key, value in found.items() if "curve" in key[0] and "evil" not in key[1]} == {
        ("curve_hit_ratio", 'cache="fast",size_ratio="0.5"'): 0.25,
        ("curve_hit_ratio", 'cache="fast",size_ratio="1"'): 0.5,
        ("curve_hit_ratio", 'cache="fast",size_ratio="8"'): 1.0,
        ("curve_sampled_reads", 'cache="fast"'): 7,
        ("source_curve_hit_ratio", 'cache="fast",source="ceph0",size_ratio="1"'): 0.75,
        ("source_curve_sampled_reads", 'cache="fast",source="ceph0"'): 5,
    }


def test_names_cannot_break_out_of_a_label() -> None:
    text = exposition([Snapshot("fast", 0, status(source('a"} 1\nevil{x="')))], ["fast"])
    assert not any(line.startswith("evil") for line in text.splitlines())


def test_the_server_answers_one_path_with_a_text_made_anew() -> None:
    said = iter(["one 1\n", "two 2\n"])

    def text() -> str:
        try:
            return next(said)
        except StopIteration:
            raise CacheError("the daemon does not answer", hint="x") from None

    with server("127.0.0.1:0", "/metrics", CONTENT_TYPE, text) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        try:
            base = f"http://127.0.0.1:{serving.server_port}"
            for expected in (b"one 1\n", b"two 2\n"):
                with urllib.request.urlopen(f"{base}/metrics", timeout=10) as answer:  # noqa: S310 - our own server
                    assert answer.headers["Content-Type"] == CONTENT_TYPE
                    assert answer.read() == expected
            for path, code in (("/metrics", 503), ("/etc/passwd", 404)):
                with pytest.raises(urllib.error.HTTPError) as caught:
                    urllib.request.urlopen(base + path, timeout=10)  # noqa: S310 - our own server
                assert caught.value.code == code
                caught.value.close()
        finally:
            serving.shutdown()
            thread.join()


def test_who_hangs_up_before_the_answer_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, gone, problems = threading.Event(), threading.Event(), []

    def text() -> str:
        asked.set()
        assert gone.wait(10)
        return "x" * (16 << 20)

    with server("127.0.0.1:0", "/metrics", CONTENT_TYPE, text) as serving:
        monkeypatch.setattr(serving, "handle_error", lambda *_: problems.append(sys.exception()))
        # Closing the server waits for its answers.
        serving.daemon_threads = False
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        with socket.create_connection(("127.0.0.1", serving.server_port)) as client:
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert asked.wait(10)
        gone.set()
        serving.shutdown()
        thread.join()
    assert problems == []


@pytest.mark.parametrize("address", ["9780", ":9780", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"])
def test_an_address_without_a_host_or_a_port_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="is not ADDRESS:PORT"):
        server(address, "/", "text/plain", str)


def test_a_port_that_is_taken_is_an_error_of_this_machine() -> None:
    with server("127.0.0.1:0", "/", "text/plain", str) as one, pytest.raises(EnvironmentError_):
        server(f"127.0.0.1:{one.server_port}", "/", "text/plain", str)
