"""One request of every API of a controller, such that a right is asked for."""

from __future__ import annotations

from typing import Any

from migrator.wire.schemas import CONTROLLER_APIS
from tests.differential.scenarios import guarded
from tests.differential.support.names import Names

DESCRIBED = {"resources": ({"resource_type": 2, "resource_name": "t"}, {"resource_type": 4, "resource_name": "1"})}


def questions() -> dict[int, dict[str, Any]]:
    """By API key: the fields of a request of the latest version."""
    names = Names({}, 0)
    found: dict[int, dict[str, Any]] = {}
    for step in guarded.STEPS:
        if step.by is None and step.version == CONTROLLER_APIS[step.key].max:
            found.setdefault(step.key, step.fields(names))
    return {key: found.get(key, {}) for key in CONTROLLER_APIS} | {32: DESCRIBED}
