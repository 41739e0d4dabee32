"""Who has an image open, by the watches on its header: the clients that opened it for writing.

A client that opened it for reading alone watches nothing. Asking opens the image, so only those of the scope are asked.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Sequence

from bathyscope.fields import address_of, as_list, parsing
from bathyscope.host import Request
from bathyscope.records import Attachment, RawAnswer, Record, Tables
from bathyscope.sources.shape import Columns, Source, ask
from bathyscope.spec.scope import Scope

_LABEL = "watchers-"
_LOOK_S = 8.0


class Watchers:
    """The watches on the headers of the scope's images."""

    name = "watchers"
    records: tuple[type[Record], ...] = (Attachment,)
    period_s = 60.0
    timeout_s = 10.0
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one command for each pool of these images."""
        by_pool = itertools.groupby(sorted(scope.watched_images), key=lambda image: image[0])
        return [
            ask(
                f"{_LABEL}{pool}",
                f"pool.{pool}",
                "image watchers",
                self.timeout_s,
                images=[[namespace, image] for _, namespace, image in images],
                seconds=_LOOK_S,
            )
            for pool, images in by_pool
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:  # noqa: ARG002 - the shape of a source
        """Return a row for each image and address of a client, without an address for an image that nobody has open.

        An image that could not be opened has none, but one that is gone has no clients any more.
        """
        columns = Columns(Attachment)
        for answer in answers:
            if answer.exit_code != 0:
                continue
            with parsing(answer.label):
                for entry in as_list(answer.json()):
                    namespace, image, error, addresses = as_list(entry)
                    if error not in (0, errno.ENOENT):
                        continue
                    client_addresses = sorted({address_of(str(address)) for address in as_list(addresses)})
                    for address in client_addresses or (None,):
                        columns.add(
                            at_ns=answer.ended_ns,
                            pool=answer.label.removeprefix(_LABEL),
                            namespace=str(namespace),
                            image=str(image),
                            client_address=address,
                            host=None,
                            vm=None,
                            resolver="watcher",
                        )
        return {Attachment: columns.table()}


SOURCE: Source = Watchers()
