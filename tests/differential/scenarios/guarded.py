"""Peers without rights, where somebody else is the super user: every API, asked directly."""

from __future__ import annotations

from migrator.wire.schemas import CONTROLLER_APIS
from tests.differential.scenarios import strangers
from tests.differential.support.steps import BROKER, METRICS, NODE, TOPIC, acl_filter, ask, forwarded, registration

BODIES = {
    17: {"mechanism": "PLAIN"},
    18: {"client_software_name": "a", "client_software_version": "1"},
    29: acl_filter(),
    58: {"request_data": b"", "request_principal": b"", "client_host_address": b""},
    60: {"endpoint_type": 2, "include_cluster_authorized_operations": True},
}
UNANSWERED = {50, 41}
"""Whose refusal a stock controller does not manage to write."""

DESCRIBED = tuple(
    {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    for kind, name in ((TOPIC, "t"), (TOPIC, "nope"), (BROKER, ""), (BROKER, str(NODE)), (METRICS, "m"), (8, "1"))
)

STEPS = (
    *strangers.REQUESTS,
    *(
        ask(key, version, **BODIES.get(key, {}))
        for key, served in CONTROLLER_APIS.items()
        if key not in UNANSWERED
        for version in range(served.min, served.max + 1)
    ),
    *(ask(32, version, resources=DESCRIBED) for version in range(5)),
    registration(1),
    forwarded(ask(46, 0, topics=None)),
)
