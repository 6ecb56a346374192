"""A broker's property file that is in KRaft mode before anything is copied: it waits for the broker's next start. Pure.

Nothing is copied while its process is in ZooKeeper mode, and no quorum takes a broker in KRaft mode before the copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState
from migrator.rollout.nodes import Node, Role
from migrator.rollout.plan.modes import FileMode, file_mode, parsed
from migrator.rollout.ports import BrokerMode, Observation

BEHIND_COPY = (PublicState.DUAL_WRITE.label, PublicState.FINISHED.label)


class FileAheadError(OperatorError):
    """A broker's file is in KRaft mode before the copy."""


def refuse_ahead(brokers: Sequence[Node], texts: Mapping[str, str], seen: Observation) -> None:
    """As a rollout begins. While nobody says who has the cluster, it is left to the step of the broker.

    :param texts: property files by node.
    :raises FileAheadError: a broker is the ZooKeeper controller, and files are in KRaft mode.
    """
    ahead = [
        node for node in brokers if file_mode(Role.BROKER, parsed(node, texts[node.name])) is FileMode.BROKER_KRAFT
    ]
    ahead = [node for node in ahead if not may_be_ahead(node, seen)]
    if ahead and seen.controller_broker is not None:
        raise ahead_of_copy(*ahead)


def may_be_ahead(node: Node, seen: Observation) -> bool:
    """Whether the file of a broker may be in KRaft mode: the copy was made, and somebody has taken it further."""
    broker = seen.broker(node)
    if broker is not None and (broker.mode is BrokerMode.KRAFT or broker.kraft_in_log):
        return True
    return seen.migration is not None and seen.migration.state in BEHIND_COPY


def ahead_of_copy(*nodes: Node) -> FileAheadError:
    """Names brokers and files."""
    return FileAheadError(
        "the property file is in KRaft mode, and nothing is copied yet; nothing was done",
        where=", ".join(f"{node.name} on {node.host}: {node.properties}" for node in nodes),
        remedy="Set the file back to ZooKeeper mode: with zookeeper.connect and broker.id, without process.roles. Then "
        "type the command again",
    )
