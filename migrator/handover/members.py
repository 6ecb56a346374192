"""Decides a hand-over by membership (KIP-853): new controllers with new ids join, the old ones leave. Pure.

`refusals` says why the hand-over may not begin; `migrator.raft.planner` plans its steps. The voters change by Kafka's
own requests, so this works when either program leads, and in both directions. No directory is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from migrator.controller.kraft_upgrade import MINIMUM_METADATA_VERSION
from migrator.raft.planner import PlannerView, Replica, Wait
from migrator.raft.voter_set import DYNAMIC_VERSION
from migrator.records.versions import version_at
from migrator.seeing.controllers import CANCEL_REASSIGNMENT
from migrator.values import value

Addresses = frozenset[str]
"""Addresses of one node as ``host:port``: by name, and by each IP address that the name resolves to."""


@value
class ObservedBroker:
    """``reads_voters``: whether its release can read voters in the log. ``controllers``: the addresses of controllers
    in its configuration. ``trouble``: why these could not be read, or ""."""

    broker_id: int
    reads_voters: bool
    controllers: Addresses
    trouble: str = ""


@value
class ObservedMembers:
    """The quorum and its brokers at one time.

    ``planner`` has the wanted voters as its target, and the leader as its own node. ``is_finished``: no migration is
    under way. ``level``: the metadata.version. ``target``: the voters of a reassignment that is under way, None without
    one. ``controllers``: the registered controllers, with their addresses.
    """

    planner: PlannerView
    epoch: int
    is_finished: bool
    level: int
    kraft_version: int
    target: str | None
    controllers: Mapping[int, Addresses]
    brokers: tuple[ObservedBroker, ...]

    @property
    def wanted(self) -> tuple[int, ...]:
        """The ids of the wanted voters."""
        return tuple(replica.node_id for replica in self.planner.target or ())


def refusals(seen: ObservedMembers) -> Iterator[Wait]:
    """The obstacles that do not go away by waiting, each with its remedy, the most important first."""
    if not seen.is_finished:
        yield Wait(
            "The migration is not finished.",
            "Finish it first: set zookeeper.metadata.migration.enable=false on every controller, and see 'migrator "
            "status'.",
        )
    if seen.level < MINIMUM_METADATA_VERSION:
        yield Wait(
            f"metadata.version is below {version_at(MINIMUM_METADATA_VERSION).name}, from which on voters can change.",
            "Upgrade all brokers to Kafka 3.9 or newer, then metadata.version with kafka-features.",
        )
    if seen.kraft_version < DYNAMIC_VERSION:
        yield Wait(
            "The voters are those of controller.quorum.voters (kraft.version 0).",
            "Run 'migrator quorum upgrade' first.",
        )
    if seen.target is not None:
        yield Wait(
            f"A reassignment of the voters to {seen.target} is under way.",
            f"{CANCEL_REASSIGNMENT}.",
        )
    yield from _of_the_wanted(seen)
    yield from _of_the_brokers(seen)


def _of_the_wanted(seen: ObservedMembers) -> Iterator[Wait]:
    brokers = {broker.broker_id for broker in seen.brokers}
    if taken := sorted(brokers & set(seen.wanted) - seen.controllers.keys()):
        yield Wait(f"Node {taken[0]} is a broker.", "Name controllers only.")


def _of_the_brokers(seen: ObservedMembers) -> Iterator[Wait]:
    """A broker without the addresses of the new controllers could not start again."""
    for broker in seen.brokers:
        name = f"Broker {broker.broker_id}"
        if not broker.reads_voters:
            yield Wait(
                f"{name} is older than Kafka 3.9, and ends on a log with voters in it.",
                "Upgrade it, or 'migrator quorum unregister' it.",
            )
        elif broker.trouble:
            yield Wait(
                f"{name} cannot be asked where it looks for controllers: {broker.trouble}.",
                "Start it, or 'migrator quorum unregister' it if it will not come back.",
            )
        elif unknown := [node for node in seen.wanted if not _knows(broker, seen.controllers.get(node, frozenset()))]:
            names = ", ".join(map(str, unknown))
            yield Wait(
                f"The configuration of {name.lower()} does not name these controllers, so it could not start without "
                f"the old ones: {names}.",
                "Add their addresses to controller.quorum.bootstrap.servers of the broker, and restart it.",
            )


def _knows(broker: ObservedBroker, at: Addresses) -> bool:
    return bool(broker.controllers & at)


def with_obstacles(view: PlannerView, controllers: Mapping[int, Addresses]) -> PlannerView:
    """Mark the replicas that cannot join yet. A controller has to register first, because the registration gives the
    voters its address."""
    return replace(view, replicas=tuple(_with_obstacle(view, replica, controllers) for replica in view.replicas))


def _with_obstacle(view: PlannerView, replica: Replica, controllers: Mapping[int, Addresses]) -> Replica:
    node_id = replica.key.node_id
    if node_id in view.voters.ids or node_id in controllers:
        return replica
    return replace(replica, obstacle="it has not registered as a controller")
