"""Notes the broker registrations that this controller has refused, with the reasons. Such a broker ends or tries again,
and its operator looks at the controllers."""

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
"""A broker that was refused ends, or asks again within seconds. Its operator may come later."""
REFUSED_MAX = 1_000
WAIT: Final = frozenset((ErrorCode.not_controller, ErrorCode.request_timed_out))
"""Errors upon which a broker asks again, and which nobody has to mend."""

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
    """``at_ms``: monotonic, of the last attempt."""

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
        """What to do."""
        return REMEDIES.get(self.error, REMEDY)


class RefusedBrokers:
    """The last refusal of each broker that has not registered since."""

    def __init__(self, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._now_ms = now_ms
        self._found: dict[int, RefusedRegistration] = {}

    def refused(self, broker_id: int, error: ErrorCode, message: str | None) -> None:
        """A registration got this answer; said once in the log."""
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
        """By broker, the refusals that are not old."""
        oldest = self._now_ms() - KEPT_MS
        self._found = {broker: found for broker, found in self._found.items() if found.at_ms >= oldest}
        return self._found


def with_refusals(
    problems: Iterable[Problem], refused: Mapping[int, RefusedRegistration], *, leads: bool
) -> tuple[Problem, ...]:
    """The problems, where a broker that was refused is said neither to run without a registration, nor to be down: the
    refusal is why.

    :param leads: refusals of a controller that no longer leads say nothing any more.
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
