"""Tries gRPC and metrics of a secured drill's controllers without permission.

`every_door` calls it. The intruder, who has a certificate of ours, tries every method; strangers try two. A refusal
counts only if the door is open to the right identity: otherwise it may be a controller that is down.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import ssl
from collections.abc import Collection, Sequence
from http import HTTPStatus

import grpc
import grpc.aio

from migrator.drill.cluster import CLUSTER_ID, ControllerProcess
from migrator.drill.doors.intruder import DENIED, NONE, PATIENCE_SECONDS, RETRY_SECONDS, Address, Attempts, shut_to_all
from migrator.drill.security.protection import INTRUDER, METRICS_READER, Secured
from migrator.rpc.channel import CLIENT_OPTIONS, CLUSTER_KEY, host_port
from migrator.rpc.identity import DOORS, OPERATOR, QUORUM

CALL_SECONDS = 10.0
LISTENER, METRICS = "migrator.grpc.listener", "migrator.metrics.listener"
"""The keys with these addresses."""
_LOOK, _VOTE = f"{OPERATOR}Watch", f"{QUORUM}Vote"
_SHUT, _DENIED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED
_ANSWERS = frozenset(grpc.StatusCode) - {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, _SHUT}
"""The codes of an answer. `_SHUT` is the code of a failed TLS handshake, and of no answer; the controller's own
certificate, which tries right after, tells which."""
OK, UNAUTHORIZED = 200, 401
_CLOSED, _ALERT = "a closed connection", "an alert of TLS"
"""Why there is no answer. A busy endpoint may close a connection, too; an alert says that a certificate is refused."""


async def try_grpc(controllers: Sequence[ControllerProcess], security: Secured) -> Attempts:
    """Try every call as the intruder, whose certificate is from the right authority but not in an allow-list; try a
    vote and a read without a certificate, and with one of another authority."""
    found = NONE
    for controller in controllers:
        address = controller.address_of(LISTENER)
        if address is None:
            continue
        where = f"gRPC of controller {controller.node_id}"
        own = security.grpc_credentials(f"controller-{controller.node_id}")
        if (seen := await _answer(address, own, _LOOK, frozenset({grpc.StatusCode.OK}))) is not grpc.StatusCode.OK:
            found += shut_to_all(where, seen.name)
            continue
        for what, credentials in security.grpc_strangers().items():
            found += await _refused(f"{where}, {what}", address, credentials, (_LOOK, _VOTE), _SHUT, own)
        intruder = security.grpc_credentials(INTRUDER)
        found += await _refused(f"{where}, intruder", address, intruder, tuple(DOORS), _DENIED)
    return found


async def try_metrics(controllers: Sequence[ControllerProcess], security: Secured) -> Attempts:
    """Try without a certificate, with one of another authority, and with the right one but no password or a wrong
    one."""
    found = NONE
    for controller in controllers:
        address = controller.address_of(METRICS)
        if address is None:
            continue
        where = f"metrics of controller {controller.node_id}"
        known, secret = security.at_metrics(), security.passwords[METRICS_READER]
        if (seen := await _scraped(address, known, secret, {OK})) != OK:
            found += shut_to_all(where, seen)
            continue
        for what, context in security.strangers_at_metrics().items():
            seen = await _scraped(address, context, secret, {_ALERT, *HTTPStatus})
            found += _judged(f"{where}: a stranger {what}", seen, _ALERT)
        for what, password in (("no password", None), ("a guess", "guess")):
            seen = await _scraped(address, known, password, frozenset(HTTPStatus))
            found += _judged(f"{where}: a stranger with {what}", seen, UNAUTHORIZED)
    return found


def _judged(who: str, seen: int | str, refusal: int | str) -> Attempts:
    if seen == refusal:
        return DENIED
    text = (f"{who} gets {seen}",)
    return Attempts(1, text) if isinstance(seen, int) else Attempts(1, unproved=text)


async def _refused(
    where: str,
    address: Address,
    credentials: grpc.ChannelCredentials,
    methods: Sequence[str],
    expected: grpc.StatusCode,
    own: grpc.ChannelCredentials | None = None,
) -> Attempts:
    found = NONE
    for method in methods:
        code = await _answer(address, credentials, method, _ANSWERS | {expected}, own)
        text = (f"{where}: {method} was answered {code.name}",)
        is_answer = code in _ANSWERS
        found += DENIED if code is expected else Attempts(1, text) if is_answer else Attempts(1, unproved=text)
    return found


async def _answer(
    address: Address,
    credentials: grpc.ChannelCredentials,
    method: str,
    final: frozenset[grpc.StatusCode],
    own: grpc.ChannelCredentials | None = None,
) -> grpc.StatusCode:
    """The answer to an empty request; tried again until it is a ``final`` one.

    :param own: if the answer is `_SHUT`, the door must then be open to these; otherwise there was no answer.
    """
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        code = await _call(address, credentials, method)
        if code is _SHUT and own is not None and await _call(address, own, _LOOK) is not grpc.StatusCode.OK:
            code = grpc.StatusCode.DEADLINE_EXCEEDED
        if code in final or asyncio.get_running_loop().time() > deadline:
            return code
        await asyncio.sleep(RETRY_SECONDS)


async def _call(address: Address, credentials: grpc.ChannelCredentials, method: str) -> grpc.StatusCode:
    async with grpc.aio.secure_channel(host_port(*address), credentials, options=CLIENT_OPTIONS) as channel:
        return await _called(channel, method)


async def _called(channel: grpc.aio.Channel, method: str) -> grpc.StatusCode:
    call = channel.unary_stream(method)(b"", timeout=CALL_SECONDS, metadata=((CLUSTER_KEY, CLUSTER_ID),))
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    finally:
        call.cancel()
    return grpc.StatusCode.OK


async def _scraped(
    address: Address, context: ssl.SSLContext, password: str | None, final: Collection[int | str]
) -> int | str:
    """The HTTP status, or why there is none; tried again until it is a ``final`` one."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        seen = await asyncio.to_thread(_scrape, address, context, password)
        if seen in final or asyncio.get_running_loop().time() > deadline:
            return seen
        await asyncio.sleep(RETRY_SECONDS)


def _scrape(address: Address, context: ssl.SSLContext, password: str | None) -> int | str:
    connection = http.client.HTTPSConnection(*address, timeout=CALL_SECONDS, context=context)
    headers = {}
    if password is not None:
        pair = base64.b64encode(f"{METRICS_READER}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    try:
        with contextlib.closing(connection):
            connection.request("GET", "/metrics", headers=headers)
            return connection.getresponse().status
    except TimeoutError:
        return f"no answer within {CALL_SECONDS:.0f} s"
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return _CLOSED
    except ssl.SSLError:
        return _ALERT
    except (OSError, http.client.HTTPException):
        return _CLOSED
