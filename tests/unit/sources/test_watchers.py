"""Who has an image open, by recorded answers and by hand."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bathyscope.host import CephRequest
from bathyscope.records import Attachment, RawAnswer, from_table
from bathyscope.sources.watchers import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
SCOPE = Scope(target=Target(name="t"))


def clients(answers: list[RawAnswer]) -> list[Attachment]:
    return from_table(Attachment, SOURCE.parse(answers, SCOPE)[Attachment])


@pytest.mark.parametrize("version", ["16.2.15", "18.2.7", "20.2.4"])
def test_an_image_that_is_open_has_its_client_and_others_have_a_row_without_one(
    recorded: Recorded, version: str
) -> None:
    answers = recorded(f"images/{version}/watchers")
    assert json.loads(answers[0].stdout)[0][:3] == ["", "plain", 0]
    row, *others = clients(answers)
    assert {(other.image, other.client_address) for other in others} == {
        (image, None) for _, image, error, addresses in answers[0].json() if error in (0, 2) and not addresses
    }
    assert (row.pool, row.namespace, row.image, row.client_address) == ("rbd", "", "plain", "127.0.0.1")
    assert (row.host, row.vm, row.resolver, row.at_ns) == (None, None, "watcher", answers[0].ended_ns)


def test_addresses_of_one_machine_are_one_row() -> None:
    listed = [
        ["ns", "a", 0, ["10.0.0.4:0/1", "10.0.0.4:0/2", "[fd00::7]:0/3"]],
        ["", "gone", 2, []],
        ["", "denied", 1, []],
    ]
    answer = RawAnswer("watchers-a-b", (), (), 0, json.dumps(listed).encode(), b"", 1, 2)
    assert [(row.pool, row.image, row.client_address) for row in clients([answer])] == [
        ("a-b", "a", "10.0.0.4"),
        ("a-b", "a", "fd00::7"),
        # That nobody has it open any more; of one that cannot be opened nothing is known.
        ("a-b", "gone", None),
    ]
    assert clients([RawAnswer("watchers-a", (), (), -1, b"", b"", 1, 2)]) == []


def test_only_images_of_the_scope_are_opened() -> None:
    assert SOURCE.plan(SCOPE) == []
    watched = (("b", "", "x"), ("a", "ns", "y"), ("b", "ns", "z"))
    requests = SOURCE.plan(SCOPE.model_copy(update={"watched_images": watched}))
    assert [request.label for request in requests] == ["watchers-a", "watchers-b"]
    last = requests[-1]
    assert isinstance(last, CephRequest)
    assert last.daemon == "pool.b"
    assert dict(last.command)["images"] == [["", "x"], ["ns", "z"]]
