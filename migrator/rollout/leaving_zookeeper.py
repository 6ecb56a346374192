"""What Kafka leaves in ZooKeeper after a migration: kept in a file, and removed by a command of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from migrator.errors import MigratorError, OperatorError
from migrator.log.errors import storage_errors
from migrator.log.files import PRIVATE_FILE, TEMPORARY_SUFFIX, sync_directory
from migrator.rollout.ports import BrokerMode, Observation
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.kafka_tree import every_path, lines_of, remove
from migrator.zookeeper.session import ZooKeeperSession

CONNECT_SECONDS = 10.0


async def keep(session: ZooKeeperSession | None, file: Path) -> str:
    """Write all znodes of Kafka to a file; gives why that was not possible, or ""."""
    if session is None:
        return "'access' of the inventory names no ZooKeeper"
    try:
        await asyncio.to_thread(_keep, session, file)
    except MigratorError as error:
        return str(error)
    return ""


def _keep(session: ZooKeeperSession, file: Path) -> None:
    """Line by line: there may be millions."""
    temporary = file.with_name(file.name + TEMPORARY_SUFFIX)
    with storage_errors("cannot keep ZooKeeper's znodes", file):
        temporary.unlink(missing_ok=True)
        temporary.touch(PRIVATE_FILE, exist_ok=False)
        with temporary.open("wb") as out:
            out.writelines(lines_of(_reader(session)))
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(file)
    sync_directory(file.parent)


def refuse_removal(seen: Observation) -> None:
    """
    :raises OperatorError: somebody may still need the znodes.
    """
    for what, remedy in _needed_by(seen):
        raise OperatorError(what, where="ZooKeeper", remedy=remedy)


def refuse_name(typed: str, cluster: str) -> None:
    """
    :param typed: by the operator, to agree.
    :raises OperatorError: it is not the name of the cluster.
    """
    if typed != cluster:
        remedy = "Nothing was removed. The inventory has the name"
        raise OperatorError(f"{typed!r} is not the name of the cluster", where="--cluster", remedy=remedy)


def _needed_by(seen: Observation) -> Iterator[tuple[str, str]]:
    state = "" if seen.migration is None else seen.migration.state
    if not seen.zookeeper_answers:
        yield "ZooKeeper does not answer", "See that it runs, and that 'access' of the inventory names it"
    if not state:
        yield "nobody says how far the migration is", "See that the controllers run, and can be reached"
    if not seen.is_finished:
        yield f"the migration is in state {state}, not finished", "Finish it first; see 'migrator status'"
    if seen.brokers is None:
        yield "nobody says in which mode the brokers are", "See that the controllers and ZooKeeper can be reached"
    left = [str(broker.broker_id) for broker in (seen.brokers or {}).values() if broker.mode is not BrokerMode.KRAFT]
    if left:
        yield f"not in KRaft mode: brokers {', '.join(left)}", "Start them in KRaft mode, or unregister them"
    if seen.controller_broker is not None:
        yield f"broker {seen.controller_broker} is a ZooKeeper controller", "See whose cluster this is"


def remove_all(session: ZooKeeperSession) -> int:
    """Remove all znodes of Kafka; gives how many. Errors as those of `BulkReader`."""
    return remove(session, list(every_path(_reader(session))))


def _reader(session: ZooKeeperSession) -> BulkReader:
    return BulkReader(session, retry_seconds=CONNECT_SECONDS)
