"""Only a refusal for lack of permission counts as one; what is not answered is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.drill.doors import intruder
from migrator.drill.doors.every_door import under_attack
from migrator.drill.doors.intruder import (
    NONE,
    AccessVerdict,
    Attempts,
    attempt,
    changes_of,
    come_in,
    start_attack,
    verdict_on,
)
from migrator.drill.report import DrillFailedError, DrillReport
from migrator.drill.security.protection import IN_CLEAR, INTRUDER, OPERATOR, WITH_NOTHING, ControllerDoor, Secured
from migrator.raft.transport import TransportError
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import build, request_type, response_type
from migrator.wire.server import KafkaListener

CREATE_TOPICS = (19, 7)


def answer(*errors: ErrorCode) -> Any:
    topics = [{"name": f"t{number}", "error_code": error} for number, error in enumerate(errors)]
    return build(response_type(*CREATE_TOPICS), topics=topics)


async def tried(*answers: Any) -> Attempts:
    """The result of one attempt with these answers, in order."""
    left: Iterator[Any] = iter(answers)

    async def ask(_request: Any) -> Any:
        given = next(left)
        if isinstance(given, Exception):
            raise given
        return given

    result = await attempt("broker 1", build(request_type(*CREATE_TOPICS), topics=[]), ask)
    assert next(left, None) is None
    return result


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intruder, "RETRY_SECONDS", 0.0)


async def test_a_refusal_counts() -> None:
    assert await tried(answer(ErrorCode.topic_authorization_failed)) == Attempts(1, ())


@pytest.mark.parametrize("error", [ErrorCode.none, ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_request])
async def test_anything_else_does_not(error: ErrorCode) -> None:
    result = await tried(answer(error))
    assert result.count == 1
    assert "CreateTopicsRequest was not refused" in result.let_in[0]


async def test_nor_does_a_refusal_of_a_part() -> None:
    assert (await tried(answer(ErrorCode.topic_authorization_failed, ErrorCode.invalid_partitions))).let_in


async def test_no_answer_is_no_refusal_and_is_tried_again() -> None:
    refused = answer(ErrorCode.topic_authorization_failed)
    assert await tried(TransportError("away"), answer(ErrorCode.not_controller), refused) == Attempts(1, ())


async def test_who_never_answers_has_refused_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intruder, "PATIENCE_SECONDS", 0.0)
    assert await tried() == Attempts(1, unproved=("broker 1: CreateTopicsRequest was not refused: no answer",))


def test_every_kind_of_change_is_tried_and_counted() -> None:
    for api, fields in changes_of("orders"):
        build(request_type(*api), **fields)
    assert NONE + Attempts(2, ("a",)) + Attempts(1, (), ("b",)) == Attempts(3, ("a",), ("b",))


class Obedient:
    """Does what it is asked for, without a question. ``again``: for the second time."""

    def __init__(self) -> None:
        self.obeyed, self.again = asyncio.Event(), asyncio.Event()

    async def handle(self, context: RequestContext, body: Any) -> Any:
        if self.obeyed.is_set():
            self.again.set()
        self.obeyed.set()
        return build(response_type(context.api_key, context.api_version))


async def stranger_at(secured: Secured, what: str, *, is_open: bool = True) -> Attempts:
    listener = KafkaListener("CONTROLLER", Obedient(), security=secured.at_controllers(OPERATOR))
    port = await listener.start("127.0.0.1", 0)
    if not is_open:
        await listener.close(grace=0.0)
    strangers = {what: secured.strangers()[what]}
    try:
        return await come_in("door", ("127.0.0.1", port), strangers, secured.at_controllers(OPERATOR))
    finally:
        await listener.close(grace=0.0)


@pytest.mark.parametrize("what", ["without a certificate", "with a certificate of another authority"])
async def test_a_stranger_is_refused_where_others_are_not(what: str, tmp_path: Path) -> None:
    assert await stranger_at(Secured(tmp_path), what) == Attempts(1, ())


async def test_a_stranger_who_is_let_in_is_named(tmp_path: Path) -> None:
    found = await stranger_at(Secured(tmp_path, ControllerDoor.TLS), WITH_NOTHING)
    assert found.let_in == ("door: a stranger without a certificate was let in",)


async def test_a_door_that_is_shut_for_everybody_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intruder, "PATIENCE_SECONDS", 0.0)
    found = await stranger_at(Secured(tmp_path), WITH_NOTHING, is_open=False)
    assert found.let_in == ()
    assert "even the right login is refused" in found.unproved[0]


async def test_a_port_on_which_nobody_listens_refuses_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just ended has such a port."""
    monkeypatch.setattr(intruder, "PATIENCE_SECONDS", 0.0)
    listener = KafkaListener("CONTROLLER", Obedient())
    port = await listener.start("127.0.0.1", 0)
    await listener.close(grace=0.0)
    with pytest.raises(TransportError):
        await intruder._shut_out(("127.0.0.1", port), Secured(tmp_path).strangers()[WITH_NOTHING])


async def test_a_besieged_controller_that_obeys_is_found_out() -> None:
    obedient = Obedient()
    listener = KafkaListener("CONTROLLER", obedient, security=IN_CLEAR.at_controllers(INTRUDER))
    port = await listener.start("127.0.0.1", 0)
    attack = await start_attack("controllers", [("127.0.0.1", port)], IN_CLEAR.at_controllers(INTRUDER), "orders")
    try:
        await obedient.obeyed.wait()
        await attack.call_off()
    finally:
        await attack.abandon()
        await listener.close(grace=0.0)
    assert len(attack.attempts.let_in) == attack.attempts.count > 0
    assert f"controllers (port {port}): CreateTopicsRequest was not refused: CreateTopics" in attack.attempts.let_in[0]


async def test_who_was_let_in_is_named_also_when_the_drill_fails_meanwhile(tmp_path: Path) -> None:
    """Maybe because of him: he has deleted the topic that everybody writes to, for example."""
    secured, obedient, report = Secured(tmp_path), Obedient(), DrillReport({})
    listener = KafkaListener("CONTROLLER", obedient, security=secured.at_controllers(OPERATOR))
    port = await listener.start("127.0.0.1", 0)
    cluster: Any = SimpleNamespace(
        security=secured,
        options=SimpleNamespace(secure=True),
        addresses=[("127.0.0.1", port)],
        doors=lambda: SimpleNamespace(topic="orders"),
    )

    async def fails() -> None:
        with report.step("the copy"):
            async with under_attack(cluster, report, "during the copy"):
                await obedient.again.wait()  # so the first answer was counted
                raise DrillFailedError("nobody can write")

    try:
        with pytest.raises(DrillFailedError):
            await fails()
    finally:
        await listener.close(grace=0.0)
    assert report.totals["intrusions"] == len(report.let_in) > 0


def test_what_an_answer_means() -> None:
    assert verdict_on(answer(ErrorCode.topic_authorization_failed)) is AccessVerdict.DENIED
    assert verdict_on(answer(ErrorCode.unknown_server_error)) is AccessVerdict.LATER
    assert verdict_on(answer(ErrorCode.none)) is AccessVerdict.LET_IN
