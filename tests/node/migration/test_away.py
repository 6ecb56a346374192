"""Log lines about a ZooKeeper that is out of reach."""

from __future__ import annotations

from itertools import pairwise

from migrator.node.migration.away import REPEAT_MS, AwayNotes

HOSTS = "zk-1:2181,zk-2:2181/kafka"
SECOND = 1_000


def said(seconds: range, *, connected_from: int | None = None) -> list[tuple[int, str]]:
    notes = AwayNotes(HOSTS)
    found = []
    for second in seconds:
        connected = connected_from is not None and second >= connected_from
        sentence = notes.look(second * SECOND, connected=connected, why="connection refused")
        if sentence is not None:
            found.append((second, sentence))
    return found


def test_one_sentence_a_minute_with_hosts_and_duration() -> None:
    found = said(range(605))
    assert len(found) == 11, "one at once, and one a minute"
    assert {later - before for (before, _), (later, _) in pairwise(found)} == {REPEAT_MS // SECOND}
    assert HOSTS in found[3][1]
    assert "out of reach for 3 min 2 s: connection refused" in found[3][1]


def test_its_return_is_said_once() -> None:
    found = said(range(200), connected_from=75)
    assert [second for second, _ in found] == [2, 62, 75]
    assert found[-1][1] == f"ZooKeeper ({HOSTS}) answers again, after 1 min 15 s"


def test_a_change_of_the_server_is_no_news() -> None:
    assert said(range(200), connected_from=1) == []
