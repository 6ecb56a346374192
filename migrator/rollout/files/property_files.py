"""The property files of nodes: reads them, and names the backups of a rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import TypeVar

from migrator.config.keys import CONNECT
from migrator.config.properties import decoded
from migrator.errors import OperatorError
from migrator.rollout.nodes import Node
from migrator.rollout.plan.modes import FileMode, digest, file_mode, parsed
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
    where = f"{node.name} on {node.host}: {node.properties}"
    if content is None:
        raise OperatorError("there is no such file", where=where, remedy="Correct the path in the inventory")
    return decoded(content)


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
            where=f"{node.name} on {node.host}: {path.parent}",
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
