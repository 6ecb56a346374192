"""Which log of a quorum that is gone is believed, and what may be missing in it."""

from __future__ import annotations

import pytest

from migrator.errors import OperatorError
from migrator.migration.seen_logs import SeenLog, newest_of
from migrator.raft.messages import EpochOffset

VOTERS = (1, 2, 3)


def log(node_id: int, epoch: int, offset: int) -> SeenLog:
    return SeenLog(node_id, EpochOffset(epoch, offset))


@pytest.mark.parametrize(
    ("logs", "newest"),
    [
        ([log(1, 5, 900), log(2, 5, 950)], 2),
        ([log(1, 6, 900), log(2, 5, 950)], 1),
        ([log(1, 5, 900), log(2, 5, 900), log(3, 4, 2000)], 1),
    ],
    ids=["the longer one", "the newer epoch before the longer one", "all of them"],
)
def test_a_majority_has_all_that_was_confirmed(logs: list[SeenLog], newest: int) -> None:
    chosen = newest_of(logs, VOTERS)
    assert (chosen.newest.node_id, chosen.doubt) == (newest, "")


def test_with_fewer_it_is_named_what_may_be_missing() -> None:
    chosen = newest_of([log(2, 5, 900)], VOTERS)
    for said in ("controller 2", "controllers 1, 3", "offset 899 of epoch 5"):
        assert said in chosen.doubt
    assert newest_of([log(1, 5, 900)], [1]).doubt == ""


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ([], "no metadata log"),
        ([log(7, 5, 900)], "node 7"),
        ([log(1, 5, 900), log(1, 5, 901)], "two logs are of controller 1"),
    ],
)
def test_what_is_no_log_of_the_quorum_is_refused(logs: list[SeenLog], said: str) -> None:
    with pytest.raises(OperatorError, match=said) as refused:
        newest_of(logs, VOTERS)
    assert refused.value.remedy
