"""Any request that the wire can carry is answered: no handler fails on what it did not expect."""

from __future__ import annotations

import datetime as dt
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.apis.authorization import Unlimited
from migrator.apis.call import Call
from migrator.apis.fields import uuid_out
from migrator.config.types import Secret
from migrator.wire.decode import decode_entity
from migrator.wire.encode import encode_entity
from migrator.wire.schemas import request_type
from migrator.wire.shapes import FieldShape, shapes_of
from tests.apis.support.asking import ALICE, VERSIONS, ask
from tests.controller.support.leading_controller import CLUSTER_ID, LeadingController, some_uuid
from tests.lanes import examples

TOPIC_ID = some_uuid(1)
TEXTS = (
    "t",
    "u",
    "1",
    "",
    "!",
    "retention.ms",
    "cleanup.policy",
    "user",
    "client-id",
    "ip",
    "metadata.version",
    "User",
)
NUMBERS = (0, 1, 2, 3, 4, 16, 21, 1000, -1, -2)
WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 17}


@cache
def messages(entity_type: Any) -> st.SearchStrategy[Any]:
    """Any message of a type, biased to what means something to the controller below."""
    return st.builds(entity_type, **{shape.name: _field(shape) for shape in shapes_of(entity_type)})


def _field(shape: FieldShape) -> st.SearchStrategy[Any]:
    one = messages(shape.entity) if shape.entity is not None else _primitive(shape.kafka_type)
    found = st.lists(one, max_size=3).map(tuple) if shape.is_array else one
    return st.none() | found if shape.nullable else found


def _primitive(kafka_type: str) -> st.SearchStrategy[Any]:
    if kafka_type in WIDTHS:
        top = 2 ** (WIDTHS[kafka_type] - 1) - 1
        low = 0 if kafka_type.startswith("u") else -top - 1
        return st.sampled_from([n for n in NUMBERS if low <= n <= top]) | st.integers(low, top)
    if kafka_type.startswith("timedelta"):
        return st.sampled_from(NUMBERS).map(lambda n: dt.timedelta(milliseconds=n))
    return {
        "bool": st.booleans(),
        "string": st.sampled_from((*TEXTS, CLUSTER_ID)),
        "bytes": st.binary(max_size=4),
        "records": st.none(),
        "float64": st.floats(),
        "uuid": st.sampled_from((None, uuid_out(TOPIC_ID), uuid_out(some_uuid(9)))),
    }[kafka_type]


def controller_of_brokers() -> LeadingController:
    controller = LeadingController(
        delegation_token_secret_key=Secret("secret"), zookeeper_metadata_migration_enable=True
    )
    controller.start([1, 2])
    controller.create("t", (1, 2), (2, 1))
    return controller


@settings(max_examples=examples(400))
@given(st.data())
def test_every_request_is_answered(data: st.DataObject) -> None:
    controller = controller_of_brokers()
    for _ in range(3):
        key, version = data.draw(st.sampled_from(VERSIONS))
        message = data.draw(messages(request_type(key, version)))
        body, _ = decode_entity(request_type(key, version), b"".join(encode_entity(message)))
        ask(controller, Call(key, version, body, ALICE, Unlimited(), "CONTROLLER", may_use_tokens=True))
