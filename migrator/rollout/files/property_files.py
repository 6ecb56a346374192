"""The property files of nodes: reads them, names the backups of a rollout, and makes of a file what a step needs.

The engine calls it through an executor. It writes nothing itself: it returns contents and names. A backup belongs to
one rollout and one phase. A host is not trusted: only names that can be backups count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import TypeVar

from migrator.config.kafkas_controller import refused_by_kafka
from migrator.config.keys import CONNECT, CONTROL_PLANE, PROTOCOLS
from migrator.config.properties import decoded, encoded
from migrator.errors import OperatorError
from migrator.rollout.journal.progress import Progress
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.modes import (
    FileMode,
    ModeSettings,
    digest,
    file_mode,
    lost_zookeeper,
    parsed,
    refuse_unstartable,
    rewritten,
    stock_file,
)
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import Executor, ExecutorError

BEFORE = ".before-"
LIST_SECONDS = 60.0
BACKUPS_MAX = 20
HOSTS_AT_ONCE = 16
S = TypeVar("S")
T = TypeVar("T")
LEAVES = {
    FileMode.BROKER_ZOOKEEPER: Phase.MIGRATE,
    FileMode.BROKER_MIGRATING: Phase.KRAFT,
    FileMode.CONTROLLER_MIGRATING: Phase.FINISH,
}
"""The phase that takes a file out of each mode, and makes the backup of it."""


async def at_once(ask: Callable[[S], Awaitable[T]], of: Iterable[S]) -> list[T]:
    """Ask many hosts, `HOSTS_AT_ONCE` at a time.

    :raises OperatorError: the first error; then no further host is asked.
    """
    turns = asyncio.Semaphore(HOSTS_AT_ONCE)

    async def one(each: S) -> T:
        async with turns:
            return await ask(each)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(each)) for each in of]
    except* OperatorError as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def texts_of(executor: Executor, nodes: Sequence[Node]) -> dict[str, str]:
    """The property files, by name of the node; errors as `text_of`."""
    found = await at_once(partial(text_of, executor), nodes)
    return {node.name: text for node, text in zip(nodes, found, strict=True)}


async def text_of(executor: Executor, node: Node) -> str:
    """A node's property file.

    :raises OperatorError: there is none.
    """
    content = await executor.read(node, node.properties)
    where = node.file_place
    if content is None:
        raise OperatorError("there is no such file", where=where, remedy="Correct the path in the inventory")
    return decoded(content)


async def properties_of(executor: Executor, node: Node) -> dict[str, str]:
    """The keys and values of a node's property file; errors as `text_of` and `parsed`."""
    return parsed(node, await text_of(executor, node))


async def digest_of(executor: Executor, node: Node) -> str | None:
    """The digest of a node's property file; None when there is none."""
    return digest(await executor.read(node, node.properties))


async def earlier_of(executor: Executor, node: Node, mode: FileMode, rollout: str, text: str) -> bytes | None:
    """The file as it was in this mode; None when no backup has it. It is this rollout's backup, unless this rollout
    found the file already in another mode. When the file names no ZooKeeper, or leaves the migration for ZooKeeper, it
    may be the newest backup of another rollout.

    :param text: the file as it is now.
    :raises ExecutorError: it is unknown whether there is a backup.
    """
    kept = backup_of(node, mode, rollout)
    own = await executor.read(node, kept) if kept and rollout else None
    if not kept or (own is not None and _mode_of(node, own) is mode):
        return own
    now = parsed(node, text)
    leaves = mode is FileMode.BROKER_ZOOKEEPER and file_mode(node.role, now) is FileMode.BROKER_MIGRATING
    if now.get(CONNECT) and not leaves:
        return None
    path = PurePosixPath(node.properties)
    listed = await executor.run(node, ["ls", "-1t", "--", str(path.parent)], seconds=LIST_SECONDS)
    if listed.exit_code:
        way_out = f", or copy the file as it was to {kept}" if rollout and own is None else ""
        raise ExecutorError(
            "it is unknown whether another rollout has kept this file as it was: ls of the directory ended with exit "
            f"code {listed.exit_code}",
            where=f"{node.place}: {path.parent}",
            remedy=f"Let the executor run ls there (docs/rollout-executors.md, sudo){way_out}. Then try again",
        )
    for name in _backups(path.name, listed.text.split("\n")):
        content = await executor.read(node, str(path.with_name(name)))
        if content is not None and _mode_of(node, content) is mode:
            return content
    return None


def _backups(name: str, listed: Iterable[str]) -> list[str]:
    """The names of a file's backups, from its host's listing. A host may list anything; only what can be such a name
    counts."""
    kept = (each for each in listed if each.startswith(f"{name}{BEFORE}"))
    return list(islice((each for each in kept if "/" not in each and each.isprintable()), BACKUPS_MAX))


def _mode_of(node: Node, content: bytes) -> FileMode | None:
    try:
        return file_mode(node.role, parsed(node, decoded(content)))
    except OperatorError:
        return None


def backup(node: Node, phase: Phase, rollout: str) -> str:
    """The path of the backup from before a phase."""
    return f"{node.properties}{BEFORE}{phase.value}.{rollout}"


def backup_of(node: Node, mode: FileMode, rollout: str) -> str:
    """The path of the backup in this mode, if this rollout found the file so; "" for a mode that is never left."""
    phase = LEAVES.get(mode)
    return "" if phase is None else backup(node, phase, rollout)


async def wanted_file(
    parts: RolloutParts, mode: FileMode, node: Node, text: str, progress: Progress, tell: Callable[[str], None]
) -> tuple[bytes, bytes | None]:
    """The file of a node as this mode needs it; and the file as it was in this mode before, None when that is unknown.

    :param text: the file as it is.
    :param tell: shows what the operator has to know of the new file.
    :raises OperatorError: the file cannot be made, or a host cannot be reached.
    """
    if mode is FileMode.STOCK:
        release = parts.inventory.handover
        for key, what, remedy in refused_by_kafka(parsed(node, text)):
            raise OperatorError(f"Kafka does not start: {what}", where=f"{node.properties}: {key}", remedy=remedy)
        return encoded(text if release is None else stock_file(text, release)), None
    earlier = await earlier_of(parts.executor, node, mode, progress.rollout, text)
    was = None if earlier is None else decoded(earlier)
    if was is None and lost_zookeeper(node, text, mode):
        tell(
            f"no backup and no commented line says which keys zookeeper.* the file had. It gets "
            f"{CONNECT} only: if ZooKeeper needs more, for example zookeeper.ssl.*, add it to {node.properties}"
        )
    settings = parts.mode_settings(progress.release_version)
    new = rewritten(node, text, mode, settings, was)
    if mode is FileMode.BROKER_KRAFT:
        refuse_unstartable(node, new)
    for sentence in not_kept(node, text, new, settings, was) if node.role is NodeKind.BROKER else ():
        tell(f"{node.properties}: {sentence}. The file as it was stays beside it")
    return encoded(new), earlier


def not_kept(node: Node, text: str, new: str, settings: ModeSettings, earlier: str | None) -> Iterator[str]:
    """Changes in a broker's file since the migration began that no rollout has made and the way back loses: a
    sentence for each.

    :param text: the file as it is.
    :param new: the file as the way back makes it.
    :param earlier: the file as it was in this mode, before or during the migration; None when that is unknown.
    """
    here, then = parsed(node, text), parsed(node, new)
    target, mode = file_mode(node.role, then), file_mode(node.role, here)
    if target is mode or target is FileMode.BROKER_KRAFT:
        return
    wanted = {key: wanted for key, wanted in settings.for_brokers.items() if key != PROTOCOLS}
    changed = [key for key in wanted if key in here and here[key] != wanted[key] and here[key] != then.get(key)]
    if changed and target is FileMode.BROKER_ZOOKEEPER:
        yield f"{', '.join(changed)}: had another value than in brokers.settings; is again as before the migration"
    was = {} if earlier is None else parsed(node, earlier)
    if mode is FileMode.BROKER_KRAFT and CONTROL_PLANE in was and CONTROL_PLANE not in then:
        yield f"{CONTROL_PLANE}={was[CONTROL_PLANE]} does not come back: the broker has no such listener any more"
