"""Epochs near the end of an int, of a voter to real controllers: what a stock 3.9.1 one survives, ours survives, too.

Each is one voter of three, alone: nobody leads, and the others' messages are what it hears. Below 2^31 - 2^16 both do
the same; from there on ours takes no epoch over, writes none down, and starts again with what it has.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from migrator.drill.cluster import CLUSTER_ID
from migrator.errors import OperatorError
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import free_port, port_is_open
from migrator.raft.config import EPOCH_LIMIT
from migrator.wire.schemas import API_VERSIONS
from tests.differential.support.pair import SUPER, properties_of
from tests.differential.support.sides import Ours, Side, Stock
from tests.differential.support.steps import NODE, Step, ask
from tests.doors.support.caller import Caller
from tests.patience import PATIENCE_SECONDS

OTHER = NODE + 1
"""Another voter, who is not there but by these messages."""
HIGH, LAST = EPOCH_LIMIT - 2, 2**31 - 1
BEYOND = (EPOCH_LIMIT, LAST - 1, LAST)
STATE = Path("__cluster_metadata-0/quorum-state")
TOPIC = "__cluster_metadata"


def _vote(epoch: int) -> Step:
    row = {"candidate_epoch": epoch, "candidate_id": OTHER, "last_offset_epoch": 0, "last_offset": 0}
    return _of_topics(52, 0, row)


def _begin(epoch: int) -> Step:
    return _of_topics(53, 0, {"leader_id": OTHER, "leader_epoch": epoch})


def _end(epoch: int) -> Step:
    return _of_topics(54, 0, {"leader_id": OTHER, "leader_epoch": epoch, "preferred_successors": (NODE,)})


def _of_topics(key: int, version: int, row: dict[str, Any]) -> Step:
    topics = ({"topic_name": TOPIC, "partitions": ({"partition_index": 0, **row},)},)
    return ask(key, version, cluster_id=CLUSTER_ID, topics=topics)


MESSAGES = (_vote, _begin, _end)


def _properties(port: int) -> dict[str, str]:
    others = ",".join(f"{NODE + number}@127.0.0.1:{free_port()}" for number in (1, 2))
    return properties_of(port) | SUPER | {"controller.quorum.voters": f"{NODE}@127.0.0.1:{port},{others}"}


@pytest.fixture
def alone(kafka_391: StockKafka, tmp_path: Path) -> Iterator[tuple[Stock, Ours]]:
    """A stock voter and ours, each in a quorum of its own."""
    ports = free_port(), free_port()
    stock = Stock(kafka_391, ports[0], tmp_path / "stock", _properties(ports[0]), "3.9", registers=False)
    ours = Ours(ports[1], tmp_path / "ours", _properties(ports[1]), "3.9", registers=False)
    try:
        for side in (stock, ours):
            side.start()
            _until_open(side)
        yield stock, ours
    finally:
        for side in (stock, ours):
            with contextlib.suppress(OperatorError):  # it was never started
                side.stop()


def test_what_stock_survives_ours_survives_and_more(alone: tuple[Stock, Ours], tmp_path: Path) -> None:
    stock, ours = alone
    granted = [_told(side, _vote(HIGH)).topics[0].partitions[0] for side in alone]
    assert [(it.vote_granted, it.leader_epoch, it.error_code) for it in granted] == [(True, HIGH, 0)] * 2
    for epoch in BEYOND:
        for message in MESSAGES:
            _told(ours, message(epoch))
            assert _lives(ours), f"{message.__name__} of epoch {epoch} ended it"
            assert _written(tmp_path / "ours" / "metadata" / STATE) < EPOCH_LIMIT
    survived = [(epoch, message) for epoch in BEYOND for message in MESSAGES if _survives(stock, message(epoch))]
    assert survived, "a stock process answers afterwards, too"
    ours.stop()
    ours.restart()
    _until_open(ours)
    assert _lives(ours)


def _survives(side: Side, step: Step) -> bool:
    if not _lives(side):
        return False
    with contextlib.suppress(AssertionError, OSError):
        _told(side, step)
    return _lives(side)


def _told(side: Side, step: Step) -> Any:
    """The answer as it came; nothing is asked of the log, which nobody writes."""
    answer = Caller().answer(side.port, step.key, step.version, step.fields(side.names))
    assert answer is not None, f"{type(side).__name__} does not answer {step}"
    return answer


def _lives(side: Side) -> bool:
    return side.process.exit_code() is None and Caller().answer(side.port, API_VERSIONS, 0, {}) is not None


def _written(path: Path) -> int:
    return int(json.loads(path.read_text())["leaderEpoch"])


def _until_open(side: Side) -> None:
    side.process.wait_until(partial(port_is_open, side.port), "open", timeout_seconds=PATIENCE_SECONDS)
