"""What is captured around a step, on scripted OSDs."""

from __future__ import annotations

import json

import pytest

from bathyscope.bench.capture import HISTORY, PERF_AFTER, PERF_BEFORE, StepCapture
from bathyscope.host.fake import FakeCephSession, FakeHost
from bathyscope.spec import Target
from bathyscope.spec.plan import Capture
