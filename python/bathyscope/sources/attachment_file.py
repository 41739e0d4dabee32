"""What the operator says of who uses which image: a CSV file with a header.

The columns may stand in any order, others are passed over, and a cell may be empty: `image` (POOL/IMAGE,
POOL/NAMESPACE/IMAGE, or IMAGE in any pool), `address` (of a client), `host`, `vm`. A row names an image, or with an
address alone the machine that has this address, whatever image it uses.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from bathyscope.errors import ParseError
from bathyscope.fields import address_of, image_parts
from bathyscope.host import ProcessRequest, Request
from bathyscope.records import ANY_IMAGE, Attachment, RawAnswer, Record, Tables
from bathyscope.sources.shape import Columns, Source
from bathyscope.spec.scope import Scope

_LABEL = "attachment_file"


class AttachmentFile:
    """The target's file of attachments."""

    name = "attachment_file"
    records: tuple[type[Record], ...] = (Attachment,)
    period_s = 300.0
    timeout_s = 5.0
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return the reading of the file, when the target names one."""
        if scope.target.attachments is None:
            return []
        return [ProcessRequest(_LABEL, ("cat", "--", scope.target.attachments), timeout_s=self.timeout_s)]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:  # noqa: ARG002 - the shape of a source
        """Return a row for each row of the file. Raises ParseError, with the number of the line."""
        columns = Columns(Attachment)
        for answer in answers:
            if answer.exit_code == 0:
                for (pool, namespace, image), cells in rows(answer.stdout, answer.argv[-1]):
                    columns.add(
                        at_ns=answer.ended_ns,
                        pool=pool,
                        namespace=namespace,
                        image=image,
                        client_address=address_of(cells["address"]) if cells.get("address") else None,
                        host=cells.get("host") or None,
                        vm=cells.get("vm") or None,
                        resolver="csv",
                    )
        return {Attachment: columns.table()}


SOURCE: Source = AttachmentFile()


def rows(content: bytes, path: str) -> Iterator[tuple[tuple[str, str, str], dict[str, str]]]:
    """Yield (pool, namespace, image) and the cells by column of each row. Raises ParseError, with the line."""
    # A byte order mark is what spreadsheets begin with.
    reader = csv.reader(io.StringIO(content.decode("utf-8-sig", "replace"), newline=""))
    try:
        header = _header(next(reader, []))
        for row in reader:
            if any(map(str.strip, row)):
                yield _row(header, row)
    except (ValueError, csv.Error) as error:
        raise ParseError(f"{path}, line {reader.line_num}: {error}") from error


def _header(row: Sequence[str]) -> list[str]:
    header = [cell.strip().lower() for cell in row]
    if not {"image", "address"}.intersection(header) or not {"host", "vm"}.intersection(header):
        raise ValueError("the header must name image or address, and host or vm: image,host,vm")
    return header


def _row(header: Sequence[str], row: Sequence[str]) -> tuple[tuple[str, str, str], dict[str, str]]:
    if len(row) != len(header):
        raise ValueError(f"{len(row)} cells, and the header names {len(header)}")
    cells = {name: cell.strip() for name, cell in zip(header, row, strict=True)}
    if not cells.get("image") and not cells.get("address"):
        raise ValueError("neither an image nor an address")
    return image_parts(cells["image"]) if cells.get("image") else ("*", "", ANY_IMAGE), cells
