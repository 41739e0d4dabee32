"""The plan and the target that a verb's options name."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from bathyscope import files
from bathyscope.commands.options import DEFAULT_CLIENT
from bathyscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bathyscope.spec import ClientHost, DiskTarget, FioClient, PrometheusAccess, SshAccess, Target
    from bathyscope.spec.plan import Plan


def load_plan(path: str | None, preset: str | None, changes: list[str]) -> Plan:
    """Return the plan of a file or a preset with `--set` changes. Raises UsageError, PlanError."""
    from bathyscope.layers import traits
    from bathyscope.spec.plan_file import parse_plan, preset_text, read_plan_text

    if path is not None and preset is not None:
        raise UsageError(
            f"both the plan file {path} and --preset {preset} were given",
            hint=f"bathy bench run {path}, or bathy bench run --preset {preset}",
        )
    if path is not None:
        return parse_plan(read_plan_text(Path(path)), name=path, layers=traits(), overrides=changes)
    name = preset or "ladder"
    return parse_plan(preset_text(name), name=f"preset {name}", layers=traits(), overrides=changes)


def find_target(
    *,
    lab: str | None = None,
    conf: str | None = None,
    client: str | None = None,
    keyring: str | None = None,
    file: Path | None = None,
    disks: Sequence[str] = (),
) -> Target:
    """Return the cluster or disk that the options name; it is not asked. Raises UsageError, LabError."""
    from bathyscope import lab as labs
    from bathyscope.cache.config import Places
    from bathyscope.host.ceph import DEFAULT_CONF
    from bathyscope.spec import Target

    named = [name for name, value in (("--lab", lab), ("--conf", conf), ("--target", file)) if value is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} were given together", hint="name the cluster with one of them")
    extra = dict(_disk(text) for text in disks)
    if lab is not None:
        target = labs.load(lab).target()
    elif file is not None:
        target = _target_file(file)
    elif conf is None and extra and not Path(DEFAULT_CONF).exists():
        target = Target(name="disk", kind="disk")
    else:
        sockets = tuple(sorted(map(str, Places().sockets.glob("*.sock"))))
        target = Target(name=conf or DEFAULT_CONF, conf=conf, client=DEFAULT_CLIENT, cache_sockets=sockets)
    return with_key(target.model_copy(update={"disks": {**target.disks, **extra}}), client, keyring)


def with_key(target: Target, client: str | None, keyring: str | None) -> Target:
    """Return a target with another cephx entity or keyring, where they are given."""
    # Another entity's key is not in the keyring of the first one.
    entity = {} if client is None else {"client": entity_name(client), "keyring": None}
    return target.model_copy(update={**entity, **({} if keyring is None else {"keyring": keyring})})


def entity_name(text: str) -> str:
    """Return the name of a cephx entity that is a client. Raises UsageError."""
    if re.fullmatch(r"client\.[^\s/]+", text) is None:
        raise UsageError(f"--client must be client.NAME (got '{text}')", hint="--client client.bathy")
    return text


def pool_name(text: str) -> str:
    """Return the name of a pool that can stand in a cap. Raises UsageError."""
    if not text or not text.isprintable() or '"' in text:
        raise UsageError(f"--pool must be the name of a pool, without quotation marks (got '{text}')")
    return text


def fio_client(text: str) -> FioClient:
    """Return the `fio --server` that HOST[:PORT] names. Raises UsageError."""
    from bathyscope.spec import FioClient

    host, colon, port = text.rpartition(":")
    if not colon:
        return FioClient(host=text)
    if not host or not port.isdigit():
        raise UsageError(f"--fio-server must be HOST or HOST:PORT (got '{text}')", hint="--fio-server node7:8765")
    return FioClient(host=host, port=int(port))


def client_host(text: str, config: Path | None) -> ClientHost:
    """Return the machine that [USER@]HOST names. Raises UsageError."""
    from pydantic import ValidationError

    from bathyscope.spec import ClientHost, SshAccess

    user, _, name = text.rpartition("@")
    try:
        access = SshAccess(user=user or None, config=None if config is None else str(config.resolve()))
        return ClientHost(name=name, ssh=access)
    except ValidationError as error:
        raise UsageError(
            f"--client-host must be HOST or USER@HOST (got '{text}')", hint="--client-host root@client1"
        ) from error


def ssh_access(user: str | None, *, config: Path | None, names: Sequence[str], sudo: bool) -> SshAccess | None:
    """Return how the options say that nodes are reached; None without --ssh. Raises UsageError."""
    from pydantic import ValidationError

    from bathyscope.spec import SshAccess

    if user is None:
        if names or sudo:
            raise UsageError("--ssh-host and --sudo need --ssh", hint="add --ssh @, or --ssh USER@")
        return None
    if not user.endswith("@"):
        raise UsageError(f"--ssh must be USER@, or @ alone (got '{user}')", hint="--ssh root@")
    if config is not None and not config.is_file():
        raise UsageError(f"there is no ssh configuration file {config}")
    pairs = [name.partition("=") for name in names]
    if not all(node and equals and name for node, equals, name in pairs):
        raise UsageError("--ssh-host must be NODE=NAME", hint="--ssh-host ceph-node1=10.0.0.1")
    try:
        return SshAccess(
            user=user[:-1] or None,
            config=None if config is None else str(config.resolve()),
            names={node: name for node, _, name in pairs},
            sudo=sudo,
        )
    except ValidationError as error:
        bad = error.errors()[0]["input"]
        raise UsageError(f"'{bad}' is not a valid name of a host or a user for ssh") from error


def prometheus_access(url: str | None, *, auth: Path | None, labels: Sequence[str]) -> PrometheusAccess | None:
    """Return how the options say that a Prometheus is asked; None without --prometheus. Raises UsageError."""
    from pydantic import ValidationError

    from bathyscope.host.http import credential
    from bathyscope.spec import PrometheusAccess

    if url is None:
        if auth is not None or labels:
            raise UsageError("--prometheus-auth and --prometheus-match need --prometheus", hint="add --prometheus URL")
        return None
    pairs = [label.partition("=") for label in labels]
    if not all(name and equals for name, equals, _ in pairs):
        raise UsageError("--prometheus-match must be LABEL=VALUE", hint="--prometheus-match cluster=ceph-a")
    match = {name: value for name, _, value in pairs}
    try:
        access = PrometheusAccess(url=url, auth=None if auth is None else str(auth.resolve()), match=match)
    except ValidationError as error:
        if error.errors()[0]["loc"][0] == "match":
            raise UsageError(f"'{error.errors()[0]['input']}' is not a valid label of a series") from error
        # It may hold a password, so it is not repeated.
        raise UsageError(
            "--prometheus must be http://HOST[:PORT][/PATH] or https://…, without a user, a password or a query",
            hint="--prometheus http://mon1:9095; a credential goes into a file: --prometheus-auth FILE",
        ) from error
    credential(access.auth)
    return access


def with_prefix(target: Target, text: str | None) -> Target:
    """Return a target whose Ceph commands are run by the words of `text`; None: as it is. Raises UsageError."""
    changed = target
    if text is not None:
        words = _words_of("--ceph-prefix", text, "--ceph-prefix 'cephadm shell --'")
        changed = target.model_copy(update={"ceph_prefix": tuple(words)})
    if changed.ceph_prefix and changed.root is not None:
        raise UsageError(
            f"{target.name} runs Ceph's programs in the root file system {changed.root}; a prefix cannot be added",
            hint="leave out --ceph-prefix, and BATHY_CEPH_PREFIX from the environment",
        )
    return changed


def with_nodes(target: Target, ssh: SshAccess | None, prometheus: PrometheusAccess | None) -> Target:
    """Return a target whose nodes are reached as the options say, or else as its file does. Raises UsageError."""
    changed = target
    if ssh is not None or prometheus is not None:
        changed = target.model_copy(update={"ssh": ssh, "prometheus": prometheus})
    if changed.ssh is not None and changed.prometheus is not None:
        raise UsageError(
            "the nodes are to be read over ssh and from a Prometheus; a figure comes from one of them",
            hint="--ssh is finer and knows each OSD's processor time; --prometheus needs no login",
        )
    return changed


def with_resolvers(target: Target, libvirt: Sequence[str], kubectl: str | None, attachments: Path | None) -> Target:
    """Return a target that says as the options do where to ask who has which image. Raises UsageError, ParseError.

    The file is read once, so that what is wrong in it is said before a recording of hours.
    """
    from pydantic import ValidationError

    from bathyscope.sources import attachment_file
    from bathyscope.spec import Target

    changes: dict[str, object] = {}
    if libvirt:
        try:
            changes["libvirt"] = Target(name="", libvirt=tuple(libvirt)).libvirt
        except ValidationError as error:
            raise UsageError(
                f"--libvirt must be a URI as virsh -c takes it (got '{error.errors()[0]['input']}')",
                hint="--libvirt qemu:///system, or --libvirt qemu+ssh://root@kvm1/system",
            ) from error
    if kubectl is not None:
        example = "--kubectl 'kubectl --context prod'"
        changes["kubectl"] = tuple(_words_of("--kubectl", kubectl, example))
        if not changes["kubectl"]:
            raise UsageError("--kubectl must be a command (got '')", hint=example)
    if attachments is not None:
        try:
            list(attachment_file.rows(files.read_bounded(attachments), str(attachments)))
        except OSError as error:
            raise UsageError(f"the file {attachments} cannot be read: {error.strerror}") from error
        changes["attachments"] = str(attachments.resolve())
    return target.model_copy(update=changes)


def _words_of(option: str, text: str, example: str) -> list[str]:
    """Return the words of a command that an option gives, not none. Raises UsageError."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} cannot be split into words: {error}", hint=example) from error


def _target_file(path: Path) -> Target:
    from pydantic import ValidationError
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from bathyscope.spec import Target

    try:
        return Target.model_validate(YAML(typ="safe", pure=True).load(files.read_bounded(path).decode()))
    except OSError as error:
        raise UsageError(f"the target file {path} cannot be read: {error.strerror}") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"the target file {path} is not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"the target file {path}: {where}: {first['msg']}") from error


def _disk(text: str) -> tuple[str, DiskTarget]:
    """Return (device class, disk) of `[CLASS=]PATH`."""
    from bathyscope.spec import DiskTarget

    device_class, _, path = text.rpartition("=") if "=" in text and not text.startswith("/") else ("", "", text)
    target = Path(path)
    if not target.exists():
        raise UsageError(f"the disk {path} does not exist", hint="name a file or a block device: --disk hdd=/dev/sdx")
    resolved = target.resolve()
    if target.is_block_device():
        with contextlib.suppress(OSError, ValueError):
            sectors = int(Path(f"/sys/class/block/{resolved.name}/size").read_text())
            return device_class, DiskTarget(
                path=str(resolved), device=resolved.name, size_bytes=sectors * 512, named=True
            )
    return device_class, DiskTarget(path=str(resolved), size_bytes=target.stat().st_size or None, named=True)
