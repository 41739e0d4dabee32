"""Host: the only place that starts processes, reads the clock and talks to the cluster."""

from __future__ import annotations

from bathyscope.host.base import CephRequest, CephSession, Completed, Host, ProcessRequest, Request, Running

__all__ = ["CephRequest", "CephSession", "Completed", "Host", "ProcessRequest", "Request", "Running"]
