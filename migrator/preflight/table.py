"""The table of all checks, in the order of their codes. docs/checks.md is made from it."""

from __future__ import annotations

from migrator.preflight.check import PreflightCheck
from migrator.preflight.checks import (
    broker_starts,
    brokers,
    controllers,
    defaults,
    hosts,
    machine,
    meanwhile,
    security,
    sizes,
    znodes,
)

_NODES = (brokers, broker_starts, defaults, controllers, meanwhile)
_OF_NODES = sorted((check for part in _NODES for check in part.CHECKS), key=lambda check: check.code)
SUBJECTS = {
    "ZooKeeper": znodes.CHECKS,
    "Brokers": tuple(check for check in _OF_NODES if check.code < "M2"),
    "Controllers": tuple(check for check in _OF_NODES if check.code > "M2"),
    "Security": security.CHECKS,
    "Sizes": sizes.CHECKS,
    "This machine and the servers": machine.CHECKS,
    "The hosts of a rollout": hosts.CHECKS,
}
"""Subject -> its checks."""

CHECKS: tuple[PreflightCheck, ...] = tuple(check for checks in SUBJECTS.values() for check in checks)
