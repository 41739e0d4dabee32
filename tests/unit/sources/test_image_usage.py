"""How much of an image exists: full, thin, absent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bathyscope.host import ProcessRequest
from bathyscope.records import ImageUsage, RawAnswer, from_table
from bathyscope.sources.image_usage import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
VERSIONS = ["16.2.15", "18.2.7", "20.2.4"]
SCOPE = Scope(target=Target(name="t"))


def usages(answers: list[RawAnswer]) -> list[ImageUsage]:
    return from_table(ImageUsage, SOURCE.parse(answers, SCOPE)[ImageUsage])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_written_image_is_full_and_a_new_one_is_thin(recorded: Recorded, version: str) -> None:
    answers = recorded(f"rbd_usage/{version}/full") + recorded(f"rbd_usage/{version}/thin")
    full, thin = usages(answers)
    assert (full.pool, full.size_bytes, full.used_bytes) == ("bathy-rec-rbd-all", 8 << 20, 8 << 20)
    assert (thin.image, thin.size_bytes, thin.used_bytes) == ("thin", 8 << 20, 0)
    assert [full.at_ns, thin.at_ns] == [answer.ended_ns for answer in answers]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_absent_image_has_no_row(recorded: Recorded, version: str) -> None:
    answers = recorded(f"rbd_usage/{version}/absent") + recorded(f"rbd_usage/{version}/thin")
    assert b"No such file" in answers[0].stderr
    assert [usage.image for usage in usages(answers)] == ["thin"]
    assert usages([]) == []


def test_names_are_arguments_never_options() -> None:
    target = Target(name="t", conf="/c", keyring="/k", client="client.bathy", root="/r")
    (request,) = SOURCE.plan(Scope(target=target, images=(("pool", "image/with@odd"),)))
    assert isinstance(request, ProcessRequest)
    assert request.argv[1:7] == ("-n", "client.bathy", "-c", "/c", "--keyring", "/k")
    assert request.argv[-2:] == ("--image", "image/with@odd")
    assert request.root == "/r"
