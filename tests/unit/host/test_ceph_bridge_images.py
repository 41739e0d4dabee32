"""How the bridge reads images: page by page, many headers at once, within a count and a time."""

from __future__ import annotations

import ast
import errno
import inspect
import sys
import types
from typing import Any, Self

import pytest

from bathyscope.host import ceph_bridge

Omaps = dict[tuple[str, str], dict[str, bytes]]


class Error(Exception):
    def __init__(self, number: int) -> None:
        super().__init__("refused")
        self.errno = number


class Operation:
    """What is to be read; filled when it is carried out."""

    def __init__(self) -> None:
        self.wanted: Any = None
        self.pairs: list[tuple[str, bytes | None]] = []
        self.released = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.released = True


class Completion:
    def __init__(self, code: int) -> None:
        self._code = code
        self.waited = False

    def wait_for_complete(self) -> None:
        self.waited = True

    def get_return_value(self) -> int:
        assert self.waited
        return self._code


class Ioctx:
    """A pool of objects with omaps. At most `page` keys are given at once; `refused` objects may not be read."""

    def __init__(self, omaps: Omaps, *, page: int = 2, refused: dict[str, int] | None = None) -> None:
        self.omaps = omaps
        self.page = page
        self.refused = refused or {}
        self.namespace = ""
        self.operations: list[Operation] = []

    def set_namespace(self, namespace: str) -> None:
        self.namespace = namespace

    def _carry_out(self, operation: Operation, name: str) -> int:
        if name in self.refused:
            return self.refused[name]
        omap = self.omaps.get((self.namespace, name))
        if omap is None:
            return errno.ENOENT
        operation.pairs += operation.wanted(omap)
        return 0

    def get_omap_vals(self, operation: Operation, after: str, prefix: str, most: int) -> tuple[Any, int]:
        assert most <= 1000
        operation.wanted = lambda omap: [
            (key, omap[key] or None) for key in sorted(omap) if key.startswith(prefix) and key > after
        ][: self.page]
        return operation.pairs, 0

    def operate_read_op(self, operation: Operation, name: str) -> None:
        if code := self._carry_out(operation, name):
            raise Error(code)

    def create_read_op(self) -> Operation:
        self.operations.append(Operation())
        return self.operations[-1]

    def release_read_op(self, operation: Operation) -> None:
        operation.released = True

    def get_omap_vals_by_keys(self, operation: Operation, keys: tuple[str, ...]) -> tuple[Any, int]:
        operation.wanted = lambda omap: [(key, omap[key]) for key in sorted(keys) if key in omap]
        return operation.pairs, 0

    def operate_aio_read_op(self, operation: Operation, name: str) -> Completion:
        return Completion(-self._carry_out(operation, name))


@pytest.fixture(autouse=True)
def _rados(monkeypatch: pytest.MonkeyPatch) -> None:
    rados = types.ModuleType("rados")
    rados.Error, rados.ReadOpCtx = Error, Operation  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rados", rados)


def pool(count: int) -> Omaps:
    """Return a pool of so many images in the default namespace, one in another, one in the trash."""
    omaps: Omaps = {
        ("", "rbd_directory"): {f"id_{number:04x}": b"name" for number in range(count)} | {"name_x": b"id"},
        ("", "rbd_trash"): {"id_dead": b"\x02"},
        ("", "rbd_namespace"): {"name_tenant": b""},
        ("tenant", "rbd_directory"): {"id_beef": b"name"},
        ("tenant", "rbd_header.beef"): {"order": b"\x14"},
        ("", "rbd_header.dead"): {"order": b"\x15"},
    }
    headers = {("", f"rbd_header.{number:04x}"): {"order": b"\x16", "snap_seq": b"\0"} for number in range(count)}
    return omaps | headers


def test_the_bridge_is_read_by_the_python_of_the_oldest_release() -> None:
    ast.parse(inspect.getsource(ceph_bridge), feature_version=(3, 6))


def test_all_images_of_all_namespaces_are_read_page_by_page() -> None:
    ioctx = Ioctx(pool(150))
    answer = ceph_bridge.images(ioctx, 1000, 60)
    assert answer["left"] == 0
    assert [entry[2] for entry in answer["images"]] == [*(f"{n:04x}" for n in range(150)), "dead", "beef"]
    assert answer["images"][0] == ["", "rbd_directory", "0000", b"name".hex(), {"order": "16"}]
    assert answer["images"][-2] == ["", "rbd_trash", "dead", "02", {"order": "15"}]
    assert answer["images"][-1][:2] == ["tenant", "rbd_directory"]
    assert all(operation.released for operation in ioctx.operations)


def test_an_image_that_is_gone_between_listing_and_header_is_left_out() -> None:
    omaps = pool(3)
    del omaps["", "rbd_header.0001"]
    assert [entry[2] for entry in ceph_bridge.images(Ioctx(omaps), 1000, 60)["images"]] == [
        *("0000", "0002", "dead", "beef"),
    ]


def test_a_pool_without_images_and_an_erasure_coded_one_have_none() -> None:
    assert ceph_bridge.images(Ioctx({}), 1000, 60) == {"images": [], "left": 0}
    refused = dict.fromkeys(("rbd_directory", "rbd_trash", "rbd_namespace"), errno.EOPNOTSUPP)
    assert ceph_bridge.images(Ioctx({}, refused=refused), 1000, 60) == {"images": [], "left": 0}


def test_what_count_and_time_do_not_allow_is_counted() -> None:
    few = ceph_bridge.images(Ioctx(pool(150), page=1000), 100, 60)
    assert (len(few["images"]), few["left"]) == (64 + 22 + 2, 64)
    none = ceph_bridge.images(Ioctx(pool(150), page=1000), 1000, -1)
    assert (len(none["images"]), none["left"]) == (0, 152)


def test_what_a_tenant_writes_into_the_directory_is_not_all_held() -> None:
    omaps = pool(3)
    omaps["", "rbd_directory"] |= {"id_long": b"x" * 5000, f"id_{'y' * 5000}": b"name", "id_fat": b"name"}
    omaps["", "rbd_header.fat"] = {"order": b"\x16", "parent": b"x" * 9000}
    answer = ceph_bridge.images(Ioctx(omaps), 1000, 60)
    assert [entry[2] for entry in answer["images"]] == ["0000", "0001", "0002", "dead", "beef"]
    assert answer["left"] == 3


def test_more_images_than_are_looked_at_are_counted_and_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Ioctx):
        """A directory that goes on for ever, as far as one look can tell."""

        pages = 0

        def get_omap_vals(self, operation: Operation, after: str, prefix: str, most: int) -> tuple[Any, int]:
            def page(_: object) -> list[tuple[str, bytes | None]]:
                self.pages += 1
                return [(f"id_{self.pages:06d}{number:04d}", b"name") for number in range(most)]

            if prefix != "id_":
                return super().get_omap_vals(operation, after, prefix, most)
            operation.wanted = page
            return operation.pairs, 0

    ioctx = Endless(pool(0))
    monkeypatch.setattr(ceph_bridge, "COUNTING_S", 0.0)
    clock = iter(range(10**9))
    monkeypatch.setattr(ceph_bridge.time, "monotonic", lambda: next(clock))
    answer = ceph_bridge.images(ioctx, 10, 500)
    assert answer["images"] == []
    assert answer["left"] >= 64
    assert ioctx.pages < 100


def test_a_refusal_is_raised_when_all_answers_are_there() -> None:
    with pytest.raises(Error) as listing:
        ceph_bridge.images(Ioctx(pool(1), refused={"rbd_directory": errno.EPERM}), 10, 60)
    assert listing.value.errno == errno.EPERM
    with pytest.raises(OSError, match="not permitted") as header:
        ceph_bridge.images(Ioctx(pool(3), refused={"rbd_header.0001": errno.EPERM}), 10, 60)
    assert header.value.errno == errno.EPERM


class OpenPool:
    def __init__(self) -> None:
        self.namespace = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_namespace(self, namespace: str) -> None:
        self.namespace = namespace


class OpenImage:
    """An image whose name says what happens."""

    def __init__(self, ioctx: OpenPool, name: str, *, read_only: bool) -> None:
        assert read_only
        if name.isdigit():
            raise Error(int(name))
        self.addresses = [f"10.0.0.{number}:0/{ioctx.namespace or name}" for number in (1, 2)] if name == "busy" else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def watchers_list(self) -> list[dict[str, Any]]:
        return [{"addr": address, "id": 1, "cookie": 2} for address in self.addresses]


def test_clients_of_images_are_asked_for_and_failures_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    rbd = types.ModuleType("rbd")
    rbd.Image = OpenImage  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rbd", rbd)
    cluster = types.SimpleNamespace(open_ioctx=lambda _: OpenPool())
    gone, denied = str(errno.ENOENT), str(errno.EPERM)
    assert ceph_bridge.watchers(cluster, "p", [["ns", "busy"], ["", "idle"], ["", gone], ["", denied]], 60) == [
        ["ns", "busy", 0, ["10.0.0.1:0/ns", "10.0.0.2:0/ns"]],
        ["", "idle", 0, []],
        ["", gone, errno.ENOENT, []],
        ["", denied, errno.EPERM, []],
    ]
    with pytest.raises(OSError, match="not permitted"):
        ceph_bridge.watchers(cluster, "p", [["", denied], ["", denied]], 60)
    with pytest.raises(OSError, match="timed out"):
        ceph_bridge.watchers(cluster, "p", [["", "busy"]], -1)
