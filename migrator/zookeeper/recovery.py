"""The parents that every Kafka cluster has in ZooKeeper (``KafkaZkClient.createTopLevelPaths``)."""

from __future__ import annotations

from collections.abc import Iterable

from migrator.errors import OperatorError
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.ops import FORBIDDEN_REMEDY, Applied, Create, Failed, Unknown, ZkError, denied
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter
from migrator.zookeeper.znodes import paths


def create_standard_paths(session: ZooKeeperSession) -> list[str]:
    """Create, without data, what of the standard parents is missing, those of ACLs and tokens included: writes that
    follow a change of the image create nothing but the entity itself. Others may do the same at the same time.

    :return: what was created.
    :raises ZooKeeperUnavailableError: when the connection goes.
    :raises OperatorError: when this session may not create them.
    """
    standard = (*paths.STANDARD_PATHS, *paths.SECURITY_PATHS)
    wanted = sorted({path for leaf in standard for path in (*paths.ancestors(leaf), leaf)})
    return create_missing(session, wanted)


def create_missing(session: ZooKeeperSession, wanted: Iterable[str]) -> list[str]:
    """Create the znodes that are missing, parents first in ``wanted``; result and errors as `create_standard_paths`."""
    wanted = list(wanted)
    found = BulkReader(session).read(wanted)
    missing = [path for path, znode in zip(wanted, found, strict=True) if znode is None]
    writer = ConditionalWriter(session)
    outcomes = [writer.submit([Create(path, None)]) for path in missing]
    created = []
    for path, outcome in zip(missing, outcomes, strict=True):
        match outcome.result():
            case Applied():
                created.append(path)
            case Failed(_, ZkError.NODE_EXISTS):
                continue
            case Failed(_, ZkError.NO_AUTH, identity):
                raise OperatorError(denied(Create(path, None), identity), where=path, remedy=FORBIDDEN_REMEDY)
            case Failed(_, error):
                raise OperatorError(
                    f"ZooKeeper did not let this controller create it ({error.name})",
                    where=path,
                    remedy="Check the chroot in zookeeper.connect",
                )
            case Unknown(reason):
                raise session.away(f"the connection to ZooKeeper was lost ({reason})")
    return created
