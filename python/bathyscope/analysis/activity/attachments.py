"""Who has an image: one text "host:vm" for each image, of all that say something of it.

A use ends when it is not in the next complete look of its resolver. A look of which a part failed ends nothing: what
it did not see may still be so. Watchers are asked for some images only; of one that has none, a row says so.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis.activity.shape import Question, literal
from bathyscope.analysis.image_names import named_for
from bathyscope.records import ANY_IMAGE

# Resolver → its source. The first of those that look at everything is trusted most. What watchers and I/O say is
# joined with what the name of the image says.
_SOURCES = {"csv": "attachment_file", "libvirt": "libvirt", "csi": "csi", "watcher": "watchers"}
_TRUSTED = ("csv", "libvirt", "csi")
_UNKNOWN = "-"
_ANY_POOL = "*"
# Rows of one look at all hosts lie at most this far apart.
_LOOK_NS = 50_000_000_000

ImageKey = tuple[str, str, str]
_Use = tuple[str | None, str | None]

MACHINES = (
    "SELECT address, min(machine) AS machine FROM (SELECT DISTINCT machine, "
    "unnest(string_split(addresses, ' ')) AS address FROM placement) GROUP BY address HAVING count(*) = 1"
)
"""The SELECT for address → machine, as the cluster knows its own."""


def in_force(question: Question) -> str:
    """Return the SELECT for the attachments that held at the end of the time that is asked for."""
    ends = " ".join(
        f"WHEN {literal(resolver)} THEN (SELECT max(at_ns) FROM collection "
        f"WHERE success AND source = {literal(_SOURCES[resolver])} AND at_ns < {question.end_ns})"
        for resolver in _TRUSTED
    )
    return (
        "SELECT at_ns, pool, namespace, image, client_address, host, vm, resolver FROM attachment "
        f"WHERE at_ns <= {question.end_ns} "
        f"AND at_ns >= coalesce(CASE resolver {ends} END, 0)"
    )


def failures(question: Question) -> str:
    """Return the SELECT for the resolvers whose last look in that time failed, in whole or in part, and why."""
    listed = ", ".join(map(literal, _SOURCES.values()))
    return (
        "SELECT source, arg_max(problem, at_ns) AS problem FROM collection "
        f"WHERE source IN ({listed}) AND request_count > 0 AND at_ns < {question.end_ns} "
        "GROUP BY source HAVING NOT arg_max(success, at_ns) ORDER BY source"
    )


def attached(
    attachments: pa.Table,
    image_io: pa.Table | None,
    machines: pa.Table,
    images: Iterable[ImageKey] = (),
) -> dict[ImageKey, str]:
    """Return (pool, namespace, image) → "host:vm" of whoever uses it, several as "a:x, b:y"; "-" for what is not known.

    The first of these that says something of an image counts: the operator's file, libvirt, ceph-csi, then its clients
    (watchers, and who did I/O) with the machine that its name names. What the first leaves open is filled from the
    clients and the name, the host only when there is one. Of each resolver its last look at the image counts. An image
    that nothing is known of is not in the mapping.

    `machines` are the answer to MACHINES; an address in the operator's file comes before them.
    A client whose machine is not known stands by its address. `images` are further images that may be asked for: rows
    that name no pool apply to each image of that name, and to none that is not known.
    """
    rows = _last_look(attachments).to_pylist()
    names = {row["address"]: row["machine"] for row in machines.to_pylist()}
    said: dict[str, dict[ImageKey, list[_Use]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    clients: dict[ImageKey, set[str]] = collections.defaultdict(set)
    for row in rows:
        anywhere = row["pool"] == _ANY_POOL
        key = (row["pool"], "" if anywhere else row["namespace"], row["image"])
        if row["image"] == ANY_IMAGE:
            if row["client_address"] and row["host"]:
                names[row["client_address"]] = row["host"]
            continue
        if row["resolver"] in _TRUSTED and (row["host"] or row["vm"]):
            said[row["resolver"]][key].append((row["host"], row["vm"]))
        if row["client_address"] and not anywhere:
            clients[key].add(row["client_address"])
    for key, address in _io_clients(image_io):
        clients[key].add(address)
    image_keys = {
        *images,
        *clients,
        *(key for of_resolver in said.values() for key in of_resolver if key[0] != _ANY_POOL),
    }
    texts = {}
    for key in image_keys:
        hosts = sorted({names.get(address, address) for address in clients.get(key, ())})
        named = named_for(key[2])
        vm = named.vm if named is not None else None
        uses = _first(said, key) or [(host, None) for host in hosts] or [(None, None)]
        filled = {(host or (hosts[0] if len(hosts) == 1 else None), machine or vm) for host, machine in uses}
        text = ", ".join(sorted(f"{host or _UNKNOWN}:{machine or _UNKNOWN}" for host, machine in filled))
        if text != f"{_UNKNOWN}:{_UNKNOWN}":
            texts[key] = text
    return texts


def _first(said: Mapping[str, Mapping[ImageKey, list[_Use]]], key: ImageKey) -> list[_Use]:
    """Return what the most trusted says of an image: by its pool, or else by its name alone."""
    for resolver in _TRUSTED:
        of_resolver = said.get(resolver, {})
        if uses := of_resolver.get(key) or of_resolver.get((_ANY_POOL, "", key[2])):
            return uses
    return []


def _last_look(attachments: pa.Table) -> pa.Table:
    """Return the rows of the last look of each resolver at each image, or at each address."""
    keys = ["pool", "namespace", "image", "resolver"]
    if attachments.num_rows == 0:
        return attachments
    last = attachments.group_by(keys, use_threads=False).aggregate([("at_ns", "max")])
    joined = attachments.join(last, keys, join_type="inner")
    return joined.filter(pc.greater_equal(joined["at_ns"], pc.subtract(joined["at_ns_max"], _LOOK_NS)))


def _io_clients(image_io: pa.Table | None) -> Iterator[tuple[ImageKey, str]]:
    """Yield image and address of each client that did I/O on an image whose name is known."""
    if image_io is None:
        return
    columns = ["pool", "namespace", "image", "client_address"]
    for row in image_io.select(columns).group_by(columns, use_threads=False).aggregate([]).to_pylist():
        if row["image"] and row["client_address"]:
            yield (row["pool"], row["namespace"], row["image"]), row["client_address"]
