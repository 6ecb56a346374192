"""From the times of a rehearsal to those of the migration. Pure; the model is explained in docs/rehearse.md."""

from __future__ import annotations

from migrator.values import value

ERROR_SHARE = 0.25
ERROR_SECONDS = 2.0
"""The forecast is within the larger of the two, on a machine like the one that was rehearsed on."""


@value
class Times:
    """Seconds that the rehearsal took for what the migration does as well."""

    decode: float
    copy: float
    compare: float


@value
class Estimate:
    """Seconds, and by how much they may be wrong."""

    seconds: float
    error: float


@value
class Forecast:
    """``copy``: from the claim of /controller to the committed end of the transaction. ``dual_write``: from the last
    broker's registration to dual-write, the copy included. ``roll``: all brokers once, one after the other; None when
    nobody said how long one takes."""

    copy: Estimate
    dual_write: Estimate
    roll: Estimate | None


COMMIT_SECONDS = 0.2
"""For the end of the transaction to be on the disks of a majority, and in /migration."""
READY_SECONDS = 1.5
"""For the leader to find out that all are ready, to let the last broker settle, to claim, to inform the brokers."""


def forecast(times: Times, brokers: int, broker_seconds: float | None) -> Forecast:
    """What to expect of the migration."""
    copy = times.copy + COMMIT_SECONDS
    dual_write = READY_SECONDS + times.decode + copy + times.compare
    roll = None if broker_seconds is None else _estimate(broker_seconds * brokers)
    return Forecast(_estimate(copy), _estimate(dual_write), roll)


def _estimate(seconds: float) -> Estimate:
    return Estimate(seconds, max(ERROR_SECONDS, ERROR_SHARE * seconds))
