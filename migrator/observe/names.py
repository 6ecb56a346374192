"""Brokers and controllers by their ids, as people write them."""

from __future__ import annotations

from collections.abc import Iterable


def number_ranges(noun: str, numbers: Iterable[int]) -> str:
    """``broker 3``, or ``brokers 1-3, 5``; three or more in a row are a range."""
    found = sorted(set(numbers))
    runs: list[list[int]] = []
    for number in found:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"{noun}{'s' if len(found) > 1 else ''} {', '.join(parts)}"
