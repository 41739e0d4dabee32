from __future__ import annotations

import pytest

from bathyscope.errors import EnvironmentError_
from bathyscope.lab import releases

SECURITY = "http://mirror.example/debian-security/|bookworm-security|main|Debian"
UPDATES = "http://mirror.example/debian/|bookworm-updates|main|Debian"
MAIN = "http://mirror.example/debian/|bookworm|main|Debian"
FOREIGN = "https://vendor.example/apt/|stable|main|Vendor"


def test_the_main_archive_is_chosen() -> None:
    assert releases.mirror("\n".join([FOREIGN, SECURITY, UPDATES, MAIN])) == "http://mirror.example/debian/"


def test_before_the_first_update_apt_does_not_know_the_origin() -> None:
    assert releases.mirror("http://m.example/debian/|trixie|main|$(ORIGIN)") == "http://m.example/debian/"


@pytest.mark.parametrize("listing", ["", "garbage", FOREIGN, SECURITY, "|||", "cdrom:[x]/|bookworm|main|Debian"])
def test_no_archive_is_an_error_with_a_hint(listing: str) -> None:
    with pytest.raises(EnvironmentError_) as caught:
        releases.mirror(listing)
    assert caught.value.hint


def test_only_what_the_mirror_needs_is_passed_on() -> None:
    dump = """\
APT::Architecture "amd64";
Acquire::Check-Valid-Until "false";
Acquire::http::Proxy "http://proxy.example:3142";
Acquire::https::CAInfo "/etc/ssl/own.pem";
Acquire::http "";
DPkg::Post-Invoke:: "rm -rf /";
Acquire::Languages:: "none";
"""
    assert releases.passed_options(dump) == [
        'Acquire::Check-Valid-Until "false";',
        'Acquire::http::Proxy "http://proxy.example:3142";',
        'Acquire::https::CAInfo "/etc/ssl/own.pem";',
    ]


@pytest.mark.parametrize(
    ("release", "installed", "needed"),
    [(None, None, False), ("pacific", 16, False), ("tentacle", 16, True), ("pacific", 18, True), ("reef", None, True)],
)
def test_a_root_is_needed_only_for_what_is_not_installed(
    release: releases.Release | None, installed: int | None, needed: bool
) -> None:
    assert releases.needed(release, installed) is needed
