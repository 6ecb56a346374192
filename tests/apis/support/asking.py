"""Requests as a client sends them: encoded and decoded again, so that each field is as on the wire."""

from __future__ import annotations

from typing import Any

from migrator.apis.authorization import Access, Unlimited
from migrator.apis.call import Call
from migrator.apis.registry import APIS, answer
from migrator.wire.decode import decode_entity
from migrator.wire.encode import encode_entity
from migrator.wire.principal import Principal
from migrator.wire.schemas import CONTROLLER_APIS, build, request_type, response_type
from tests.controller.support.leading_controller import LeadingController

ALICE = Principal("User", "alice")


def call(key: int, version: int | None = None, /, **fields: Any) -> Call:
    """A request with these fields; the latest version unless given."""
    access: Access = fields.pop("access", Unlimited())
    chosen = CONTROLLER_APIS[key].max if version is None else version
    message = build(request_type(key, chosen), **fields)
    body, _ = decode_entity(request_type(key, chosen), b"".join(encode_entity(message)))
    return Call(key, chosen, body, ALICE, access, "CONTROLLER", may_use_tokens=True)


def ask(controller: LeadingController, asked: Call) -> Any:
    """Answer, apply the records, and give the response as the client reads it."""
    response = controller.commit(answer(asked, controller.image, controller.context()))
    return read(asked, response)


def read(asked: Call, response: Any) -> Any:
    kind = response_type(asked.key, asked.version)
    assert isinstance(response, kind)
    message, _ = decode_entity(kind, b"".join(encode_entity(response)))
    return message


HANDLED = tuple(sorted(key for key, api in APIS.items() if api.handle is not None))
VERSIONS = tuple(
    (key, version) for key in HANDLED for version in range(CONTROLLER_APIS[key].min, CONTROLLER_APIS[key].max + 1)
)
