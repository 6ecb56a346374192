"""Envelope (KIP-590): a client's request that a broker forwards to the controller, with the client's principal.

`connection` reads it, and the endpoint opens it after it has authorized the broker (CLUSTER_ACTION). The inner request
is then worked on with the client's rights, address and share. A fault in the inner request is answered in the Envelope,
and the broker's connection stays open. Source: ``EnvelopeUtils``, ``RequestChannel.Request.buildResponseSend``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.values import value
from migrator.wire.callers import Callers
from migrator.wire.decode import TooManyElementsError, decode_body, read_unsigned_varint
from migrator.wire.encode import encode_entity
from migrator.wire.hosts import peer_host
from migrator.wire.principal import Principal, decode_principal
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import (
    CONTROLLER_APIS,
    DESCRIBE_QUORUM,
    ENVELOPE,
    RequestHeader,
    build,
    decode_request_header,
    encode_response_header,
    peek_request,
    request_type,
    response_type,
)
from migrator.wire.shapes import shapes_of

FORWARDABLE = frozenset({19, 20, 30, 31, 33, *range(37, 41), *range(43, 47), 49, 51, 55, 57, 64, 67, 80, 81})
"""The API keys that may be forwarded (``ApiKeys.forwardable``)."""
PRINCIPAL_BYTES_MAX = 70_000
"""The most bytes of a principal: it has two strings of at most 32,767 bytes each."""
ADDRESS_BYTES_MAX = 16


@value
class Forwarded:
    """The forwarded request, as if the client had sent it to this node."""

    context: RequestContext
    body: Any


class EnvelopeError(PeerError):
    """The envelope cannot be opened. It is answered with ``error``, and the connection stays open.

    :ivar error: the error for `envelope_error`.
    """

    def __init__(self, error: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.error = error


class Envelope:
    """An Envelope request, read without a copy. The request in ``data`` is decoded when the envelope is opened.

    :raises PeerError: the frame is no Envelope.
    """

    def __init__(self, frame: bytes | bytearray) -> None:
        self.header, offset = decode_request_header(frame)
        try:
            self.data, offset = _compact_bytes(memoryview(frame), offset)
            self._principal, offset = _compact_bytes(memoryview(frame), offset)
            self._address, offset = _compact_bytes(memoryview(frame), offset)
        except (ValueError, IndexError) as error:
            raise PeerError(f"malformed Envelope: {error}") from error

    @property
    def key(self) -> int:
        """The API key of the forwarded request.

        :raises EnvelopeError: the data is too short to have one.
        """
        try:
            return peek_request(self.data)[0]
        except PeerError as error:
            raise EnvelopeError(ErrorCode.unsupported_version, str(error)) from error

    @cached_property
    def client(self) -> tuple[Principal, str]:
        """The principal and the address of the client that sent the forwarded request.

        :raises EnvelopeError: they are malformed.
        """
        try:
            principal = decode_principal(bytes(self._principal[:PRINCIPAL_BYTES_MAX]))
        except PeerError as error:
            raise EnvelopeError(ErrorCode.principal_deserialization_failure, str(error)) from error
        try:
            return principal, peer_host(bytes(self._address[: ADDRESS_BYTES_MAX + 1]))
        except ValueError as error:
            raise EnvelopeError(ErrorCode.invalid_request, str(error)) from error


def open_envelope(context: RequestContext, envelope: Envelope, callers: Callers) -> Forwarded:
    """The client's request.

    :param context: that of the envelope. The caller must have authorized its sender for CLUSTER_ACTION.
    :param callers: knows the bounds of the client.
    :raises EnvelopeError: with the error that Kafka answers: UNSUPPORTED_VERSION when the inner request does not
        parse (the broker then closes its client's connection), INVALID_REQUEST, which the client sees, when it
        may not be forwarded or has too many elements.
    """
    principal, host = envelope.client
    share = callers.caller(principal, host, principal).share
    size = len(envelope.data)
    header, body = _client_request(envelope.data, lambda key: callers.max_elements(share, key, size))
    inner = RequestContext(
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        principal,
        context.listener,
        host,
    )
    return Forwarded(inner, body)


def _compact_bytes(frame: memoryview, offset: int) -> tuple[memoryview, int]:
    """The compact bytes at ``offset``, empty for null, and the offset after them.

    :raises ValueError, IndexError: they are malformed.
    """
    size, start = read_unsigned_varint(frame, offset)
    end = start + max(0, size - 1)
    if end > len(frame):
        raise ValueError(f"length {size - 1} at byte {offset} does not fit into {len(frame)} bytes")
    return frame[start:end], end


def _client_request(data: memoryview, max_elements: Callable[[int], int]) -> tuple[RequestHeader, Any]:
    try:
        header, offset = decode_request_header(data)
    except PeerError as error:
        raise EnvelopeError(ErrorCode.unsupported_version, str(error)) from error
    if header.api_key not in FORWARDABLE:
        raise EnvelopeError(ErrorCode.invalid_request, f"API {header.api_key} may not be forwarded")
    if header.api_version not in CONTROLLER_APIS[header.api_key]:
        raise EnvelopeError(ErrorCode.unsupported_version, f"version {header.api_version} is not served")
    body = request_type(header.api_key, header.api_version)
    try:
        return header, decode_body(body, data, offset, max_elements(header.api_key))
    except TooManyElementsError as error:
        raise EnvelopeError(ErrorCode.invalid_request, str(error)) from error
    except PeerError as error:
        raise EnvelopeError(ErrorCode.unsupported_version, str(error)) from error


def envelope_response(inner: RequestContext, response: Any) -> Any:
    """The Envelope response with the client's response inside.

    When the client's response has the error NOT_CONTROLLER, the Envelope response has it instead: the broker must learn
    that it asked the wrong controller (KAFKA-10345).
    """
    moved = {ErrorCode.not_controller}
    if inner.api_key == DESCRIBE_QUORUM:
        moved.add(ErrorCode.not_leader_or_follower)
    if _mentions(response, moved):
        return envelope_error(ErrorCode.not_controller)
    head = encode_response_header(inner.api_key, inner.api_version, inner.correlation_id)
    try:
        body = encode_entity(response)
    except PeerError:  # the client's version cannot express the answer; the broker's connection must stay open
        return envelope_error(ErrorCode.unknown_server_error)
    return build(response_type(ENVELOPE, 0), response_data=b"".join(head + body))


def envelope_error(error: ErrorCode) -> Any:
    """The Envelope response without a client's response: the envelope was not opened, or its request not worked on."""
    return build(response_type(ENVELOPE, 0), error_code=error)


def _mentions(message: Any, errors: Collection[ErrorCode]) -> bool:
    """Whether any error field, at any depth, has one of these errors."""
    message_type: Any = type(message)
    for shape in shapes_of(message_type):
        content = getattr(message, shape.name)
        if shape.kafka_type == "error_code" and content in errors:
            return True
        if shape.entity is not None and content is not None:
            parts = content if shape.is_array else (content,)
            if any(_mentions(part, errors) for part in parts):
                return True
    return False
