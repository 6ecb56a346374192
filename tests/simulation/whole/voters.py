"""The voters of a quorum whose log names them: those that it is formatted with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.log.initial_voters import initial_voter
from migrator.raft.voter_set import VoterSet
from migrator.records.control import VoterEndpoint
from migrator.records.uuid import random_uuid
from tests.simulation.whole.controller import PORT

if TYPE_CHECKING:
    from tests.simulation.whole.world import World


def first_voters(world: World) -> VoterSet:
    """With new directory ids."""
    found = []
    for node_id in sorted(world.first_voters):
        endpoint = VoterEndpoint("CONTROLLER", world.controllers[node_id].host, PORT)
        found.append(initial_voter(node_id, random_uuid(world.random), endpoint))
    return VoterSet.of(found)
