"""The monitor of a lab, and what it is made from: ceph.conf, the keys of all daemons, the monitors' map."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

from bathyscope.host import CephSession
from bathyscope.host.ceph import connect
from bathyscope.lab import conf, guest_bringup, guests, keys, network
from bathyscope.lab.bringup import Bringup, write_private
from bathyscope.spec import Target


def configure(bringup: Bringup, pool: concurrent.futures.Executor) -> Path:
    """Write ceph.conf, keyrings and the monitors' map; return the path of the map."""
    layout, record = bringup.layout, bringup.record
    text = conf.render(
        bringup.spec,
        layout,
        fsid=record.fsid,
        ports=record.ports,
        newer_than_pacific=bringup.major > 16,
        address=record.address,
        nodes=record.nodes,
    )
    write_private(layout.conf, text)
    capabilities = keys.entities(bringup.spec)
    made = {
        entity: pool.submit(
            *(bringup.tools.run, "ceph-authtool", "--gen-print-key"), *guest_bringup.key_options(bringup, entity)
        )
        for entity in capabilities
    }
    monmap = layout.scratch / "monmap"
    addresses = f"[v2:{record.address}:{record.ports[0]},v1:{record.address}:{record.ports[1]}]"
    bringup.tools.run(
        *("monmaptool", "--create", "--fsid", record.fsid, "--addv", "a", addresses),
        *(guests.OLD_KEYS_ALLOWED if guest_bringup.has_old_keys(bringup) else ()),
        str(monmap),
    )
    keyring = {entity: future.result().decode().strip() for entity, future in made.items()}
    write_private(layout.keyrings / "all.keyring", keys.keyring_text(keyring, capabilities))
    for entity, key in keyring.items():
        write_private(layout.keyrings / f"{entity}.keyring", keys.keyring_text({entity: key}, {}))
    return monmap


def make(bringup: Bringup, monmap: Path) -> None:
    """Make the monitor's data, with all keys in it, and start it."""
    layout = bringup.layout
    layout.data("mon.a").mkdir(parents=True)
    bringup.tools.run(
        *("ceph-mon", "--mkfs", "-f", "-i", "a", "-c", str(layout.conf), "--monmap", str(monmap)),
        *("--keyring", str(layout.keyrings / "all.keyring")),
    )
    bringup.start("mon.a")


def session(bringup: Bringup) -> CephSession:
    """Return a session once the monitor listens. Raises LabError when it ends or stays silent."""
    layout, record = bringup.layout, bringup.record
    while not network.listens(record.address, record.ports[0]):
        bringup.tick("the monitor does not listen")
    target = Target(name=record.name, conf=str(layout.conf), keyring=str(layout.admin_keyring), root=record.root)
    return connect(bringup.host, target, timeout_s=30)
