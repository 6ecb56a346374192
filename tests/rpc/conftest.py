"""Fixtures of these tests."""

from __future__ import annotations

import pytest

from tests.rpc.support.transports import Grpc, Kafka, Kind


@pytest.fixture(params=[Kafka, Grpc], ids=["kafka", "grpc"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """One of the two transports."""
    found: Kind = request.param()
    return found
