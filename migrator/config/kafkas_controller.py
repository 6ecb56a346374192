"""The settings that Kafka's own controller refuses, and with which ours starts. Pure.

Source: ``KafkaConfig.validateValues`` of Kafka 3.9 and 4.1, with ``process.roles=controller``. Keys that
`TargetRelease` removes from the file at the hand-over are not checked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from migrator.config.checks import Problem
from migrator.config.kafka_rules import PLACEHOLDER, refused_everywhere
from migrator.config.reading import listener_names
from migrator.config.types import entries_of

NAMES = "controller.listener.names"


def refused_by_kafka(properties: Mapping[str, str]) -> Iterator[Problem]:
    """The key, Kafka's reason to refuse the value, and the remedy.

    :param properties: the properties of a controller. A value from another file (``${file:...}``) counts as valid.
    """
    bound = [entry.partition(":")[0].upper() for entry in entries_of(properties.get("listeners", ""))]
    names = listener_names(properties.get(NAMES, ""))
    unbound = [name for name in names if name not in bound]
    if bound and not any(PLACEHOLDER in text for text in (*names, *bound)):
        if unbound:
            yield (
                NAMES,
                f"{', '.join(map(repr, unbound))} is no listener of this controller, capitals and blanks counted",
                f"Name only {', '.join(bound)}, in capitals and without blanks",
            )
        elif len(set(names)) < len(names):
            yield NAMES, "a listener is named twice", f"Write {','.join(dict.fromkeys(names))}"
    yield from refused_everywhere(properties)
