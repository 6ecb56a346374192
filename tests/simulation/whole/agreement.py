"""Once the faults are over, all controllers agree again: on the leader, the images and the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.controller.quorum_target import target_of
from migrator.raft.states import Role

if TYPE_CHECKING:
    from tests.simulation.whole.watch import Watch
    from tests.simulation.whole.world import World

BEHIND_MAX = 50
"""Records that an image may lack while new ones come."""


def why_not_agreed(watch: Watch) -> str:
    """Empty if everybody follows one leader, the voters are those that they shall be, and each broker that sends
    heartbeats is unfenced."""
    world, roles = watch.world, watch.roles()
    leaders = [node_id for node_id, shadow in watch.of_the_quorum().items() if shadow.role is Role.LEADER]
    if len(leaders) != 1:
        return f"the leaders are {leaders}: {roles}"
    leader = watch.core_of(leaders[0])
    if leader is None or leader.controller.epoch is None:
        return f"controller {leaders[0]} leads and is not active"
    for node_id, controller in world.controllers.items():
        if node_id in world.chaos.dead or controller.is_given_up:
            continue
        core = watch.core_of(node_id)
        if core is None:
            return f"{controller.name} does not run"
        if core.quorum.leader_id != leaders[0]:
            return f"{controller.name} follows {core.quorum.leader_id}: {roles}"
    target = target_of(leader.metadata.published)
    lost = {key.node_id for key in watch.refused}
    if target is not None and not world.chaos.dead and not lost & {key.node_id for key in target}:
        return f"the voters are {sorted(map(str, watch.voter_keys()))}, and shall be {sorted(map(str, target))}"
    return why_behind(watch, watch.committed.end - BEHIND_MAX) or why_fenced(world)


def why_behind(watch: Watch, end: int) -> str:
    """Empty if the images of all have what was committed up to an offset."""
    for node_id, controller in watch.world.controllers.items():
        core = watch.core_of(node_id)
        if core is not None and not controller.is_given_up and core.metadata.published.provenance.offset + 1 < end:
            return f"{controller.name} is at {core.metadata.published.provenance.offset}, not at {end - 1}"
    return ""


def why_fenced(world: World) -> str:
    """Empty if each broker that the quorum hears is registered and unfenced."""
    registered = world.watch.committed.image.image.cluster.brokers
    for broker in world.brokers:
        if broker.is_heard:
            known = registered.get(broker.broker_id)
            if known is None or known.fenced:
                return f"broker {broker.broker_id} sends heartbeats, and is {'fenced' if known else 'not registered'}"
    return ""


def why_unfenced(world: World) -> str:
    """Empty if no broker is unfenced and none leads a partition, as all have been silent for longer than a session."""
    image = world.watch.committed.image.image
    unfenced = [broker_id for broker_id, known in image.cluster.brokers.items() if not known.fenced]
    if unfenced:
        return f"{unfenced} are silent, and not fenced"
    led = [
        f"{topic.name}-{index} by {partition.leader}"
        for topic in image.topics.by_id.values()
        for index, partition in topic.partitions.items()
        if partition.leader >= 0
    ]
    return f"fenced brokers lead: {led}" if led else ""
