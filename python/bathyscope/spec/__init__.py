"""Spec: what to run, as validated frozen values."""

from __future__ import annotations

from bathyscope.spec.step import Op, Pattern, StepSpec, Temperature
from bathyscope.spec.target import DaemonTarget, DeviceLimit, DiskTarget, FioClient, Model, Target

__all__ = [
    "DaemonTarget",
    "DeviceLimit",
    "DiskTarget",
    "FioClient",
    "Model",
    "Op",
    "Pattern",
    "StepSpec",
    "Target",
    "Temperature",
]
