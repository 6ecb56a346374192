"""Deletes many znodes: several hundred in one request, one by one if that fails, and again after lost connections.

The last step of a rollout and the drill call `remove` with children before their parents. A znode that is missing
already is no error, so the call can be repeated after any interruption. A refusal of the server ends it with the
znode's path.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from kazoo.exceptions import BadVersionError, ConnectionLoss, KazooException, NoNodeError, NotEmptyError

from migrator.errors import OperatorError
from migrator.zookeeper.bulk import RETRY_SECONDS
from migrator.zookeeper.ops import Applied, Delete, Unknown
from migrator.zookeeper.session import CONNECTION_ERRORS, ZooKeeperSession, retry_lost_connections
from migrator.zookeeper.writer import ConditionalWriter, split_ops

TOGETHER_MAX = 500
"""The most deletions in one request."""


def nobody(_: int) -> None:
    """The default of ``told``: ignores the number."""


def remove(
    session: ZooKeeperSession,
    deletes: Iterable[Delete],
    told: Callable[[int], None] = nobody,
    *,
    retry_seconds: float = RETRY_SECONDS,
) -> int:
    """Delete znodes; returns their number. It can be repeated: a missing znode is no error.

    :param deletes: children before their parents.
    :param told: called with the number of deleted znodes, after each request and before an error.
    :param retry_seconds: how long each request is tried again after lost connections.
    :raises OperatorError: another client creates or changes znodes meanwhile, or the server refuses.
    :raises ZooKeeperUnavailableError: the connection is away for that long.
    """
    removed = 0
    for part in split_ops(deletes, ops_max=TOGETHER_MAX):
        request = _Removal(session, part, retry_seconds)
        try:
            retry_lost_connections(session, request.attempt, seconds=retry_seconds, done="written")
        finally:
            removed += request.removed
            told(removed)
    return removed


class _Removal:
    """Some znodes that are deleted in one multi, or one by one if the multi fails."""

    def __init__(self, session: ZooKeeperSession, deletes: Iterable[Delete], retry_seconds: float) -> None:
        self._session = session
        self._left = list(deletes)
        self._retry_seconds = retry_seconds
        self._asked = False
        """Whether the answer to an earlier request was lost. That request may have deleted the znodes that are
        missing."""
        self.removed = 0

    def attempt(self) -> None:
        """Delete the znodes that are left.

        :raises kazoo.exceptions.ConnectionLoss: the outcome is not known for all znodes; try again.
        :raises OperatorError: as `remove`.
        """
        if not self._session.wait_connected(self._retry_seconds):
            raise ConnectionLoss
        if self._asked or not self._together():
            self._one_by_one()

    def _together(self) -> bool:
        """Delete all in one multi. Returns whether it was applied; if not, none is deleted."""
        try:
            outcome = ConditionalWriter(self._session).submit(self._left).result(self._reply_seconds)
        except TimeoutError:
            outcome = Unknown("no answer in time")
        if isinstance(outcome, Unknown):
            self._asked = True
            raise ConnectionLoss
        if isinstance(outcome, Applied):
            self.removed += len(self._left)
            return True
        return False

    def _one_by_one(self) -> None:
        """Delete one by one, in order. The first refusal is the error. But after a lost answer the znode may still
        exist, and the deletion of its parent is refused only for that reason."""
        client, deadline = self._session.client, time.monotonic() + self._reply_seconds
        pending = [(each, client.delete_async(each.path, each.version)) for each in self._left]
        refused: OperatorError | None = None
        self._left = []
        for each, result in pending:
            try:
                result.get(timeout=max(0.0, deadline - time.monotonic()))
                self.removed += 1
            except NoNodeError:
                self.removed += self._asked
            except (*CONNECTION_ERRORS, client.handler.timeout_exception):
                self._left.append(each)
            except KazooException as error:
                if self._left and isinstance(error, NotEmptyError):
                    self._left.append(each)
                else:
                    refused = refused or self._refusal(each.path, error)
        if refused is not None:
            raise refused
        if self._left:
            self._asked = True
            raise ConnectionLoss

    @property
    def _reply_seconds(self) -> float:
        return self._session.options.session_timeout_ms / 1000

    def _refusal(self, path: str, error: KazooException) -> OperatorError:
        if not isinstance(error, NotEmptyError | BadVersionError):
            return self._session.refusal(error, "the znode is not removed", path)
        does = "creates" if isinstance(error, NotEmptyError) else "changes"
        remedy = "Find out who still uses ZooKeeper; then repeat the command"
        return OperatorError(f"somebody {does} znodes while they are removed", where=path, remedy=remedy)
