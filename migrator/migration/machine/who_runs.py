"""What the driver makes of who runs: who is missing, also at the last moment before the claim, and when the copy is
about to count."""

from __future__ import annotations

from migrator.migration.machine import readiness
from migrator.migration.machine.readiness import Readiness, Surroundings
from migrator.migration.machine.transitions import Finding
from migrator.migration.machine.volatile_state import Situation, VolatileState

NAMED = 3
"""Brokers in one sentence."""


def assess(memory: VolatileState, around: Surroundings) -> Readiness:
    """Who is missing now. It is remembered, and since when nobody has been."""
    around, memory.term.sightings = readiness.sighted(memory.term.sightings, around)
    requirements = readiness.Requirements(memory.identity.inter_broker_listener, around.metadata_version)
    found = readiness.assess(around.brokers, around.signals, around.cluster, requirements)
    memory.term.readiness = found
    if not found.ready:
        memory.term.ready_ms = None
    elif memory.term.ready_ms is None:
        memory.term.ready_ms = memory.now_ms
    return found


def missing(found: Readiness) -> Finding:
    """What to wait for."""
    return Finding.CONTROLLERS_MISSING if found.controllers else Finding.BROKERS_MISSING


def missing_before_claim(memory: VolatileState, around: Surroundings) -> Finding | None:
    """Whom to wait for at the last moment before a claim, None for nobody: reading everything has taken its time.
    Everything is read again then."""
    found = assess(memory, around)
    if found.ready:
        return None
    memory.term.decoded = False
    memory.situation = Situation(found.sentence())
    return missing(found)


def strangers(memory: VolatileState, around: Surroundings) -> str:
    """The first of those that would obey nobody once the copy is complete, in words; empty when there are none."""
    around, _ = readiness.sighted(memory.term.sightings, around)
    found = readiness.strangers(around)
    more = f" (and {len(found) - NAMED} more)" if len(found) > NAMED else ""
    return "; ".join(map(str, found[:NAMED])) + more
