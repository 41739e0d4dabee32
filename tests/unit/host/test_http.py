"""Questions over HTTP: bounded in time and size, no redirect, the credential only where it belongs."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bathyscope.errors import UsageError
from bathyscope.host import Completed, HttpRequest
from bathyscope.host import http as client
from bathyscope.host.local import LocalHost

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextlib.contextmanager
def serving(answer: Answer, certificate: Path | None = None) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):
                answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}/api/v1/query"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def good(body: bytes = b"{}", status: int = 200, **headers: str) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def trickling(ends: threading.Event) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not ends.wait(0.05):
            handler.wfile.write(b"X-A:")

    return answer


def ask(url: str, *, auth: Path | None = None, timeout_s: float = 20.0) -> Completed:
    request = HttpRequest("q", url, (("query", 'up{a="b c"}'),), None if auth is None else str(auth), timeout_s)
    (completed,) = LocalHost().fetch([request])
    return completed


def test_a_question_is_answered_and_its_parameters_are_quoted() -> None:
    asked = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append((handler.path, handler.headers["Authorization"]))
        good(b'{"status": "success"}')(handler)

    with serving(answer) as url:
        completed = ask(url)
    assert (completed.exit_code, completed.stdout, completed.stderr) == (0, b'{"status": "success"}', b"")
    assert asked == [("/api/v1/query?query=up%7Ba%3D%22b+c%22%7D", None)]


@pytest.mark.parametrize(
    ("text", "header"),
    [("u:p\n", "Basic dTpw"), ("abc.def-_~+/=", "Bearer abc.def-_~+/=")],
)
def test_a_credential_comes_from_a_file_or_the_environment_and_is_in_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, header: str
) -> None:
    (tmp_path / "auth").write_text(text)
    asked = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers["Authorization"])
        good(b"denied", 401)(handler)

    with serving(answer) as url:
        refused = ask(url, auth=tmp_path / "auth")
        monkeypatch.setenv(client.AUTH_VARIABLE, text)
        ask(url)
    assert asked == [header, header]
    assert (refused.exit_code, refused.stderr) == (client.REFUSED, b"HTTP 401: denied")
    assert text.strip() not in repr(refused)


@pytest.mark.parametrize("text", ["", "two\nlines", "a b", "\x00", "é"])
def test_a_file_without_a_credential_is_an_error_and_nothing_is_sent(tmp_path: Path, text: str) -> None:
    (tmp_path / "auth").write_text(text)
    with pytest.raises(UsageError, match="one line"):
        client.credential(str(tmp_path / "auth"))
    assert ask("http://127.0.0.1:1/", auth=tmp_path / "auth").exit_code == client.NO_CREDENTIAL
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        client.credential(str(tmp_path / "none"))


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "auth").write_text("u:p")
    asked = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        good(b"", 302, Location="/elsewhere")(handler)

    with serving(answer) as url:
        completed = ask(url, auth=tmp_path / "auth")
    assert len(asked) == 1
    assert (completed.exit_code, completed.stderr) == (client.REFUSED, b"HTTP 302 (redirects are not followed)")


def test_nobody_there_and_no_http_are_answers() -> None:
    completed = ask("http://127.0.0.1:1/api/v1/query")
    assert (completed.exit_code, completed.stderr) == (client.UNREACHABLE, b"127.0.0.1:1: Connection refused")

    with serving(lambda handler: handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n") and None) as url:
        assert ask(url).exit_code == client.UNREACHABLE
    with serving(good()) as url:
        assert ask(url.replace("http:", "https:")).exit_code == client.UNREACHABLE
    for url in ("http://127.0.0.1:99999/", "http://[::1/"):
        assert ask(url).exit_code == client.UNREACHABLE


def test_certificates_are_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an authority of one's own by SSL_CERT_FILE; and the limits hold behind TLS too."""
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=t",
    ]
    files = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "ca"), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*words, *files], check=True, capture_output=True)
    (tmp_path / "both").write_text((tmp_path / "key").read_text() + (tmp_path / "ca").read_text())
    with serving(good(b"{}"), tmp_path / "both") as url:
        refused = ask(url)
        assert refused.exit_code == client.UNREACHABLE
        assert b"certificate verify failed" in refused.stderr
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca"))
        assert (ask(url).exit_code, ask(url).stdout) == (0, b"{}")
    ends = threading.Event()
    with serving(trickling(ends), tmp_path / "both") as url:
        assert ask(url, timeout_s=1.0).exit_code == client.TIMED_OUT
        ends.set()


def test_an_answer_that_is_cut_off_is_none() -> None:
    with serving(good(b"{", **{"Content-Length": "10"})) as url:
        assert ask(url).exit_code == client.UNREACHABLE


def test_an_answer_is_bounded_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_ANSWER_BYTES", 1 << 17)
    with serving(good(b"x" * (1 << 20))) as url:
        completed = ask(url)
    assert (completed.exit_code, completed.stdout) == (client.TOO_LARGE, b"")
    assert completed.stderr == b"the answer is longer than 128 KiB"


def test_an_answer_is_bounded_in_time_however_it_trickles() -> None:
    ends = threading.Event()
    with serving(trickling(ends)) as url:
        began_s = time.monotonic()
        completed = ask(url, timeout_s=0.5)
        ends.set()
    assert (completed.exit_code, completed.timed_out) == (client.TIMED_OUT, True)
    # Without a limit for the whole it would go on for ever.
    assert time.monotonic() - began_s < 15


def test_all_questions_together_have_one_time_limit() -> None:
    """Those whose turn has not come by then are not asked any more."""
    ends, asked = threading.Event(), []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        trickling(ends)(handler)

    with serving(answer) as url:
        completed = LocalHost().fetch([HttpRequest(f"q{n}", url, (), None, 0.5) for n in range(20)])
        ends.set()
    assert [each.request.label for each in completed] == [f"q{n}" for n in range(20)]
    assert {(each.exit_code, each.timed_out) for each in completed} == {(client.TIMED_OUT, True)}
    assert len(asked) <= 8
    assert LocalHost().fetch([]) == []


def join(wanted: Callable[[threading.Thread], bool]) -> None:
    for thread in filter(wanted, threading.enumerate()):
        thread.join(60)


def test_a_resolver_that_hangs_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, resolved = threading.Event(), threading.Event()
    known = socket.getaddrinfo

    def resolver(*words: Any, **more: Any) -> Any:
        if words[0] == "slow.example":
            hangs.wait(60)
            resolved.set()
            words = ("127.0.0.1", *words[1:])
        return known(*words, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    asked = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        good()(handler)

    with serving(answer) as url:
        completed = ask(url.replace("127.0.0.1", "slow.example"), timeout_s=0.3)
        assert not resolved.is_set()
        assert (completed.exit_code, completed.timed_out) == (client.TIMED_OUT, True)
        # The time limit is over when the connection is there.
        join(lambda thread: isinstance(thread, threading.Timer))
        hangs.set()
        join(lambda thread: thread.name == "bathy-http")
    assert asked == []
