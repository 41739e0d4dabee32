"""Raw answers come back byte for byte, and a file that was torn or changed is noticed."""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bathyscope.errors import ParseError, StoreError, UntrustedError
from bathyscope.records import RawAnswer
from bathyscope.store import raw
from bathyscope.store.raw import read_raw, write_raw

times = st.integers(0, 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
answers = st.builds(
    RawAnswer,
    label=texts,
    argv=st.lists(texts, max_size=4).map(tuple),
    environment=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    exit_code=st.integers(-255, 255),
    stdout=st.binary(max_size=3000),
    stderr=st.binary(max_size=100),
    started_ns=times,
    ended_ns=times,
    files=st.lists(st.tuples(texts, st.binary(max_size=500)), max_size=3).map(tuple),
)
ANSWER = RawAnswer(
    "a", ("fio", "--x"), (("K", "v"),), 1, b"out\n" * 500, b"err", 5, 9, (("/proc/stat", b"cpu\x00\xff"),)
)


@settings(max_examples=200, deadline=None)
@given(st.lists(answers, max_size=6))
def test_round_trip(given_answers: list[RawAnswer]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "proc.zst"
        assert write_raw(path, iter(given_answers)) == len(given_answers)
        assert read_raw(path) == given_answers


def test_any_cut_and_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.zst"
    write_raw(path, [ANSWER, ANSWER])
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(ParseError, match="is damaged"):
            read_raw(path)
    # Two bits of the last bytes of a zstd frame may mean nothing; whatever is read without an error must be right.
    noticed = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            assert read_raw(path) == [ANSWER, ANSWER]
        except ParseError:
            noticed += 1
    assert noticed > 0.95 * len(whole)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.zst"
        path.write_bytes(content)
        with pytest.raises(ParseError):
            read_raw(path)


FIRST = b"bathyscope raw answers 1\n"


def header(**changes: Any) -> bytes:
    plain = {
        "label": "a", "argv": [], "environment": [], "exit_code": 0, "started_ns": 1, "ended_ns": 2, "stdout": 3,
        "stderr": 0, "files": [],
    }  # fmt: skip
    return json.dumps({**plain, **changes}).encode() + b"\n"


def write_stream(path: Path, content: bytes, *, end: bool = True) -> None:
    if end:
        content += json.dumps({"answers": 1, "crc32": zlib.crc32(content)}).encode() + b"\n"
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(content)


def test_the_format_as_it_is_described(tmp_path: Path) -> None:
    path = tmp_path / "a.zst"
    write_stream(path, FIRST + header() + b"abc")
    assert read_raw(path) == [RawAnswer("a", (), (), 0, b"abc", b"", 1, 2)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        FIRST,
        b"bathyscope raw answers 9\n" + header() + b"abc",
        FIRST + header(stdout=-1) + b"abc",
        FIRST + header(stdout=True) + b"abc",
        FIRST + header(stdout=3.0) + b"abc",
        FIRST + header(stdout=1 << 62) + b"abc",
        FIRST + header(stdout=(1 << 30) - 1) + b"abc",
        FIRST + header(files=[["x", 1 << 40]]) + b"abc",
        FIRST + header(files=["x"]) + b"abc",
        FIRST + header(files={"x": 1}) + b"abc",
        FIRST + header(label=None) + b"abc",
        FIRST + header(argv="fio") + b"abc",
        FIRST + header(environment=[["K"]]) + b"abc",
        FIRST + header(exit_code="0") + b"abc",
        FIRST + b"{}\n" + b"abc",
        FIRST + b"[]\n",
        FIRST + b"[" * 100_000 + b"\n",
        FIRST + b"x" * (17 << 20),
    ],
)
def test_hostile_content(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.zst"
    for end in (True, False):
        write_stream(path, content, end=end)
        with pytest.raises(ParseError) as caught:
            read_raw(path)
        assert str(path) in caught.value.message
        assert caught.value.hint


def test_more_after_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.zst"
    good = FIRST + header() + b"abc"
    end = json.dumps({"answers": 1, "crc32": zlib.crc32(good)}).encode() + b"\n"
    for extra in (b"x", end, header()):
        write_stream(path, good + end + extra, end=False)
        with pytest.raises(ParseError, match="does not match its checksum"):
            read_raw(path)


def test_the_operating_system_s_errors(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        read_raw(tmp_path / "none.zst")
    (tmp_path / "there.zst").write_bytes(b"")
    with pytest.raises(StoreError, match="File exists"):
        write_raw(tmp_path / "there.zst", [])
    assert (tmp_path / "there.zst").read_bytes() == b""


def test_a_file_that_unpacks_to_far_more_than_it_is_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.zst"
    with pa.OSFile(str(path), "wb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(b"bathyscope raw answers 1\n")
        header = {"label": "a", "argv": [], "environment": [], "exit_code": 0, "started_ns": 1, "ended_ns": 2}
        for _ in range(20):
            stream.write(json.dumps({**header, "stdout": 1 << 20, "stderr": 0, "files": []}).encode() + b"\n")
            stream.write(bytes(1 << 20))
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(raw, "_UNPACKED_BYTES", 8 << 20)
    read: list[int] = []
    with pytest.raises(ParseError, match="unpacks to more than 8 MiB"):
        read.extend(len(answer.stdout) for answer in raw.scan_raw(path))
    assert sum(read) < 8 << 20
    with pytest.raises(ParseError, match="unpacks to more than 8 MiB"):
        read_raw(path)


def test_real_answers_are_far_from_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand samples of an idle machine, of which only the idle time grows."""
    monkeypatch.setattr(raw, "_UNPACKED_BYTES", 0)

    def stat(number: int) -> bytes:
        return b"".join(b"cpu%d 7919 0 104729 %d 0 0 0 0 0 0\n" % (core, 99 * number + core) for core in range(64))

    given_answers = [
        RawAnswer("proc", (), (), 0, b"", b"", number * 10**9, number * 10**9 + 12345, (("/proc/stat", stat(number)),))
        for number in range(1000)
    ]
    path = tmp_path / "proc.zst"
    write_raw(path, given_answers)
    assert read_raw(path) == given_answers


def test_nothing_but_a_regular_file_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.zst")
    write_raw(tmp_path / "there.zst", [ANSWER])
    (tmp_path / "link.zst").symlink_to("there.zst")
    for name in ("fifo.zst", "link.zst"):
        with pytest.raises(UntrustedError, match="is not a regular file"):
            read_raw(tmp_path / name)
