"""Host: the only place that starts processes, reads the clock and talks to the cluster."""

from __future__ import annotations

from bathyscope.host.base import (
    CephRequest,
    CephSession,
    Completed,
    Elsewhere,
    Host,
    HttpRequest,
    NodeAnswer,
    NodeRequest,
    ProcessRequest,
    ReadRequest,
    Request,
    Running,
    SocketAnswer,
    SocketRequest,
    answer_json,
    is_denied,
)

__all__ = [
    "CephRequest",
    "CephSession",
    "Completed",
    "Elsewhere",
    "Host",
    "HttpRequest",
    "NodeAnswer",
    "NodeRequest",
    "ProcessRequest",
    "ReadRequest",
    "Request",
    "Running",
    "SocketAnswer",
    "SocketRequest",
    "answer_json",
    "is_denied",
]
