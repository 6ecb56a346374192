"""The same requests to a stock 3.9.1 controller and to us: equal answers, and equal records in the log.

Not compared: the wording of messages, random ids, offsets, and the order that stock takes from hash maps.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from migrator.parts.kafka import StockKafka
from migrator.parts.processes import free_port
from migrator.records import metadata as rec
from migrator.records.batch import iter_batches
from migrator.records.codec import decode, encode_all
from migrator.records.versions import LATEST_SUPPORTED
from tests.apis.differential_sides import NODE, Ours, Side, Stock
from tests.apis.differential_steps import STEPS
from tests.controller.world import CLUSTER_ID

OTHER_RECORDS = (
    rec.NoOpRecord,
    rec.BeginTransactionRecord,
    rec.EndTransactionRecord,
    rec.RegisterControllerRecord,
    rec.ZkMigrationStateRecord,
)
"""What a stock controller writes by itself."""
LOG = "data/__cluster_metadata-0/00000000000000000000.log"


def _run(side: Side) -> list[Any]:
    answers = []
    for key, version, fields in STEPS:
        asked = fields(side)
        response = side.send(key, version, asked)
        if key == 62 and response.error_code == 0:
            side.epochs[asked["broker_id"]] = response.broker_epoch
        side.learn(key, response)
        answers.append(side.plain(response))
    return answers


@pytest.fixture(scope="module")
def stock(kafka_391: StockKafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], Path]:
    """What a stock controller answers."""
    directory = tmp_path_factory.mktemp("stock")
    port = free_port()
    node = kafka_391.node(
        "stock",
        directory,
        {
            "process.roles": "controller",
            "node.id": str(NODE),
            "controller.quorum.voters": f"{NODE}@localhost:{port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://localhost:{port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "broker.session.timeout.ms": "600000",
        },
    )
    node.format(CLUSTER_ID, release_version="3.9-IV0")
    with node, contextlib.closing(Stock(port)) as side:
        answers = _run(side)
    return answers, directory


def test_answers_are_equal(stock: tuple[list[Any], Path]) -> None:
    expected, _ = stock
    found = _run(Ours())
    different = [
        (number, STEPS[number][0], STEPS[number][1], theirs, ours)
        for number, (theirs, ours) in enumerate(zip(expected, found, strict=True))
        if theirs != ours
    ]
    assert not different, "\n".join(f"{n}: API {k} v{v}\n  stock {t}\n  ours  {o}" for n, k, v, t, o in different)


def _comparable(records: Sequence[rec.MetadataRecord]) -> list[str]:
    """Records without offsets and random ids, in an order of their own."""
    topics = {record.topic_id: record.name for record in records if isinstance(record, rec.TopicRecord)}
    rows = []
    for record in records:
        if isinstance(record, OTHER_RECORDS):
            continue
        names = [field.name for field in dataclasses.fields(cast("Any", record)) if field.name != "broker_epoch"]
        fields = {name: getattr(record, name) for name in names}
        if "topic_id" in fields:
            fields["topic_id"] = topics[fields["topic_id"]]
        if isinstance(record, rec.ClientQuotaRecord):
            fields["entity"] = sorted(record.entity, key=repr)
        if isinstance(record, rec.AccessControlEntryRecord):
            fields["id"] = "random"
        rows.append(f"{type(record).__name__} {fields}")
    return sorted(rows)


def test_records_are_equal(stock: tuple[list[Any], Path]) -> None:
    _, directory = stock
    data = (directory / LOG).read_bytes()
    batches = [batch for batch in iter_batches(data, partial_tail=True) if not batch.header.is_control]
    expected = _comparable([record for batch in batches for record, _ in batch.records()])
    ours = Ours()
    _run(ours)
    written = encode_all(ours.world.history, LATEST_SUPPORTED)
    found = _comparable([decode(data)[0] for data in written])
    missing, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    assert not missing, f"only stock: {missing}\nonly ours: {extra}"
    assert not extra, f"only ours: {extra}"
    assert len(found) > 80
