"""What others wrote is read in bounded memory: JSON, and the words of programs."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bathyscope
from bathyscope import fields
from bathyscope.errors import ParseError
from bathyscope.load.fio_log import LogClock, intervals, read_series
from bathyscope.records import RawAnswer
from bathyscope.sources import libvirt, pg_stats

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
# Programs for another machine's Python, where nothing of ours can be imported; and the decoders that are bounded.
PLACES_OF_JSON = {
    "fields.py",
    "cache/config.py",
    "sources/pg_stats.py",
    "host/ceph_bridge.py",
    "host/load_runner.py",
    "host/node_sampler.py",
}


def peak_bytes(do: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        do()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@settings(max_examples=300)
@given(value=JSON, indent=st.sampled_from([None, 1]))
def test_json_is_what_it_says(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert fields.load_json(text) == fields.load_json(text.encode()) == value


@settings(max_examples=300)
@given(text=st.binary(max_size=40) | st.text('[]{},:"0123456789eE+-.tnfu\\ ', max_size=40))
def test_whatever_is_no_json_is_a_value_error(text: bytes | str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011 - as json.loads has it
            fields.load_json(text)
    else:
        assert repr(fields.load_json(text)) == repr(expected)


@pytest.mark.parametrize("text", [b"[" * 100_000, '{"a":' * 100_000])
def test_what_is_nested_too_deep_is_a_value_error(text: bytes | str) -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        fields.load_json(text)


@pytest.mark.parametrize("piece", [b"[],", b'{"":0},', b"1,"])
def test_json_takes_no_more_than_its_values_may(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "_JSON_SIGNS_MAX", 10_000)
    text = b"[" + piece * 100_000 + b"0]"

    def refused() -> None:
        with pytest.raises(ValueError, match="are not read"):
            fields.load_json(text)
        with pytest.raises(ParseError, match="are not read"):
            fields.json_after_noise(b'{"a":' + text + b"}", "fio")

    # The text itself, and nothing of what it would become.
    assert peak_bytes(refused) < 6 * len(text)
    assert len(fields.load_json(b"[" + piece * 2_000 + b"0]")) == 2_001


def test_all_foreign_json_is_read_in_this_one_place() -> None:
    root = Path(bathyscope.__file__).parent
    decoding = re.compile(r"\bjson\.loads?\(|JSONDecoder|raw_decode|from json import")
    found = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if decoding.search(path.read_text(encoding="utf-8"))
    }
    assert found == PLACES_OF_JSON


@pytest.mark.parametrize("words", [b"\n" * (8 << 20), b"a\n" * (4 << 20), b"x" * (8 << 20)])
def test_of_the_words_of_a_program_only_the_last_are_looked_at(words: bytes) -> None:
    assert fields.last_line(words + b"\nthe end \n") == "the end"
    assert peak_bytes(lambda: fields.last_line(words)) < 8 << 20
    value, around = fields.json_after_noise(words + b'\n{"a": 1}\nbye\n', "fio")
    assert value == {"a": 1}
    assert around[-1] == "bye"
    assert peak_bytes(lambda: fields.json_after_noise(words + b'\n{"a": 1}\n', "fio")) < len(words) + (8 << 20)


@settings(max_examples=300)
@given(
    before=st.text("ab\n {", max_size=8),
    value=st.dictionaries(st.text(max_size=3), JSON, max_size=3),
    after=st.text(max_size=8),
)
def test_an_object_between_words_is_found_or_refused(before: str, value: dict[str, Any], after: str) -> None:
    noise = f"{before}\n" if before else ""
    if "\n{" in f"\n{noise}":
        noise = noise.replace("{", "")
    found, _ = fields.json_after_noise(f"{noise}{json.dumps(value)}\n{after}".encode("utf-8", "replace"), "fio")
    assert found == value


def test_gaps_in_a_log_do_not_add_up_to_more_than_a_log() -> None:
    lines = "".join(f"{second * 1_000_000_000}, 1, 0, 4096\n" for second in range(1, 50)).encode()
    series = read_series([("x_iops.log", lines)])

    def refused() -> None:
        with pytest.raises(ValueError, match="intervals"):
            intervals(0, "c", series, LogClock(0, 2_000))

    refused()


def group_list(count: int) -> bytes:
    group = {"pgid": "1.0", "state": "active", "stat_sum": dict.fromkeys(pg_stats._COUNTERS, 1), "ü": "ü" * 9}
    return json.dumps(
        {"pg_ready": True, "pg_stats": [group | {"pgid": f"1.{n:x}"} for n in range(count)]}, ensure_ascii=False
    ).encode()


def answer_of(text: bytes) -> RawAnswer:
    return RawAnswer("pg_dump", (), (), 0, text, b"", 1, 2)


@pytest.mark.parametrize("piece", [200, 201, 202, 5000])
def test_placement_groups_are_read_piece_by_piece(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = group_list(50)
    whole = [group["pgid"] for group in pg_stats.groups(answer_of(text))]
    assert whole == [f"1.{n:x}" for n in range(50)]
    monkeypatch.setattr(pg_stats, "_PIECE_BYTES", piece)
    monkeypatch.setattr(pg_stats, "_GROUP_BYTES", 400)
    assert [group["pgid"] for group in pg_stats.groups(answer_of(text))] == whole


def test_one_placement_group_that_never_ends_is_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pg_stats, "_PIECE_BYTES", 1 << 16)
    monkeypatch.setattr(pg_stats, "_GROUP_BYTES", 1 << 15)
    text = b'{"pg_stats":[{"pgid":"1.0","x":[' + b"[]," * 1_000_000 + b"0]}]}"

    def refused() -> None:
        with pytest.raises(ParseError, match="unexpected form"):
            list(pg_stats.groups(answer_of(text)))

    assert peak_bytes(refused) < 16 << 20


def test_a_definition_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libvirt, "_DEFINITION_CHARACTERS", 10_000)
    text = "<domain>\n" + "<a/>" * 200_000 + "\n</domain>\nhost\n"
    answer = RawAnswer(f"{libvirt._LABEL}qemu:///system", (), (), 0, text.encode(), b"", 1, 2)
    assert peak_bytes(lambda: libvirt.compact(answer)) < 8 * len(text)
    assert libvirt.compact(answer).stdout == b"host\n"
