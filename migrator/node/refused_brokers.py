"""Notes the broker registrations that this controller has refused, with the reasons. Such a broker stops or tries
again, and its operator looks at the controllers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.clock import monotonic_ms
from migrator.migration.machine.readiness import NOT_RUNNING, UNREGISTERED
from migrator.observe.status import Problem
from migrator.values import value

log = logging.getLogger(__name__)

KEPT_MS = 300_000
"""How long a refusal is kept. A refused broker stops, or asks again within seconds, but its operator may look later."""
REFUSED_MAX = 1_000
WAIT: Final = frozenset((ErrorCode.not_controller, ErrorCode.request_timed_out))
"""Errors after which a broker asks again, and which need no action."""

REMEDIES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.inconsistent_cluster_id: "The broker belongs to another cluster. Compare cluster.id in the "
    "meta.properties of the broker with the one of the controllers, and give the broker the right controllers",
    ErrorCode.duplicate_broker_registration: "If another process uses this id, give one of them another id. Otherwise "
    "wait until the session of the earlier process is over (broker.session.timeout.ms)",
    ErrorCode.broker_id_not_registered: "Start the broker in a mode that the state of the migration allows. Before "
    "DualWrite: in ZooKeeper mode with zookeeper.metadata.migration.enable=true. In DualWrite: in KRaft mode, or in "
    "ZooKeeper mode as before. After the end: in KRaft mode",
    ErrorCode.invalid_registration: "Correct what the message names, and restart the broker",
    ErrorCode.unsupported_version: "Run a release of Kafka on the broker that supports the metadata.version of the "
    "quorum, and set its inter.broker.protocol.version to the release that the quorum was formatted with",
    ErrorCode.cluster_authorization_failed: "Give the principal of the broker the right ClusterAction on the cluster, "
    "or add it to super.users of the controllers",
}
REMEDY: Final = "Correct what the message names in the file of the broker, and restart the broker"


@value
class RefusedRegistration:
    """``at_ms``: the time of the last attempt, by the monotonic clock."""

    error: ErrorCode
    message: str
    at_ms: int

    @property
    def sentence(self) -> str:
        """The error's name, and the reason."""
        reason = self.message.rstrip(".")
        return f"{self.error.name.upper()}{f': {reason}' if reason else ''}"

    @property
    def remedy(self) -> str:
        return REMEDIES.get(self.error, REMEDY)


class RefusedBrokers:
    """The last refusal of each broker that has not registered since."""

    def __init__(self, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._now_ms = now_ms
        self._found: dict[int, RefusedRegistration] = {}

    def refused(self, broker_id: int, error: ErrorCode, message: str | None) -> None:
        """A registration was refused with this error; logged once."""
        if error in WAIT or (broker_id not in self._found and len(self._found) >= REFUSED_MAX):
            return
        before = self._found.get(broker_id)
        now = RefusedRegistration(error, message or "", self._now_ms())
        if before is None or before.sentence != now.sentence:
            log.warning("The registration of broker %d is refused: %s. %s", broker_id, now.sentence, now.remedy)
        self._found[broker_id] = now

    def registered(self, broker_id: int) -> None:
        """A registration was accepted."""
        self._found.pop(broker_id, None)

    def current(self) -> Mapping[int, RefusedRegistration]:
        """The refusals that are not too old, by broker."""
        oldest = self._now_ms() - KEPT_MS
        self._found = {broker: found for broker, found in self._found.items() if found.at_ms >= oldest}
        return self._found


def with_refusals(
    problems: Iterable[Problem], refused: Mapping[int, RefusedRegistration], *, leads: bool
) -> tuple[Problem, ...]:
    """The problems, with the refusal of a broker in place of the problems that it runs without a registration or is
    down.

    :param leads: whether this controller leads; refusals of a former leader are ignored.
    """
    if not leads:
        return tuple(problems)
    found = []
    waited_for = set()
    for problem in problems:
        broker = next((each for each in refused if problem.who == f"broker {each}"), None)
        if broker is not None and problem.what in (UNREGISTERED, NOT_RUNNING):
            waited_for.add(broker)
        else:
            found.append(problem)
    refusals = [
        Problem(
            f"broker {broker}",
            f"its registration is refused: {why.sentence}",
            why.remedy,
            warning=broker not in waited_for,
        )
        for broker, why in sorted(refused.items())
    ]
    return (*refusals, *found)
