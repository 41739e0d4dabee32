"""Who did I/O and where it landed: counts of images, clients, OSDs, placement groups and zones of images.

Latencies in these tables are measured in the primary OSD, from the receipt of a request to its reply: the network
and the client are not in them. They are sums, so that rows can be added up; a mean is the sum over the count.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bathyscope.records.base import Record, column

ANY_IMAGE = "*"
"""In place of an image's name: whatever image a client uses."""

_AT = "end of the interval, since the Unix epoch"
_MOMENT = "moment of the observation, since the Unix epoch"
_LENGTH = "length of the interval"
_LATENCY = "time from receipt to reply in the primary OSD, of all {0} together; empty where it is not known"


@dataclasses.dataclass(frozen=True, slots=True)
class ImageIo(Record):
    """One row per interval, image and client (where clients are told apart) that did I/O."""

    TABLE: ClassVar[str] = "image_io"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column(_LENGTH, unit="ns", roll_up="sum")
    pool: str = column("pool of the image (of its header: an image's data may lie in another one)")
    namespace: str = column("RBD namespace in the pool; empty for the default one")
    image: str | None = column("name of the image; empty when only its id is known")
    image_id: str | None = column("id of the image, as in the names of its objects; empty when only its name is known")
    client: str | None = column("client instance: client.4157; empty when clients are not told apart")
    client_address: str | None = column("address of the client without port and nonce; empty when it is not known")
    read_count: int = column("reads that were done; failed ones are not counted", roll_up="sum")
    write_count: int = column("writes that were done, discards among them", roll_up="sum")
    read_bytes: int = column(
        "bytes that reads returned; holes of sparse reads are not in them", unit="bytes", roll_up="sum"
    )
    write_bytes: int = column("bytes written", unit="bytes", roll_up="sum")
    read_latency_ns_sum: int | None = column(_LATENCY.format("reads"), unit="ns", roll_up="sum")
    write_latency_ns_sum: int | None = column(_LATENCY.format("writes"), unit="ns", roll_up="sum")


@dataclasses.dataclass(frozen=True, slots=True)
class OsdIo(Record):
    """One row per interval, primary OSD and pool that did client I/O."""

    TABLE: ClassVar[str] = "osd_io"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column(_LENGTH, unit="ns", roll_up="sum")
    osd: int = column("primary OSD of the operations")
    pool: str = column("pool of the objects; its number where it has no name")
    read_count: int = column("reads that were done; failed ones are not counted", roll_up="sum")
    write_count: int = column("writes that were done, discards among them", roll_up="sum")
    read_bytes: int = column("bytes that reads returned", unit="bytes", roll_up="sum")
    write_bytes: int = column("bytes written", unit="bytes", roll_up="sum")
    read_latency_ns_sum: int = column(_LATENCY.format("reads"), unit="ns", roll_up="sum")
    write_latency_ns_sum: int = column(_LATENCY.format("writes"), unit="ns", roll_up="sum")


@dataclasses.dataclass(frozen=True, slots=True)
class OsdLatencyBucket(Record):
    """One row per interval, OSD, kind of operation and bucket of its latency histogram that grew."""

    TABLE: ClassVar[str] = "osd_latency_bucket"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column(_LENGTH, unit="ns", roll_up="sum")
    osd: int = column("primary OSD of the operations")
    op: str = column("read, write or read-modify-write")
    latency_min_ns: int = column("least latency of the bucket, from receipt to reply in the primary OSD", unit="ns")
    latency_max_ns: int | None = column("latencies of the bucket are below this; empty for the last one", unit="ns")
    op_count: int = column("operations of all clients and sizes in the bucket", roll_up="sum")


@dataclasses.dataclass(frozen=True, slots=True)
class PgIo(Record):
    """One row per interval and placement group that did client I/O, as its statistics count it."""

    TABLE: ClassVar[str] = "pg_io"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column(_LENGTH, unit="ns", roll_up="sum")
    pg: str = column("placement group: 2.1f")
    pool: str = column("pool of the group; its number where it has no name")
    osd: int = column("primary OSD at the end of the interval")
    acting: str = column("OSDs that hold the group, the primary first: 3 7 11", roll_up="last")
    read_count: int = column("reads", roll_up="sum")
    write_count: int = column("writes", roll_up="sum")
    read_bytes: int = column("bytes read, each read rounded up to KiB", unit="bytes", roll_up="sum")
    write_bytes: int = column("bytes written, each write rounded up to KiB", unit="bytes", roll_up="sum")


@dataclasses.dataclass(frozen=True, slots=True)
class PgPlacement(Record):
    """One row per look at the map and placement group: the OSDs that hold it. A look has all groups of a pool."""

    TABLE: ClassVar[str] = "pg_placement"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_MOMENT, unit="ns")
    pool: str = column("pool of the group; its number where it has no name")
    pool_id: int = column("number of the pool")
    seed: int = column("number of the group in its pool: 31 for 2.1f")
    osd: int | None = column("primary OSD; empty while the group has none")
    acting: str = column("OSDs that hold the group, the primary first: 3 7 11")


@dataclasses.dataclass(frozen=True, slots=True)
class ZoneIo(Record):
    """One row per interval, OSD and zone of an image that did I/O: objects next to each other, or a single one."""

    TABLE: ClassVar[str] = "zone_io"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_AT, unit="ns")
    duration_ns: int = column(_LENGTH, unit="ns", roll_up="sum")
    pool: str = column("pool of the image (of its header)")
    image_id: str = column("id of the image, as in the names of its objects")
    osd: int = column("primary OSD of the objects")
    first_object: int = column("number of the zone's first object")
    object_count: int = column("objects in the zone: a power of 16, 1 for a single object")
    read_count: int = column("reads that were done; failed ones are not counted", roll_up="sum")
    write_count: int = column("writes that were done, discards among them", roll_up="sum")
    read_bytes: int = column("bytes that reads returned", unit="bytes", roll_up="sum")
    write_bytes: int = column("bytes written", unit="bytes", roll_up="sum")
    read_latency_ns_sum: int = column(_LATENCY.format("reads"), unit="ns", roll_up="sum")
    write_latency_ns_sum: int = column(_LATENCY.format("writes"), unit="ns", roll_up="sum")


@dataclasses.dataclass(frozen=True, slots=True)
class Uncounted(Record):
    """One row per span in which a source could not count what was done: its counts are too small by that."""

    TABLE: ClassVar[str] = "uncounted"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column("end of the span, since the Unix epoch", unit="ns")
    duration_ns: int = column("length of the span", unit="ns", roll_up="sum")
    source: str = column("name of the source")
    reason: str = column("why it could not count")


@dataclasses.dataclass(frozen=True, slots=True)
class Image(Record):
    """One row per look at an image: what it is."""

    TABLE: ClassVar[str] = "image"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_MOMENT, unit="ns")
    pool: str = column("pool of the image's header")
    namespace: str = column("RBD namespace in the pool; empty for the default one")
    image: str = column("name of the image")
    image_id: str = column("id of the image, as in the names of its objects")
    size_bytes: int = column("provisioned size", unit="bytes")
    object_size_bytes: int = column("size of its objects", unit="bytes")
    stripe_unit_bytes: int = column("bytes that lie together in one object; the object's size by default", unit="bytes")
    stripe_count: int = column("objects that stripes go round; 1 by default")
    data_pool: str | None = column("pool of its objects, where that is another one")
    parent: str | None = column("image that it was cloned from, as pool/image; empty for none")


@dataclasses.dataclass(frozen=True, slots=True)
class Attachment(Record):
    """One row per look and use of an image: which client, host and virtual machine have it, and who says so."""

    TABLE: ClassVar[str] = "attachment"
    TIME: ClassVar[str | None] = "at_ns"

    at_ns: int = column(_MOMENT, unit="ns")
    pool: str = column("pool of the image's header; * where the name alone is known")
    namespace: str = column("RBD namespace in the pool; empty for the default one")
    image: str = column("name of the image; * for any that this address of a client uses")
    client_address: str | None = column("address of the client without port and nonce")
    host: str | None = column("machine of the client")
    vm: str | None = column("virtual machine, or namespace/pod that uses the image")
    resolver: str = column("who says so: watcher, libvirt, name, csi, csv")
