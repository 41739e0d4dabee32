"""The script of all pages is bundled once for its versions, and never taken from somebody else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from bathyscope import chart_library


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The versions that were bundled; nothing has been kept yet."""
    asked: list[str] = []

    def bundle(_code: str, vl_version: str) -> str:
        asked.append(vl_version)
        return "a </script> <!-- in a text"

    monkeypatch.setitem(sys.modules, "vl_convert", SimpleNamespace(javascript_bundle=bundle))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return asked


def script(version: str = "5.20") -> str:
    """As a process that has not asked before."""
    chart_library.script.cache_clear()
    return chart_library.script(version)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    chart_library.script.cache_clear()


def test_it_is_bundled_once_for_a_version(bundled: list[str]) -> None:
    assert script() == script() == r"a <\/script> <\!-- in a text"
    assert bundled == ["5.20"]
    script("6.1")
    assert bundled == ["5.20", "6.1"]


def test_what_others_can_change_is_not_used(bundled: list[str], tmp_path: Path) -> None:
    right = script()
    (kept,) = (tmp_path / "cache" / "bathyscope").iterdir()
    kept.write_text("evil")
    kept.chmod(0o666)
    assert script() == right
    kept.unlink()
    kept.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("evil")
    assert script() == right


def test_it_is_made_where_nothing_can_be_kept(bundled: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no directory")
    assert script() == script()
    assert len(bundled) == 2
