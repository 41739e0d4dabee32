"""ceph.conf of a lab. One file for daemons and clients; every path lies in the lab's own directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from bathyscope.lab.layout import Layout
from bathyscope.lab.spec import LabSpec

# A read test needs a working set larger than the caches; images in a lab are 512 MiB to 1 GiB. 48 MiB for each OSD
# keeps most of such an image on the device. What a step read from cache is still taken from the OSD's counters.
BLUESTORE_CACHE_BYTES = 48 << 20
OSD_MEMORY_TARGET_BYTES = 1 << 30
# The kernel admits 65,536 asynchronous I/Os of all processes together (fs.aio-max-nr) where Ceph's packages have not
# raised it, and an OSD takes its queue's depth for each file that it opens, used or not. Ceph's own depth is 1,024, and
# a few labs side by side would be refused (EAGAIN). No emulated device has as many under way.
AIO_DEPTH = 256


def render(
    spec: LabSpec,
    layout: Layout,
    *,
    fsid: str,
    ports: Sequence[int],
    newer_than_pacific: bool,
    address: str = "127.0.0.1",
    nodes: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the text of ceph.conf. Daemons have this machine's `address`, OSDs that of their node, if it has one.

    `ports` are the two of the monitor, and that of the object gateway if there is one.

    What differs from Ceph's defaults is what one small machine needs (addresses, sizes, quick reports), never what
    the I/O path does; the two exceptions, the BlueStore cache and mClock's capacity, are commented.
    """
    directory = layout.directory
    sections: dict[str, dict[str, object]] = {
        "global": {
            "fsid": fsid,
            "mon host": f"[v2:{address}:{ports[0]},v1:{address}:{ports[1]}]",
            "auth cluster required": "cephx",
            "auth service required": "cephx",
            "auth client required": "cephx",
            "keyring": f"{layout.keyrings}/$name.keyring",
            "run dir": layout.run,
            "log file": f"{layout.log}/$name.log",
            "log to stderr": "false",
            "err to stderr": "true",
            "crash dir": layout.crash,
            "ms bind ipv4": "true",
            "ms bind ipv6": "false",
            "osd crush chooseleaf type": 1 if spec.failure_domain == "host" else 0,
            "osd pool default size": spec.replica_count,
            "osd pool default min size": max(1, spec.replica_count - 1),
            "osd pool default pg num": 32,
            "osd pool default pgp num": 32,
            "osd pool default pg autoscale mode": "off",
            "mon allow pool size one": "true",
            "mon allow pool delete": "true",
            "mon max pg per osd": 1000,
        },
        "client": {
            # Without $pid, a second client of the same name complains about the first one's socket.
            "admin socket": f"{layout.run}/$cluster-$name.$pid.asok",
            # Clients are tools of the user: they must not need a writable log directory.
            "log file": "",
        },
        "mon": {
            "public addr": address,
            "mon data": f"{directory}/data/mon.$id",
            "admin socket": f"{layout.run}/$name.asok",
            "mon cluster log file": f"{layout.log}/cluster.log",
            # Changes to the cluster's maps are proposed at once: a lab has nobody to wait for.
            "paxos propose interval": 0.1,
            "paxos min wait": 0.02,
            "mon mgr digest period": 1,
            # Without `restful`, which nobody asks for and whose libraries Debian 13's manager cannot load.
            "mgr initial modules": "iostat",
            "mon warn on pool no redundancy": "false",
            "mon data avail warn": 1,
            "mon data avail crit": 0,
            "auth allow insecure global id reclaim": "false",
        },
        "mgr": {
            "public addr": address,
            "mgr data": f"{directory}/data/mgr.$id",
            "admin socket": f"{layout.run}/$name.asok",
            "mgr module path": layout.mgr_modules,
            "mgr stats period": 1,
        },
        "osd": {
            "public addr": address,
            "cluster addr": address,
            "osd data": f"{directory}/data/osd.$id",
            "admin socket": f"{layout.run}/$name.asok",
            "osd objectstore": "bluestore",
            "bdev aio max queue depth": AIO_DEPTH,
            "osd crush update on start": "false",
            "osd class update on start": "false",
            "osd memory target": OSD_MEMORY_TARGET_BYTES,
            "bluestore cache autotune": "false",
            "bluestore cache size": BLUESTORE_CACHE_BYTES,
        },
        "mds": {
            "public addr": address,
            "mds data": f"{directory}/data/mds.$id",
            "admin socket": f"{layout.run}/$name.asok",
            "mds cache memory limit": 256 << 20,
        },
    }
    if spec.rgw:
        sections["client.rgw.a"] = {
            "rgw data": f"{directory}/data/rgw.a",
            "rgw frontends": f"beast endpoint={address}:{ports[2]}",
            "admin socket": f"{layout.run}/$name.asok",
            "log file": f"{layout.log}/$name.log",
        }
    if newer_than_pacific:
        sections["osd"]["osd mclock skip benchmark"] = "true"
    for osd_id, device_class, node in spec.osds():
        section = sections.setdefault(f"osd.{osd_id}", {})
        if node in nodes:
            section |= {"public addr": nodes[node], "cluster addr": nodes[node]}
        if newer_than_pacific:
            # mClock's own benchmark would measure the device before its throttle is applied.
            profile = spec.profiles[device_class]
            suffix = "hdd" if profile.rotational else "ssd"
            section[f"osd mclock max capacity iops {suffix}"] = round(profile.write_iops, 3)
    return "\n".join(_section(name, options) for name, options in sections.items() if options)


def _section(name: str, options: dict[str, object]) -> str:
    lines = [f"[{name}]", *(f"{key} = {value}" for key, value in options.items())]
    return "\n".join(lines) + "\n"
