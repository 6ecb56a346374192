"""Only a refusal for lack of permission counts as one; what is not answered is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.drill import intruder
from migrator.drill.intruder import NONE, Attempts, attempt, changes_of
from migrator.rpc.transport import TransportError
from migrator.wire.schemas import build, request_type, response_type

CREATE_TOPICS = (19, 7)


def answer(*errors: ErrorCode) -> Any:
    topics = [{"name": f"t{number}", "error_code": error} for number, error in enumerate(errors)]
    return build(response_type(*CREATE_TOPICS), topics=topics)


async def tried(*answers: Any) -> Attempts:
    """What comes of one attempt that gets these answers, one after the other."""
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
    assert "CreateTopicsRequest was not refused" in result.not_refused[0]


async def test_nor_does_a_refusal_of_a_part() -> None:
    assert (await tried(answer(ErrorCode.topic_authorization_failed, ErrorCode.invalid_partitions))).not_refused


async def test_no_answer_is_no_refusal_and_is_tried_again() -> None:
    refused = answer(ErrorCode.topic_authorization_failed)
    assert await tried(TransportError("away"), answer(ErrorCode.not_controller), refused) == Attempts(1, ())


async def test_who_never_answers_has_refused_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intruder, "PATIENCE_SECONDS", 0.0)
    assert await tried() == Attempts(1, ("broker 1: CreateTopicsRequest was not refused: no answer",))


def test_every_kind_of_change_is_tried_and_counted() -> None:
    for api, fields in changes_of("orders"):
        build(request_type(*api), **fields)
    assert NONE + Attempts(2, ("a",)) + Attempts(1, ()) == Attempts(3, ("a",))
