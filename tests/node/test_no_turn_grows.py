"""No turn of a controller's event loop grows with the cluster: the lines of functions in each callback are counted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.node.support.lifetime import Most
from tests.node.support.phases import PLANTED

SMALL, LARGE = 25, 300
"""Topics. In each there are several full slices of everything."""
FACTOR = 2
"""A map of `LARGE` entries is one level deeper: a look-up takes up to 1.9 times as many lines."""
SLACK = LARGE * 2 // 3
"""Lines: one for each topic is found, four for each slice of ten records are not."""


def most_lines(topics: int) -> Most:
    """The program's answers about a cluster of so many topics, and as many configurations, entries, tokens, ..."""
    command = (sys.executable, "-m", "tests.node.support.lifetime", str(topics))
    said = subprocess.run(command, check=False, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    found: Most = json.loads(said.stdout)
    return found


def grown(small: Most, large: Most) -> dict[str, dict[str, tuple[int, int]]]:
    """By phase, the functions of which one callback runs more lines in the larger cluster, with both numbers.

    The lines in the smaller cluster are those of the phase with most of them: which phase has the full slice, or the
    periodic task, is chance.
    """
    most: dict[str, int] = {}
    for phase in small.keys() - set(PLANTED):
        for function, lines in small[phase].items():
            most[function] = max(lines, most.get(function, 0))
    found = {
        phase: {
            function: (most.get(function, 0), lines)
            for function, lines in functions.items()
            if lines > FACTOR * most.get(function, 0) + SLACK
        }
        for phase, functions in large.items()
    }
    return {phase: functions for phase, functions in found.items() if functions}


@pytest.mark.lane("test-all")
def test_no_turn_grows_with_the_cluster() -> None:
    small, large = most_lines(SMALL), most_lines(LARGE)
    assert small.keys() == large.keys()
    found = grown(small, large)
    in_python, in_c = (found.pop(phase, {}).keys() for phase in PLANTED)
    assert found == {}
    assert in_python == {"map.py:BitmapNode.values"}
    assert in_c == {"map.py:BitmapNode.keys", "map.py:Map.__iter__"}, "the latter runs one line for each entry"
