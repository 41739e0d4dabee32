"""How much of an image or of objects exists: full, thin, absent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bathyscope.errors import ParseError, ToolError
from bathyscope.sources import rbd_usage
from bathyscope.sources.base import RawAnswer
from bathyscope.spec import Target

Recorded = Callable[[str], list[RawAnswer]]
Mutate = Callable[[bytes, st.DataObject], bytes]
VERSIONS = ["16.2.15", "18.2.7", "20.2.4"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_written_image_is_full_and_a_new_one_is_thin(recorded: Recorded, version: str) -> None:
    full = rbd_usage.parse("p", recorded(f"rbd_usage/{version}/full")[0])
    assert (full.size_bytes, full.used_bytes, full.written_ratio) == (8 << 20, 8 << 20, 1.0)
    thin = rbd_usage.parse("p", recorded(f"rbd_usage/{version}/thin")[0])
    assert (thin.image, thin.size_bytes, thin.used_bytes, thin.written_ratio) == ("thin", 8 << 20, 0, 0.0)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_absent_image_is_a_tool_error(recorded: Recorded, version: str) -> None:
    with pytest.raises(ToolError, match="No such file"):
        rbd_usage.parse("p", recorded(f"rbd_usage/{version}/absent")[0])


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_counted_by_their_prefix(recorded: Recorded, version: str) -> None:
    answer = recorded(f"rbd_usage/{version}/objects")[0]
    assert rbd_usage.count_objects(answer, "objects-8M-obj1M-0") == 8
    assert rbd_usage.count_objects(answer, "objects-8M-obj1M") == 0
    with pytest.raises(ToolError):
        rbd_usage.count_objects(dataclasses.replace(answer, exit_code=2), "x")


def test_names_are_arguments_never_options() -> None:
    target = Target(name="t", conf="/c", keyring="/k", client="client.bathy", root="/r")
    (request,) = rbd_usage.plan(target, [("pool", "image/with@odd")])
    assert request.argv[1:7] == ("-n", "client.bathy", "-c", "/c", "--keyring", "/k")
    assert request.argv[-2:] == ("--image", "image/with@odd")
    assert request.root == "/r"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_broken_output_is_a_parse_error_and_nothing_else(
    recorded: Recorded, mutate: Mutate, data: st.DataObject
) -> None:
    answer = recorded("rbd_usage/16.2.15/full")[0]
    try:
        rbd_usage.parse("p", dataclasses.replace(answer, stdout=mutate(answer.stdout, data)))
    except ParseError:
        return
