"""Finds what a package offers: one file adds one more of a kind (a layer, a source, a run kind).

A module of the package that has the attribute asked for is a member. So nothing is listed twice, and adding one more
means adding its file.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any


def members(package: ModuleType, attribute: str) -> dict[str, Any]:
    """Return name → `attribute` of every module of `package` that has it, by the member's own `name`, in its order.

    Raises ValueError when two modules offer the same name: each would hide the other.
    """
    members: dict[str, Any] = {}
    for entry in sorted(pkgutil.iter_modules(package.__path__), key=lambda entry: entry.name):
        module = importlib.import_module(f"{package.__name__}.{entry.name}")
        member = getattr(module, attribute, None)
        if member is not None:
            if member.name in members:
                raise ValueError(f"{module.__name__} offers '{member.name}', which exists already")
            members[member.name] = member
    return members
