"""What a cephx key may do, by the kind of daemon."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Caps:
    """The caps of a key by the kind of daemon that they are for; empty for none."""

    mon: str
    mgr: str
    osd: str
