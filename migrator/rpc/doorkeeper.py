"""Admits gRPC calls, for all services: it checks the caller, its right, the node for which it speaks, and its load.

The request is received as a stream of one message. Otherwise gRPC would receive and decode it before the caller is
checked. Malformed bytes are refused with INVALID_ARGUMENT; gRPC itself would answer UNKNOWN and log a stack trace each
time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from migrator.clock import monotonic_seconds
from migrator.observe.printable import quoted
from migrator.rpc.identity import CALLER, DOORS, REMEDIES, Door, GrpcCaller, Identities

log = logging.getLogger(__name__)

CALLS_PER_CALLER = 100
"""The most running calls of a caller. A node has one request in flight for each peer, an operator a few that watch."""
REQUEST_SECONDS = 10.0
"""The longest time that a caller may take to send its request."""
REPEAT_SECONDS = 60.0
"""A refusal that happens again is logged again after that time."""
REMEMBERED_REFUSALS = 500

_NOISE = "these bytes are no message of this method"


class CallRefused(Exception):  # noqa: N818 - no error of ours: it becomes the call's status
    """The call ends with that status."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Doorkeeper(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Admits or refuses calls of every method with one request."""

    def __init__(self, identities: Identities) -> None:
        self._identities = identities
        self._calls: Counter[str] = Counter()
        self._refusals = _Refusals()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Put the checks of caller and request before the method (see `grpc.aio.ServerInterceptor`)."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._streaming(method, handler), None, handler.response_serializer
            )
        return grpc.stream_unary_rpc_method_handler(self._unary(method, handler), None, handler.response_serializer)

    def _unary(self, method: str, handler: Any) -> Callable[[Any, Any], Awaitable[Any]]:
        async def answer(requests: AsyncIterator[bytes], context: Any) -> Any:
            try:
                caller, door = self._identify(method, context)
                with self._counted(caller):
                    request = await self._request(door, caller, method, requests, handler.request_deserializer)
                    return await handler.unary_unary(request, context)
            except CallRefused as refused:
                await context.abort(refused.code, refused.text)

        return answer

    def _streaming(self, method: str, handler: Any) -> Callable[[Any, Any], AsyncIterator[Any]]:
        async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
            try:
                caller, door = self._identify(method, context)
                with self._counted(caller):
                    request = await self._request(door, caller, method, requests, handler.request_deserializer)
                    async for response in handler.unary_stream(request, context):
                        yield response
            except CallRefused as refused:
                await context.abort(refused.code, refused.text)

        return stream

    def _identify(self, method: str, context: Any) -> tuple[GrpcCaller, Door]:
        """Determine the caller and check its right, before a byte of the request is read."""
        caller, door = self._identities.caller(context), DOORS.get(method)
        if door is None or not caller.roles & door.roles:
            remedy = "no such call" if door is None else REMEDIES[door.roles]
            raise self._refuse(caller, method, caller.why_not or remedy)
        CALLER.set(caller)
        return caller, door

    @contextmanager
    def _counted(self, caller: GrpcCaller) -> Iterator[None]:
        if self._calls[caller.name] >= CALLS_PER_CALLER:
            raise CallRefused(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{CALLS_PER_CALLER} calls of this caller are in progress already"
            )
        self._calls[caller.name] += 1
        try:
            yield
        finally:
            self._calls[caller.name] -= 1

    async def _request(
        self,
        door: Door,
        caller: GrpcCaller,
        method: str,
        requests: AsyncIterator[bytes],
        decode: Callable[[bytes], Any],
    ) -> Any:
        """The request. It is refused when it names another voter than the caller as its sender."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = decode(await anext(requests))
        except TimeoutError:
            raise CallRefused(grpc.StatusCode.DEADLINE_EXCEEDED, "the request did not arrive in time") from None
        except StopAsyncIteration:
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request") from None
        except DecodeError:
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, _NOISE) from None
        if door.speaks_as:
            claimed = getattr(request, door.speaks_as)
            if claimed != caller.node_id:
                why = f"the request says {door.speaks_as} {claimed}, but the certificate is of voter {caller.node_id}"
                raise self._refuse(caller, method, why)
        return request

    def _refuse(self, caller: GrpcCaller, method: str, why: str) -> CallRefused:
        call = method.rpartition("/")[2]
        text = f"{quoted(caller.name)} may not call {call}: {why}"
        self._refusals.tell(caller, call, text)
        return CallRefused(grpc.StatusCode.PERMISSION_DENIED, text)


class _Refusals:
    """Refusals in the log of the process: each kind at once, and then once in a while with its number."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], tuple[float, int]] = {}

    def tell(self, caller: GrpcCaller, call: str, text: str) -> None:
        key, now = (caller.name, call), monotonic_seconds()
        if key not in self._told and len(self._told) >= REMEMBERED_REFUSALS:
            key = ("others", "any call")
        since, unsaid = self._told.get(key, (float("-inf"), 0))
        if now - since < REPEAT_SECONDS:
            self._told[key] = since, unsaid + 1
            return
        more = f" ({unsaid} more since the last such line)" if unsaid else ""
        log.warning("Refused over gRPC, from %s: %s%s", caller.address, text, more)
        self._told[key] = now, 0
