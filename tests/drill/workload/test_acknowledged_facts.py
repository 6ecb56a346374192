"""The ledger finds the acknowledged changes that an image lacks, and leaves out those in doubt."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.workload.workload import (
    ALTER_SCRAM,
    AWKWARD,
    AclFact,
    ConfigFact,
    Fact,
    Ledger,
    QuotaFact,
    ScramFact,
    TopicFact,
    Workload,
)
from migrator.image.model import EMPTY_IMAGE
from migrator.records.metadata import ConfigResourceType, ScramMechanism
from migrator.wire.schemas import API_VERSIONS, VersionRange, build, response_type
from migrator.wire.server import KafkaListener

FACTS: list[tuple[Fact, object, object]] = [
    (TopicFact("t"), 3, None),
    (ConfigFact(ConfigResourceType.TOPIC, "t", "k"), "v", None),
    (QuotaFact((("user", None),), "k"), 1.0, None),
    (ScramFact("u", 1), 4096, None),
    (AclFact("t", "User:u"), True, False),
]


@pytest.mark.parametrize(("fact", "something", "nothing"), FACTS)
def test_an_empty_image(fact: Fact, something: object, nothing: object) -> None:
    ledger = Ledger()
    ledger.confirm(fact, something)
    assert len(list(ledger.missing_from(EMPTY_IMAGE))) == 1
    ledger.doubt(fact)
    assert list(ledger.missing_from(EMPTY_IMAGE)) == []
    ledger.confirm(fact, nothing)
    assert list(ledger.missing_from(EMPTY_IMAGE)) == []


APIS = {API_VERSIONS: VersionRange(0, 4), ALTER_SCRAM[0]: VersionRange(0, 0)}


class DeposedLeader:
    """Carries out the first change of a credential, but loses the leadership before it can commit."""

    def __init__(self) -> None:
        self.answers = iter((ErrorCode.not_controller, ErrorCode.resource_not_found))

    async def handle(self, context: Any, body: Any) -> Any:
        (deletion,) = body.deletions
        found = {"user": deletion.name, "error_code": next(self.answers), "error_message": None}
        return build(response_type(context.api_key, context.api_version), results=(found,))


async def test_a_deletion_that_a_deposed_leader_carried_out_is_not_refused() -> None:
    listener = KafkaListener("CONTROLLER", DeposedLeader(), apis=APIS)
    port = await listener.start("127.0.0.1", 0)
    workload = Workload(ControllerChannel([("127.0.0.1", port)], "client"), [1], seed=1)
    credential = ScramFact(AWKWARD, int(ScramMechanism.SHA_256))
    workload.ledger.confirm(credential, 4096)
    try:
        await workload._remove_scram()
    finally:
        await workload.close()
        await listener.close()
    assert workload.refusals == []
    assert workload.ledger.get(credential) is None
    assert not workload.ledger.is_in_doubt(credential)
