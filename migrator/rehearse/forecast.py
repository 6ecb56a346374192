"""Forecasts the times of a migration from those of a rehearsal. Pure; docs/rehearse.md explains the model.

`rehearse` calls `forecast` at its end, and the rehearsal of the way back `forecast_way_back`. Each estimate has a
possible error. There is none of the roll while the time of a broker's restart is unknown.
"""

from __future__ import annotations

from migrator.values import value

ERROR_SHARE = 0.25
ERROR_SECONDS = 2.0
"""The least error of a forecast, on a machine like the one of the rehearsal."""


@value
class Times:
    """Seconds that the rehearsal took for work that the migration does, too."""

    decode: float
    copy: float
    compare: float


@value
class Estimate:
    """Seconds, and their possible error."""

    seconds: float
    error: float

    def to_json(self) -> dict[str, float]:
        """Both, in hundredths of a second."""
        return {"seconds": round(self.seconds, 2), "error": round(self.error, 2)}


@value
class Forecast:
    """``copy``: from the claim of /controller to the committed end of the transaction. ``dual_write``: from the last
    broker's registration to dual-write, the copy included. ``roll``: all brokers once, one after the other; None when
    the time of one restart is unknown."""

    copy: Estimate
    dual_write: Estimate
    roll: Estimate | None


COMMIT_SECONDS = 0.2
"""Seconds until the end of the transaction is on the disks of a majority, and in /migration."""
READY_SECONDS = 1.5
"""Seconds until the leader has seen that all are ready, let the last broker settle, claimed /controller, and informed
the brokers."""


def forecast(times: Times, brokers: int, broker_seconds: float | None) -> Forecast:
    """Estimate how long a migration takes.

    :param brokers: how many there are.
    :param broker_seconds: the time of one broker's restart; None unknown.
    """
    copy = times.copy + COMMIT_SECONDS
    dual_write = READY_SECONDS + times.decode + copy + times.compare
    roll = None if broker_seconds is None else _estimate(broker_seconds * brokers)
    return Forecast(_estimate(copy), _estimate(dual_write), roll)


@value
class WayBackTimes:
    """Seconds: of one ``operation`` among many; ``compare`` with the cluster's ZooKeeper, None if that was not done;
    ``release`` of everything."""

    operation: float
    compare: float | None
    release: float


RELEASE_SECONDS = 1.2
"""Seconds in which the last controller stops, `migrator rollback` starts, and the brokers elect a controller."""


def forecast_way_back(times: WayBackTimes, operations: int, sets: int) -> dict[str, Estimate]:
    """Estimate how long the way back takes, by the name of each part.

    :param operations: what a reopening has to write.
    :param sets: how many sets raise versions of partition states behind dual-write.
    """
    reopened = READY_SECONDS + (times.compare or 0) + operations * times.operation
    return {
        "reopened to dual-write": _estimate(reopened),
        "versions raised behind dual-write": _estimate(sets * times.operation),
        "without a controller": _estimate(RELEASE_SECONDS + times.release),
    }


def _estimate(seconds: float) -> Estimate:
    return Estimate(seconds, max(ERROR_SECONDS, ERROR_SHARE * seconds))
