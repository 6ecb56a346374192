"""A job's report on the terminal, in a few lines. Pure.

A report comes from another host: everything that does not have the form that this program gives it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from migrator.rollout.plan.steps import Job

BLOCKERS_MAX, WARNINGS_MAX, CHARS_MAX = 20, 3, 500
"""Limits for the terminal: blockers, warnings, and characters of a line. The whole report is kept in a file."""
Report = Mapping[str, Any]


def lines_of(job: Job, report: Report | None) -> list[str]:
    """The blockers, each with its remedy; a few warnings; at the end the verdict. Empty for anything that is no
    report."""
    says = _SAYS.get(job)
    return [] if says is None or report is None else [line[:CHARS_MAX] for line in says(report)]


def questions_of(report: Report | None) -> list[Report]:
    """The warnings of preflight about which an operator decides."""
    return [each for each in entries_of(report or {}, "findings") if each.get("asks") is True]


def risks_of(report: Report) -> list[str]:
    """All that preflight found and could not examine, a sentence each with its remedy."""
    found = [(_text(each, "severity"), each) for each in entries_of(report, "findings")]
    found += [("could not tell", each) for each in entries_of(report, "unknown")]
    return [f"Preflight: {word} {_sentence(each)}. {_text(each, 'remedy')}"[:CHARS_MAX] for word, each in found]


def _of_preflight(report: Report) -> Iterator[str]:
    found = entries_of(report, "findings")
    blockers = [each for each in found if each.get("severity") == "blocker"]
    warnings = [each for each in found if each.get("severity") == "warning" and each.get("asks") is not True]
    unknown = entries_of(report, "unknown")
    if "findings" not in report:
        return
    yield from _each("BLOCKER", blockers, BLOCKERS_MAX)
    yield from _each("COULD NOT TELL", unknown, BLOCKERS_MAX)
    asking = questions_of(report)
    yield from _each("DECIDE", asking, BLOCKERS_MAX)
    yield from _each("warning", warnings, WARNINGS_MAX)
    yield f"{len(blockers)} blockers, {len(warnings) + len(asking)} warnings, {len(unknown)} could not be examined"


def _of_rehearsal(report: Report) -> Iterator[str]:
    yield from _each("BLOCKER", entries_of(report, "blockers"), BLOCKERS_MAX)
    yield from _each("warning", entries_of(report, "warnings"), WARNINGS_MAX)
    for name in ("kafka", "verified"):
        check = report.get(name)
        if isinstance(check, dict) and check.get("outcome") not in ("fine", "not checked"):
            yield f"{name}: {_text(check, 'outcome')}: {_text(check, 'detail')}"
    forecast = report.get("forecast")
    estimate = forecast.get("dual_write") if isinstance(forecast, dict) else None
    takes = ""
    if isinstance(estimate, dict) and isinstance(estimate.get("seconds"), int | float):
        takes = f"; forecast: {estimate['seconds']:.0f} s to dual-write"
    if "verdict" in report:
        yield f"rehearsal: {_text(report, 'verdict')}{takes}"


def _of_comparison(report: Report) -> Iterator[str]:
    for each in entries_of(report, "examples")[:WARNINGS_MAX]:
        kind, entity, field, status = (_text(each, name) for name in ("kind", "entity", "field", "status"))
        yield f"differs: {kind} {entity}: {field} ({status})"
    if isinstance(report.get("rows"), int) and isinstance(report.get("differences"), int):
        count = f": {report['differences']:,} differences" if report["differences"] else ""
        yield f"{_text(report, 'verdict')}{count}; {report['rows']:,} rows compared"
        if why := _text(report, "why"):
            yield why


_SAYS: Mapping[Job, Callable[[Report], Iterator[str]]] = {
    Job.PREFLIGHT: _of_preflight,
    Job.REHEARSE: _of_rehearsal,
    Job.VERIFY: _of_comparison,
}


def _each(word: str, found: Sequence[Report], limit: int) -> Iterator[str]:
    for each in found[:limit]:
        yield f"{word} {_sentence(each)}"
        if word != "warning":
            yield f"  do: {_text(each, 'remedy')}"
    if len(found) > limit:
        yield f"and {len(found) - limit} more of this kind"


def _sentence(each: Report) -> str:
    title = " ".join(text for text in (_text(each, "code"), _text(each, "title")) if text)
    who = ", ".join(filter(None, (_listed(each, "hosts"), _listed(each, "where") or _text(each, "path"))))
    return ": ".join(filter(None, (title, who, _text(each, "what") or _text(each, "reason"))))


def entries_of(report: Report, name: str) -> list[dict[str, Any]]:
    """The entries of a list in a report; none where there is something else."""
    found = report.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _listed(each: Report, name: str) -> str:
    found = each.get(name)
    if not isinstance(found, list):
        return _text(each, name)
    more = f" and {len(found) - WARNINGS_MAX} more" if len(found) > WARNINGS_MAX else ""
    return ", ".join(map(str, found[:WARNINGS_MAX])) + more


def _text(each: Report, name: str) -> str:
    found = each.get(name)
    return found if isinstance(found, str) else ""
