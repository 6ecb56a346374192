"""The status of the migration from our leading controller: over gRPC, or by `migrator status` on its own host.

The observer asks here. An answer that is not the leader's, or is something else, is None. Texts from another host are
cut to a bound, because they are shown and noted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from migrator.errors import OperatorError
from migrator.observe.status import (
    FOREIGN_WRITES,
    ImagesStatus,
    Problem,
    Status,
    WriteBehindStatus,
    versions_said,
)
from migrator.rollout.nodes import Node
from migrator.rollout.ports import Executor, ExecutorError
from migrator.rpc.ask_quorum import QuorumAsker
from migrator.values import value

STATUS_SECONDS = 8.0
THERE_SECONDS = 30.0
WORD_MAX, WHAT_MAX, PROBLEMS_MAX = 200, 4000, 50
VOTERS_MAX = 100
"""Limits for what a host says, because it is shown and noted: characters of a name, of a sentence, and problems."""


@value
class LeaderSays:
    """``lag_records``: records that are not in ZooKeeper yet; None where the leader writes nothing there, -1 unknown.
    ``lag_ms``: how long the oldest of them has waited; -1 unknown. ``images``: which controllers have the same
    metadata. ``reopened``: when and why the migration was reopened; "" if it was not. ``versions``: that versions of
    partition states are not raised yet (`versions_said`); ``versions_left``: how many sets that takes, -1 unknown."""

    cluster_id: str
    leader_epoch: int
    public_state: str
    internal_state: str
    lag_records: int | None
    problems: tuple[str, ...]
    foreign_writes: tuple[str, ...]
    images: ImagesStatus | None = None
    lag_ms: int = -1
    reopened: str = ""
    versions: str = ""
    versions_left: int = 0


async def by_asker(asker: QuorumAsker) -> LeaderSays | None:
    """Over gRPC; None when no leader is reached."""
    try:
        async with asyncio.timeout(STATUS_SECONDS):
            status = (await asker.ask()).answers.best
    except (OperatorError, TimeoutError):
        return None
    return of_status(status)


def of_status(status: Status) -> LeaderSays | None:
    """None for a controller that does not lead."""
    if status.quorum.leader_id != status.node_id:
        return None
    return _says(
        status.cluster_id,
        status.quorum.leader_epoch,
        status.migration.public_state,
        status.migration.internal_state,
        status.write_behind,
        status.problems,
        status.images,
        status.migration.reopened,
    )


async def by_command(executor: Executor, node: Node, program: str) -> LeaderSays | None:
    """Ask by a command on the leader's host; None when it fails."""
    words = [program, "status", "-c", node.properties, "--json"]
    try:
        output = await executor.run(node, words, seconds=THERE_SECONDS)
        return None if output.exit_code else of_json(orjson.loads(output.text))
    except (ExecutorError, orjson.JSONDecodeError):
        return None


def of_json(content: Any) -> LeaderSays | None:
    """Decode the output of `migrator status --json`; None when it is something else, or not of the leader."""
    try:
        if content["quorum"]["leader_id"] != content["node_id"]:
            return None
        behind = content["write_behind"]
        problems = tuple(
            Problem(str(it["who"])[:WORD_MAX], str(it["what"])[:WHAT_MAX], "", warning=bool(it["warning"]))
            for it in content["problems"][:PROBLEMS_MAX]
        )
        migration: Mapping[str, Any] = content["migration"]
        return _says(
            str(content["cluster_id"])[:WORD_MAX],
            int(content["quorum"]["leader_epoch"]),
            str(migration["public_state"])[:WORD_MAX],
            str(migration["internal_state"])[:WORD_MAX],
            None if behind is None else _behind(behind),
            problems,
            _images(content.get("images")),
            str(migration.get("reopened", ""))[:WHAT_MAX],
        )
    except (LookupError, TypeError, ValueError, OverflowError):
        return None


def _behind(content: Mapping[str, Any]) -> WriteBehindStatus:
    versions = (int(content.get(name, 0)) for name in ("versions_missing", "versions_seconds"))
    return WriteBehindStatus(int(content["lag_records"]), int(content.get("lag_ms", -1)), 0, -1, *versions)


def _images(content: Any) -> ImagesStatus | None:
    if content is None:
        return None
    groups = (tuple(map(int, content[group][:VOTERS_MAX])) for group in ("equal", "different", "unknown"))
    return ImagesStatus(int(content["offset"]), int(content["time_ms"]), *groups)


def _says(
    cluster_id: str,
    epoch: int,
    public_state: str,
    internal_state: str,
    behind: WriteBehindStatus | None,
    problems: tuple[Problem, ...],
    images: ImagesStatus | None,
    reopened: str,
) -> LeaderSays:
    foreign = [it.what.removeprefix(FOREIGN_WRITES) for it in problems if it.what.startswith(FOREIGN_WRITES)]
    return LeaderSays(
        cluster_id,
        epoch,
        public_state,
        internal_state,
        None if behind is None else behind.lag_records,
        tuple(f"{problem.who}: {problem.what}" for problem in problems if not problem.warning),
        tuple(path for names in foreign for path in names.split(", ")),
        images,
        -1 if behind is None else behind.lag_ms,
        reopened,
        "" if behind is None else versions_said(behind),
        0 if behind is None else behind.versions_missing,
    )
