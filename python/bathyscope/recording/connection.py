"""A connection that is made again when it was lost: what days of recording ask through."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from bathyscope.errors import BathyscopeError, UnreachableError
from bathyscope.host import CephRequest, CephSession, Completed


class LastingSession(CephSession):
    """A session that connects when it is asked, and again after a loss. Thread-safe.

    Whoever meets the loss gets UnreachableError; the next command connects again. What `connect` raises (no monitor, a
    wrong keyring) is raised by the command.
    """

    def __init__(self, connect: Callable[[], CephSession]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._session: CephSession | None = None
        self._attempts = 0
        self._refusal: BathyscopeError | None = None

    def commands(self, requests: Sequence[CephRequest]) -> list[Completed]:
        """Send several commands side by side. Raises UnreachableError, and what connecting raises."""
        session = self._open()
        try:
            return session.commands(requests)
        except UnreachableError:
            with self._lock:
                ours = self._session is session
                if ours:
                    self._session = None
            if ours:
                session.close()
            raise

    def close(self) -> None:
        """End the connection; a later command makes a new one."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def _open(self) -> CephSession:
        """Return the session, connecting when there is none; who waited for another's failed attempt shares it."""
        attempts = self._attempts
        with self._lock:
            if self._session is not None:
                return self._session
            if self._attempts != attempts and self._refusal is not None:
                raise self._refusal
            self._attempts += 1
            try:
                self._session = self._connect()
                self.client = self._session.client
            except BathyscopeError as error:
                self._refusal = error
                raise
            return self._session
