"""Disks of virtual machines, by a recorded answer, and by definitions in libvirt's documented form.

See https://libvirt.org/formatdomain.html.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from bathyscope.host import ProcessRequest
from bathyscope.records import Attachment, RawAnswer, from_table
from bathyscope.sources.libvirt import SOURCE, compact
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

URI = "qemu+ssh://root@kvm1/system"
FIXTURES = Path(__file__).parents[2] / "fixtures"
Recorded = Callable[[str], list[RawAnswer]]
SCOPE = Scope(target=Target(name="t", libvirt=(URI,)))

# As Nova defines an instance; shortened where nothing is read.
DOMAIN = """<domain type='kvm' id='7'>
  <name>instance-00000017</name>
  <uuid>c7a5fdbd-edaf-9455-926a-d65c16db1809</uuid>
  <metadata>
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:name>web &lt;/domain&gt; &lt;!DOCTYPE</nova:name>
    </nova:instance>
  </metadata>
  <memory unit='KiB'>2097152</memory>
  <os>
    <type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type>
  </os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='network' device='disk'>
      <driver name='qemu' type='raw' cache='none' discard='unmap'/>
      <auth username='nova'>
        <secret type='ceph' uuid='457eb676-33da-42ec-9a8c-9293d545c337'/>
      </auth>
      <source protocol='rbd' name='volumes/volume-00ff159d-a95d-4d7e-877e-7dd69b7ea5c7' index='1'>
        <host name='10.0.0.1' port='6789'/>
        <host name='10.0.0.2' port='6789'/>
        <snapshot name='before'/>
        <config file='/etc/ceph/ceph.conf'/>
      </source>
      <target dev='vda' bus='virtio'/>
      <serial>00ff159d-a95d-4d7e-877e-7dd69b7ea5c7</serial>
      <alias name='virtio-disk0'/>
    </disk>
    <disk type='network' device='disk'>
      <source protocol='rbd' name='volumes/tenant/data@snap'/>
      <target dev='vdb' bus='virtio'/>
    </disk>
    <disk type='block' device='disk'>
      <source dev='/dev/rbd/rbd/mapped'/>
      <target dev='vdc' bus='virtio'/>
    </disk>
    <disk type='network' device='disk'>
      <source protocol='iscsi' name='iqn.2013-07.com.example:iscsi-nopool/2'/>
      <target dev='vdd' bus='virtio'/>
    </disk>
    <disk type='file' device='cdrom'>
      <target dev='hda' bus='ide'/>
    </disk>
  </devices>
</domain>
"""
SHUT_OFF = """<domain type='kvm'>
  <name>other</name>
  <devices>
    <disk type='network' device='disk'>
      <source protocol='rbd' name='rbd/IMAGE'/>
    </disk>
  </devices>
</domain>
"""


def answer(*domains: str, host: str = "kvm1.example", uri: str = URI, code: int = 0) -> RawAnswer:
    """Return what virsh prints: an empty line after each definition, and the host's name."""
    text = "".join(f"{domain}\n" for domain in domains) + f"{host}\n\n"
    return RawAnswer(f"libvirt-{uri}", (), (), code, text.encode(), b"", 1, 2)


def uses(*answers: RawAnswer) -> list[tuple[str, str, str, str | None, str | None]]:
    found = from_table(Attachment, SOURCE.parse(answers, SCOPE)[Attachment])
    assert {(row.resolver, row.client_address) for row in found} <= {("libvirt", None)}
    return [(row.pool, row.namespace, row.image, row.host, row.vm) for row in found]


def test_what_virsh_prints_of_a_running_machine_and_of_one_that_is_shut_off(recorded: Recorded) -> None:
    assert uses(*recorded("libvirt/9.0.0/test-driver")) == [
        ("volumes", "", "vol-1", "vm", "running one"),
        ("volumes", "tenant", "data", "vm", "running one"),
        ("rbd", "", "mapped", "vm", "running one"),
        # It has volumes/vol-1 as well, which the other one is using.
        ("rbd", "", "idle", "vm", "off"),
    ]


def test_disks_of_guests_of_a_real_libvirt_are_those_that_virsh_lists(recorded: Recorded) -> None:
    """Guests with disks in a lab: one runs, one does not and shares a disk with it, both with a key."""
    place = "libvirt/9.0.0/two-guests"
    blocks, definition, statistics = json.loads((FIXTURES / place / "virsh.json").read_text())
    listed = blocks.split()[1::2]
    found = uses(*recorded(place))
    assert [f"{pool}/{image}" for pool, _, image, _, machine in found if machine == "instance-00000017"] == listed
    assert [use[2:] for use in found if use[4] != "instance-00000017"] == [("idle", "vm", "instance-00000018")]
    assert f"block.count={len(listed)}" in statistics
    # The definition as virsh prints it, before anything is taken out of it.
    assert uses(answer(definition, host="vm")) == [use for use in found if use[4] == "instance-00000017"]


def test_disks_that_are_images_by_librbd_and_by_the_kernel() -> None:
    volume = "volume-00ff159d-a95d-4d7e-877e-7dd69b7ea5c7"
    assert uses(answer(DOMAIN)) == [
        ("volumes", "", volume, "kvm1.example", "instance-00000017"),
        ("volumes", "tenant", "data", "kvm1.example", "instance-00000017"),
        ("rbd", "", "mapped", "kvm1.example", "instance-00000017"),
    ]


def test_a_definition_left_behind_counts_only_where_nobody_runs() -> None:
    left = answer(SHUT_OFF.replace("IMAGE", "mapped"), SHUT_OFF.replace("IMAGE", "idle"), host="kvm0")
    assert [use[2:] for use in uses(left, answer(DOMAIN))] == [
        ("idle", "kvm0", "other"),
        *(use[2:] for use in uses(answer(DOMAIN))),
    ]


def test_the_host_is_what_libvirt_calls_it_or_else_the_one_that_was_asked() -> None:
    silent = RawAnswer(f"libvirt-{URI}", (), (), 0, SHUT_OFF.encode(), b"", 1, 2)
    assert uses(silent) == [("rbd", "", "IMAGE", "kvm1", "other")]
    assert uses(answer()) == []
    assert uses(answer(DOMAIN, code=1)) == []


def test_hostile_definitions_cost_only_themselves() -> None:
    bomb = '<domain type=\'kvm\'>\n<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n<name>&b;</name>\n</domain>\n'
    broken = "<domain type='kvm'>\n  <name>x</nam>\n</domain>\n"
    nameless = SHUT_OFF.replace("rbd/IMAGE", "a/b/c/d")
    deep = "<domain type='kvm'>\n" + " <a>" * 5000 + " </a>" * 5000 + "\n</domain>\n"
    good = SHUT_OFF.replace("IMAGE", "good")
    assert [use[2] for use in uses(answer(bomb, broken, nameless, deep, good))] == ["good"]


def test_only_hosts_that_are_named_are_asked() -> None:
    assert SOURCE.plan(Scope(target=Target(name="t"))) == []
    uris = ("qemu:///system", URI, "qemu+tls://[fd00::1]/system?no_verify=1")
    requests = SOURCE.plan(Scope(target=Target(name="t", libvirt=uris)))
    assert tuple(request.argv[-1] for request in requests if isinstance(request, ProcessRequest)) == uris
    for bad in ("-c", "qemu+ssh://-oProxyCommand=x/system", "qemu:///a b", "system"):
        with pytest.raises(ValidationError):
            Target(name="t", libvirt=(bad,))


def test_the_script_asks_for_all_definitions_at_once_and_fails_with_the_listing(tmp_path: Path) -> None:
    """Run with a virsh of our own, which prints how it was asked."""
    virsh = tmp_path / "virsh"
    virsh.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        "*fails*) echo no >&2; exit 1;;\n"
        "*--uuid) printf 'one\\ntwo\\n\\n';;\n"
        "*) printf '%s|' \"$@\";;\n"
        "esac\n"
    )
    virsh.chmod(0o755)

    def run(uri: str) -> subprocess.CompletedProcess[str]:
        (request,) = SOURCE.plan(Scope(target=Target(name="t", libvirt=(uri,))))
        assert isinstance(request, ProcessRequest)
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "words": "inherited"}
        return subprocess.run(request.argv, env=environment, capture_output=True, text=True, timeout=30, check=False)

    assert run("qemu:///system").stdout == "-r|-c|qemu:///system| dumpxml one; dumpxml two; hostname|"
    assert (run("qemu:///fails").returncode, run("qemu:///fails").stderr) == (1, "no\n")


def test_of_a_definition_only_what_is_read_is_kept() -> None:
    secret = DOMAIN.replace("<metadata>", "<metadata><own>password</own>", 1).replace(
        "</devices>", "</devices><commandline><arg value='rbd:x:key=AQBsecret'/></commandline>", 1
    )
    whole = answer(secret, SHUT_OFF)
    kept = compact(whole)
    assert b"password" not in kept.stdout
    assert b"AQBsecret" not in kept.stdout
    assert len(kept.stdout) < len(whole.stdout) / 2
    rows = [from_table(Attachment, SOURCE.parse([one], SCOPE)[Attachment]) for one in (whole, kept, compact(kept))]
    assert rows[0] == rows[1] == rows[2]
    assert rows[0]


def test_what_is_no_definition_is_not_kept() -> None:
    assert b"bomb" not in compact(answer("<domain>\n<!DOCTYPE bomb>\n</domain>")).stdout
