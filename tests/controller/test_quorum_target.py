"""The target of a reassignment of voters: what is taken, what is refused, and what the log keeps of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.controller.quorum_target import (
    KEY,
    RESOURCE,
    TargetAnswer,
    TargetOrder,
    TargetRequest,
    cleared_target,
    parse_target,
    set_target,
    target_of,
    target_text,
    why_not_beside,
)
from migrator.raft.voter_set import ReplicaKey
from migrator.records.metadata import ConfigRecord, ZkMigrationState, ZkMigrationStateRecord
from migrator.records.uuid import uuid_to_text
from tests.controller.support.leading_controller import LeadingController, some_uuid
from tests.image.support.snapshots import snapshot_records
from tests.raft.support.reassignment import key, voters_of, wanted

DIRECTORY = uuid_to_text(some_uuid(4))


@pytest.fixture
def controller() -> LeadingController:
    """Three voters and three more controllers that fetch."""
    controller = LeadingController()
    controller.kraft_version = 1
    return controller


def request(order: TargetOrder, *ids: int, down: tuple[int, ...] = ()) -> TargetRequest:
    live = frozenset(key(node_id) for node_id in range(1, 7) if node_id not in down)
    return TargetRequest(order, wanted(*ids), voters_of(map(key, (1, 2, 3))), live)


def order(controller: LeadingController, kind: TargetOrder, *ids: int, down: tuple[int, ...] = ()) -> TargetAnswer:
    return controller.decide(set_target, request(kind, *ids, down=down))


def refused(controller: LeadingController, kind: TargetOrder, *ids: int) -> tuple[ErrorCode, str]:
    before = len(controller.history)
    with pytest.raises(RefusedError) as refusal:
        order(controller, kind, *ids)
    assert len(controller.history) == before
    return refusal.value.error.code, str(refusal.value)


def written(controller: LeadingController) -> list[str | None]:
    return [record.value for record in controller.history if isinstance(record, ConfigRecord)]


# The text


@pytest.mark.parametrize("text", ["4", "4,5,6", f"4@{DIRECTORY},5"])
def test_a_target_is_written_as_it_is_read(text: str) -> None:
    assert target_text(parse_target(text)) == text


def test_a_target_is_in_the_order_of_ids() -> None:
    assert parse_target(f" 6, 5 ,4@{DIRECTORY}") == (ReplicaKey(4, some_uuid(4)), ReplicaKey(5), ReplicaKey(6))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The target is empty. Name the controllers that shall vote, such as 4,5,6."),
        ("4,5,4", "The target names controller 4 twice. Name each controller once."),
        (f"4,4@{DIRECTORY}", "The target names controller 4 twice. Name each controller once."),
        ("4,,5", "'' is not the id of a controller. Name them such as 4,5,6, or 4@<directory id>,5,6."),
        ("4;5", "'4;5' is not the id of a controller. Name them such as 4,5,6, or 4@<directory id>,5,6."),
        ("-4", "'-4' is not the id of a controller. Name them such as 4,5,6, or 4@<directory id>,5,6."),
        ("\u0664", "'\u0664' is not the id of a controller. Name them such as 4,5,6, or 4@<directory id>,5,6."),
        ("9" * 400, f"'{'9' * 400}' is not the id of a controller. Name them such as 4,5,6, or 4@<directory id>,5,6."),
        ("2147483648", "The id of a controller is a number from 0 to 2147483647."),
        ("4@", "'' is not a directory id. It is in meta.properties of the controller, as directory.id."),
        ("4@x", "'x' is not a directory id. It is in meta.properties of the controller, as directory.id."),
        ("4@AAAAAAAAAAAAAAAAAAAAAA", "'AAAAAAAAAAAAAAAAAAAAAA' is a reserved directory id, which no controller has."),
        (
            ",".join(map(str, range(1, 101))),
            "The target names 100 voters. More than 99 are not taken; 3 or 5 are usual.",
        ),
    ],
)
def test_a_bad_target_is_refused_with_the_remedy(text: str, message: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        parse_target(text)
    assert (refusal.value.error.code, refusal.value.error.message) == (ErrorCode.invalid_request, message)


# Orders


def test_a_target_is_set_once_replaced_and_cancelled(controller: LeadingController) -> None:
    assert order(controller, TargetOrder.TO, 4, 5, 6) == TargetAnswer(wanted(4, 5, 6))
    assert order(controller, TargetOrder.TO, 6, 5, 4) == TargetAnswer(wanted(4, 5, 6))
    assert written(controller) == ["4,5,6"]  # the same target leaves no record
    assert order(controller, TargetOrder.TO, 1, 2, 5) == TargetAnswer(wanted(1, 2, 5), replaced=wanted(4, 5, 6))
    assert order(controller, TargetOrder.CANCEL) == TargetAnswer(None, replaced=wanted(1, 2, 5))
    assert order(controller, TargetOrder.CANCEL) == TargetAnswer(None)
    assert written(controller) == ["4,5,6", "1,2,5", None]
    assert target_of(controller.image) is None
    assert RESOURCE not in controller.image.configs


def test_additions_and_removals_are_from_what_the_voters_are_going_to_be(controller: LeadingController) -> None:
    assert order(controller, TargetOrder.ADD, 4, 5).target == wanted(1, 2, 3, 4, 5)
    assert order(controller, TargetOrder.REMOVE, 1, 2).target == wanted(3, 4, 5)
    assert refused(controller, TargetOrder.ADD, 5)[1] == "Controller 5 is a voter already, or is going to be one."
    assert refused(controller, TargetOrder.REMOVE, 1)[1] == "Controller 1 is no voter, and is not going to be one."
    assert refused(controller, TargetOrder.REMOVE, 3, 4, 5)[1] == (
        "The target is empty. A quorum needs at least one voter."
    )


def test_what_is_unwise_is_taken_with_a_warning(controller: LeadingController) -> None:
    assert order(controller, TargetOrder.TO, 1, 2, 3, 4).warnings == (
        "4 voters survive no more failures than 3. Use an odd number.",
    )
    assert order(controller, TargetOrder.TO, 1, 2).warnings == (
        "While one of two voters is down nobody leads; if its disk is lost nobody ever will. Use one or three.",
    )
    assert order(controller, TargetOrder.TO, 1, 5, 7, down=(5,)).warnings == (
        "These controllers do not fetch from the leader, and the plan waits for them: 5, 7.",
    )


def test_a_target_that_cannot_be_reached_is_refused(controller: LeadingController) -> None:
    controller.kraft_version = 0
    controller.register(7)
    controller.kraft_version = 1
    assert refused(controller, TargetOrder.TO, 1, 2, 7) == (
        ErrorCode.invalid_request, "Node 7 is a broker. Only controllers vote.",
    )  # fmt: skip
    controller.kraft_version = 0
    code, message = refused(controller, TargetOrder.TO, 4, 5, 6)
    assert code is ErrorCode.unsupported_version
    assert message.endswith("Run 'migrator quorum upgrade' first.")


@pytest.mark.parametrize("state", [ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION])
def test_there_is_no_target_during_a_migration(controller: LeadingController, state: ZkMigrationState) -> None:
    controller.write(ZkMigrationStateRecord(state))
    code, message = refused(controller, TargetOrder.TO, 4, 5, 6)
    assert code is ErrorCode.invalid_request
    assert message.startswith("The voters cannot be changed during a migration:")


# Beside single changes that clients ask for


@pytest.mark.parametrize(
    ("joins", "node_id", "is_refused"),
    [(True, 4, False), (True, 7, True), (False, 1, False), (False, 4, True)],
)
def test_a_single_change_may_not_lead_away_from_the_target(joins: bool, node_id: int, is_refused: bool) -> None:
    assert why_not_beside(None, key(node_id), joins=joins) == ""
    why = why_not_beside(wanted(4, 5, 6), key(node_id), joins=joins)
    assert bool(why) is is_refused
    if is_refused:
        assert "reassigned to 4,5,6" in why
        assert "migrator quorum cancel" in why


def test_a_target_that_names_a_disk_means_that_disk() -> None:
    named = (key(4),)
    other = ReplicaKey(4, some_uuid(99))
    assert why_not_beside(named, key(4), joins=True) == ""
    assert why_not_beside(named, other, joins=True)
    assert why_not_beside(named, other, joins=False) == ""
    assert why_not_beside(named, key(4), joins=False)


# What the log keeps


def test_the_target_is_cleared_only_if_it_is_still_the_one_that_was_reached(controller: LeadingController) -> None:
    order(controller, TargetOrder.TO, 4, 5, 6)
    assert not controller.commit(cleared_target(controller.image, wanted(1, 2, 5)))
    assert target_of(controller.image) == wanted(4, 5, 6)
    assert controller.commit(cleared_target(controller.image, wanted(4, 5, 6)))
    assert target_of(controller.image) is None


def test_a_snapshot_keeps_the_target(controller: LeadingController) -> None:
    order(controller, TargetOrder.TO, 4, 5, 6)
    assert ConfigRecord(0, "migrator.quorum", KEY, "4,5,6") in list(snapshot_records(controller.image))


def test_what_is_no_target_of_ours_is_none(controller: LeadingController) -> None:
    for text in ("", "4,4", "all"):
        image = replace(controller.image, configs=controller.image.configs.set(RESOURCE, {KEY: text}))
        assert target_of(image) is None
