"""Envelopes: what may be inside, whose it is, and what goes back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.wire.callers import Trusted
from migrator.wire.decode import decode_body
from migrator.wire.encode import encode_entity
from migrator.wire.envelope import (
    FORWARDABLE,
    Envelope,
    EnvelopeError,
    envelope_error,
    envelope_response,
    open_envelope,
)
from migrator.wire.principal import ANONYMOUS, Principal, decode_principal
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import (
    CONTROLLER_APIS,
    ENVELOPE,
    RequestHeader,
    build,
    decode_response_header,
    encode_request_header,
    request_type,
    response_type,
)
from tests.wire.support.principals import encode_principal

OUTER = RequestContext(ENVELOPE, 0, 7, "broker", Principal("User", "broker"), "CONTROLLER", "10.0.0.1")
CLIENT = Principal("User", "Zoë", token_authenticated=True)
CREATE_TOPICS = 19


def envelope(inner: Any, **changes: Any) -> Envelope:
    header = RequestHeader(inner.__api_key__, inner.__version__, 5, "client")
    fields = {
        "request_data": b"".join(encode_request_header(header) + encode_entity(inner)),
        "request_principal": encode_principal(CLIENT),
        "client_host_address": bytes((192, 168, 1, 2)),
        **changes,
    }
    message = build(request_type(ENVELOPE, 0), **fields)
    return Envelope(b"".join(encode_request_header(RequestHeader(ENVELOPE, 0, 6, "broker")) + encode_entity(message)))


def opened(request: Envelope) -> Any:
    return open_envelope(OUTER, request, Trusted())


def create_topics(version: int = 7) -> Any:
    return build(request_type(CREATE_TOPICS, version), topics=({"name": "orders", "num_partitions": 1},))


@pytest.mark.parametrize("version", range(8))
def test_the_clients_request_is_inside(version: int) -> None:
    forwarded = opened(envelope(create_topics(version)))
    assert forwarded.body == create_topics(version)
    context = forwarded.context
    assert (context.api_key, context.api_version, context.correlation_id) == (CREATE_TOPICS, version, 5)
    assert (context.client_id, context.principal, context.peer_host) == ("client", CLIENT, "192.168.1.2")
    assert context.listener == "CONTROLLER"


def test_an_ipv6_client() -> None:
    inside = opened(envelope(create_topics(), client_host_address=bytes(15) + b"\x01"))
    assert inside.context.peer_host == "0:0:0:0:0:0:0:1", "as Java spells it, and access control entries with it"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"client_host_address": b"abc"}, ErrorCode.invalid_request),
        ({"request_principal": None}, ErrorCode.principal_deserialization_failure),
        ({"request_principal": b"\x00\x01"}, ErrorCode.principal_deserialization_failure),
        ({"request_data": b""}, ErrorCode.unsupported_version),
        ({"request_data": b"\x00\x13\x00\x63\x00\x00\x00\x01\xff\xff"}, ErrorCode.unsupported_version),
        ({"request_data": b"\x27\x0f\x00\x00\x00\x00\x00\x01\xff\xff"}, ErrorCode.unsupported_version),
    ],
)
def test_what_cannot_be_opened(changes: dict[str, Any], error: ErrorCode) -> None:
    with pytest.raises(EnvelopeError) as caught:
        opened(envelope(create_topics(), **changes))
    assert caught.value.error == error


def test_a_client_that_asks_for_too_much_at_once_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """After UNSUPPORTED_VERSION the broker would close the client's connection without an error."""
    monkeypatch.setattr("migrator.wire.callers.MAX_REQUEST_ELEMENTS", 2)
    topics = tuple({"name": f"orders-{number}", "num_partitions": 1} for number in range(3))
    with pytest.raises(EnvelopeError, match="ask for less") as caught:
        opened(envelope(build(request_type(CREATE_TOPICS, 7), topics=topics)))
    assert caught.value.error == ErrorCode.invalid_request


@pytest.mark.parametrize("cut", range(24))
def test_half_an_envelope_is_none(cut: int) -> None:
    header = encode_request_header(RequestHeader(ENVELOPE, 0, 6, "broker"))
    message = build(request_type(ENVELOPE, 0), request_data=bytes(9), client_host_address=bytes(4))
    with pytest.raises(PeerError):
        Envelope(b"".join(header + encode_entity(message))[:cut])


def test_brokers_own_requests_may_not_be_forwarded() -> None:
    with pytest.raises(EnvelopeError) as caught:
        opened(envelope(build(request_type(63, 1))))
    assert caught.value.error == ErrorCode.invalid_request
    assert set(CONTROLLER_APIS) >= FORWARDABLE


def test_the_answer_is_the_clients() -> None:
    context = opened(envelope(create_topics())).context
    answer = build(response_type(CREATE_TOPICS, 7), topics=({"name": "orders", "error_code": ErrorCode.none},))
    outer = envelope_response(context, answer)
    assert outer.error_code == ErrorCode.none
    correlation, offset = decode_response_header(CREATE_TOPICS, 7, outer.response_data)
    assert correlation == 5
    assert decode_body(type(answer), outer.response_data, offset) == answer


def test_a_moved_controller_is_told_to_the_broker_not_to_its_client() -> None:
    context = opened(envelope(create_topics())).context
    answer = build(response_type(CREATE_TOPICS, 7), topics=({"error_code": ErrorCode.not_controller},))
    assert envelope_response(context, answer) == envelope_error(ErrorCode.not_controller)


@given(st.text(max_size=20), st.text(max_size=20), st.booleans())
def test_principals_round_trip(kind: str, name: str, token: bool) -> None:
    principal = Principal(kind, name, token)
    assert decode_principal(encode_principal(principal)) == principal


@given(st.binary(max_size=40))
def test_random_principals_are_principals_or_peer_errors(data: bytes) -> None:
    try:
        decode_principal(data)
    except PeerError:
        return


def test_text_form() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_an_answer_that_the_clients_version_cannot_say_does_not_end_the_brokers_connection() -> None:
    """Other clients are served over it."""
    inner = opened(envelope(create_topics(0))).context
    answer = build(response_type(CREATE_TOPICS, 0), topics=({"name": "x" * 2**15},))
    assert envelope_response(inner, answer) == envelope_error(ErrorCode.unknown_server_error)
