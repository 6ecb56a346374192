"""Removes the copy of the metadata log that an earlier attempt left on a broker, and keeps the one that a broker on the
way back would lose.

A broker in migration mode continues with the log that it finds. The log of another quorum is wrong: if its epochs are
higher, the broker never registers; if they are the same, old records may pass for new ones
(``ReplicatedLog.validateOffsetAndEpoch`` compares no more). From 3.7.1 on, Kafka deletes the log itself when it starts
in migration mode (``KafkaRaftManager.maybeDeleteMetadataLogDir``, KAFKA-16463). It cannot be kept beside: a broker does
not start with a directory in ``log.dirs`` that is no partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from migrator.config.properties import parse_properties
from migrator.config.reading import text_of
from migrator.config.types import trimmed
from migrator.errors import OperatorError
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.rollout.files.identities import broker_directories
from migrator.rollout.nodes import Node
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.jobs import META_PROPERTIES
from migrator.rollout.ports import BrokerMode, ExecutorError, NotRegularError

SECONDS = 300.0
OWNER_MAX = 20
"""Characters of a user id in a command's output."""
DELETE_IT = ("3.8", "3.9")
"""Minor releases of Kafka of which every patch release deletes the log itself."""


class OldLogError(OperatorError):
    """A metadata log of an earlier attempt could not be removed, or may be open."""


async def remove_old_log(
    parts: RolloutParts, node: Node, properties: Mapping[str, str], note: Callable[[str], None]
) -> None:
    """Called before a broker is restarted into migration mode. In ZooKeeper mode it does not open this log.

    :param note: puts the path on disk before the log is deleted.
    :raises OldLogError: there is a log that cannot be removed; or it is unknown whether there is one, and the broker's
        release does not delete it itself.
    :raises ExecutorError: there is a log, and the node cannot be asked further.
    """
    directory, path = _log_of(node, properties)
    try:
        is_there = await _is_there(parts, node, path)
    except ExecutorError as error:
        await _pass_unseen(parts, node, path, error)
        return
    if not is_there or not await _leaves_it_alone(parts, node, path):
        return
    owner = _owner(await parts.executor.read(node, str(PurePosixPath(directory) / META_PROPERTIES)))
    if owner not in ("", str(node.node_id)):
        parts.tell(f"{node.name}: {path} stays: its meta.properties says that it belongs to node {owner[:OWNER_MAX]}")
        return
    note(path)
    parts.tell(f"{node.name}: removes {path}, the metadata log of an earlier attempt")
    code = (await parts.executor.run(node, ["rm", "-rf", "--", path], seconds=SECONDS)).exit_code
    if code:
        raise OldLogError(
            f"the metadata log of an earlier attempt cannot be removed: rm ended with exit code {code}. With it the "
            "broker may not register; nothing was done",
            where=f"{node.place}: {path}",
            remedy="Remove that directory by hand; the broker may run meanwhile. Then 'migrator rollout resume'",
        )


async def keep_log(parts: RolloutParts, node: Node, properties: Mapping[str, str], rollout: str) -> None:
    """Copy the log beside the directory that it lies in, and so out of ``log.dirs``; called before a broker in KRaft
    mode is restarted into migration mode, where Kafka deletes it. If all controllers were lost, it would be the last
    copy of the metadata. A failure is told, and delays nothing: the controllers have the log."""
    directory, path = _log_of(node, properties)
    target = f"{directory}.cluster-metadata.{rollout}"
    try:
        if not await _is_there(parts, node, path):
            return
        copy = ["cp", "-a", "-T", "--", path, target]
        code = (await parts.executor.run(node, copy, seconds=SECONDS)).exit_code
        if code:  # the broker may have deleted an old segment meanwhile
            code = (await parts.executor.run(node, copy, seconds=SECONDS)).exit_code
        failed = f"cp ended with exit code {code}" if code else ""
        if failed:  # a part of the copy would keep a full disk full, on which the broker may have its data
            await parts.executor.run(node, ["rm", "-rf", "--", target], seconds=SECONDS)
    except ExecutorError as error:
        failed = str(error)
    parts.tell(
        f"{node.name}: {path}, which Kafka deletes at the restart, was not copied to {target}: {failed}. Copy it by "
        "hand if you want to keep it"
        if failed
        else f"{node.name}: copied {path}, which Kafka deletes at the restart, to {target}"
    )


def _log_of(node: Node, properties: Mapping[str, str]) -> tuple[str, str]:
    """The directory with the metadata log of a broker, and the log; errors as `broker_directories`."""
    directory = PurePosixPath(text_of(properties, "metadata.log.dir") or broker_directories(node, properties)[0])
    return str(directory), str(directory / DIRECTORY_NAME)


async def _is_there(parts: RolloutParts, node: Node, path: str) -> bool:
    """Whether the directory exists. A command that fails proves nothing: it may be forbidden, or not exist.

    :raises ExecutorError: this cannot be told.
    """
    try:
        return await parts.executor.read(node, path) is not None
    except NotRegularError:
        return True
    except ExecutorError:  # the user of the service may be allowed to look
        if await _lists(parts, node, path):
            return True
        if await _lists(parts, node, f"{PurePosixPath(path).parent}/."):
            return False
        raise


async def _lists(parts: RolloutParts, node: Node, path: str) -> bool:
    return (await parts.executor.run(node, ["ls", "-d", "--", path], seconds=SECONDS)).exit_code == 0


async def _pass_unseen(parts: RolloutParts, node: Node, path: str, error: ExecutorError) -> None:
    """Go on when a log, if there is one, does no harm.

    :raises OldLogError: it may do harm.
    """
    broker = (await parts.observer.observe(partitions=False)).broker(node)
    if broker is not None and broker.mode in (BrokerMode.MIGRATING, BrokerMode.KRAFT):
        return  # the log is that of this quorum
    if broker is not None and broker.release.startswith(DELETE_IT):
        parts.tell(
            f"{node.name}: {path} could not be looked at: {error}. Release {broker.release} deletes such a log itself"
        )
        return
    raise OldLogError(
        f"it is unknown whether the metadata log of an earlier attempt is there: {error.what}. With one the "
        "broker may not register, and not every release deletes it. Nothing was done",
        where=f"{node.place}: {path}",
        remedy="Let the executor look there (docs/rollout-executors.md, sudo); if the property file has a variable in "
        "place of this directory, write the path itself. Then 'migrator rollout resume'",
    )


async def _leaves_it_alone(parts: RolloutParts, node: Node, path: str) -> bool:
    """Whether the broker runs in ZooKeeper mode, or does not run.

    :raises OldLogError: this is unknown, and the broker's release does not delete the log itself.
    """
    broker = (await parts.observer.observe(partitions=False)).broker(node)
    if broker is None or broker.mode is None:
        return await parts.executor.incarnation(node) is None
    if not broker.may_migrate:
        return broker.mode is BrokerMode.ZOOKEEPER
    if broker.release.startswith(DELETE_IT):
        return False
    why = f" ({broker.hidden})" if broker.hidden else ""
    raise OldLogError(
        f"there is the metadata log of an earlier attempt, and the broker does not say whether it runs in migration "
        f"mode{why}: it may have the log open. Nothing was done",
        where=f"{node.place}: {path}",
        remedy="Give the login of 'access' the right DescribeConfigs of the cluster, or stop this broker. Then "
        "'migrator rollout resume' removes the log",
    )


def _owner(identity: bytes | None) -> str:
    try:
        found = parse_properties((identity or b"").decode())
    except ValueError:
        return ""
    return trimmed(found.get("node.id") or found.get("broker.id") or "")
