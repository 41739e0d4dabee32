"""Bathyscope: measure, see, size and accelerate the I/O of a Ceph cluster."""

from __future__ import annotations

__version__ = "0.1.0"
