"""Which virtual machines have an image as a disk, by the definitions that libvirt keeps of them.

A machine that is shut off keeps its definition, also on a host that it was moved away from: it counts only for images
that no running machine has.

A definition may hold secrets (keys in arguments of QEMU, what an operator wrote into its metadata). So only what is
read is kept of it: the machine's name, whether it runs, its disks (`compact`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from bathyscope.errors import ParseError
from bathyscope.fields import image_parts, parsing
from bathyscope.host import ProcessRequest, Request
from bathyscope.records import Attachment, RawAnswer, Record, Tables
from bathyscope.sources.shape import Columns, Source
from bathyscope.spec.scope import Scope

_LABEL = "libvirt-"
_HOST_S = 10.0
# All definitions over two connections, without privileges there. The host's name comes last, so that a machine that is
# gone between the two is no failure. What the shell starts would outlive it, so it ends by itself.
_SCRIPT = """ask="timeout 5 virsh -r -c"
ids=$($ask "$1" list --all --uuid) || exit
words=
for id in $ids; do words="$words dumpxml $id;"; done
exec $ask "$1" "$words hostname"
"""
# The definition of a machine with hundreds of disks has some 200,000 characters.
_DEFINITION_CHARACTERS = 4 << 20
_DOMAIN = re.compile(r"^<domain[ >].*?^</domain>", re.DOTALL | re.MULTILINE)
_MAPPED = "/dev/rbd/"


class Libvirt:
    """`virsh dumpxml` of all machines of the target's hosts."""

    name = "libvirt"
    records: tuple[type[Record], ...] = (Attachment,)
    period_s = 300.0
    # One host after the other.
    timeout_s = 50.0
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one request for each host."""
        return [
            ProcessRequest(
                label=f"{_LABEL}{uri}",
                argv=("sh", "-c", _SCRIPT, "sh", uri),
                timeout_s=_HOST_S,
            )
            for uri in scope.target.libvirt
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:  # noqa: ARG002 - the shape of a source
        """Return a row for each image and machine."""
        uses = [(answer, *use) for answer in answers if answer.exit_code == 0 for use in _uses(answer)]
        running = {image for _, _, _, is_running, image in uses if is_running}
        columns = Columns(Attachment)
        for answer, host, machine, is_running, image in uses:
            if is_running or image not in running:
                pool, namespace, name = image
                columns.add(
                    at_ns=answer.ended_ns,
                    pool=pool,
                    namespace=namespace,
                    image=name,
                    client_address=None,
                    host=host,
                    vm=machine,
                    resolver="libvirt",
                )
        return {Attachment: columns.table()}


SOURCE: Source = Libvirt()


def _uses(answer: RawAnswer) -> Iterator[tuple[str, str, bool, tuple[str, str, str]]]:
    """Yield (host, machine, whether it runs, image) of each disk that is an image."""
    text = answer.stdout.decode("utf-8", "replace")
    last = _DOMAIN.sub("", text).rsplit(None, 1)[-1:]
    authority = answer.label.removeprefix(_LABEL).partition("://")[2].partition("/")[0].rpartition("@")[2]
    host = last[0] if last else authority
    for match in _DOMAIN.finditer(text):
        with contextlib.suppress(ParseError):
            yield from ((host, *use) for use in _disks(match[0]))


def compact(answer: RawAnswer) -> RawAnswer:
    """Return an answer of libvirt without all that is not read of its definitions; others as they are."""
    if not answer.label.startswith(_LABEL):
        return answer
    text = answer.stdout.decode("utf-8", "replace")
    kept = [small for match in _DOMAIN.finditer(text) if (small := _reduced(match[0]))]
    host = _DOMAIN.sub("", text).rsplit(None, 1)[-1:] if answer.exit_code == 0 else []
    return dataclasses.replace(answer, stdout="\n".join([*kept, *host, ""]).encode())


def _reduced(definition: str) -> str:
    """Return a definition with its name, its id and its disks' sources only; empty for one that is not understood."""
    try:
        domain = _parsed(definition)
    except ParseError:
        return ""
    small = ElementTree.Element("domain", {"id": domain.attrib["id"]} if "id" in domain.attrib else {})
    ElementTree.SubElement(small, "name").text = domain.findtext("name", "")
    devices = ElementTree.SubElement(small, "devices")
    devices.tail = "\n"
    for source in domain.iterfind("devices/disk/source"):
        named = {key: value for key, value in source.attrib.items() if key in ("protocol", "name", "dev")}
        ElementTree.SubElement(ElementTree.SubElement(devices, "disk"), "source", named)
    return ElementTree.tostring(small, encoding="unicode")


def _parsed(definition: str) -> ElementTree.Element:
    """Return a definition. Raises ParseError."""
    # An element takes some thirty times its text.
    if len(definition) > _DEFINITION_CHARACTERS:
        raise ParseError(f"a definition of {len(definition) >> 20} MiB")
    # A document type can define entities that grow without end. libvirt writes none.
    if "<!DOCTYPE" in definition or "<!ENTITY" in definition:
        raise ParseError("a definition with a document type")
    try:
        domain = ElementTree.fromstring(definition)  # noqa: S314 - no entities, see above
    except ElementTree.ParseError as error:
        raise ParseError(f"a definition that is not XML: {error}") from error
    return domain


def _disks(definition: str) -> list[tuple[str, bool, tuple[str, str, str]]]:
    """Return (machine, whether it runs, image) of each disk that is an image. Raises ParseError."""
    domain = _parsed(definition)
    machine, is_running = domain.findtext("name", ""), "id" in domain.attrib
    disks = []
    for source in domain.iterfind("devices/disk/source"):
        name = source.get("name", "") if source.get("protocol") == "rbd" else ""
        mapped = source.get("dev", "")
        if mapped.startswith(_MAPPED):
            name = mapped.removeprefix(_MAPPED)
        with contextlib.suppress(ParseError), parsing(machine):
            if name:
                disks.append((machine, is_running, image_parts(name)))
    return disks
