"""Recorded answers: tests/fixtures/<source>/<tool version>/<name>/ as `save_raw` wrote them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st

from bathyscope.sources.base import RawAnswer, load_raw

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], list[RawAnswer]]:
    """Return a reader of recorded answers by path."""

    def read(path: str) -> list[RawAnswer]:
        answers = load_raw(FIXTURES / path)
        assert answers, f"no recorded answers in {path}"
        return answers

    return read


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
