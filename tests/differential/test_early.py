"""Before anybody knows what the quorum has committed, and so who may do what: one voter of three, alone.

Everybody but super users is put off, at a stock 3.9.1 controller as at ours, whatever is asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.config.checks import STANDARD_AUTHORIZER
from migrator.errors import OperatorError
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import free_port, port_is_open
from migrator.wire.schemas import CONTROLLER_APIS
from tests.differential.support.pair import properties_of
from tests.differential.support.sides import Ours, Side, Stock
from tests.differential.support.steps import NODE
from tests.doors.support.caller import Caller, Login, codes_of
from tests.doors.support.questions import questions
from tests.patience import PATIENCE_SECONDS

VOTER, CLIENT = "voter", "client"
PREFIX = "listener.name.controller."
OTHERWISE = {
    **dict.fromkeys((19, 20, 33, 37, 44, 58), frozenset({ErrorCode.not_controller})),
    60: frozenset({ErrorCode.unknown_server_error}),
}
"""Where several things are asked at once, stock asks for rights before it says that somebody else leads, we the other
way round: clients look for the leader then, and a broker that forwards asks again. DescribeCluster for brokers: stock
finds out first that a controller cannot tell."""
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def _properties(port: int) -> dict[str, str]:
    users = " ".join(f'user_{name}="{name}-secret"' for name in (VOTER, CLIENT))
    others = ",".join(f"{NODE + number}@127.0.0.1:{free_port()}" for number in (1, 2))
    return properties_of(port) | {
        "controller.quorum.voters": f"{NODE}@127.0.0.1:{port},{others}",
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"{PREFIX}sasl.enabled.mechanisms": "PLAIN",
        f"{PREFIX}plain.sasl.jaas.config": f'{MODULE} username="{VOTER}" password="{VOTER}-secret" {users};',
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{VOTER}",
    }


@pytest.fixture(scope="module")
def alone(kafka_391: StockKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """A stock voter and ours, each in a quorum of its own that never has a leader."""
    directory, ports = tmp_path_factory.mktemp("alone"), (free_port(), free_port())
    stock = Stock(kafka_391, ports[0], directory / "stock", _properties(ports[0]), "3.9", registers=False)
    ours = Ours(ports[1], directory / "ours", _properties(ports[1]), "3.9", registers=False)
    try:
        for side in (stock, ours):
            side.start()
        for side in (stock, ours):
            side.process.wait_until(partial(port_is_open, side.port), "open", timeout_seconds=PATIENCE_SECONDS)
        yield stock, ours
    finally:
        for side in (stock, ours):
            with contextlib.suppress(OperatorError):  # it was never started
                side.stop()


@pytest.mark.parametrize("key", CONTROLLER_APIS)
def test_who_is_no_super_user_hears_what_stock_says(alone: tuple[Side, Side], key: int) -> None:
    client, fields = Caller(login=Login(CLIENT, f"{CLIENT}-secret")), questions()[key]
    stock, ours = (_codes(client.answer(side.port, key, CONTROLLER_APIS[key].max, fields)) for side in alone)
    assert ErrorCode.cluster_authorization_failed not in ours, "it would end a stock voter"
    assert ours == OTHERWISE.get(key, stock)


def test_what_is_otherwise_is(alone: tuple[Side, Side]) -> None:
    client = Caller(login=Login(CLIENT, f"{CLIENT}-secret"))
    for key, codes in OTHERWISE.items():
        assert _codes(client.answer(alone[0].port, key, CONTROLLER_APIS[key].max, questions()[key])) != codes


def _codes(answer: Any) -> frozenset[ErrorCode]:
    assert answer is not None, "the connection was closed"
    return frozenset(codes_of(answer))
