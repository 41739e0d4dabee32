"""How much of our own images is really there: a thin image answers reads without any disk.

`rbd du` counts whole objects, so it shows that every object exists, not that every byte of it was written; the
prefill's own count of bytes shows that.
"""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.errors import ParseError
from bathyscope.fields import as_dict, as_int, as_list, parsing
from bathyscope.host import ProcessRequest, Request
from bathyscope.records import ImageUsage, RawAnswer, Record, Tables
from bathyscope.sources.shape import Columns, Source
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

_POOL = "--pool"


class ImageUsages:
    """`rbd du` of the scope's images."""

    name = "image_usage"
    records: tuple[type[Record], ...] = (ImageUsage,)
    period_s = 300.0
    timeout_s = 120.0
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one request for each image."""
        return [
            ProcessRequest(
                label=f"rbd_du-{pool}-{image}",
                argv=(
                    *scope.target.ceph_prefix,
                    "rbd",
                    *access(scope.target),
                    "du",
                    "--format",
                    "json",
                    _POOL,
                    pool,
                    "--image",
                    image,
                ),
                timeout_s=self.timeout_s,
                root=scope.target.root,
            )
            for pool, image in scope.images
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:  # noqa: ARG002 - the shape of a source
        """Return a row for each image that `rbd du` reported."""
        columns = Columns(ImageUsage)
        for answer in answers:
            if answer.exit_code != 0:
                continue
            with parsing(answer.label):
                images = [as_dict(image) for image in as_list(as_dict(answer.json())["images"])]
                # Snapshots are listed as images with a key "snapshot"; the head comes last.
                heads = [image for image in images if "snapshot" not in image]
                if not heads:
                    raise ParseError(f"{answer.label} lists no image")
                columns.add(
                    at_ns=answer.ended_ns,
                    pool=answer.argv[answer.argv.index(_POOL) + 1],
                    image=str(heads[-1]["name"]),
                    size_bytes=as_int(heads[-1]["provisioned_size"]),
                    used_bytes=as_int(heads[-1]["used_size"]),
                )
        return {ImageUsage: columns.table()}


SOURCE: Source = ImageUsages()


def access(target: Target) -> tuple[str, ...]:
    """Return the options by which rbd and rados connect to the cluster of `target`."""
    words = ["-n", target.client]
    if target.conf is not None:
        words += ["-c", target.conf]
    if target.keyring is not None:
        words += ["--keyring", target.keyring]
    return tuple(words)
