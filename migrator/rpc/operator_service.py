"""The operator's gRPC service of one node: status, journal, orders, gates, verdicts, the lock of a rollout.

The server calls `OperatorService`, which decodes, calls the `StatusSource` of the node and encodes. It decides nothing
itself. The doorkeeper has already checked who calls. An `OperatorError` of the source becomes a status with its text,
and ends only that call.

The second service is about the voters of the quorum.

The server calls `VotersService`, which decodes, calls the node's `VoterSource` and encodes. The doorkeeper has already
checked who calls. A refusal ends only that call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import grpc
import grpc.aio

from migrator.errors import OperatorError
from migrator.observe.status import (
    Force,
    Gate,
    Goal,
    JournalEvent,
    LockAnswer,
    Orderer,
    Status,
    VerdictAnswer,
    VerdictReport,
)
from migrator.observe.voters import VoterOrder, VotersAnswer, VotersDescription
from migrator.rpc.identity import CALLER
from migrator.rpc.operator_codec import from_proto, member_of, to_proto
from migrator.rpc.stubs import operator_pb2, operator_pb2_grpc, voters_pb2, voters_pb2_grpc


class StatusSource(Protocol):
    """The port of the service, which the node implements."""

    def status(self) -> Status:
        """The status now."""

    def updates(self) -> AsyncIterator[Status]:
        """The status after every change; a slow reader may miss some, never the last."""

    def journal(self, after_sequence: int, *, follow: bool) -> AsyncIterator[JournalEvent]:
        """Events after that sequence number, oldest first; then new ones as they come if ``follow``."""

    async def pause(self, reason: str, by: Orderer) -> None:
        """Hold the migration before it writes to ZooKeeper.

        :raises OperatorError: it cannot be held here or now.
        """

    async def resume(self, by: Orderer) -> None:
        """Let a paused migration go on.

        :raises OperatorError: another controller drives the migration, or it is not paused.
        """

    async def force(
        self, kind: Force, reason: str, by: Orderer, without: Sequence[int] = (), overrides: Sequence[str] = ()
    ) -> None:
        """Begin to carry out the order.

        :param without: for `Force.FINISH`: the nodes that are permanently lost.
        :param overrides: the facts that the operator was shown and overrides.
        :raises OperatorError: the migration does not wait for this order, or another controller drives it.
        """

    async def reopen(self, reason: str, by: Orderer) -> None:
        """Let a finished migration go on.

        :raises OperatorError: something stands against it, or another controller drives the migration.
        """

    async def close_way_back(self, reason: str, by: Orderer) -> None:
        """Let the controllers accept changes that close the way back, instead of refusing them.

        :raises OperatorError: the migration is not finished, or another controller leads.
        """

    async def gates(self, goal: Goal) -> tuple[Gate, ...]:
        """The conditions that still prevent ``goal``."""

    async def report_verdict(self, report: VerdictReport, by: Orderer) -> VerdictAnswer:
        """Store the result of a comparison.

        :raises OperatorError: another controller drives the migration.
        """

    async def read_lock(self) -> LockAnswer:
        """The lock of a rollout, as it is committed.

        :raises OperatorError: another controller leads, or the migration has not ended.
        """

    async def move_lock(self, before: str, after: str, by: Orderer) -> LockAnswer:
        """Write ``after`` if ``before`` is there now.

        :raises OperatorError: as `read_lock`; or ``after`` is too long.
        """


class OperatorService(operator_pb2_grpc.OperatorServicer):
    """Serves `migrator.operator.v1.Operator`."""

    def __init__(self, source: StatusSource) -> None:
        self._source = source

    def register(self, server: grpc.aio.Server) -> None:
        operator_pb2_grpc.add_OperatorServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802, ARG002 (names of the proto)
        yield to_proto(operator_pb2.Status, self._source.status())
        async for status in self._source.updates():
            yield to_proto(operator_pb2.Status, status)

    async def Journal(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802, ARG002
        async for event in self._source.journal(request.after_sequence, follow=request.follow):
            yield to_proto(operator_pb2.JournalEvent, event)

    async def Pause(self, request: Any, context: Any) -> Any:  # noqa: N802
        async with _refusals(context):
            await self._source.pause(request.reason, CALLER.get().orderer)
        return operator_pb2.PauseResponse()

    async def Resume(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        async with _refusals(context):
            await self._source.resume(CALLER.get().orderer)
        return operator_pb2.ResumeResponse()

    async def Force(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            kind, without = member_of(Force, operator_pb2.ForceRequest.Kind, request.kind), tuple(request.without)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        async with _refusals(context):
            await self._source.force(kind, request.reason, CALLER.get().orderer, without, tuple(request.overrides))
        return operator_pb2.ForceResponse()

    async def Reopen(self, request: Any, context: Any) -> Any:  # noqa: N802
        async with _refusals(context):
            await self._source.reopen(request.reason, CALLER.get().orderer)
        return operator_pb2.ReopenResponse()

    async def CloseWayBack(self, request: Any, context: Any) -> Any:  # noqa: N802
        async with _refusals(context):
            await self._source.close_way_back(request.reason, CALLER.get().orderer)
        return operator_pb2.CloseWayBackResponse()

    async def Gates(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            goal = member_of(Goal, operator_pb2.GatesRequest.Goal, request.goal)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        async with _refusals(context):
            gates = await self._source.gates(goal)
        return operator_pb2.GatesResponse(gates=[to_proto(operator_pb2.Gate, gate) for gate in gates])

    async def ReportVerdict(self, request: Any, context: Any) -> Any:  # noqa: N802
        async with _refusals(context):
            answer = await self._source.report_verdict(from_proto(VerdictReport, request), CALLER.get().orderer)
        return to_proto(operator_pb2.VerdictAnswer, answer)

    async def RolloutLock(self, request: Any, context: Any) -> Any:  # noqa: N802
        async with _refusals(context):
            if request.move:
                answer = await self._source.move_lock(request.before, request.after, CALLER.get().orderer)
            else:
                answer = await self._source.read_lock()
        return to_proto(operator_pb2.RolloutLockAnswer, answer)


@asynccontextmanager
async def _refusals(context: Any) -> AsyncIterator[None]:
    """Tell the caller why its order is refused, and end the call."""
    try:
        yield
    except OperatorError as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))


class VoterSource(Protocol):
    """The interface between the service and the node, which implements it."""

    async def describe(self) -> VotersDescription:
        """The voters and the plan now."""

    def updates(self) -> AsyncIterator[VotersDescription]:
        """Yields the description after every change. A slow reader may miss some changes, but not the last."""

    async def reassign(self, order: VoterOrder, voters: str, cluster_id: str, by: Orderer) -> VotersAnswer:
        """Set, replace or clear the target; a majority has the order when it returns.

        :raises OperatorError: it is refused, or this controller does not lead.
        """


class VotersService(voters_pb2_grpc.VotersServicer):
    """Serves `migrator.voters.v1.Voters`."""

    def __init__(self, source: VoterSource) -> None:
        self._source = source

    def register(self, server: grpc.aio.Server) -> None:
        voters_pb2_grpc.add_VotersServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def Reassign(self, request: Any, context: Any) -> Any:  # noqa: N802 (names of the proto)
        try:
            order = member_of(VoterOrder, voters_pb2.ReassignRequest.Order, request.order)
            answer = await self._source.reassign(order, request.voters, request.cluster_id, CALLER.get().orderer)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except OperatorError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return to_proto(voters_pb2.ReassignResponse, answer)

    async def Describe(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802, ARG002
        if not request.follow:
            yield to_proto(voters_pb2.Description, await self._source.describe())
            return
        async for description in self._source.updates():
            yield to_proto(voters_pb2.Description, description)
