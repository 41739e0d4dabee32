"""Recorded answers: tests/fixtures/<tool>/<tool version>/<name>/, a JSON file and the streams for each answer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from bathyscope.records import RawAnswer

# These machines are shared and noisy: how long an example takes says nothing of the code.
# `make test` asks the same of the same tree each time; `make search` tries inputs that no run has seen.
settings.register_profile("shared", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("search" if os.environ.get("BATHY_SEARCH") else "shared")

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(scope="session", autouse=True)
def _unflushed() -> Iterator[None]:
    """Nobody cuts the power of a unit test, and beside labs that write a flush takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], list[RawAnswer]]:
    """Return a reader of recorded answers by path, in the order of their start."""

    def read(path: str) -> list[RawAnswer]:
        abouts = {about: json.loads(about.read_text()) for about in (FIXTURES / path).glob("*.json")}
        answers = [_read(place, about) for place, about in abouts.items() if "argv" in about]
        assert answers, f"no recorded answers in {path}"
        return sorted(answers, key=lambda answer: (answer.started_ns, answer.label))

    return read


def _read(path: Path, about: dict[str, Any]) -> RawAnswer:
    stderr, files = path.with_suffix(".stderr"), path.with_suffix(".files")
    return RawAnswer(
        label=about["label"],
        argv=tuple(about["argv"]),
        environment=tuple((name, value) for name, value in about["environment"]),
        exit_code=about["exit_code"],
        stdout=path.with_suffix(".stdout").read_bytes(),
        stderr=stderr.read_bytes() if stderr.exists() else b"",
        started_ns=about["started_ns"],
        ended_ns=about["ended_ns"],
        files=tuple((name, (files / name).read_bytes()) for name in about["files"]),
    )


@pytest.fixture(scope="session")
def mutate() -> Callable[[bytes, st.DataObject], bytes]:
    """Return a function that breaks recorded bytes in one way."""
    return _mutate


def _mutate(content: bytes, data: st.DataObject) -> bytes:
    """Cut, overwrite or exchange a piece, or replace a number by something that is none."""
    if not content:
        return content
    at = data.draw(st.integers(0, len(content)))
    kind = data.draw(st.sampled_from(["cut", "bytes", "swap", "number"]))
    if kind == "cut":
        return content[:at]
    if kind == "bytes":
        return content[:at] + data.draw(st.binary(max_size=8)) + content[at + data.draw(st.integers(0, 8)) :]
    if kind == "swap":
        other = data.draw(st.integers(0, len(content)))
        low, high = sorted((at, other))
        return content[:low] + content[high:] + content[low:high]
    words = [b"null", b'"x"', b"-1", b"1e400", b"99999999999999999999999", b"[]", b"{}", b"NaN", b"true", b"[" * 3000]
    start = content.find(b": ", at)
    end = min((p for p in (content.find(b",", start), content.find(b"\n", start)) if p >= 0), default=len(content))
    return content if start < 0 else content[: start + 2] + data.draw(st.sampled_from(words)) + content[end:]
