"""Which images are counted object by object: their names as the operator has them, their ids as OSDs see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bathyscope.analysis import image_names
from bathyscope.errors import ClusterError, UsageError
from bathyscope.host import CephSession, Host
from bathyscope.recording.collect import collect
from bathyscope.records import Image
from bathyscope.sources import SOURCES, mgr_counters
from bathyscope.spec.scope import Scope
from bathyscope.spec.values import did_you_mean

ZONES_MAX = 256
"""Zones of an image that the module counts apart."""
_DIGITS, _DIGITS_LEAST = 16, 12


def zoom(host: Host, session: CephSession, scope: Scope, wanted: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a scope with which images are counted by objects, named as POOL/[NAMESPACE/]IMAGE.

    An image that may have more objects than are counted one by one begins with zones: to find the right size step by
    step would lose what is counted meanwhile. Raises UsageError for a name that no image has, and where nothing counts
    single objects; DeniedError, ClusterError when the images cannot be listed.
    """
    if not mgr_counters.may_count(scope):
        is_there = mgr_counters.MODULE in scope.mgr_modules
        why = f"not asked: a client could end the manager through version {scope.mgr_module_version}"
        raise UsageError(
            "single objects of images are counted by the manager module bathyscope, which is "
            f"{why if is_there else 'not enabled'}",
            hint="bathy mgr install",
        )
    source = SOURCES["images"]
    answers = collect(host, session, source.plan(scope))
    rows = source.parse(answers, scope)[Image].to_pylist()
    rows_by_name = {image_names.called(row): row for row in rows}
    for name in wanted:
        if name not in rows_by_name:
            failed = next((answer for answer in answers if answer.exit_code != 0), None)
            if failed is not None:
                problem = failed.stderr.decode(errors="replace").strip() or f"error {failed.exit_code}"
                raise ClusterError(
                    f"the images of {failed.label.rpartition('-')[2]} cannot be listed: {problem}",
                    hint="reading them needs osd 'profile rbd-read-only': bathy caps collect",
                )
            raise unknown(name, rows_by_name)
    return fields([rows_by_name[name] for name in wanted])


def unknown(name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an image that is not among those that are known."""
    return UsageError(
        f"no image '{name}' is known", hint=did_you_mean(name, known, "name it as POOL/[NAMESPACE/]IMAGE")
    )


def fields(images: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of a scope with which these images, rows of `image`, are counted by objects."""
    objects = max(-(-row["size_bytes"] // row["object_size_bytes"]) for row in images)
    digits = _DIGITS
    while objects > ZONES_MAX * 16 ** (_DIGITS - digits) and digits > _DIGITS_LEAST:
        digits -= 1
    return {"zoomed_images": tuple(dict.fromkeys(str(row["image_id"]) for row in images)), "zoom_digits": digits}
