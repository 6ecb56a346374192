"""The metrics' keys: halves of a pair are refused, and a door that is open to the network is warned of."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.config.load import settings_from
from migrator.errors import OperatorError
from tests.config.test_settings import MINIMAL

LISTENER = "migrator.metrics.listener"
CERTIFICATE = "migrator.metrics.tls.certificate.file"
KEY = "migrator.metrics.tls.key.file"
CA = "migrator.metrics.tls.ca.file"
PASSWORDS = "migrator.metrics.basic.auth.file"
FAR, NEAR = {LISTENER: "0.0.0.0:9404"}, {LISTENER: "127.0.0.1:9404"}
TLS = {CERTIFICATE: "c.pem", KEY: "k.pem"}


@pytest.mark.parametrize(
    ("keys", "where"),
    [({CERTIFICATE: "c.pem"}, KEY), ({KEY: "k.pem"}, CERTIFICATE), ({CA: "ca.pem"}, CA)],
)
def test_half_a_pair_is_refused(keys: dict[str, str], where: str) -> None:
    with pytest.raises(OperatorError) as refused:
        settings_from(MINIMAL | FAR | keys, "file")
    assert refused.value.where == f"file: {where}"


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({LISTENER: "127.0.0.1:9093", "listeners": "CONTROLLER://:9093"}, LISTENER),
        ({LISTENER: "localhost:9093"}, LISTENER),
        ({LISTENER: "0.0.0.0:9093"}, LISTENER),
        ({LISTENER: "127.0.0.2:9093"}, ""),
        ({LISTENER: ":0", "listeners": "CONTROLLER://:0"}, ""),
    ],
)
def test_a_port_that_the_file_gives_twice_is_refused_before_it_is_opened(keys: dict[str, Any], where: str) -> None:
    if not where:
        settings_from(MINIMAL | keys, "file")
        return
    with pytest.raises(OperatorError, match="has port 9093, and CONTROLLER of this file, too") as refused:
        settings_from(MINIMAL | keys, "file")
    assert refused.value.where == f"file: {where}"


@pytest.mark.parametrize(
    ("keys", "warning"),
    [
        (FAR, "metrics cross the network in the clear"),
        ({LISTENER: ":9404"}, "metrics cross the network in the clear"),
        (FAR | {PASSWORDS: "p"}, "passwords and metrics cross the network in the clear"),
        (FAR | TLS, "everybody who reaches this address can read the metrics"),
        (FAR | TLS | {PASSWORDS: "p"}, None),
        (FAR | TLS | {CA: "ca.pem"}, None),
        (NEAR, None),
        ({LISTENER: "[::1]:9404"}, None),
        ({LISTENER: "localhost:9404"}, None),
        ({}, None),
    ],
)
def test_a_door_that_is_open_to_the_network_is_warned_of(keys: dict[str, Any], warning: str | None) -> None:
    warnings = settings_from(MINIMAL | keys, "file")[1]
    found = [text for text in warnings if LISTENER in text]
    assert [warning in text for text in found if warning] == ([True] if warning else [])
    assert bool(found) is bool(warning)
