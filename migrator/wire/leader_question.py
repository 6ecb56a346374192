"""DescribeQuorum version 2 with a question to the leader of this program, and its answer, as tagged fields (ADR 59).

Kafka's controllers and clients skip tagged fields that they do not know (KIP-482). A question without a tag, and an
answer without one, are Kafka's own bytes. These classes have kio's form.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.describe_quorum.v2 import request as v2_request
from kio.schema.describe_quorum.v2 import response as v2_response
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i16

KEY: Final = i16(55)
VERSION: Final = i16(2)
ASKS_TAG: Final = 10_027
"""The tag of the question in a request, and of the answer in a response. Kafka numbers its own tags from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumRequest:
    """``asks_leader``: the question; "" for none."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = VERSION
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = KEY
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topics: tuple[v2_request.TopicData, ...]
    asks_leader: str = field(metadata={"kafka_type": "string", "tag": ASKS_TAG}, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumResponse:
    """``leader_says``: the leader's answer to the question; empty without one."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = VERSION
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = KEY
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    topics: tuple[v2_response.TopicData, ...]
    nodes: tuple[v2_response.Node, ...]
    leader_says: bytes = field(metadata={"kafka_type": "bytes", "tag": ASKS_TAG}, default=b"")
