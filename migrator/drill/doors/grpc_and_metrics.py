"""Tries gRPC and metrics of a secured drill's controllers without permission."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import ssl
from collections.abc import Sequence

import grpc
import grpc.aio

from migrator.drill.cluster import CLUSTER_ID, ControllerProcess
from migrator.drill.doors.intruder import NONE, PATIENCE_SECONDS, RETRY_SECONDS, Address, Attempts
from migrator.drill.security.protection import METRICS_READER, Secured
from migrator.drill.security.users import INTRUDER
from migrator.rpc.channel import CLIENT_OPTIONS, CLUSTER_KEY, host_port
from migrator.rpc.doors import DOORS, OPERATOR, QUORUM

CALL_SECONDS = 10.0
LISTENER, METRICS = "migrator.grpc.listener", "migrator.metrics.listener"
"""The keys with these addresses."""
_LOOK, _VOTE = f"{OPERATOR}Watch", f"{QUORUM}Vote"
_SHUT, _DENIED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED
_SILENCE = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, _SHUT})
"""The codes of no answer; the last one is also that of a failed TLS handshake."""
OK, UNAUTHORIZED = 200, 401


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
        if await _answer(address, own, _LOOK, _SILENCE) is not grpc.StatusCode.OK:
            found += Attempts(
                1, (f"{where}: even the right login is refused, so the refusal of strangers proves nothing",)
            )
            continue
        for what, credentials in security.grpc_strangers().items():
            found += await _refused(f"{where}, {what}", address, credentials, (_LOOK, _VOTE), _SHUT)
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
        known, strangers = security.at_metrics(), security.strangers_at_metrics()
        if (seen := await _scraped(address, known, security.passwords[METRICS_READER])) != OK:
            found += Attempts(
                1, (f"{where}: even the right login is refused, so the refusal of strangers proves nothing: {seen}",)
            )
            continue
        for what, context in strangers.items():
            seen = await _scraped(address, context, security.passwords[METRICS_READER])
            found += Attempts(1, () if seen is None else (f"{where}: somebody {what} gets {seen}",))
        for what, password in (("no password", None), ("a guess", "guess")):
            seen = await _scraped(address, known, password)
            found += Attempts(1, () if seen == UNAUTHORIZED else (f"{where}: somebody with {what} gets {seen}",))
    return found


async def _refused(
    where: str,
    address: Address,
    credentials: grpc.ChannelCredentials,
    methods: Sequence[str],
    expected: grpc.StatusCode,
) -> Attempts:
    found = NONE
    for method in methods:
        code = await _answer(address, credentials, method, _SILENCE - {expected})
        found += Attempts(1, () if code is expected else (f"{where}: {method} was answered {code.name}",))
    return found


async def _answer(
    address: Address, credentials: grpc.ChannelCredentials, method: str, silence: frozenset[grpc.StatusCode]
) -> grpc.StatusCode:
    """The answer to an empty request; tried again while there is only ``silence``."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        channel = grpc.aio.secure_channel(host_port(*address), credentials, options=CLIENT_OPTIONS)
        async with channel:
            code = await _call(channel, method)
        if code not in silence or asyncio.get_running_loop().time() > deadline:
            return code
        await asyncio.sleep(RETRY_SECONDS)


async def _call(channel: grpc.aio.Channel, method: str) -> grpc.StatusCode:
    call = channel.unary_stream(method)(b"", timeout=CALL_SECONDS, metadata=((CLUSTER_KEY, CLUSTER_ID),))
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    finally:
        call.cancel()
    return grpc.StatusCode.OK


async def _scraped(address: Address, context: ssl.SSLContext, password: str | None) -> int | None:
    """The HTTP status; None when the connection failed."""
    return await asyncio.to_thread(_scrape, address, context, password)


def _scrape(address: Address, context: ssl.SSLContext, password: str | None) -> int | None:
    connection = http.client.HTTPSConnection(*address, timeout=CALL_SECONDS, context=context)
    headers = {}
    if password is not None:
        pair = base64.b64encode(f"{METRICS_READER}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    with contextlib.closing(connection), contextlib.suppress(ssl.SSLError, ConnectionError, http.client.HTTPException):
        connection.request("GET", "/metrics", headers=headers)
        return connection.getresponse().status
    return None
