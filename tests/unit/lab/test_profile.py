from __future__ import annotations

from pathlib import Path

import pytest

from bathyscope.errors import UsageError
from bathyscope.lab.profile import BUILT_IN, load_profiles


def test_built_in_figures_are_those_of_the_reference() -> None:
    assert BUILT_IN["hdd"].limit.read_iops == BUILT_IN["hdd"].limit.write_iops == 232
    assert BUILT_IN["ssd"].limit.write_iops == 85_100
    assert BUILT_IN["hdd"].rotational
    assert not BUILT_IN["ssd"].rotational


def test_file_replaces_and_adds_classes(tmp_path: Path) -> None:
    file = tmp_path / "profiles.yaml"
    file.write_text(
        "hdd: {read_iops: 100, write_iops: 90, read_bytes_per_s: 150M, write_bytes_per_s: 1e8, rotational: true}\n"
        "smr: {read_iops: 80, write_iops: 20, read_bytes_per_s: 1G, write_bytes_per_s: 30M}\n",
        encoding="utf-8",
    )
    profiles = load_profiles(file)
    assert profiles["hdd"].limit.model_dump() == {
        "read_iops": 100, "write_iops": 90, "read_bytes_per_s": 150 * 2**20, "write_bytes_per_s": 1e8,
    }  # fmt: skip
    assert profiles["smr"].write_bytes_per_s == 30 * 2**20
    assert profiles["ssd"] == BUILT_IN["ssd"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("- hdd\n", "must map"),
        ("hdd: {read_iops: 100}\n", "write_iops"),
        ("hdd: {read_iops: 0, write_iops: 1, read_bytes_per_s: 1, write_bytes_per_s: 1}\n", "read_iops"),
        ("hdd: {read_iops: 1, write_iops: 1, read_bytes_per_s: fast, write_bytes_per_s: 1}\n", "not a size"),
        ("hdd: {read_iops: 1, write_iops: 1, read_bytes_per_s: 1, write_bytes_per_s: 1, seek_ms: 8}\n", "seek_ms"),
        ("hdd: [unclosed\n", "not YAML"),
        ("hdd: 3\n", "invalid"),
        (
            "hdd: {disk: floppy, read_iops: 1, write_iops: 1, read_bytes_per_s: 1, write_bytes_per_s: 1}\n",
            "floppy.*hdd-7200-4t",
        ),
    ],
)
def test_broken_file_names_what_is_wrong(tmp_path: Path, text: str, part: str) -> None:
    file = tmp_path / "profiles.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=part):
        load_profiles(file)


def test_missing_or_binary_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_profiles(tmp_path / "absent.yaml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        load_profiles(tmp_path / "binary")
