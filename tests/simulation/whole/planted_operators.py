"""Bugs on purpose in what operators and administrators ask for: see `tests.simulation.whole.planted`."""

from __future__ import annotations

from typing import Any

from migrator.apis import configs
from migrator.controller.configs import AlterConfigsRequest, alter_configs
from migrator.raft import telling
from migrator.raft.refused import Recovered
from tests.simulation.whole.planting import Patches, bug

RECOVERS = {
    "dynamic": "yes",
    "recover_rate": 0.3,
    "chaos_seconds": 15,
    "names_given_up": "yes",
    "observers": 2,
    "kill_rate": 0.3,
}


@bug(**RECOVERS)
def given_up_are_told_the_epoch() -> Patches:
    """Two of three that were given up elected a leader above the epoch of the recovery."""
    return [(telling, "may_hear", lambda *_: True), (telling, "is_given_up", lambda *_: False)]


@bug(**RECOVERS)
def given_up_are_not_refused() -> Patches:
    """As in stock Kafka, which knows no recovery."""
    return [(Recovered, "refuses", lambda *_: False), (Recovered, "has_lost", lambda *_: False)]


@bug(other_share=1, brokers=1)
def validation_writes() -> Patches:
    """What was only asked was done."""

    def decide(image: Any, request: AlterConfigsRequest, context: Any) -> Any:
        return alter_configs(image, AlterConfigsRequest(request.changes), context)

    return [(configs, "alter_configs", decide)]
