"""Every published procedure, word for word, on real Apache brokers, while a client writes: no record is lost."""

from __future__ import annotations

import pytest

from tests.interop.procedures.support.apache import APACHE, APACHE_39
from tests.interop.procedures.support.audit import RecordProperty, audited
from tests.interop.procedures.support.runner import Performance
from tests.interop.procedures.support.vendors import CHANGED, VENDORS

REPRESENTATIVE = APACHE_39
PROCEDURES = (*APACHE, *VENDORS, *CHANGED)
CASES = [
    pytest.param(each, id=each.name, marks=[] if each is REPRESENTATIVE else pytest.mark.lane("test-long"))
    for each in PROCEDURES
]


@pytest.mark.parametrize("performance", CASES, indirect=True)
def test_as_published(performance: Performance, record_property: RecordProperty) -> None:
    with audited(performance, record_property):
        performance.perform()
