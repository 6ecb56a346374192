"""Attacks over gRPC, by name: a repeated call, or streams that nobody reads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import grpc

from migrator.drill.cluster import CLUSTER_ID
from migrator.rpc.channel import CLIENT_OPTIONS, CLUSTER_KEY

if TYPE_CHECKING:
    from tests.doors.costs.attackers import Spec

CALLS = {
    "Vote": ("/migrator.quorum.v1.Quorum/Vote", b""),
    "Vote of 60 KB": ("/migrator.quorum.v1.Quorum/Vote", b"\xff" * 60_000),
    "Vote of 16 MB": ("/migrator.quorum.v1.Quorum/Vote", b"\xff" * (16 << 20)),
    "DiscoverBrokers": ("/migrator.quorum.v1.Quorum/DiscoverBrokers", b""),
    "Journal": ("/migrator.operator.v1.Operator/Journal", b""),
    "Watch": ("/migrator.operator.v1.Operator/Watch", b""),
}
CALL_SECONDS = 30.0
REFUSED_SECONDS = 0.01
STREAMS = 100


def begin(spec: Spec, counts: Counter[str]) -> None:
    """As `moves.begin`; ``frame`` names the call."""
    move = {"call": _call, "stream": _stream}[spec.move]
    for _ in range(spec.connections):
        threading.Thread(target=move, args=(spec, counts), daemon=True).start()


def _channel(spec: Spec) -> Any:
    key, certificate = (None, None) if spec.key_and_certificate is None else map(str.encode, spec.key_and_certificate)
    credentials = grpc.ssl_channel_credentials((spec.authority or "").encode(), key, certificate)
    return grpc.secure_channel(f"localhost:{spec.port}", credentials, options=CLIENT_OPTIONS)


def _begun(channel: Any, spec: Spec) -> Any:
    call, message = CALLS[spec.frame]
    return channel.unary_stream(call)(message, timeout=CALL_SECONDS, metadata=((CLUSTER_KEY, CLUSTER_ID),))


def _call(spec: Spec, counts: Counter[str]) -> None:
    with _channel(spec) as channel:
        while True:
            counts["sent"] += 1
            try:
                for _ in _begun(channel, spec):
                    pass
                counts["answered"] += 1
            except grpc.RpcError:
                counts["refused"] += 1
                time.sleep(REFUSED_SECONDS)


def _stream(spec: Spec, counts: Counter[str]) -> None:
    """As many at a time as a connection may have; nobody reads them."""
    while True:
        with _channel(spec) as channel:
            streams = []
            for _ in range(STREAMS):
                streams.append(_begun(channel, spec))
                counts["sent"] += 1
            time.sleep(CALL_SECONDS)
