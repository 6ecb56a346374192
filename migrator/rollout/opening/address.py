"""Whether the ZooKeeper that 'access' names holds a Kafka cluster; checked before anything is planned or done."""

from __future__ import annotations

import asyncio

from migrator.errors import OperatorError
from migrator.rollout.ports import Observation
from migrator.zookeeper.clusters import read_cluster_id
from migrator.zookeeper.session import ZooKeeperSession


async def check_address(session: ZooKeeperSession | None, seen: Observation) -> str:
    """Returns what could not be looked at, or "". After the migration, ZooKeeper need not hold anything any more.

    :raises NoClusterError: there is no cluster; says where one is instead.
    """
    why = "; ".join(seen.unknown) or "it does not answer"
    if session is not None and not seen.is_finished:
        if not seen.zookeeper_answers:
            return f"ZooKeeper could not be looked at, so the plan does not know what is done already: {why}"
        await asyncio.to_thread(read_cluster_id, session)
    if seen.brokers is None and seen.quorum is not None:
        return f"the quorum does not say which brokers there are, so the plan does not know what is done already: {why}"
    return ""


def refuse_without_zookeeper(seen: Observation) -> None:
    """Refuse to begin a rollout whose 'access' names no ZooKeeper, because its lock is there until the migration is
    over.

    :raises OperatorError: the migration is not known to be over.
    """
    if not seen.is_finished:
        raise OperatorError(
            "zookeeper.connect is not set, and the migration is not known to have ended. Without ZooKeeper a rollout "
            "has no lock, and does not see the brokers",
            where="access",
            remedy="Copy zookeeper.connect from a broker's property file",
        )
