"""The cephx caps that a watch works with."""

from __future__ import annotations

from bathyscope.spec.caps import Caps


def of_watch(*, tell: bool) -> Caps:
    """Return the least that `bathy collect` and `bathy top` need; `tell`: also the OSDs' own counters.

    The manager answers for images only to who may read them: "allow r" is enough for that. What the images are is read
    from their pools. Ceph gives the counters of OSDs, and lets their options be changed, only to a key that may do
    everything on them.
    """
    return Caps("allow r", "allow r", "allow *" if tell else "profile rbd-read-only")
