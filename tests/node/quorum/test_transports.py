from __future__ import annotations

import pytest

from migrator.config.load import settings_from
from migrator.errors import OperatorError
from migrator.wire.listener_settings import controller_security, named_security

MODULE = "org.apache.kafka.common.security.{}LoginModule required"
TWO_DOORS = {
    "process.roles": "controller",
    "node.id": "3000",
    "controller.quorum.voters": "3000@localhost:9093",
    "controller.listener.names": "CONTROLLER,OTHER",
    "listeners": "CONTROLLER://localhost:9093,OTHER://localhost:9095",
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,OTHER:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": f'{MODULE.format("plain.Plain")} username="c" password="p";',
    "listener.name.other.sasl.enabled.mechanisms": "OAUTHBEARER",
}


def test_only_the_listener_that_peers_are_reached_on_needs_a_login_of_our_own() -> None:
    settings = settings_from(TWO_DOORS, "f")[0]
    first, other = controller_security(settings).sasl, named_security(settings, "OTHER").sasl
    assert first is not None
    assert first.client_user == "c"
    assert other is not None
    assert other.login is None
    assert list(other.exchanges) == ["OAUTHBEARER"]
    swapped = settings_from(TWO_DOORS | {"controller.listener.names": "OTHER,CONTROLLER"}, "f")[0]
    with pytest.raises(OperatorError, match="is not set") as caught:
        controller_security(swapped)
    assert "listener.name.other.plain.sasl.jaas.config" in caught.value.where
