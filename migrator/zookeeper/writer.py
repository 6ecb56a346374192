"""Conditional writes: pipelined multis within a server's size limit, whose outcomes distinguish applied, refused and
unknown.

The claim, the write-behind, repairs and the rollout's lock use a `ConditionalWriter`. A multi is applied as a whole or
not at all, and in the order of submission. An unknown outcome stays unknown: the caller has to read what its condition
would show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

from kazoo.exceptions import MarshallingError
from kazoo.interfaces import IAsyncResult

from migrator.errors import OperatorError
from migrator.zookeeper.jute import Multi, WriteResult
from migrator.zookeeper.ops import (
    Applied,
    Failed,
    MultiOutcome,
    Op,
    Stat,
    Unknown,
    ZkError,
)
from migrator.zookeeper.request_size import BYTES_MAX, JUTE_MAXBUFFER, OPS_MAX, bytes_of_one, op_bytes
from migrator.zookeeper.session import CONNECTION_ERRORS, ZooKeeperSession

OpT = TypeVar("OpT", bound=Op)

_ERRORS = {error.value: error for error in ZkError}


class ConditionalWriter:
    """Sends multis on one session; may be used from any thread."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def submit(self, ops: Sequence[Op]) -> Future[MultiOutcome]:
        """Send one multi after all earlier ones.

        The future's result is `Unknown` when the connection is lost before the answer, or the answer is malformed. It
        raises `OperatorError` for a refusal that no caller can handle (quota exceeded, invalid access control list,
        ...).
        """
        future: Future[MultiOutcome] = Future()
        future.set_running_or_notify_cancel()

        def on_reply(result: IAsyncResult) -> None:
            if future.done():  # kazoo may report one failure twice
                return
            error = result.exception
            if isinstance(error, (*CONNECTION_ERRORS, MarshallingError)):
                future.set_result(Unknown(type(error).__name__))
            elif error is not None:
                where = ops[0].path if ops else ""
                future.set_exception(self._session.refusal(error, "ZooKeeper refused a write", where))
            else:
                try:
                    future.set_result(self._outcome(ops, result.value))
                except OperatorError as refusal:
                    future.set_exception(refusal)

        self._session.call(Multi(ops, self._session.chroot, self._session.acl_of)).rawlink(on_reply)
        return future

    def write(self, ops: Sequence[Op]) -> MultiOutcome:
        """`submit` and wait; errors likewise."""
        return self.submit(ops).result()

    def _outcome(self, ops: Sequence[Op], results: Sequence[WriteResult]) -> MultiOutcome:
        """The outcome of a multi. In a refused one every operation has an error code: 0 before the failed operation, -2
        after it."""
        for index, result in enumerate(results):
            if isinstance(result, int) and result != 0:
                error = _ERRORS.get(result)
                if error is None:
                    raise OperatorError(
                        f"ZooKeeper refused to write this znode (error {result})",
                        where=ops[index].path,
                        remedy="Look at the log of the ZooKeeper servers",
                    )
                return Failed(index, error, self._session.identity if error is ZkError.NO_AUTH else "")
        return Applied(tuple(result for result in results if isinstance(result, Stat | str | None)))


def split_ops(
    ops: Iterable[OpT],
    *,
    bytes_max: int = BYTES_MAX,
    ops_max: int = OPS_MAX,
    reserved_bytes: int = 0,
    jute_maxbuffer: int = JUTE_MAXBUFFER,
) -> Iterator[list[OpT]]:
    """Split operations, in order, into multis within ``bytes_max``. A larger operation gets its own multi.

    :param reserved_bytes: the bytes of the checks that the caller adds to every multi.
    :raises OperatorError: a single operation is too big for ZooKeeper.
    """
    part: list[OpT] = []
    size = reserved_bytes
    for op in ops:
        needed = op_bytes(op)
        if needed + reserved_bytes > bytes_of_one(jute_maxbuffer):
            raise OperatorError(
                f"the content has {needed} bytes, more than ZooKeeper accepts in one request",
                where=op.path,
                remedy="Make the entity smaller, or raise jute.maxbuffer on the ZooKeeper servers and set "
                "migrator.zookeeper.jute.maxbuffer to it",
            )
        if part and (len(part) >= ops_max or size + needed > bytes_max):
            yield part
            part, size = [], reserved_bytes
        part.append(op)
        size += needed
    if part:
        yield part
