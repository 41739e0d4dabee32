"""Spec: what to run, as validated frozen values."""

from __future__ import annotations

from bathyscope.spec.step import Op, Pattern, StepSpec, Temperature
from bathyscope.spec.target import (
    BluefsDevice,
    ClientHost,
    DaemonTarget,
    DeviceLimit,
    DiskTarget,
    FioClient,
    Model,
    PrometheusAccess,
    SshAccess,
    Target,
)

__all__ = [
    "BluefsDevice",
    "ClientHost",
    "DaemonTarget",
    "DeviceLimit",
    "DiskTarget",
    "FioClient",
    "Model",
    "Op",
    "Pattern",
    "PrometheusAccess",
    "SshAccess",
    "StepSpec",
    "Target",
    "Temperature",
]
