"""The client of the operator's service, for the command line.

Commands use `OperatorClient` as a context; each method is one call, with a time-out unless it follows changes. No
answer, a refusal and a wrong certificate are an `OperatorError`. The owner and the rights of a local socket's directory
are checked first: another user of the machine could have put the socket there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from migrator.errors import OperatorError
from migrator.log.errors import StorageError
from migrator.log.lock import is_in_use
from migrator.observe.status import Force, Gate, Goal, JournalEvent, LockAnswer, Status, VerdictAnswer, VerdictReport
from migrator.observe.voters import VoterOrder, VotersAnswer, VotersDescription
from migrator.rpc.channel import client_options
from migrator.rpc.operator_codec import from_proto, to_proto
from migrator.rpc.operator_socket import SocketDirectory
from migrator.rpc.stubs import operator_pb2, operator_pb2_grpc, voters_pb2, voters_pb2_grpc
from migrator.rpc.tls import Connect, TlsFiles, WrongPeerError
from migrator.rpc.tls import connect as tls_connect

CONNECT_SECONDS = 5.0
LOOK_SECONDS = 60.0
"""Seconds for calls that first look at all voters, ZooKeeper and all metadata."""


class OperatorClient:
    """A node's operator service; an async context manager. Every method raises `OperatorError` without an answer.

    :param connect: called when it is entered.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[grpc.aio.Channel]],
        where: str,
        socket: SocketDirectory | None = None,
    ) -> None:
        self._connect = connect
        self._where = where
        self._socket = socket
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None
        self._voters: Any = None

    @classmethod
    def on_socket(cls, metadata_directory: Path) -> OperatorClient:
        """The node whose metadata directory that is.

        :raises OperatorError: there is no socket, or this user may not use it, or any user may own it.
        """
        try:
            socket = SocketDirectory(metadata_directory, create=False)
        except OSError as error:
            raise OperatorError(
                f"there is no operator socket: {error.strerror}",
                where=str(metadata_directory),
                remedy="Start the controller, run this as its user, or name a server with --server",
            ) from error

        async def connect() -> grpc.aio.Channel:
            return grpc.aio.insecure_channel(socket.address, options=_patient())

        return cls(connect, str(metadata_directory), socket)

    @classmethod
    def at(
        cls, address: str, tls: TlsFiles, principals: frozenset[str], connect: Connect | None = None
    ) -> OperatorClient:
        """The node at ``host:port``, whose certificate has to be one of these principals."""

        async def channel() -> grpc.aio.Channel:
            opened = connect or partial(tls_connect, options=_patient())
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return (await opened(address, tls, principals)).channel
            except WrongPeerError as error:
                raise OperatorError(
                    str(error), where=address, remedy="Check the address, migrator.grpc.tls.* and .voter.principals"
                ) from error
            except OSError as error:  # this includes TimeoutError
                raise no_answer(address) from error

        return cls(channel, address)

    async def __aenter__(self) -> Self:
        try:
            self._channel = await self._connect()
        except BaseException:
            await self.close()
            raise
        self._stub = operator_pb2_grpc.OperatorStub(self._channel)  # type: ignore[no-untyped-call]
        self._voters = voters_pb2_grpc.VotersStub(self._channel)  # type: ignore[no-untyped-call]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def status(self, timeout: float = 5.0) -> Status:
        """The status now."""
        with self._refusals():
            call = self._stub.Watch(operator_pb2.WatchRequest(), timeout=timeout)
            status = from_proto(Status, await call.read())
            call.cancel()
            return status

    async def watch(self) -> AsyncIterator[Status]:
        """The status now and after every change."""
        with self._refusals():
            async for status in self._stub.Watch(operator_pb2.WatchRequest()):
                yield from_proto(Status, status)

    async def journal(self, after_sequence: int = 0, *, follow: bool = False) -> AsyncIterator[JournalEvent]:
        """Events after that sequence number, and new ones as they come if ``follow``."""
        request = operator_pb2.JournalRequest(after_sequence=after_sequence, follow=follow)
        with self._refusals():
            async for event in self._stub.Journal(request):
                yield from_proto(JournalEvent, event)

    async def pause(self, reason: str, timeout: float = 5.0) -> None:
        """Hold the migration before it writes to ZooKeeper."""
        with self._refusals():
            await self._stub.Pause(operator_pb2.PauseRequest(reason=reason), timeout=timeout)

    async def resume(self, timeout: float = 5.0) -> None:
        """Let a paused migration go on."""
        with self._refusals():
            await self._stub.Resume(operator_pb2.ResumeRequest(), timeout=timeout)

    async def force(
        self,
        kind: Force,
        reason: str,
        without: Sequence[int] = (),
        overrides: Sequence[str] = (),
        timeout: float = 30.0,
    ) -> None:
        """Order an act that needs an operator's decision. It has begun when this returns.

        :param without: for `Force.FINISH`: the nodes that are permanently lost.
        :param overrides: the facts that the operator was shown and overrides (`MigrationStatus.overridable`).
        """
        with self._refusals():
            request = operator_pb2.ForceRequest(kind=kind.name, reason=reason, without=without, overrides=overrides)
            await self._stub.Force(request, timeout=timeout)

    async def reopen(self, reason: str, timeout: float = LOOK_SECONDS) -> None:
        """Let a finished migration go on."""
        with self._refusals():
            await self._stub.Reopen(operator_pb2.ReopenRequest(reason=reason), timeout=timeout)

    async def close_way_back(self, reason: str, timeout: float = LOOK_SECONDS) -> None:
        """Let the controllers accept features that close the way back from a finished migration."""
        with self._refusals():
            await self._stub.CloseWayBack(operator_pb2.CloseWayBackRequest(reason=reason), timeout=timeout)

    async def gates(self, goal: Goal, timeout: float = LOOK_SECONDS) -> tuple[Gate, ...]:
        """The gates on the way to ``goal``."""
        with self._refusals():
            answer = await self._stub.Gates(operator_pb2.GatesRequest(goal=goal.name), timeout=timeout)
            return tuple(from_proto(Gate, gate) for gate in answer.gates)

    async def report_verdict(self, report: VerdictReport, timeout: float = 5.0) -> VerdictAnswer:
        """Report the result of a comparison. Only the active controller accepts it."""
        with self._refusals():
            return from_proto(
                VerdictAnswer,
                await self._stub.ReportVerdict(to_proto(operator_pb2.VerdictReport, report), timeout=timeout),
            )

    async def rollout_lock(self, move: tuple[str, str] | None = None, timeout: float = 10.0) -> LockAnswer:
        """The lock of a rollout. Only the leader answers.

        :param move: the present text, and the text that replaces it on that condition; "" for no lock. None only reads.
        """
        before, after = move or ("", "")
        with self._refusals():
            request = operator_pb2.RolloutLockRequest(move=move is not None, before=before, after=after)
            answer = await self._stub.RolloutLock(request, timeout=timeout)
            return from_proto(LockAnswer, answer)

    async def voters(self, timeout: float = 5.0) -> VotersDescription:
        """The voters of the quorum, and the plan to change them."""
        with self._refusals():
            call = self._voters.Describe(voters_pb2.DescribeRequest(), timeout=timeout)
            description = from_proto(VotersDescription, await call.read())
            call.cancel()
            return description

    async def watch_voters(self) -> AsyncIterator[VotersDescription]:
        """The voters and the plan to change them, now and after every change."""
        with self._refusals():
            async for description in self._voters.Describe(voters_pb2.DescribeRequest(follow=True)):
                yield from_proto(VotersDescription, description)

    async def reassign(
        self, order: VoterOrder, voters: str = "", cluster_id: str = "", timeout: float = 10.0
    ) -> VotersAnswer:
        """Set, replace or clear the target of the voters; only the active controller does."""
        with self._refusals():
            request = voters_pb2.ReassignRequest(cluster_id=cluster_id, order=order.name, voters=voters)
            return from_proto(VotersAnswer, await self._voters.Reassign(request, timeout=timeout))

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise self._translate(error) from error
        except UnicodeEncodeError as error:
            raise OperatorError(
                "a text of this order is not in UTF-8, so it cannot be sent",
                where=repr(error.object),
                remedy="Type it in a terminal that uses UTF-8, or in ASCII",
            ) from error
        except ValueError as error:
            raise OperatorError(
                f"the answer has a value that this version does not know: {error}",
                where=self._where,
                remedy="Run the same version of migrator as the controller",
            ) from error

    def _translate(self, error: grpc.aio.AioRpcError) -> OperatorError:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return no_answer(self._where) if self._socket is None else _silent_socket(self._where)
        return OperatorError(error.details() or error.code().name, where=self._where)


def _patient() -> tuple[tuple[str, int], ...]:
    """A command connects once, perhaps from far away or on a busy machine: it has no second attempt."""
    return client_options(round(CONNECT_SECONDS * 1_000))


def _silent_socket(metadata_directory: str) -> OperatorError:
    try:
        in_use = is_in_use(Path(metadata_directory))
    except StorageError:  # the directory of another user
        in_use = False
    if not in_use:
        return no_answer(metadata_directory)
    return OperatorError(
        "a process uses this directory, but does not answer as a controller of migrator does",
        where=metadata_directory,
        remedy="After a hand-over this is Kafka's own controller: ask it with kafka-metadata-quorum.sh, or with "
        "'migrator top --controllers stock -c FILE'. Otherwise the controller is starting or stopping: wait, and read "
        "its log",
    )


def no_answer(where: str) -> OperatorError:
    """The error for a controller that does not answer in time."""
    remedy = "Check that the controller runs, that the address is right, and that the network lets you through"
    return OperatorError("the controller does not answer", where=where, remedy=remedy)
