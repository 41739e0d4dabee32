"""A text that is made anew for each HTTP request, as Prometheus asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bathyscope.errors import BathyscopeError, EnvironmentError_, UsageError

# A client that says nothing does not keep its connection.
_PATIENCE_S = 30.0


def serve_text(
    address: str, path: str, content_type: str, text: Callable[[], str], *, note: Callable[[str], None]
) -> None:
    """Answer GET `path` at HOST:PORT with what `text` returns, until interrupted. Raises UsageError, EnvironmentError_.

    There is neither a password nor encryption: an address that others reach is the caller's decision.
    """
    with server(address, path, content_type, text) as serving:
        note(f"http://{serving.server_name}:{serving.server_port}{path}")
        serving.serve_forever()


def server(address: str, path: str, content_type: str, text: Callable[[], str]) -> ThreadingHTTPServer:
    """Return the server, which listens from now on. Raises UsageError, EnvironmentError_."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"'{address}' is not ADDRESS:PORT", hint="127.0.0.1:9780")

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_S

        def do_GET(self) -> None:
            """Answer with the text, 404 for another path, 503 when it cannot be made."""
            if self.path.partition("?")[0] != path:
                self._answer(404, f"only {path} is here\n")
                return
            try:
                said, code = text(), 200
            except BathyscopeError as error:
                said, code = f"{error.message}\n", 503
            self._answer(code, said)

        def _answer(self, code: int, said: str) -> None:
            # Who asked may be gone by now.
            with contextlib.suppress(ConnectionError):
                self._send(code, said)

        def _send(self, code: int, said: str) -> None:
            body = said.encode("utf-8", "replace")
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Do not write a line for each request."""

    try:
        return ThreadingHTTPServer((host, int(port)), Handler)
    except OSError as error:
        hint = "choose an address of this machine and a free port"
        raise EnvironmentError_(f"{address} cannot be listened at: {error.strerror}", hint=hint) from error
