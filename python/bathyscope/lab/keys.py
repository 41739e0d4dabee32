"""cephx keyrings of a lab, made by Ceph's own tool so that the key type is the release's."""

from __future__ import annotations

from bathyscope.lab import guests
from bathyscope.lab.spec import LabSpec

ADMIN_CAPS = {"mon": "allow *", "mgr": "allow *", "osd": "allow *", "mds": "allow *"}


def entities(spec: LabSpec) -> dict[str, dict[str, str]]:
    """Return the capabilities of each entity of the lab: {"osd.0": {"mon": "allow profile osd", …}, …}."""
    result = {
        "mon.": {"mon": "allow *"},
        "client.admin": ADMIN_CAPS,
        "mgr.x": {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"},
    }
    for osd_id, _, _ in spec.osds():
        result[f"osd.{osd_id}"] = {"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"}
    if spec.rgw:
        result["client.rgw.a"] = {"mon": "allow rw", "mgr": "allow rw", "osd": "allow rwx"}
    if spec.fs:
        result["mds.a"] = {"mon": "allow profile mds", "mgr": "allow profile mds", "osd": "allow rwx", "mds": "allow"}
    result |= {f"client.{guest}": guests.client_capabilities() for guest in spec.guests}
    return result


def keyring_text(keys: dict[str, str], capabilities: dict[str, dict[str, str]]) -> str:
    """Return a keyring file with the given keys and their capabilities, in the order of `keys`."""
    lines = []
    for entity, key in keys.items():
        lines.append(f"[{entity}]")
        lines.append(f"\tkey = {key}")
        lines.extend(f'\tcaps {service} = "{caps}"' for service, caps in capabilities.get(entity, {}).items())
    return "\n".join(lines) + "\n"
