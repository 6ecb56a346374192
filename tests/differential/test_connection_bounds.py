"""Bounds of connections that Kafka's own tool changes while controllers run: a stock one and ours follow alike."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.parts.kafka import StockKafka
from migrator.wire.encode import encode_entity
from migrator.wire.schemas import API_VERSIONS, RequestHeader, build, encode_request_header, request_type
from tests.differential.support.pair import SUPER, Pair, started
from tests.differential.support.sides import Side, Stock
from tests.differential.support.steps import BROKER, DELETE, NODE, SET, configs
from tests.patience import PATIENCE_SECONDS, until
from tests.raw_frames import receive, sized

MOST = 12
ONE_THREAD = {"num.network.threads": "1"}
"""Each of stock's network threads closes the most silent of its own connections only."""
PER_IP, OVERRIDES, CONNECTIONS = "max.connections.per.ip", "max.connections.per.ip.overrides", "max.connections"
OWN, EVERY = str(NODE), ""
HEADER = encode_request_header(RequestHeader(API_VERSIONS, 0, 1, "bounds"))
PROBE = sized(b"".join(HEADER + encode_entity(build(request_type(API_VERSIONS, 0)))))


@pytest.fixture(scope="module")
def pair(kafka_391: StockKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    found = Pair(kafka_391, tmp_path_factory.mktemp("bounds"), {**SUPER, **ONE_THREAD})
    with started([found]):
        yield found


@pytest.fixture(params=["stock", "ours"])
def side(pair: Pair, request: pytest.FixtureRequest) -> Iterator[Side]:
    found: Side = getattr(pair, request.param)
    yield found
    found.hang_up()


def test_connections_of_one_address(side: Side, kafka_391: StockKafka, tmp_path: Path) -> None:
    """The value of the node counts before that of all nodes, an address of its own before both, the file at the end."""
    until(lambda: room(side) == MOST)
    kafka_391.configs(
        *("--bootstrap-controller", f"127.0.0.1:{side.port}", "--alter", "--entity-type", "brokers"),
        *("--entity-default", "--add-config", f"{PER_IP}=4"),
        directory=tmp_path,
    )
    until(lambda: room(side) in left_of(4, side))
    alter(side, OWN, PER_IP, "9")
    until(lambda: room(side) in left_of(9, side))
    alter(side, OWN, OVERRIDES, "127.0.0.1:7")
    until(lambda: room(side) in left_of(7, side))
    alter(side, OWN, PER_IP, "many")  # of a wrong type: as if it were not there
    alter(side, OWN, OVERRIDES, None)
    until(lambda: room(side) in left_of(4, side))
    alter(side, EVERY, PER_IP, None)
    alter(side, OWN, PER_IP, None)
    until(lambda: room(side) == MOST)


def test_fewer_connections_than_there_are(side: Side) -> None:
    """The connection that was silent for longest is closed; a new one waits until there is room again."""
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(connected(side)) for _ in range(8)]
        assert all(asked(caller) for caller in callers)
        alter(side, OWN, CONNECTIONS, "4")
        for caller in callers[:4]:
            assert receive(caller) is None, "it was closed"
        assert asked(callers[-1])
        late = stack.enter_context(connected(side))
        late.sendall(PROBE)
        alter(side, OWN, CONNECTIONS, None)
        assert receive(late) is not None


def alter(side: Side, name: str, key: str, value: str | None) -> None:
    step = configs(BROKER, name, (key, value, DELETE if value is None else SET))
    side.send(step)
    side.receive(step)


def left_of(bound: int, side: Side) -> tuple[int, ...]:
    """A stock controller talks to itself from the same address, and not at all times."""
    return (bound - 1, bound) if isinstance(side, Stock) else (bound,)


def room(side: Side) -> int:
    """How many connections at once are served, up to `MOST`; those beyond are closed."""
    side.hang_up()
    with contextlib.ExitStack() as stack:
        return sum(asked(stack.enter_context(connected(side))) for _ in range(MOST))


def connected(side: Side) -> socket.socket:
    return socket.create_connection(("127.0.0.1", side.port), timeout=PATIENCE_SECONDS)


def asked(caller: socket.socket) -> bool:
    try:
        caller.sendall(PROBE)
        return receive(caller) is not None
    except ConnectionError:
        return False
