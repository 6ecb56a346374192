"""Finds which APIs, in which versions, the scenarios asked for with success, on both sides.

A test requires all versions, except those in a table with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.wire.schemas import CONTROLLER_APIS
from tests.differential.support.pair import Comparison
from tests.differential.support.sides import CLOSED

Version = tuple[int, int]

_CLIENTS_FETCH: Final = "these versions name topics, and a quorum knows its topic by id only"
NEVER: Final[Mapping[int, tuple[range, str]]] = {
    1: (range(13), _CLIENTS_FETCH),
    7: (range(4), "advertised and not served"),
    17: (range(2), "a listener without SASL refuses it"),
    36: (range(3), "a listener without SASL refuses it"),
    41: (range(4), "advertised and not served"),
    50: (range(1), "advertised and not served"),
    53: (range(2), "the only leader that a quorum of one can hear of is itself"),
    54: (range(2), "the only leader that a quorum of one can hear of is itself"),
    59: (range(2), "a young quorum has no snapshot; with one, tests of the quorum fetch it"),
    60: (range(1), "version 0 asks for brokers, of which a controller does not tell"),
    80: (range(1), "voters are fixed at kraft.version 0"),
    81: (range(1), "voters are fixed at kraft.version 0"),
    82: (range(1), "voters are fixed at kraft.version 0"),
}
"""API: versions that no stock controller of these scenarios answers with success, and why."""


def succeeded(comparisons: Iterable[Comparison]) -> set[Version]:
    """APIs and versions that both sides answered with success, at least in part."""
    found: set[Version] = set()
    for comparison in comparisons:
        if _is_success(comparison.stock.response) and _is_success(comparison.ours.response):
            step = comparison.step
            found.add((step.key, step.version))
            if step.by is not None:
                found.add((58, 0))
    return found


def expected() -> set[Version]:
    """The required versions."""
    return {
        (key, version)
        for key, served in CONTROLLER_APIS.items()
        for version in range(served.min, served.max + 1)
        if key not in NEVER or version not in NEVER[key][0]
    }


def _is_success(response: Any) -> bool:
    """An answer without any error field, as about no topic at all, says nothing."""
    if response == CLOSED or isinstance(response, str):
        return False
    codes = set(_codes(response))
    own = response.get("error_code", ErrorCode.none if codes else None)
    return own is ErrorCode.none and (not codes or ErrorCode.none in codes)


def _codes(value: Any) -> Iterator[ErrorCode]:
    """Of the parts of a response."""
    for content in value.values() if isinstance(value, dict) else value:
        if isinstance(content, (dict, list)):
            if isinstance(content, dict) and "error_code" in content:
                yield content["error_code"]
            yield from _codes(content)
