"""NOTICE lists the crates that are linked, and one toolchain builds them."""

from __future__ import annotations

import re
import tomllib

from tests.unit.docs.generators import ROOT, generator


def test_the_notice_lists_the_crates_and_their_licences() -> None:
    assert (ROOT / "NOTICE").read_text() == generator("notice").text(), "run `make docs`"


def test_every_direct_dependency_is_among_them_at_the_version_of_the_lock() -> None:
    listed = dict(
        line.split(": ", 1) for line in (ROOT / "NOTICE").read_text().split(generator("notice").TITLE)[1].splitlines()
    )
    assert all(listed.values())
    locked = {f"{crate['name']} {crate['version']}" for crate in _toml("Cargo.lock")["package"] if "source" in crate}
    assert listed.keys() <= locked
    names = {entry.split()[0] for entry in listed}
    own = {path.parent.name for path in ROOT.glob("crates/*/Cargo.toml")}
    for manifest in ROOT.glob("crates/*/Cargo.toml"):
        assert tomllib.loads(manifest.read_text()).get("dependencies", {}).keys() - own <= names, manifest


def test_the_toolchain_is_one_version_that_can_build_it() -> None:
    channel = _toml("rust-toolchain.toml")["toolchain"]["channel"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", channel)
    least = _toml("Cargo.toml")["workspace"]["package"]["rust-version"]
    assert [int(part) for part in channel.split(".")] >= [int(part) for part in least.split(".")]


def _toml(name: str) -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / name).read_text())
    return found
