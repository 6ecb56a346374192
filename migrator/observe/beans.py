"""The figures in the form of Kafka's JMX beans, for tools that poll Kafka's controllers.

The metrics endpoint serves them as JSON, next to the metrics. Names and attributes are Kafka's; the values are those of
the same reading as in Prometheus. There are two paths:

* Jolokia 1.x, as an agent in a controller's JVM answers ``GET /jolokia/read/<mbean>[/<attribute>]``. cp-ansible polls
  it. If a bean does not exist, the answer has ``status`` 404 in its body, and 200 in HTTP.
* ``GET /v1/kraft-migration/``, as the agent of Strimzi answers: ``{"state": 1}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import orjson

from migrator.observe.metrics import CONTROLLER_PREFIX, GAUGES, RAFT_PREFIX, Reading
from migrator.observe.write_times import WriteTimes

Attributes = Mapping[str, float | str]
Beans = Mapping[str, Attributes]
"""The attributes of each bean, by Kafka's name of the bean."""

CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
RAFT: Final = "kafka.server:type=raft-metrics"
STATE: Final = "ZkMigrationState"
NAMES: Final = (
    *("ActiveControllerCount", STATE, "MigrationIneligibleBrokerCount", "MigrationIneligibleControllerCount"),
    *("MigratingZkBrokerCount", "ZooKeeperWriteBehindLag", "ZkWriteBehindLag", "ZooKeeperBlockingKRaftMillis"),
    *("MetadataType", "ActiveBrokerCount", "FencedBrokerCount", "GlobalTopicCount", "GlobalPartitionCount"),
    *("OfflinePartitionsCount", "PreferredReplicaImbalanceCount", "MetadataErrorCount", "LastAppliedRecordOffset"),
    *("LastAppliedRecordTimestamp", "LastAppliedRecordLagMs", "LastCommittedRecordOffset", "NewActiveControllersCount"),
)
"""The gauges of type KafkaController; in Prometheus each has the same name in small letters."""
_FIGURES = {name: figure for name, _, figure in GAUGES}


def beans_of(reading: Reading, writes: WriteTimes) -> Beans:
    """All beans now."""
    gauges = {
        f"{CONTROLLER}{name}": {"Value": int(_FIGURES[CONTROLLER_PREFIX + name.lower()](reading))} for name in NAMES
    }
    times = {f"{CONTROLLER}{name}": attributes for name, attributes in writes.attributes().items()}
    raft = {
        name.removeprefix(RAFT_PREFIX).replace("_", "-"): float(figure(reading))
        for name, figure in _FIGURES.items()
        if name.startswith(RAFT_PREFIX)
    }
    texts = {"current-state": reading.kafka_raft_state, "current-vote-directory-id": reading.voted_directory}
    return {**gauges, **times, RAFT: {**raft, **texts}}


def bean_reader(read: Callable[[], Reading], writes: WriteTimes) -> Callable[[], Beans]:
    """Like `beans_of`, for any thread."""
    return lambda: beans_of(read(), writes)


JOLOKIA: Final = "/jolokia"
_READ: Final = f"{JOLOKIA}/read/"
_STRIMZI: Final = ("/v1/kraft-migration", "/v1/kraft-migration/")
_PARTS: Final = re.compile(r"((?:[^!/]|!.|!$)*)/?", re.DOTALL)
"""Parts between ``/``; a ``!`` takes the special meaning from the next character."""
_ESCAPED: Final = re.compile(r"!(.)", re.DOTALL)
_JMX: Final = "javax.management."

Answer = Callable[[Beans, int], bytes]
"""Makes the answer from the beans and the time in seconds."""


def answer_for(path: str) -> Answer | None:
    """The function that answers a path without its query; None when the path does not exist.

    :param path: as it came, with its escapes.
    """
    if path in _STRIMZI:
        return _state
    if path.startswith(_READ):
        parts = _parts(unquote(path.removeprefix(_READ), errors="replace"))
        return lambda beans, now_s: orjson.dumps(_read(parts, beans, now_s))
    return None


def takes_no_orders(path: str) -> bool:
    """Whether a path is Jolokia's. Jolokia takes orders and bulk requests with POST; here that method is refused."""
    return path == JOLOKIA or path.startswith(f"{JOLOKIA}/")


def _state(beans: Beans, now_s: int) -> bytes:
    del now_s
    return orjson.dumps({"state": beans[CONTROLLER + STATE]["Value"]})


def _parts(text: str) -> list[str]:
    """The parts of a path, without escapes. An empty last part does not count."""
    found = [_ESCAPED.sub(r"\1", part) for part in _PARTS.findall(text)]
    while found and not found[-1]:
        found.pop()
    return found


def _read(parts: list[str], beans: Beans, now_s: int) -> dict[str, Any]:
    name = parts[0] if parts else ""
    wanted = _sorted_name(name)
    if wanted is None:
        what = "java.lang.IllegalArgumentException"
        return {"error_type": what, "error": f"{what} : No bean has the name {name!r}", "status": 400}
    request = {"mbean": wanted, **({"attribute": parts[1]} if len(parts) > 1 else {}), "type": "read"}
    attributes = {_sorted_name(known): each for known, each in beans.items()}.get(wanted)
    if attributes is None:
        return _missing(request, "InstanceNotFoundException", wanted)
    if len(parts) < 2:
        return {"request": request, "value": attributes, "timestamp": now_s, "status": 200}
    if len(parts) > 2 or parts[1] not in attributes:
        return _missing(request, "AttributeNotFoundException", f"No such attribute: {'/'.join(parts[1:])}")
    return {"request": request, "value": attributes[parts[1]], "timestamp": now_s, "status": 200}


def _missing(request: dict[str, str], kind: str, what: str) -> dict[str, Any]:
    return {"request": request, "error_type": _JMX + kind, "error": f"{_JMX}{kind} : {what}", "status": 404}


def _sorted_name(name: str) -> str | None:
    """The name with its properties in order (``ObjectName.getCanonicalName``); None when it is no valid name."""
    domain, _, listed = name.partition(":")
    properties = [part.partition("=") for part in listed.split(",")]
    if not domain or not all(key and equals and text for key, equals, text in properties):
        return None
    return f"{domain}:{','.join(sorted(map(''.join, properties)))}"
