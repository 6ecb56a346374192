"""Quotas on creating and deleting partitions (KIP-599), without the clock: rates that forbid, and rates that allow all.

Each case has a client id of its own, and with it a bucket. All are forwarded: a stock controller does not listen to a
client of its own for as long as it throttles it, which are hours here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

from tests.differential.support.steps import Step, acl, acl_filter, ask, create, forwarded, placed, quota

USER = "ANONYMOUS"
RATE = "controller_mutation_rate"
FORBIDDING, ALLOWING = 1e-4, 1e6
THREE = placed((1,), (1,), (1,))


def _limits(*limits: tuple[Mapping[str, str | None], float]) -> tuple[Step, ...]:
    """Set quotas (0 to remove them), and see that the controllers know: they publish quotas before ACLs."""
    name = f"User:{limits}"
    return (
        *(quota(entity, (RATE, rate, rate == 0)) for entity, rate in limits),
        ask(30, 3, creations=(acl(principal=name),)),
        ask(29, 3, **acl_filter(principal_filter=name)),
    )


def _by(client_id: str, *steps: Step) -> Iterable[Step]:
    return (replace(forwarded(step, USER), client_id=client_id) for step in steps)


def _created(name: str, version: int = 7, **fields: bool) -> Step:
    return create({"name": name, "assignments": THREE}, version=version, **fields)


def _deleted(name: str, version: int) -> Step:
    return ask(20, version, topic_names=(name,), topics=({"name": name},))


def _grown(name: str, before: int, added: int, version: int) -> Step:
    """Placed by hand: what the controllers choose is chosen at random."""
    assignments = tuple({"broker_ids": (1,)} for _ in range(added))
    return ask(37, version, topics=({"name": name, "count": before + added, "assignments": assignments},))


CASES = {
    "create-strict": (_created("q1", 6), _created("q2", 6), _created("q2", 7), _created("q2", 6, validate_only=True)),
    "create-permissive": (_created("q3", 5), _created("q4", 5), _created("q5", 2), _created("q6", 7)),
    "create-validated": (_created("q7", 7, validate_only=True), _created("q7", 7)),
    "create-several": (
        create(*({"name": name, "assignments": THREE} for name in ("q8", "q9", "!", "q1"))),
        _created("q1", 7),
    ),
    "grow-strict": (_grown("q1", 3, 1, 3), _grown("q1", 4, 1, 3), _grown("q1", 1, 0, 3)),
    "grow-permissive": (_grown("q3", 3, 3, 2), _grown("q3", 6, 3, 1), _grown("q3", 9, 3, 3)),
    "delete-strict": (_deleted("q1", 5), _deleted("q8", 6), _deleted("nope", 6)),
    "delete-permissive": (_deleted("q3", 4), _deleted("q4", 3), _deleted("q5", 6)),
}

LEVELS: tuple[dict[str, str | None], ...] = (
    {"client-id": None},
    {"client-id": "level"},
    {"user": None},
    {"user": None, "client-id": None},
    {"user": None, "client-id": "level"},
    {"user": USER},
    {"user": USER, "client-id": None},
    {"user": USER, "client-id": "level"},
)
"""From the least specific on: what forbids below allows here, and the other way round."""


def _levels() -> Iterable[Step]:
    for number, entity in enumerate(LEVELS):
        rate = (FORBIDDING, ALLOWING)[number % 2]
        yield from _limits((entity, rate))
        for last in "abc":
            yield from _by("level", _created(f"level{number}{last}"))
        yield from _by("another", _created(f"another{number}", validate_only=True))
        yield from _by("", _created(f"nobody{number}", validate_only=True))


STEPS = (
    *_limits(*(({"client-id": client_id}, FORBIDDING) for client_id in CASES), ({"client-id": "fast"}, ALLOWING)),
    *chain.from_iterable(_by(client_id, *steps) for client_id, steps in CASES.items()),
    *_by("fast", _created("f1"), _created("f2"), _grown("f1", 3, 6, 3), _deleted("f2", 6)),
    *_by("unlimited", _created("f3"), _created("f4")),
    *_levels(),
    *_limits(*((entity, 0.0) for entity in LEVELS)),
    *_by("level", _created("level"), _created("levels")),
)
