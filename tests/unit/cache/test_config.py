"""Configurations: what bathyd reads, what is kept of what we do not know, and what is refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from bathyscope.cache.config import CacheConfig, Places, Source
from bathyscope.errors import ParseError, UntrustedError, UsageError


def test_a_new_configuration_is_read_back_and_is_root_s_alone(places: Places) -> None:
    config = places.new("fast", "/dev/sdz").with_source(Source("a", "/srv/a", "read-only", 5))
    places.add(config)
    assert places.load("fast") == CacheConfig.parse("fast", config.content())
    assert stat.S_IMODE(places.config("fast").stat().st_mode) == 0o600
    document = json.loads(places.config("fast").read_text())
    assert document == {
        "socket": str(places.socket("fast")),
        "state": str(places.state("fast")),
        "cache": {"name": "fast", "ssd": "/dev/sdz"},
        "sources": [{"name": "a", "dir": "/srv/a", "mode": "read-only", "size_bytes": 5}],
    }
    assert places.state("fast").is_dir()
    assert places.names() == ["fast"]


def test_fields_that_are_not_known_here_are_kept() -> None:
    text = {"socket": "/s", "state": "/t", "cache": {"ssd": "/u", "policy": "lru"}, "threads": 4,
            "sources": [{"dir": "/srv/osd-3", "mode": "write-through", "tier": 1}]}  # fmt: skip
    config = CacheConfig.parse("c", json.dumps(text).encode())
    assert config.sources[0].name == "osd-3"
    changed = json.loads(config.with_source(Source("b", "/srv/b")).content())
    assert changed["cache"] == text["cache"]
    assert changed["threads"] == 4
    assert changed["sources"][0] == {"name": "osd-3", **text["sources"][0]}
    assert json.loads(config.without(config.entries[0]).content())["sources"] == []


def test_a_source_is_replaced_in_its_place() -> None:
    config = Places().new("c", "/u").with_source(Source("a", "/a")).with_source(Source("b", "/b"))
    assert [one.mode for one in config.with_source(Source("a", "/a", "read-only")).sources] == [
        "read-only", "write-through",
    ]  # fmt: skip


def test_an_entry_that_is_not_understood_is_named_with_its_line_and_kept_as_it_stands() -> None:
    document = Places().new("c", "/u").with_source(Source("a", "/a")).rest | {
        "sources": [{"dir": "/a", "mode": "read-only", "size_bytes": "x"}, {"dir": "/b", "mode": "read-only"}, 7]
    }
    content = json.dumps(document, indent=1).encode()
    notes: list[str] = []
    config = CacheConfig.parse("c", content, notes.append)
    assert [one.directory for one in config.sources] == ["/b"]
    assert [(one.name, one.directory) for one in config.unread] == [("a", "/a"), ("source-3", "")]
    assert len(notes) == 2
    assert f"line {content[: content.index(b'/a')].count(10)}: source 1" in notes[0]
    changed = json.loads(config.with_source(Source("b", "/b", "write-through")).content())["sources"]
    assert changed == [document["sources"][0], {"name": "b", "dir": "/b", "mode": "write-through"}, 7]
    assert config.directories == ["/a", "/b"]


def test_what_a_cache_has_served_is_not_what_others_serve_now(places: Places) -> None:
    places.add(places.new("fast", "/u"))
    places.add(places.new("other", "/v").with_source(Source("b", "/b")))
    places.add(places.new("broken", "/w"))
    places.config("broken").write_text("{")
    places.config("fast").write_text("{")
    session = {"is_in_use": False, "sources": {"/a": [], "/b": [], "/\\xff": []}}
    (places.state("fast") / "session.json").write_text(json.dumps(session))
    (places.state("fast") / "session.json").chmod(0o600)
    assert places.served_before("fast") == ["/a"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a b", "a\n", "ä", "x" * 65, "%i", "a;b"])
def test_a_name_that_is_not_safe_in_a_path_is_refused(places: Places, name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid name of a cache"):
        places.config(name)


def test_a_name_is_given_once(places: Places) -> None:
    places.add(places.new("fast", "/u"))
    before = places.config("fast").read_bytes()
    with pytest.raises(UsageError, match="'fast' already"):
        places.add(places.new("fast", "/v"))
    assert places.config("fast").read_bytes() == before


def test_what_others_can_write_is_refused(places: Places) -> None:
    places.add(places.new("fast", "/u"))
    places.config("fast").chmod(0o666)
    with pytest.raises(UntrustedError, match="other users can write"):
        places.load("fast")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"sources": 1, "cache": {"ssd": "/u"}}', b"\xff"])
def test_a_broken_configuration_is_a_parse_error(content: bytes) -> None:
    with pytest.raises(ParseError, match="the configuration of the cache 'c'"):
        CacheConfig.parse("c", content)


def test_a_source_is_found_by_its_name_alone_if_it_is_the_only_one(places: Places) -> None:
    for name in ("one", "two"):
        places.add(places.new(name, f"/{name}").with_source(Source("osd", f"/srv/{name}")))
    with pytest.raises(UsageError, match="several caches have a source 'osd': one, two"):
        places.find_source("osd", None, print)
    assert places.find_source("osd", "two", print)[1].directory == "/srv/two"
    with pytest.raises(UsageError, match="no cache has source 'other'"):
        places.find_source("other", None, print)


def test_a_root_too_long_for_a_socket_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too long for a socket"):
        Places(tmp_path / ("x" * 100)).new("fast", "/u")
