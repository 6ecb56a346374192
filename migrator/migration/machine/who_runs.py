"""Decides which nodes are missing: while the driver waits, right before the claim, and right before the copy is
committed. Pure.

The driver's interpretation of events calls it. A node that is missing, or of which that is unknown, stops the way to
the claim.
"""

from __future__ import annotations

from collections.abc import Iterable

from migrator.migration.machine import readiness, sightings
from migrator.migration.machine.readiness import Gap, Readiness, Surroundings
from migrator.migration.machine.sightings import Doubts
from migrator.migration.machine.transitions import Finding
from migrator.migration.machine.volatile_state import Situation, VolatileState

NAMED = 3
"""The most brokers that one sentence names."""


def assess(memory: VolatileState, around: Surroundings) -> Readiness:
    """Find the missing nodes, and remember them, and the time since when no node has been missing."""
    doubts = _doubts(memory, around)
    requirements = readiness.Requirements(memory.identity.inter_broker_listener, around.metadata_version)
    found = readiness.assess(
        around.brokers, around.signals, around.cluster, requirements, {**doubts.brief, **doubts.lasting}
    )
    memory.term.readiness = found
    if not found.ready:
        memory.term.ready_ms = None
    elif memory.term.ready_ms is None:
        memory.term.ready_ms = memory.now_ms
    return found


def missing(found: Readiness) -> Finding:
    """The finding while nodes are missing."""
    return Finding.CONTROLLERS_MISSING if found.controllers else Finding.BROKERS_MISSING


def missing_before_claim(memory: VolatileState, around: Surroundings) -> Finding | None:
    """Find who is missing right before a claim, None for nobody: nodes may have stopped during the long first reading.
    If a node is missing, everything is read again later."""
    found = assess(memory, around)
    if found.ready:
        return None
    memory.term.decoded = False
    memory.situation = Situation(found.sentence())
    return missing(found)


def about_to_count(memory: VolatileState, around: Surroundings) -> tuple[str, str]:
    """When the copy is complete, in words: the first brokers that would obey no controller, or else the first of which
    that is unknown yet. Both are empty when there are none."""
    doubts = _doubts(memory, around)
    strangers = readiness.strangers(around, doubts.lasting)
    asking = around.signals.asking_brokers
    unknown = [gap for broker_id, gap in doubts.brief.items() if broker_id not in asking]
    return _in_words(strangers), "" if strangers else _in_words(unknown)


def _doubts(memory: VolatileState, around: Surroundings) -> Doubts:
    memory.term.sightings = sightings.sighted(memory.term.sightings, around.brokers, memory.now_ms)
    return sightings.doubts(around, memory.term.sightings)


def _in_words(gaps: Iterable[Gap]) -> str:
    named = list(map(str, gaps))
    more = f" (and {len(named) - NAMED} more)" if len(named) > NAMED else ""
    return "; ".join(named[:NAMED]) + more
