"""The ledger finds what an image lacks of what was acknowledged, and forgives what is in doubt."""

from __future__ import annotations

import pytest

from migrator.drill.workload.workload import (
    AclFact,
    ConfigFact,
    Fact,
    Ledger,
    QuotaFact,
    ScramFact,
    TopicFact,
)
from migrator.image.model import EMPTY_IMAGE
from migrator.records.metadata import ConfigResourceType

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
