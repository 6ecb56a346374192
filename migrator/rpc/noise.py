"""Bytes that are no message of their method are refused with INVALID_ARGUMENT, and nobody's log fills.

gRPC by itself answers UNKNOWN, and logs a stack trace for each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

_WHAT = "these bytes are no message of this method"


class RefuseNoise(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # gRPC has no types
    """For every method with one request."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """See `grpc.aio.ServerInterceptor`."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        decode = _tolerant(handler.request_deserializer)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                _streaming(handler.unary_stream), decode, handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(_unary(handler.unary_unary), decode, handler.response_serializer)


def _tolerant(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """None for what does not decode."""

    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError:
            return None

    return decoded


def _unary(handle: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def answer(request: Any, context: Any) -> Any:
        if request is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _WHAT)
        return await handle(request, context)

    return answer


def _streaming(handle: Callable[[Any, Any], AsyncIterator[Any]]) -> Callable[[Any, Any], AsyncIterator[Any]]:
    async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
        if request is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _WHAT)
        async for response in handle(request, context):
            yield response

    return stream
