"""The table of all checks, in the order of their codes. docs/checks.md is made from it."""

from __future__ import annotations

from migrator.preflight.check import PreflightCheck
from migrator.preflight.checks import (
    addresses,
    broker_starts,
    brokers,
    controllers,
    dynamic_maps,
    machine,
    rolls,
    security,
    sizes,
    znodes,
)

SUBJECTS = {
    "ZooKeeper": znodes.CHECKS,
    "Brokers": (*brokers.CHECKS, *dynamic_maps.CHECKS, *broker_starts.CHECKS, *rolls.CHECKS),
    "Controllers": (*controllers.CHECKS, *addresses.CHECKS),
    "Security": security.CHECKS,
    "Sizes": sizes.CHECKS,
    "This machine and the servers": machine.CHECKS,
}
"""Subject -> its checks."""

CHECKS: tuple[PreflightCheck, ...] = tuple(check for checks in SUBJECTS.values() for check in checks)
