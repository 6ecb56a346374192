"""librdkafka, the client of most other languages, against our listener."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from migrator.parts.certificates import Authority
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import CONTROLLER_APIS, VersionRange, build, response_type
from migrator.wire.security import PLAINTEXT, ListenerSecurity, listener_security
from migrator.wire.server import KafkaListener
from tests.patience import PATIENCE_SECONDS
from tests.wire.support.accounts import Accounts

METADATA = 3
AUTHORITY = Authority("a CA")
PLAIN_LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="secret";'


class OneBroker:
    """A cluster of one broker, this listener, and one topic."""

    def __init__(self) -> None:
        self.port = 0
        self.principals: set[str] = set()

    async def handle(self, context: RequestContext, body: Any) -> Any:
        self.principals.add(str(context.principal))
        partition = {"partition_index": 0, "leader_id": 1, "replica_nodes": (1,), "isr_nodes": (1,)}
        return build(
            response_type(METADATA, context.api_version),
            brokers=({"node_id": 1, "host": "localhost", "port": self.port},),
            cluster_id="ours",
            controller_id=1,
            topics=({"name": "orders", "partitions": (partition,)},),
        )


ADMIN = Accounts({"admin": "secret"})


def secured(protocol: str, mechanism: str) -> ListenerSecurity:
    key, certificate = AUTHORITY.issue("controller")
    keys = {
        "sasl.enabled.mechanisms": mechanism,
        "plain.sasl.jaas.config": PLAIN_LINE,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": certificate,
    }
    return listener_security(keys, "CONTROLLER", protocol, accounts=ADMIN)


@pytest.mark.parametrize(
    ("protocol", "mechanism", "principal"),
    [
        ("PLAINTEXT", "", "User:ANONYMOUS"),
        ("SASL_PLAINTEXT", "PLAIN", "User:admin"),
        ("SASL_SSL", "SCRAM-SHA-512", "User:admin"),
    ],
)
async def test_an_admin_client_is_served(tmp_path: Path, protocol: str, mechanism: str, principal: str) -> None:
    (tmp_path / "ca.pem").write_text(AUTHORITY.pem)
    handler = OneBroker()
    apis = {**CONTROLLER_APIS, METADATA: VersionRange(0, 12)}
    security = secured(protocol, mechanism) if mechanism else PLAINTEXT
    listener = KafkaListener("CONTROLLER", handler, apis=apis, security=security)
    handler.port = await listener.start("127.0.0.1", 0)
    options: dict[str, str | int | float | bool] = {
        "bootstrap.servers": f"localhost:{handler.port}",
        "broker.address.family": "v4",
        "security.protocol": protocol,
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    if mechanism:
        options |= {"sasl.mechanism": mechanism, "sasl.username": "admin", "sasl.password": "secret"}
    try:
        found = await asyncio.to_thread(lambda: AdminClient(options).list_topics(timeout=PATIENCE_SECONDS))
        assert str(found.cluster_id) == "ours"
        assert list(found.topics) == ["orders"]
        assert handler.principals == {principal}
        assert listener.counters.malformed == 0
    finally:
        await listener.close(grace=0)
