"""How much of our own images and objects is really there: a thin image answers reads without any disk.

`rbd du` counts whole objects, so it tells that every object exists, not that every byte of it was written; the
prefill's own count of bytes tells that. For RADOS objects, whose missing ones fio reads without an error, the
names in the pool are counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bathyscope.errors import ParseError, ToolError
from bathyscope.host import ProcessRequest
from bathyscope.sources.base import RawAnswer
from bathyscope.sources.fields import as_dict, as_int, as_list, parsing
from bathyscope.spec import Target

_TIMEOUT_S = 120.0


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """An image: its size, and the bytes of it that exist."""

    pool: str
    image: str
    size_bytes: int
    used_bytes: int

    @property
    def written_ratio(self) -> float:
        """The share that exists, 0 to 1; an empty image counts as fully there."""
        return 1.0 if self.size_bytes == 0 else min(1.0, self.used_bytes / self.size_bytes)


def access(target: Target) -> tuple[str, ...]:
    """Return the options by which rbd and rados connect to the cluster of `target`."""
    words = ["-n", target.client]
    if target.conf is not None:
        words += ["-c", target.conf]
    if target.keyring is not None:
        words += ["--keyring", target.keyring]
    return tuple(words)


def plan(target: Target, images: Sequence[tuple[str, str]]) -> list[ProcessRequest]:
    """Return one request for each (pool, image)."""
    return [
        ProcessRequest(
            label=f"rbd_du-{pool}-{image}",
            argv=("rbd", *access(target), "du", "--format", "json", "--pool", pool, "--image", image),
            timeout_s=_TIMEOUT_S,
            root=target.root,
        )
        for pool, image in images
    ]


def parse(pool: str, answer: RawAnswer) -> Usage:
    """Return the usage that one `rbd du` reported. Raises ToolError (no such image), ParseError."""
    if answer.exit_code != 0:
        lines = answer.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        raise ToolError(f"rbd du failed ({answer.exit_code}): {lines[0][:300]}")
    value = answer.json()
    with parsing(answer.label):
        images = [as_dict(image) for image in as_list(as_dict(value)["images"])]
        # Snapshots are listed as images with a key "snapshot"; the head comes last.
        heads = [image for image in images if "snapshot" not in image]
        if not heads:
            raise ParseError(f"{answer.label} lists no image")
        head = heads[-1]
        size, used = as_int(head["provisioned_size"]), as_int(head["used_size"])
        return Usage(pool=pool, image=str(head["name"]), size_bytes=size, used_bytes=used)


def plan_objects(target: Target, pool: str) -> ProcessRequest:
    """Return the request that lists the objects of our pool."""
    return ProcessRequest(
        label=f"rados_ls-{pool}",
        argv=("rados", *access(target), "--pool", pool, "ls"),
        timeout_s=_TIMEOUT_S,
        root=target.root,
    )


def count_objects(answer: RawAnswer, prefix: str) -> int:
    """Return the number of objects whose name is PREFIX and a dot and a number. Raises ToolError."""
    if answer.exit_code != 0:
        lines = answer.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        raise ToolError(f"rados ls failed ({answer.exit_code}): {lines[0][:300]}")
    names = answer.stdout.decode("utf-8", "replace").splitlines()
    return sum(1 for name in names if name.startswith(prefix + ".") and name[len(prefix) + 1 :].isdigit())
