"""The operator's file of attachments: what it may say, and how a mistake in it is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bathyscope.errors import ParseError
from bathyscope.host import ProcessRequest
from bathyscope.records import Attachment, RawAnswer, from_table
from bathyscope.sources.attachment_file import SOURCE, rows
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

PATH = "/etc/bathyscope/vms.csv"
SCOPE = Scope(target=Target(name="t", attachments=PATH))


def answer(content: bytes, code: int = 0) -> RawAnswer:
    return RawAnswer("attachment_file", ("cat", "--", PATH), (), code, content, b"", 1, 2)


def parse(content: bytes, code: int = 0) -> list[Attachment]:
    return from_table(Attachment, SOURCE.parse([answer(content, code)], SCOPE)[Attachment])


def test_only_a_file_that_is_named_is_read_whatever_its_name() -> None:
    assert SOURCE.plan(Scope(target=Target(name="t"))) == []
    (request,) = SOURCE.plan(Scope(target=Target(name="t", attachments="-n")))
    assert isinstance(request, ProcessRequest)
    assert request.argv == ("cat", "--", "-n")
    assert parse(b"", code=1) == []


def test_images_with_and_without_pool_and_namespace() -> None:
    found = parse(b"image,host,vm\nrbd/a,kvm1,web\nrbd/tenant/b,,db\n c , kvm3 ,\n")
    assert [(row.pool, row.namespace, row.image, row.host, row.vm) for row in found] == [
        ("rbd", "", "a", "kvm1", "web"),
        ("rbd", "tenant", "b", None, "db"),
        ("*", "", "c", "kvm3", None),
    ]
    assert {(row.resolver, row.at_ns, row.client_address) for row in found} == {("csv", 2, None)}


def test_addresses_of_machines_and_the_habits_of_spreadsheets() -> None:
    text = '\ufeffHost,Address,owner\r\n"kvm1, rack 2",10.0.0.4:0/33,x\r\n\r\n,,\r\nkvm2,fd00::7,\r\n'
    found = parse(text.encode())
    assert [(row.pool, row.image, row.client_address, row.host) for row in found] == [
        ("*", "*", "10.0.0.4", "kvm1, rack 2"),
        ("*", "*", "fd00::7", "kvm2"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 0: the header must name image or address, and host or vm: image,host,vm"),
        (b"pool,host\n", "line 1: the header must name image or address"),
        (b"image,size\n", "line 1: the header must name image or address, and host or vm"),
        (b"image,host\nrbd/a,kvm1\nrbd/b\n", "line 3: 1 cells, and the header names 2"),
        (b"image,host\n,kvm1\n", "line 2: neither an image nor an address"),
        (b"image,host\na/b/c/d,kvm1\n", "line 2: 'a/b/c/d' is not an image: POOL/IMAGE or POOL/NAMESPACE/IMAGE"),
        (b"image,host\nrbd/,kvm1\n", "line 2: 'rbd/' is not an image"),
        (b"image,host\nrbd/" + b"x" * 200_000 + b",y\n", "line 2: field larger than field limit"),
    ],
)
def test_a_mistake_is_told_with_its_line(content: bytes, message: str) -> None:
    with pytest.raises(ParseError, match=message) as raised:
        parse(content)
    assert raised.value.message.startswith(f"{PATH}, line ")


@given(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(lambda text: b"image,host\n" + text.encode())))
def test_whatever_is_in_it_is_rows_or_a_parse_error(content: bytes) -> None:
    try:
        list(rows(content, PATH))
        parse(content)
    except ParseError:
        pass
