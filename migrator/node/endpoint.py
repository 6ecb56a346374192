"""The handler of the controller listener: opens Envelopes, and passes messages of consensus to the quorum, others to
the APIs.

Each connection calls `handle` with a decoded request, and sends the answer that it returns. A refusal is an answer with
Kafka's error code, never an exception that ends the connection. A request is authorized before its decision, and a
forwarded request with the rights of its client, not of the broker that forwards it. Refusals and changes go to the
audit log.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from migrator.apis.authorization import Audited, ForwardedAccess, Trail
from migrator.apis.call import ApiKind, Call
from migrator.apis.fields import uuid_in
from migrator.apis.registry import APIS, answer, check_access, refuse
from migrator.config.settings import Settings
from migrator.controller.context import Context
from migrator.controller.decision import ApiError, Decision, RefusedError
from migrator.controller.migration_gate import Operation
from migrator.image.model import MetadataImage
from migrator.node.access.audit import Audit
from migrator.node.access.authorization import Authorization
from migrator.node.access.callers import BEYOND_THEIR_SIZE, ClusterCallers
from migrator.node.active import ActiveController
from migrator.node.metadata import MetadataRuntime
from migrator.node.orders import KafkaOrders
from migrator.node.refused_brokers import RefusedBrokers
from migrator.supervision import OnFailure
from migrator.wire.aside import INLINE_BYTES, is_big
from migrator.wire.envelope import EnvelopeError, envelope_error, envelope_response, open_envelope
from migrator.wire.principal import ANONYMOUS
from migrator.wire.raft_codec import RAFT_APIS
from migrator.wire.raft_transport import RaftService
from migrator.wire.requests import REQUEST, RequestContext
from migrator.wire.schemas import BROKER_REGISTRATION, ENVELOPE, LIST_PARTITION_REASSIGNMENTS

log = logging.getLogger(__name__)

RAFT_KEYS = frozenset(api_key for api_key, _ in RAFT_APIS.values())
ASK_LEADER = frozenset({LIST_PARTITION_REASSIGNMENTS})
"""Reads that need state which only an active controller has."""


class ControllerEndpoint:
    """A `migrator.wire.connection.Handler`.

    :param raft: takes the consensus messages.
    :param quorum_answers: by API key, the handlers of requests about the quorum that are not from its members.
    :param read_context: the context of reads, on any node.
    :param on_failure: called when the authorizer cannot follow its entries.
    :param refused: notes registrations of brokers that were refused.
    :param audit: notes the decisions about callers.
    :param orders: notes orders that concern the quorum and the brokers.
    """

    def __init__(
        self,
        settings: Settings,
        metadata: MetadataRuntime,
        controller: ActiveController,
        raft: RaftService,
        *,
        quorum_answers: Mapping[int, Callable[[Call], Awaitable[Any]]],
        read_context: Callable[[], Context],
        on_failure: OnFailure,
        refused: RefusedBrokers | None = None,
        audit: Audit | None = None,
        orders: KafkaOrders | None = None,
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._raft = raft
        self._authorization = Authorization(settings, metadata, on_failure)
        self.callers = ClusterCallers(self._authorization.access_of, lambda: self._authorization.authorizer)
        self._quorum_answers = quorum_answers
        self._read_context = read_context
        self._refused = refused or RefusedBrokers()
        self._notes: tuple[Audit | KafkaOrders, ...] = tuple(filter(None, (audit, orders)))

    async def handle(self, context: RequestContext, body: Any) -> Any:
        """Answer a request: with kio's message of the request's API and version, or with encoded chunks of one."""
        trail = Trail()
        opens = context.api_key == ENVELOPE
        answering = self._open(context, body, trail) if opens else self._dispatch(context, body, trail)
        return await self._audited(context, body, trail, answering)

    async def _audited(
        self,
        context: RequestContext,
        body: Any,
        trail: Trail,
        answering: Awaitable[Any],
        by: RequestContext | None = None,
    ) -> Any:
        """Return the answer after the decision is noted. A caller that disconnects before the answer is noted, too."""
        answer = None
        try:
            answer = await answering
        finally:
            for notes in self._notes:
                notes.tell(context, by, body, answer, trail)
        return answer

    async def _open(self, context: RequestContext, body: Any, trail: Trail) -> Any:
        """Answer the client's request inside an Envelope of a broker; the client is charged for the request."""
        try:
            check_access(self._call(context, body, trail))
            opened = partial(open_envelope, context, body, self.callers)
            size = len(body.data)
            with REQUEST.get().abandonable():
                forwarded = opened() if size <= INLINE_BYTES else await REQUEST.get().lane(size).run(opened)
        except RefusedError as error:
            return envelope_error(error.error.code)
        except EnvelopeError as error:
            return envelope_error(error.error)
        inner, request, inside = forwarded.context, forwarded.body, Trail()
        answering = self._dispatch(inner, request, inside, forwarded=True)
        answered = await self._audited(inner, request, inside, answering, by=context)
        enclosed = partial(envelope_response, inner, answered)
        return await REQUEST.get().lane().run(enclosed) if is_big(answered) else enclosed()

    def _call(self, context: RequestContext, body: Any, trail: Trail, *, forwarded: bool = False) -> Call:
        """Make the call of an API. ``forwarded``: the forwarding broker has checked that its client may send requests
        about tokens."""
        principal = context.principal
        access = self._authorization.access_of(principal, context.peer_host)
        is_forwarded = forwarded or context.api_key == ENVELOPE
        return Call(
            key=context.api_key,
            version=context.api_version,
            body=body,
            principal=principal,
            access=Audited(ForwardedAccess(access) if is_forwarded else access, trail),
            listener=context.listener,
            client_id=context.client_id or "",
            may_use_tokens=(forwarded or principal != ANONYMOUS) and not principal.token_authenticated,
        )

    async def _dispatch(self, context: RequestContext, body: Any, trail: Trail, *, forwarded: bool = False) -> Any:
        call = self._call(context, body, trail, forwarded=forwarded)
        try:
            if call.key in RAFT_KEYS:
                check_access(call)
                return await self._raft.handle(context, body)
            response = await self._answer(call)
        except RefusedError as error:
            self._note_registration(call, error.error)
            refusal = partial(refuse, call, error.error.code, error.error.message)
            return await REQUEST.get().lane().run(refusal) if is_big(call.body) else refusal()
        return response

    def _note_registration(self, call: Call, refusal: ApiError | None) -> None:
        """Note the reason of a refused registration: the response has only an error code."""
        if call.key != BROKER_REGISTRATION:
            return
        if refusal is None:
            self._refused.registered(call.body.broker_id)
        else:
            self._refused.refused(call.body.broker_id, refusal.code, refusal.message)

    async def _answer(self, call: Call) -> Any:
        """Answer a call.

        :raises RefusedError: the request as a whole is refused, before any decision.
        """
        api = APIS[call.key]
        check_access(call)
        aside = call.key in BEYOND_THEIR_SIZE or is_big(call.body)
        if api.kind is ApiKind.RAFT:
            return await self._quorum_answers[call.key](call)
        if api.operation is None or api.kind is not ApiKind.WRITE:
            if call.key in ASK_LEADER:
                self._controller.check_active()
            read = partial(answer, call, self._metadata.published, self._read_context())
            with REQUEST.get().abandonable():
                return (await REQUEST.get().lane().run(read) if aside else read()).response
        if api.operation is Operation.REGISTER_BROKER:
            body, migrating = call.body, getattr(call.body, "is_migrating_zk_broker", False)
            incarnation = uuid_in(body.incarnation_id)
            self._controller.asked_to_register(body.broker_id, incarnation, body.cluster_id, migrating=migrating)
        if api.operation is Operation.HEARTBEAT:
            self._controller.heard_of(call.body.broker_id, call.body.broker_epoch)
        refusal: ApiError | None = None

        def decide(image: MetadataImage, context: Context) -> Decision[Any]:
            nonlocal refusal
            decision = answer(call, image, context)
            refusal = decision.refusal
            return decision

        response = await self._controller.write(
            api.operation, decide, administrative=api.administrative(call), aside=aside
        )
        self._note_registration(call, refusal)
        return response
