"""A request in the form for handlers, and the row that describes an API in the registry.

The endpoint makes a `Call` of each request; `registry` holds an `Api` for each API key. A row says which right is
needed, which image answers, and whether the write may wait while ZooKeeper is behind: only writes that a person or a
tool can repeat wait.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from migrator.apis.authorization import Access
from migrator.controller.context import Context
from migrator.controller.decision import ApiError, Decision
from migrator.controller.migration_gate import Operation
from migrator.image.model import MetadataImage
from migrator.records.acl_codes import AclOperation
from migrator.values import value
from migrator.wire.principal import Principal
from migrator.wire.schemas import build, response_type


@value
class Call:
    """A request: kio's message ``body`` of API ``key`` and ``version``, and who sent it.

    ``may_use_tokens``: the connection is authenticated well enough for delegation tokens. ``listener`` is the name of
    the listener that it came in on. ``client_id`` is the client's own name, "" without one.
    """

    key: int
    version: int
    body: Any
    principal: Principal
    access: Access
    listener: str = ""
    may_use_tokens: bool = False
    client_id: str = ""

    def respond(self, **fields: Any) -> Any:
        """kio's response of the same API and version; fields that the version lacks are dropped."""
        return build(response_type(self.key, self.version), **fields)


class ApiKind(Enum):
    """Which part of the controller answers a request, and from which image."""

    WRITE = "write"
    """The leader decides on the speculative image, and answers when the records are committed."""
    READ = "read"
    """Any node answers from its published image."""
    RAFT = "raft"
    """The consensus core answers."""
    LISTENER = "listener"
    """The listener answers, or the node unwraps the request before (Envelope)."""


Handler = Callable[[Call, MetadataImage, Context], Decision[Any]]
"""Authorizes, decides and encodes; the decision's response is kio's message.

:raises RefusedError: the whole request is refused; `Api.refuse` has the answer.
"""

Refuse = Callable[[Call, ApiError], Any]
"""kio's response that refuses the whole request."""


Administrative = Callable[[Call], bool]
"""Whether a person or a tool asked for a write, and can ask again."""


def never(_call: Call) -> bool:
    """The running cluster needs the write, and nobody can repeat it."""
    return False


def always(_call: Call) -> bool:
    """The write can wait."""
    return True


@value
class Api:
    """One row of the registry.

    ``cluster_operation``: the right on the cluster that the caller needs, if that alone decides. ``administrative``
    writes wait when ZooKeeper is too far behind; others never wait, because an outage of ZooKeeper must not become one
    of Kafka.
    """

    key: int
    kind: ApiKind
    cluster_operation: AclOperation | None = None
    handle: Handler | None = None
    refuse: Refuse | None = None
    operation: Operation | None = None
    administrative: Administrative = never


def refuse_at_top(call: Call, error: ApiError) -> Any:
    """The refusal for responses with an error code at the top."""
    return call.respond(error_code=error.code, error_message=error.message)


def error_fields(error: ApiError) -> dict[str, Any]:
    """The fields of one item's error."""
    return {"error_code": error.code, "error_message": error.message}
