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


COPY_FIXED = 0.2
COPY_FACTOR = 1.0
READY_FIXED = 1.0
AFTER_FACTOR = 1.0


def forecast(times: Times, brokers: int, broker_seconds: float | None) -> Forecast:
    """What to expect of the migration."""
    copy = COPY_FIXED + COPY_FACTOR * times.copy
    dual_write = READY_FIXED + times.decode + copy + AFTER_FACTOR * times.compare
    roll = None if broker_seconds is None else _estimate(broker_seconds * brokers)
    return Forecast(_estimate(copy), _estimate(dual_write), roll)


def _estimate(seconds: float) -> Estimate:
    return Estimate(seconds, max(ERROR_SECONDS, ERROR_SHARE * seconds))
