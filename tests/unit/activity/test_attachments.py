"""Who has an image, when several say something of it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from bathyscope.analysis.activity.attachments import attached
from bathyscope.records import ANY_IMAGE, Attachment, ImageIo, schema_of, to_table

SECOND = 10**9
DISK = ("rbd", "", "vm-101-disk-0")


def said(
    resolver: str,
    image: tuple[str, str, str] = DISK,
    *,
    address: str | None = None,
    host: str | None = None,
    vm: str | None = None,
    at_s: int = 1000,
) -> Attachment:
    return Attachment(at_s * SECOND, *image, client_address=address, host=host, vm=vm, resolver=resolver)


def table(*rows: Attachment) -> pa.Table:
    return to_table(Attachment, rows)


def names(*machines: tuple[str, str]) -> pa.Table:
    """Return machines by their addresses, as the cluster's map has them."""
    return pa.table({"address": [one for one, _ in machines], "machine": [two for _, two in machines]})


def io(*uses: tuple[tuple[str, str, str | None], str | None]) -> pa.Table:
    return to_table(ImageIo, [
        ImageIo(
            at_ns=1, duration_ns=1, pool=pool, namespace=namespace, image=image, image_id="1", client=None,
            client_address=address, read_count=1, write_count=0, read_bytes=1, write_bytes=0,
            read_latency_ns_sum=None, write_latency_ns_sum=None,
        )
        for (pool, namespace, image), address in uses
    ])  # fmt: skip


def test_the_most_trusted_that_says_something_counts() -> None:
    everything: Sequence[Attachment] = (
        said("csv", host="file", vm="by-hand"),
        said("libvirt", host="kvm1", vm="instance-17"),
        said("csi", host="node1", vm="shop/db-0"),
        said("watcher", address="10.0.0.4"),
    )
    texts = [attached(table(*everything[first:]), None, names(("10.0.0.4", "kvm4")))[DISK] for first in range(4)]
    assert texts == ["file:by-hand", "kvm1:instance-17", "node1:shop/db-0", "kvm4:VM 101"]


def test_what_the_file_leaves_open_is_filled_from_clients_and_the_name() -> None:
    client = said("watcher", address="10.0.0.4")
    assert attached(table(said("csv", vm="db"), client), None, names()) == {DISK: "10.0.0.4:db"}
    assert attached(table(said("csv", host="kvm1"), client), None, names()) == {DISK: "kvm1:VM 101"}
    # Which of two clients it is, nobody knows.
    two = table(said("csv", vm="db"), client, said("watcher", address="10.0.0.5"))
    assert attached(two, None, names()) == {DISK: "-:db"}
    assert attached(table(), None, names(), [DISK, ("rbd", "", "data")]) == {DISK: "-:VM 101"}


def test_a_row_of_the_file_that_says_nothing_hides_nothing() -> None:
    rows = table(said("csv", address="10.0.0.4"), said("libvirt", vm="web"))
    assert attached(rows, None, names(("10.0.0.4", "kvm4"))) == {DISK: "kvm4:web"}


def test_several_clients_are_all_named() -> None:
    shared = ("rbd", "tenant", "shared")
    both = table(said("watcher", shared, address="10.0.0.4"))
    seen = io((shared, "10.0.0.5"), (shared, "10.0.0.5"), (shared, None), (("rbd", "", None), "10.0.0.6"))
    assert attached(both, seen, names(("10.0.0.5", "kvm5"))) == {shared: "10.0.0.4:-, kvm5:-"}
    cluster = table(*(said("libvirt", shared, host=host, vm="fence") for host in ("kvm2", "kvm1")))
    assert attached(cluster, seen, names()) == {shared: "kvm1:fence, kvm2:fence"}


def test_a_row_without_a_pool_is_for_each_image_of_that_name_that_is_known() -> None:
    anywhere = table(said("csv", ("*", "", "data"), host="kvm1", vm="db"))
    assert attached(anywhere, None, names()) == {}
    images = [("rbd", "", "data"), ("ssd", "tenant", "data"), ("rbd", "", "other")]
    assert attached(anywhere, None, names(), images) == {images[0]: "kvm1:db", images[1]: "kvm1:db"}
    # So does one that knows the namespace, but not the pool.
    volume = table(said("csi", ("*", "tenant", "data"), host="node1", vm="shop/db-0"))
    assert attached(volume, None, names(), images[:1]) == {images[0]: "node1:shop/db-0"}
    # One with its pool comes first.
    exact = pa.concat_tables([anywhere, table(said("csv", images[0], host="kvm2", vm="web"))])
    assert attached(exact, None, names(), images)[images[0]] == "kvm2:web"


def test_an_address_of_the_file_names_the_machine_of_any_image_before_the_map_does() -> None:
    address = said("csv", ("*", "", ANY_IMAGE), address="10.0.0.4", host="kvm4.example")
    assert attached(table(address, said("watcher", address="10.0.0.4")), None, names(("10.0.0.4", "osd4"))) == {
        DISK: "kvm4.example:VM 101"
    }


def test_the_last_look_counts_and_one_look_at_several_hosts_is_one() -> None:
    moved = table(
        said("libvirt", host="kvm1", vm="a", at_s=1000),
        said("libvirt", host="kvm2", vm="a", at_s=1300),
        said("libvirt", host="kvm3", vm="b", at_s=1320),
        said("libvirt", ("rbd", "", "idle"), host="kvm1", vm="c", at_s=1000),
    )
    assert attached(moved, None, names()) == {DISK: "kvm2:a, kvm3:b", ("rbd", "", "idle"): "kvm1:c"}


def test_nothing_known_is_nothing_said() -> None:
    assert attached(schema_of(Attachment).empty_table(), None, names()) == {}
    assert attached(table(said("csv", ("rbd", "", "x"))), io(), names()) == {}
