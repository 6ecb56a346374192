"""Vote version 2 (KIP-996, Kafka 4.0): version 1 with pre-votes.

kio has the messages of Kafka 3.9, up to version 1. These classes have kio's form.
"""

import uuid
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import BrokerId, TopicName
from kio.schema.vote.v1 import response as v1
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

KEY: Final = i16(52)
VERSION: Final = i16(2)
OWN_LOG_TAG: Final = 10_026
"""The tag of `OwnLog`. Kafka numbers its own tags from 0."""


class _Part:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = VERSION
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = KEY


class _InRequest(_Part):
    __slots__ = ()
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _InResponse(_Part):
    __slots__ = ()
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData(_InRequest):
    """``pre_vote``: the request asks whether the vote would be given. No vote is given or persisted."""

    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    candidate_epoch: i32 = field(metadata={"kafka_type": "int32"})
    candidate_id: BrokerId = field(metadata={"kafka_type": "int32"})
    candidate_directory_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    voter_directory_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    last_offset_epoch: i32 = field(metadata={"kafka_type": "int32"})
    last_offset: i64 = field(metadata={"kafka_type": "int64"})
    pre_vote: bool = field(metadata={"kafka_type": "bool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicData(_InRequest):
    topic_name: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[PartitionData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest(_InRequest):
    """The request that a candidate sends to a voter."""

    __type__: ClassVar = EntityType.request
    cluster_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    voter_id: BrokerId = field(metadata={"kafka_type": "int32"}, default=BrokerId(-1))
    topics: tuple[TopicData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLog(_InResponse):
    """The report of this program's controller about its log, in a tagged field that Kafka does not have. Kafka skips
    unknown tags (KIP-482). ``epoch`` is -1 when the field is absent."""

    epoch: i32 = field(metadata={"kafka_type": "int32"}, default=i32(-1))
    end_offset: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    must_fetch_first: bool = field(metadata={"kafka_type": "bool"}, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePartitionData(_InResponse):
    """The fields of version 1, and a tagged field in which this program's controllers report their log."""

    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    leader_id: BrokerId = field(metadata={"kafka_type": "int32"})
    leader_epoch: i32 = field(metadata={"kafka_type": "int32"})
    vote_granted: bool = field(metadata={"kafka_type": "bool"})
    own_log: OwnLog = field(metadata={"tag": OWN_LOG_TAG}, default=OwnLog())


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTopicData(_InResponse):
    topic_name: TopicName = field(metadata={"kafka_type": "string"})
    partitions: tuple[ResponsePartitionData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse(_InResponse):
    """The response of version 1, with `ResponsePartitionData`."""

    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    topics: tuple[ResponseTopicData, ...]
    node_endpoints: tuple[v1.NodeEndpoint, ...] = field(metadata={"tag": 0}, default=())
