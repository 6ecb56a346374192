"""No turn of a controller's event loop grows with the cluster: the lines of each function in one turn are counted."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest

from tests.node.support.lifetime import Most

TOPICS = 25
TIMES = 20
SLACK = 350
"""Lines: of what happens to fall into one turn."""
FACTOR = 5
"""A turn of the small cluster ends before its slice is full, and one of the large cluster holds a full slice of three
nodes: 3.6 times as many lines were seen. A loop over all grows `TIMES` times."""


@cache
def most_lines(topics: int, *options: str) -> Most:
    """What the program says of a cluster of so many topics, and as many configurations, entries, tokens, ..."""
    command = (sys.executable, "-m", "tests.node.support.lifetime", str(topics), *options)
    said = subprocess.run(command, check=False, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    found: Most = json.loads(said.stdout)
    return found


def grown(small: Most, large: Most) -> dict[str, dict[str, tuple[int, int]]]:
    """By phase, the functions of which one turn runs more lines in the larger cluster, with both numbers."""
    found = {
        phase: {
            function: (small[phase].get(function, 0), lines)
            for function, lines in functions.items()
            if lines > FACTOR * small[phase].get(function, 0) + SLACK
        }
        for phase, functions in large.items()
    }
    return {phase: functions for phase, functions in found.items() if functions}


@pytest.mark.lane("test-all")
def test_no_turn_grows_with_the_cluster() -> None:
    small, large = most_lines(TOPICS), most_lines(TIMES * TOPICS)
    assert small.keys() == large.keys()
    assert grown(small, large) == {}


@pytest.mark.lane("test-all")
def test_a_planted_loop_is_found() -> None:
    planted = grown(most_lines(TOPICS), most_lines(TIMES * TOPICS, "planted"))
    assert "map.py:BitmapNode.values" in planted["brokers are back"], "a loop in Python"
    assert "map.py:BitmapNode.keys" in planted["another controller leads"], "a loop in C"
