"""What images there are and what each is: read from where librbd keeps it, since `rbd info` is a process an image.

`rbd_directory` of each namespace of a pool names its images, `rbd_trash` those in the trash, and `rbd_header.ID` says
what one is. An image in the trash is named "NAME (trash)": it can still be read, as the parent of clones. Images of the
first format, which RBD stopped making in 2016, are not listed. A header that is not understood makes no row: everyone
who may write to an image can spoil it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bathyscope.errors import ParseError
from bathyscope.fields import as_dict, as_int, as_list, parsing
from bathyscope.host import Request
from bathyscope.records import Image, RawAnswer, Record, Tables
from bathyscope.sources.shape import Columns, Source, ask
from bathyscope.spec.scope import Scope

_LABEL = "images-"
_COUNT_MAX = 50_000
_LOOK_S = 15.0
# From 4 KiB to 32 MiB, and what another release may allow.
_ORDERS = range(9, 41)

Key = tuple[int, str, str]


class Images:
    """The listing of each pool that may hold images."""

    name = "images"
    records: tuple[type[Record], ...] = (Image,)
    period_s = 300.0
    timeout_s = 20.0
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one command for each pool."""
        return [
            ask(f"{_LABEL}{pool}", f"pool.{pool}", "images", self.timeout_s, count=_COUNT_MAX, seconds=_LOOK_S)
            for pool in scope.rbd_pools
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return a row for each image."""
        listed = [(answer, entry) for answer in answers for entry in _entries(answer)]
        pools = {number: name for name, number in scope.pools.items()}
        names = {(scope.pools.get(pool, -1), space, image): name for _, (pool, space, image, name, _) in listed}
        columns = Columns(Image)
        for answer, (pool, namespace, image, name, header) in listed:
            with contextlib.suppress(ParseError):
                columns.add(
                    at_ns=answer.ended_ns,
                    pool=pool,
                    namespace=namespace,
                    image=name,
                    image_id=image,
                    **_shape(header, pools, names),
                )
        return {Image: columns.table()}


SOURCE: Source = Images()


def caveats(answers: Sequence[RawAnswer]) -> list[str]:
    """Return a sentence for each pool whose images were not all read, by its latest answer. Raises ParseError."""
    left = {}
    for answer in answers:
        if answer.exit_code == 0:
            with parsing(answer.label):
                left[answer.label.removeprefix(_LABEL)] = as_int(as_dict(answer.json())["left"])
    return [
        f"{count} images of the pool {pool} were not looked at: there are more than {_COUNT_MAX}, "
        f"reading them took longer than {_LOOK_S:g} s, or they have larger entries than librbd writes"
        for pool, count in sorted(left.items())
        if count > 0
    ]


def _entries(answer: RawAnswer) -> Iterator[tuple[str, str, str, str, Mapping[str, bytes]]]:
    """Yield (pool, namespace, id, name, header) of each image in an answer."""
    if answer.exit_code != 0:
        return
    seen = set()
    with parsing(answer.label):
        for entry in as_list(as_dict(answer.json())["images"]):
            namespace, place, image, text, header = as_list(entry)
            # While an image moves to the trash it is in both.
            if (namespace, image) in seen:
                continue
            seen.add((namespace, image))
            values = {key: bytes.fromhex(value) for key, value in as_dict(header).items()}
            with contextlib.suppress(ParseError):
                name = _name(bytes.fromhex(text), in_trash=place == "rbd_trash")
                yield answer.label.removeprefix(_LABEL), str(namespace), str(image), name, values


def _name(entry: bytes, *, in_trash: bool) -> str:
    """Return the name of an image by its entry in the directory, or in the trash. Raises ParseError."""
    with parsing("an image's name"):
        encoded = _Encoded(entry)
        if not in_trash:
            return encoded.text()
        _, specification = encoded.section()
        # Who put it there.
        specification.number(1)
        return f"{specification.text()} (trash)"


def _shape(header: Mapping[str, bytes], pools: Mapping[int, str], names: Mapping[Key, str]) -> dict[str, Any]:
    """Return the columns that the header gives. Raises ParseError."""
    with parsing("an image's header"):
        order = _Encoded(header["order"]).number(1)
        if order not in _ORDERS:
            raise ParseError(f"an image whose objects have 2 to the power of {order} bytes")
        unit, count = (_Encoded(header.get(key, bytes(8))).number(8) for key in ("stripe_unit", "stripe_count"))
        data_pool = _Encoded(header.get("data_pool_id", b"\xff" * 8)).number(8, signed=True)
        return {
            "size_bytes": as_int(_Encoded(header["size"]).number(8)),
            "object_size_bytes": 1 << order,
            "stripe_unit_bytes": as_int(unit or 1 << order),
            "stripe_count": as_int(count or 1),
            "data_pool": pools.get(data_pool, str(data_pool)) if data_pool >= 0 else None,
            "parent": _parent(header["parent"], pools, names) if header.get("parent") else None,
        }


def _parent(value: bytes, pools: Mapping[int, str], names: Mapping[Key, str]) -> str | None:
    """Return the image that one was cloned from; its id stands for a name that is not known. Raises ValueError.

    Only snapshots still have a parent when the image itself has none of its data any more.
    """
    version, encoded = _Encoded(value).section()
    pool = encoded.number(8, signed=True)
    namespace = encoded.text() if version > 1 else ""
    image = encoded.text()
    # Its snapshot.
    encoded.number(8)
    if pool < 0 or (version > 1 and not encoded.number(1)):
        return None
    parts = (pools.get(pool, str(pool)), namespace, names.get((pool, namespace, image), image))
    return "/".join(part for part in parts if part)


class _Encoded:
    """Reads what Ceph encoded: numbers from their lowest byte on, text after its length. Raises ValueError."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def _take(self, count: int) -> bytes:
        if count > len(self._content):
            raise ValueError("it is cut off")
        taken, self._content = self._content[:count], self._content[count:]
        return taken

    def number(self, size_bytes: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._take(size_bytes), "little", signed=signed)

    def text(self) -> str:
        return self._take(self.number(4)).decode("utf-8", "replace")

    def section(self) -> tuple[int, _Encoded]:
        """Return the version of a structure, and what it holds."""
        version, _ = self.number(1), self.number(1)
        return version, _Encoded(self._take(self.number(4)))
