"""The operator's gRPC service about the voters of the quorum.

The server calls `VotersService`, which decodes, calls the node's `VoterSource` and encodes. The doorkeeper has already
checked who calls. A refusal ends only that call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import grpc
import grpc.aio

from migrator.errors import OperatorError
from migrator.observe.status import Orderer
from migrator.observe.voters import VoterOrder, VotersAnswer, VotersDescription
from migrator.rpc.identity import CALLER
from migrator.rpc.stubs import voters_pb2_grpc
from migrator.rpc.voters_codec import answer_to_proto, description_to_proto, order_from_proto


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
            order = order_from_proto(request.order)
            answer = await self._source.reassign(order, request.voters, request.cluster_id, CALLER.get().orderer)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except OperatorError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return answer_to_proto(answer)

    async def Describe(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802, ARG002
        if not request.follow:
            yield description_to_proto(await self._source.describe())
            return
        async for description in self._source.updates():
            yield description_to_proto(description)
