"""What is recorded: how long, how often, how deep; what `bathy collect` is asked, validated once."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from bathyscope.spec import values
from bathyscope.spec.target import Model

DEPTHS = ("light", "normal", "deep")
LEAST_INTERVAL_S = 1.0
MOST_INTERVAL_S = 60.0
MOST_IMAGES = 16
"""Images whose single objects are counted at once."""


def _between(least_s: float, most_s: float) -> AfterValidator:
    def check(seconds: float) -> float:
        if not least_s <= seconds <= most_s:
            raise values.wrong(f"must be {least_s:g}s to {most_s:g}s", seconds)
        return seconds

    return AfterValidator(check)


_Seconds = Annotated[float, BeforeValidator(values.seconds)]


class CollectSpec(Model):
    """A recording. `duration_s` None: until it is ended.

    `images` are those whose single objects are counted, as POOL/[NAMESPACE/]IMAGE.

    `image_statistics`: Ceph's own statistics of images are asked where the manager's module is not enabled. While they
    are, a client that may write to a pool can end the manager (SECURITY.md). A lab has no such clients: there they are
    always asked.

    `light` asks only the monitors and the manager; `normal` also the OSDs for their counters, and machines for what
    their devices, processors and networks did; `deep` also single operations of some OSDs at a time (`watch.bursts`).
    """

    duration_s: Annotated[_Seconds, _between(1.0, values.LONGEST_S)] | None = Field(default=60.0, title="--duration")
    interval_s: Annotated[_Seconds, _between(LEAST_INTERVAL_S, MOST_INTERVAL_S)] = Field(
        default=5.0, title="--interval"
    )
    images: tuple[str, ...] = Field(default=(), title="--image", max_length=MOST_IMAGES)
    image_statistics: bool = Field(default=False, title="--image-statistics")
    depth: Annotated[str, values.one_of(lambda: list(DEPTHS))] = Field(default="normal", title="--depth")
