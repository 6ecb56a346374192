"""What Kafka's own controller refuses in a property file with which ours starts. Pure.

Source: ``KafkaConfig.validateValues`` of Kafka 3.9 and 4.1, with ``process.roles=controller``. What `TargetRelease`
leaves out of the file at the hand-over is not asked for here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from migrator.config.checks import Problem
from migrator.config.types import split_list

NAMES = "controller.listener.names"
IDLE, DELAY = "connections.max.idle.ms", "connection.failed.authentication.delay.ms"
PER_IP, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
_DELAY_MS = 100


def refused_by_kafka(properties: Mapping[str, str]) -> Iterator[Problem]:
    """Key, what Kafka does not take, and what to do.

    :param properties: of a controller. A value that another file holds (``${file:...}``) is taken for a good one.
    """
    bound = [entry.partition(":")[0].upper() for entry in split_list(properties.get("listeners", ""))]
    names = [name for name in properties.get(NAMES, "").strip().split(",") if name]
    unbound = [name for name in names if name not in bound]
    if unbound and bound and not any("${" in text for text in (*names, *bound)):
        yield (
            NAMES,
            f"{', '.join(map(repr, unbound))} is no listener of this controller, capitals and blanks counted",
            f"Name only {', '.join(bound)}, in capitals and without blanks",
        )
    idle, delay = (_number(properties.get(key, "")) for key in (IDLE, DELAY))
    delay = _DELAY_MS if delay is None else delay
    if idle is not None and 0 <= idle <= delay:
        yield IDLE, f"{idle} is not more than {DELAY}, {delay}", f"Set more than {delay}, or remove the key"
    if _number(properties.get(PER_IP, "")) == 0 and not properties.get(OVERRIDES, "").strip():
        yield PER_IP, f"it is 0, and nobody is in {OVERRIDES}", f"Remove the key, or set {OVERRIDES}"


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.removeprefix("-").isdecimal() else None
