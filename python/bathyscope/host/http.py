"""Questions to an HTTP server of the operator's: GETs side by side, bounded in time (each, and all of them) and size.

Only the standard library's client: it follows no redirect and knows no proxy, so a credential goes to the server that
was named and to no other. Certificates are verified; SSL_CERT_FILE names those of an authority of one's own.

Exit codes are those that `curl` would end with, whose command line describes a question.
"""

from __future__ import annotations

import base64
import collections
import concurrent.futures
import contextlib
import os
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bathyscope import files
from bathyscope.errors import UsageError
from bathyscope.host.base import Completed, HttpRequest

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

AUTH_VARIABLE = "BATHY_PROMETHEUS_AUTH"

UNREACHABLE, REFUSED, NO_CREDENTIAL, TIMED_OUT, TOO_LARGE = 7, 22, 26, 28, 63

_ANSWER_BYTES = 16 << 20
_ERROR_BYTES = 64 << 10
_CHUNK_BYTES = 1 << 16
_AT_ONCE = 8
_LEAST_S = 0.001
_CREDENTIAL = re.compile(r"[\x21-\x7e]{1,8192}")


def fetch(requests: Sequence[HttpRequest]) -> list[Completed]:
    """Ask; answers in the order of the requests, within the longest of their time limits. A failure is an answer."""
    started_ns, began_s = time.time_ns(), time.monotonic()
    ends_s = began_s + max((request.timeout_s for request in requests), default=0.0)
    asked: list[tuple[HttpRequest, concurrent.futures.Future[Completed]]] = []
    asked += [(request, concurrent.futures.Future()) for request in requests]
    left = collections.deque(asked)

    def work() -> None:
        with contextlib.suppress(IndexError):
            while time.monotonic() < ends_s:
                request, answer = left.popleft()
                try:
                    answer.set_result(_fetch(request, ends_s))
                except BaseException as error:  # noqa: BLE001 - it is raised where the answer is wanted
                    answer.set_exception(error)

    for _ in range(min(_AT_ONCE, len(requests))):
        # Not a pool, whose threads are waited for at our exit: nobody can interrupt a resolver that hangs.
        threading.Thread(target=work, name="bathy-http", daemon=True).start()
    done, _ = concurrent.futures.wait([answer for _, answer in asked], ends_s - time.monotonic())
    return [answer.result() if answer in done else _late(request, started_ns) for request, answer in asked]


def credential(path: str | None) -> str | None:
    """Return the value of the header Authorization: from a file, else from the environment; None without either.

    One line: USER:PASSWORD, or a bearer token, which has no colon. Raises UsageError.
    """
    if path is None:
        text, where = os.environ.get(AUTH_VARIABLE), f"the variable {AUTH_VARIABLE}"
    else:
        where = f"the credential file {path}"
        try:
            text = files.read_bounded(Path(path)).decode()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise UsageError(f"{where} cannot be read: {why}") from error
    if text is None:
        return None
    word = text.strip()
    if _CREDENTIAL.fullmatch(word) is None:
        raise UsageError(f"{where} must hold one line: USER:PASSWORD, or a bearer token")
    return f"Basic {base64.b64encode(word.encode()).decode()}" if ":" in word else f"Bearer {word}"


class _FailedError(Exception):
    """Why there is no answer, with curl's exit code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def _late(request: HttpRequest, started_ns: int) -> Completed:
    """Return what stands for the answer to a question that hangs, or that its turn never came for."""
    why = f"no whole answer within {request.timeout_s:g} s".encode()
    return Completed(request, TIMED_OUT, b"", why, started_ns, time.time_ns(), timed_out=True)


def _fetch(request: HttpRequest, ends_s: float) -> Completed:
    started_ns = time.time_ns()
    code, body, why = 0, b"", ""
    try:
        body = _get(request, min(request.timeout_s, max(_LEAST_S, ends_s - time.monotonic())))
    except _FailedError as failed:
        code, why = failed.code, str(failed)
    return Completed(request, code, body, why.encode("utf-8", "replace"), started_ns, time.time_ns(), code == TIMED_OUT)


def _get(request: HttpRequest, limit_s: float) -> bytes:
    """Return the body of a good answer that comes within `limit_s`. Raises _FailedError."""
    from http.client import HTTPException  # noqa: PLC0415 - start-up stays quick

    headers = {"Accept": "application/json", "User-Agent": "bathy"}
    try:
        authorization = credential(request.auth)
    except UsageError as error:
        raise _FailedError(NO_CREDENTIAL, error.message) from error
    if authorization is not None:
        headers["Authorization"] = authorization
    try:
        parts = urllib.parse.urlsplit(request.url)
        connection = _connection(parts, limit_s)
    except (OSError, ValueError) as error:
        # A port beyond 65535, an address that is none, a file of certificates that is none.
        raise _FailedError(UNREACHABLE, f"{request.url}: {error}") from error
    connected: list[socket.socket] = []
    late, too_late = threading.Event(), f"{parts.netloc} gave no whole answer within {request.timeout_s:g} s"

    def give_up() -> None:
        # A socket's own time limit is for each piece: a server that sends a byte at a time would hold us for hours.
        late.set()
        for each in connected:
            with contextlib.suppress(OSError):
                # Not the one of TLS, which would take the connection away from under the thread that reads.
                socket.socket.shutdown(each, socket.SHUT_RDWR)

    timer = threading.Timer(limit_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        connected.append(connection.sock)
        if late.is_set():
            # There was nothing to shut down yet: several addresses, a slow resolver.
            raise TimeoutError
        connection.request("GET", f"{parts.path}?{urllib.parse.urlencode(request.parameters)}", headers=headers)
        body = _body(connection.getresponse())
    except (OSError, HTTPException, ValueError) as error:
        if late.is_set() or isinstance(error, TimeoutError):
            raise _FailedError(TIMED_OUT, too_late) from error
        why = (isinstance(error, OSError) and error.strerror) or f"{error!r:.200}"
        raise _FailedError(UNREACHABLE, f"{parts.netloc}: {why}") from error
    finally:
        timer.cancel()
        connection.close()
    if late.is_set():
        # What was shut down looks like an answer that has ended.
        raise _FailedError(TIMED_OUT, too_late)
    return body


def _body(response: HTTPResponse) -> bytes:
    """Return the body of an answer. Raises _FailedError when it is none that is wanted."""
    from http.client import IncompleteRead  # noqa: PLC0415 - start-up stays quick

    good = response.status == 200
    most = _ANSWER_BYTES if good else _ERROR_BYTES
    body = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > most:
            raise _FailedError(TOO_LARGE, f"the answer is longer than {most >> 10} KiB")
    if good and response.length:
        raise IncompleteRead(bytes(body), response.length)
    if not good:
        said = re.sub(r"[^\x20-\x7e]+", " ", bytes(body[:200]).decode("ascii", "replace")).strip()
        moved = " (redirects are not followed)" if 300 <= response.status < 400 else ""
        raise _FailedError(REFUSED, f"HTTP {response.status}{moved}{f': {said}' if said else ''}")
    return bytes(body)


def _connection(parts: urllib.parse.SplitResult, timeout_s: float) -> HTTPConnection:
    import http.client  # noqa: PLC0415 - start-up stays quick
    import ssl  # noqa: PLC0415

    host = parts.hostname or ""
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
