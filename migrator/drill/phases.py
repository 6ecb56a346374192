"""The forecast of the rehearsal and the duration of the migration, phase by phase. All times of the migration are from
one clock: the leader's, in its log and its journal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from migrator.migration.machine.states import State
from migrator.observe.status import JournalEvent
from migrator.values import value

TRANSITION = "transition"
HEAD = ("phase, seconds", "forecast", "migration")


@value
class PhaseTimes:
    """Seconds; ``error``: by how much the forecast may be wrong, None without a bound; ``migration``: None when the
    leader's journal does not have the phase, as after a change of leaders."""

    name: str
    forecast: float
    error: float | None
    migration: float | None

    @property
    def cells(self) -> tuple[str, str, str]:
        """The cells of the row below `HEAD`."""
        bound = "" if self.error is None else f" ± {self.error:.1f}"
        return (
            self.name,
            f"{self.forecast:.1f}{bound}",
            "not seen" if self.migration is None else f"{self.migration:.1f}",
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON value for scripts."""
        return {
            "phase": self.name,
            "forecast": self.forecast,
            "error": self.error,
            "migration": None if self.migration is None else round(self.migration, 2),
        }


@value
class _Row:
    """``since`` is entered at the begin, ``until`` is left at the end. Without ``since``: from the registration of
    the last broker, until ``until`` is entered."""

    name: str
    forecast: Callable[[Mapping[str, Any]], tuple[float, float | None]]
    since: State | None
    until: State


def _phase(name: str) -> Callable[[Mapping[str, Any]], tuple[float, float | None]]:
    return lambda rehearsal: (rehearsal["seconds"][name], None)


def _estimate(name: str) -> Callable[[Mapping[str, Any]], tuple[float, float | None]]:
    return lambda rehearsal: (rehearsal["forecast"][name]["seconds"], rehearsal["forecast"][name]["error"])


_ROWS = (
    _Row("decode ZooKeeper", _phase("decode"), State.DECODING, State.DECODING),
    _Row("copy, from the claim to its committed end", _estimate("copy"), State.CLAIMING, State.COMMITTING),
    _Row("compare ZooKeeper with the log", _phase("compare and snapshot"), State.RECONCILING, State.RECONCILING),
    _Row("last broker registered to dual-write", _estimate("dual_write"), None, State.DUAL_WRITING),
)


def phases(
    rehearsal: Mapping[str, Any], journal: Sequence[JournalEvent], registered_ms: int | None
) -> tuple[PhaseTimes, ...]:
    """Forecast and duration of each phase; nothing when the rehearsal made no forecast.

    :param rehearsal: the output of `migrator rehearse --json`.
    :param journal: of the controller that led, oldest first.
    :param registered_ms: when the last broker registered, on the same clock; None when that is not known.
    """
    if rehearsal.get("forecast") is None:
        return ()
    entered: dict[str, int] = {}
    left: dict[str, int] = {}
    for event in journal:
        if event.kind == TRANSITION:
            details = dict(event.details)
            entered.setdefault(details["after"], event.time_ms)
            left.setdefault(details["before"], event.time_ms)

    def seconds(row: _Row) -> float | None:
        begin = registered_ms if row.since is None else entered.get(row.since.value)
        end = (entered if row.since is None else left).get(row.until.value)
        return None if begin is None or end is None else (end - begin) / 1000

    return tuple(PhaseTimes(row.name, *row.forecast(rehearsal), seconds(row)) for row in _ROWS)


def columns(found: Sequence[PhaseTimes]) -> list[str]:
    """Lines of text, the head first; nothing without phases."""
    rows = [HEAD, *(phase.cells for phase in found)] if found else []
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [f"{name:<{widths[0]}}  {first:>{widths[1]}}  {second:>{widths[2]}}" for name, first, second in rows]
