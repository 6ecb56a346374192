"""Giving a cluster back to its ZooKeeper brokers, after every controller of the quorum has ended in good order.

Kafka's own guide only deletes ``/controller`` and ``/migration``; what else is done here keeps partitions from going
offline afterwards. Sources: Kafka's migration guide, KAFKA-20488, ``Partition.makeLeader``.
"""

from __future__ import annotations

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from migrator.drill.steps import controller_claim, raise_controller_epoch
from migrator.errors import OperatorError
from migrator.image.model import MetadataImage, PartitionRegistration
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.partition_state import decode_partition_state


def give_back(client: KazooClient, image: MetadataImage | None = None) -> int:
    """Take the quorum's claim away; only then do brokers stand for election. Can be repeated.

    :param image: the metadata at the end of the quorum's log; None leaves the versions of partition states alone.
    :returns: how many partition states were behind their partition epoch.
    :raises OperatorError: ZooKeeper lacks changes that are in the log; nothing was written then.
    """
    lags = {} if image is None else _lags(client, image)
    for path, lag in lags.items():
        data, stat = client.get(path)
        for version in range(stat.version, stat.version + lag):
            client.set(path, data, version)
    raise_controller_epoch(client)  # last before the delete: brokers give up when it is written after that
    claim = controller_claim(client)
    if claim is not None and claim.is_kraft:
        client.delete(paths.CONTROLLER)
    try:
        client.delete(paths.MIGRATION)
    except NoNodeError:
        return len(lags)
    return len(lags)


def _lags(client: KazooClient, image: MetadataImage) -> dict[str, int]:
    """By path: how much lower a state's version is than the partition epoch that the brokers know. They ignore a
    LeaderAndIsr with an older one, so the partition would have no leader after the next election."""
    lags = {}
    for topic in image.topics.by_id.values():
        for number, partition in topic.partitions.items():
            path = paths.partition_state(topic.name, number)
            lag = partition.partition_epoch - _version(client, path, partition)
            if lag > 0:
                lags[path] = lag
    return lags


def _version(client: KazooClient, path: str, partition: PartitionRegistration) -> int:
    try:
        data, stat = client.get(path)
    except NoNodeError:
        raise _behind(path) from None
    if decode_partition_state(path, data).leader_epoch < partition.leader_epoch:
        raise _behind(path)
    return int(stat.version)


def _behind(path: str) -> OperatorError:
    return OperatorError(
        "ZooKeeper lacks changes that the metadata log holds, and brokers know: it is too early for a rollback",
        where=path,
        remedy="Start the controllers again, wait until nothing waits to be written to ZooKeeper, and stop them with "
        "SIGTERM",
    )
